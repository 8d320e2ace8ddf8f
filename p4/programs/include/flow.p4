// SPDX-License-Identifier: Apache-2.0
// The hashes of a flow: crc32 over a flow key's canonical bytes, which are {source, destination,
// protocol, source port, destination port} in network order, with addresses of 4 or 16 bytes. All
// other hashes are derived from them as crc32(hash * odd): see docs/p4.md. ChameleMon's encoders
// also use crc16 of the 5-tuple, to separate flows with the same crc32.

#ifndef NETSKETCH_FLOW_P4
#define NETSKETCH_FLOW_P4

#include "headers.p4"

control Flow(inout headers_t hdr, inout metadata_t meta) {
#define FH_ACTION hash_ipv4
#define FH_SRC hdr.ipv4.src
#define FH_DST hdr.ipv4.dst
#include "flow-hashes.p4"

#define FH_ACTION hash_ipv6
#define FH_SRC hdr.ipv6.src
#define FH_DST hdr.ipv6.dst
#include "flow-hashes.p4"

    apply {
        if (hdr.ipv4.isValid()) {
            hash_ipv4();
        } else {
            hash_ipv6();
        }
    }
}

#endif
