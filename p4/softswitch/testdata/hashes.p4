// SPDX-License-Identifier: Apache-2.0
// Every hash algorithm over fields of odd widths, long fields, constants, and headers that are not valid.
#include "common.p4"

header in_t {
    bit<8> a;
    bit<32> b;
    bit<3> c;
    bit<13> d;
    bit<128> e;
    bit<48> f;
    bit<16> size;
    bit<8> more;
}

header more_t {
    bit<32> g;
}

header out_t {
    bit<32> crc32;
    bit<32> crc32_1;
    bit<32> crc32_custom;
    bit<16> crc16;
    bit<16> crc16_custom;
    bit<16> csum16;
    bit<16> xor16;
    bit<64> identity;
    bit<32> base;
    bit<16> mod;
    bit<32> odd;
    bit<32> odd16;
    bit<32> opt;
    bit<32> konst;
    bit<16> csum_odd;
    bit<8> small;
}

struct headers_t {
    in_t x;
    more_t m;
    out_t y;
}

struct metadata_t {
    bit<32> product;
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start {
        packet.extract(hdr.x);
        transition select(hdr.x.more) {
            1 &&& 1: more;
            default: accept;
        }
    }
    state more {
        packet.extract(hdr.m);
        transition accept;
    }
}

#define ALL { hdr.x.a, hdr.x.b, hdr.x.c, hdr.x.d, hdr.x.e, hdr.x.f }

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        hdr.y.setValid();
        hash(hdr.y.crc32, HashAlgorithm.crc32, 32w0, ALL, 33w0x100000000);
        meta.product = hdr.x.b * 0x9e3779b1;
        hash(hdr.y.crc32_1, HashAlgorithm.crc32, 32w0, { meta.product }, 32w1000);
        hash(hdr.y.crc32_custom, HashAlgorithm.crc32_custom, 32w0, ALL, 33w0x100000000);
        hash(hdr.y.crc16, HashAlgorithm.crc16, 16w0, ALL, 32w0x10000);
        hash(hdr.y.crc16_custom, HashAlgorithm.crc16_custom, 16w0, ALL, 32w0x10000);
        hash(hdr.y.csum16, HashAlgorithm.csum16, 16w0, ALL, 32w0x10000);
        hash(hdr.y.xor16, HashAlgorithm.xor16, 16w0, ALL, 32w0x10000);
        hash(hdr.y.identity, HashAlgorithm.identity, 64w0, ALL, 64w0xffffffffffffffff);
        hash(hdr.y.base, HashAlgorithm.crc32, 32w0xfffffff0, { hdr.x.b }, 32w64);
        hash(hdr.y.mod, HashAlgorithm.crc16, 16w5, { hdr.x.f, hdr.x.b }, (bit<32>)hdr.x.size);
        hash(hdr.y.odd, HashAlgorithm.crc32, 32w0, { hdr.x.c, hdr.x.d, hdr.x.c }, 33w0x100000000);
        hash(hdr.y.odd16, HashAlgorithm.crc32, 32w0, { hdr.x.d }, 33w0x100000000);
        if (hdr.m.isValid()) {
            hash(hdr.y.opt, HashAlgorithm.crc32, 32w0, { hdr.x.a, hdr.m.g, hdr.x.b }, 33w0x100000000);
        }
        hash(hdr.y.konst, HashAlgorithm.crc32, 32w0, { hdr.x.a, 8w0x5a, 12w0xabc, 4w3, hdr.x.b }, 33w0x100000000);
        hash(hdr.y.csum_odd, HashAlgorithm.csum16, 16w0, { hdr.x.a, hdr.x.b }, 32w0x10000);
        hash(hdr.y.small, HashAlgorithm.crc32, 8w0, ALL, 32w100);
        sm.egress_spec = 1;
    }
}

NO_CHECKSUMS
NO_EGRESS
EMIT_ALL
TEST_SWITCH
