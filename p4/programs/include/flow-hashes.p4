// SPDX-License-Identifier: Apache-2.0
// An action that computes the hashes of a flow. It is a template: define FH_ACTION, its name,
// and FH_SRC and FH_DST, the addresses, and include it.

    action FH_ACTION() {
        hash(meta.flow.five_tuple, HashAlgorithm.crc32, 32w0,
             { FH_SRC, FH_DST, meta.flow.protocol,
               meta.flow.src_port, meta.flow.dst_port }, NS_HASH_RANGE);
#ifdef NS_WITH_CHAMELEMON
        hash(meta.flow.check, HashAlgorithm.crc16, 32w0,
             { FH_SRC, FH_DST, meta.flow.protocol,
               meta.flow.src_port, meta.flow.dst_port }, 32w0x10000);
#endif
#ifdef NS_WITH_SRC_HASH
        hash(meta.flow.src, HashAlgorithm.crc32, 32w0, { FH_SRC }, NS_HASH_RANGE);
#endif
#ifdef NS_WITH_DST_HASH
        hash(meta.flow.dst, HashAlgorithm.crc32, 32w0, { FH_DST }, NS_HASH_RANGE);
#endif
#ifdef NS_WITH_PAIR_HASH
        hash(meta.flow.pair, HashAlgorithm.crc32, 32w0, { FH_SRC, FH_DST }, NS_HASH_RANGE);
#endif
#ifdef NS_WITH_SERVICE_HASH
        hash(meta.flow.service, HashAlgorithm.crc32, 32w0, { FH_DST, meta.flow.dst_port },
             NS_HASH_RANGE);
#endif
#ifdef NS_WITH_PROTOCOL_HASH
        hash(meta.flow.protocol_hash, HashAlgorithm.crc32, 32w0, { meta.flow.protocol },
             NS_HASH_RANGE);
#endif
    }

#undef FH_ACTION
#undef FH_SRC
#undef FH_DST
