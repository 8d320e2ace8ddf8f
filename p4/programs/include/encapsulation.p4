// SPDX-License-Identifier: Apache-2.0
// Which flow of a packet in a tunnel is measured: that of its outer IP header, or that of the last
// one. The collector chooses it with the default action of a table without keys. Forwarding, ECMP
// and duties.p4 always use the outer flow.

#ifndef NETSKETCH_ENCAPSULATION_P4
#define NETSKETCH_ENCAPSULATION_P4

#include "headers.p4"

// Packets with a valid hdr.inner. If the inner flow is measured, hdr.inner stays valid and
// meta.flow is the inner flow. If the packet has no inner flow, meta.unparsed is set.
control Encapsulation(inout headers_t hdr, inout metadata_t meta,
                      in standard_metadata_t standard_metadata) {
    action outer() {
        hdr.inner.setInvalid();
    }

    action inner() {
    }

    table choice {
        actions = { outer; inner; }
        default_action = outer();
        size = 1;
    }

    action no_flow(bit<8> reason) {
        meta.unparsed = NS_UNPARSED_FORWARDED + reason;
        hdr.inner.setInvalid();
    }

    action use() {
        hdr.inner.outer = meta.flow.five_tuple;
        meta.flow.protocol = hdr.inner.protocol;
        meta.flow.src_port = hdr.inner.src_port;
        meta.flow.dst_port = hdr.inner.dst_port;
    }

#define FH_ACTION hash_ipv4
#define FH_SRC hdr.inner.src4
#define FH_DST hdr.inner.dst4
#include "flow-hashes.p4"

#define FH_ACTION hash_ipv6
#define FH_SRC hdr.inner.src
#define FH_DST hdr.inner.dst
#include "flow-hashes.p4"

    apply {
        choice.apply();
        if (!hdr.inner.isValid()) {
            // Measures the outer flow, whatever the tunnel carries.
        } else if (standard_metadata.parser_error == error.NoError) {
            if (hdr.inner.version == 0) {
                outer();
            } else {
                use();
                if (hdr.inner.version == 4) {
                    hash_ipv4();
                } else {
                    hash_ipv6();
                }
            }
        } else if (standard_metadata.parser_error == error.BadIpVersion) {
            no_flow(NS_UNPARSED_VERSION);
        } else if (standard_metadata.parser_error == error.BadIpv4HeaderLength) {
            no_flow(NS_UNPARSED_LENGTH);
        } else if (standard_metadata.parser_error == error.BadInnerChecksum) {
            no_flow(NS_UNPARSED_CHECKSUM);
        } else if (standard_metadata.parser_error == error.StackOutOfBounds
                   || standard_metadata.parser_error == error.HeaderTooShort) {
            no_flow(NS_UNPARSED_DEPTH);
        } else {
            no_flow(NS_UNPARSED_TRUNCATED);
        }
    }
}

#endif
