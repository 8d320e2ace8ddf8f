// SPDX-License-Identifier: Apache-2.0
// The hashes of a flow: crc32 over a flow key's canonical bytes, which are {source, destination,
// protocol, source port, destination port} in network order, with addresses of 4 or 16 bytes. All
// other hashes are derived from them as crc32(hash * odd): see docs/p4.md. ChameleMon's encoders
// also use crc16 of the 5-tuple, to separate flows with the same crc32.

#ifndef NETSKETCH_FLOW_P4
#define NETSKETCH_FLOW_P4

#include "headers.p4"

control Flow(inout headers_t hdr, inout metadata_t meta) {
    action hash_ipv4() {
        hash(meta.flow.five_tuple, HashAlgorithm.crc32, 32w0,
             { hdr.ipv4.src, hdr.ipv4.dst, meta.flow.protocol,
               meta.flow.src_port, meta.flow.dst_port }, NS_HASH_RANGE);
#ifdef NS_WITH_CHAMELEMON
        hash(meta.flow.check, HashAlgorithm.crc16, 32w0,
             { hdr.ipv4.src, hdr.ipv4.dst, meta.flow.protocol,
               meta.flow.src_port, meta.flow.dst_port }, 32w0x10000);
#endif
#ifdef NS_WITH_SRC_HASH
        hash(meta.flow.src, HashAlgorithm.crc32, 32w0, { hdr.ipv4.src }, NS_HASH_RANGE);
#endif
#ifdef NS_WITH_DST_HASH
        hash(meta.flow.dst, HashAlgorithm.crc32, 32w0, { hdr.ipv4.dst }, NS_HASH_RANGE);
#endif
#ifdef NS_WITH_PAIR_HASH
        hash(meta.flow.pair, HashAlgorithm.crc32, 32w0, { hdr.ipv4.src, hdr.ipv4.dst },
             NS_HASH_RANGE);
#endif
#ifdef NS_WITH_SERVICE_HASH
        hash(meta.flow.service, HashAlgorithm.crc32, 32w0,
             { hdr.ipv4.dst, meta.flow.dst_port }, NS_HASH_RANGE);
#endif
#ifdef NS_WITH_PROTOCOL_HASH
        hash(meta.flow.protocol_hash, HashAlgorithm.crc32, 32w0, { meta.flow.protocol },
             NS_HASH_RANGE);
#endif
    }

    action hash_ipv6() {
        hash(meta.flow.five_tuple, HashAlgorithm.crc32, 32w0,
             { hdr.ipv6.src, hdr.ipv6.dst, meta.flow.protocol,
               meta.flow.src_port, meta.flow.dst_port }, NS_HASH_RANGE);
#ifdef NS_WITH_CHAMELEMON
        hash(meta.flow.check, HashAlgorithm.crc16, 32w0,
             { hdr.ipv6.src, hdr.ipv6.dst, meta.flow.protocol,
               meta.flow.src_port, meta.flow.dst_port }, 32w0x10000);
#endif
#ifdef NS_WITH_SRC_HASH
        hash(meta.flow.src, HashAlgorithm.crc32, 32w0, { hdr.ipv6.src }, NS_HASH_RANGE);
#endif
#ifdef NS_WITH_DST_HASH
        hash(meta.flow.dst, HashAlgorithm.crc32, 32w0, { hdr.ipv6.dst }, NS_HASH_RANGE);
#endif
#ifdef NS_WITH_PAIR_HASH
        hash(meta.flow.pair, HashAlgorithm.crc32, 32w0, { hdr.ipv6.src, hdr.ipv6.dst },
             NS_HASH_RANGE);
#endif
#ifdef NS_WITH_SERVICE_HASH
        hash(meta.flow.service, HashAlgorithm.crc32, 32w0,
             { hdr.ipv6.dst, meta.flow.dst_port }, NS_HASH_RANGE);
#endif
#ifdef NS_WITH_PROTOCOL_HASH
        hash(meta.flow.protocol_hash, HashAlgorithm.crc32, 32w0, { meta.flow.protocol },
             NS_HASH_RANGE);
#endif
    }

    apply {
        if (hdr.ipv4.isValid()) {
            hash_ipv4();
        } else {
            hash_ipv6();
        }
    }
}

#endif
