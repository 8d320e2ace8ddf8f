// SPDX-License-Identifier: Apache-2.0
// Every operator, over widths on both sides of a machine word, with and without sign.
#include "common.p4"

header in_t {
    bit<8> a;
    bit<8> b;
    bit<16> c;
    bit<16> d;
    bit<32> e;
    bit<32> f;
    bit<64> g;
    bit<64> h;
    bit<128> i;
    bit<128> j;
    int<8> s;
    int<8> t;
    int<32> u;
    int<64> v;
    bit<3> k;
    bit<13> l;
    bit<7> m;
    bit<1> n;
    bit<24> o;
    bit<48> p;
    bit<96> q;
}

header out_t {
    bit<8> add8;
    bit<8> sub8;
    bit<8> mul8;
    bit<32> add32;
    bit<32> sub32;
    bit<32> mul32;
    bit<64> add64;
    bit<64> sub64;
    bit<64> mul64;
    bit<128> add128;
    bit<128> sub128;
    bit<128> mul128;
    bit<8> and8;
    bit<8> or8;
    bit<8> xor8;
    bit<8> not8;
    bit<128> and128;
    bit<128> or128;
    bit<128> xor128;
    bit<128> not128;
    bit<16> shl16;
    bit<16> shr16;
    bit<64> shl64;
    bit<64> shr64;
    bit<128> shl128;
    bit<128> shr128;
    bit<32> slice1;
    bit<40> slice2;
    bit<5> slice3;
    bit<3> slice4;
    bit<24> concat1;
    bit<136> concat2;
    int<8> sadd;
    int<8> ssub;
    int<8> smul;
    int<8> sneg;
    int<8> sshr;
    int<32> sshr32;
    int<64> sshr64;
    int<16> widen;
    bit<8> usat1;
    bit<8> usat2;
    int<8> ssat1;
    int<8> ssat2;
    bit<64> usat64;
    bit<64> usub64;
    int<64> ssat64;
    bit<128> usat128;
    bit<32> tern;
    bit<128> tern128;
    bit<1> lt;
    bit<1> le;
    bit<1> gt;
    bit<1> ge;
    bit<1> eq;
    bit<1> ne;
    bit<1> slt;
    bit<1> sge;
    bit<1> lt64;
    bit<1> slt64;
    bit<1> lt128;
    bit<1> eq128;
    bit<1> logic;
    bit<1> mixed;
    bit<2> pad;
    bit<16> cshl;
    bit<32> mod;
    bit<32> div;
    bit<8> cast1;
    bit<32> cast2;
    int<32> cast3;
    bit<64> prod;
    bit<13> odd1;
    bit<3> odd2;
    bit<24> odd3;
    bit<48> odd4;
    bit<96> odd5;
    bit<32> nested;
}

struct headers_t {
    in_t x;
    out_t y;
}

struct metadata_t {
    bool flag;
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start {
        packet.extract(hdr.x);
        transition accept;
    }
}

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    action arithmetic() {
        hdr.y.add8 = hdr.x.a + hdr.x.b;
        hdr.y.sub8 = hdr.x.a - hdr.x.b;
        hdr.y.mul8 = hdr.x.a * hdr.x.b;
        hdr.y.add32 = hdr.x.e + hdr.x.f;
        hdr.y.sub32 = hdr.x.e - hdr.x.f;
        hdr.y.mul32 = hdr.x.e * hdr.x.f;
        hdr.y.add64 = hdr.x.g + hdr.x.h;
        hdr.y.sub64 = hdr.x.g - hdr.x.h;
        hdr.y.mul64 = hdr.x.g * hdr.x.h;
        hdr.y.add128 = hdr.x.i + hdr.x.j;
        hdr.y.sub128 = hdr.x.i - hdr.x.j;
        hdr.y.mul128 = hdr.x.i * hdr.x.j;
        hdr.y.nested = ((hdr.x.e + hdr.x.f) >> 3) - ((hdr.x.e ^ 0xdeadbeef) | (hdr.x.f & ~hdr.x.e)) * 5;
    }
    action bitwise() {
        hdr.y.and8 = hdr.x.a & hdr.x.b;
        hdr.y.or8 = hdr.x.a | hdr.x.b;
        hdr.y.xor8 = hdr.x.a ^ hdr.x.b;
        hdr.y.not8 = ~hdr.x.a;
        hdr.y.and128 = hdr.x.i & hdr.x.j;
        hdr.y.or128 = hdr.x.i | hdr.x.j;
        hdr.y.xor128 = hdr.x.i ^ hdr.x.j;
        hdr.y.not128 = ~hdr.x.i;
    }
    action shifts() {
        hdr.y.shl16 = hdr.x.c << (bit<8>)hdr.x.k;
        hdr.y.shr16 = hdr.x.c >> (bit<8>)hdr.x.k;
        hdr.y.shl64 = hdr.x.g << hdr.x.m;
        hdr.y.shr64 = hdr.x.g >> hdr.x.m;
        hdr.y.shl128 = hdr.x.i << hdr.x.a;
        hdr.y.shr128 = hdr.x.i >> hdr.x.a;
        hdr.y.cshl = hdr.x.c << 5;
        hdr.y.slice1 = hdr.x.i[95:64];
        hdr.y.slice2 = hdr.x.i[100:61];
        hdr.y.slice3 = hdr.x.l[9:5];
        hdr.y.slice4 = hdr.x.q[95:93];
        hdr.y.concat1 = hdr.x.a ++ hdr.x.c;
        hdr.y.concat2 = hdr.x.i ++ hdr.x.b;
        hdr.y.sshr = hdr.x.s >> (bit<8>)hdr.x.k;
        hdr.y.sshr32 = hdr.x.u >> 7;
        hdr.y.sshr64 = hdr.x.v >> (bit<8>)hdr.x.m;
    }
    action signs() {
        hdr.y.sadd = hdr.x.s + hdr.x.t;
        hdr.y.ssub = hdr.x.s - hdr.x.t;
        hdr.y.smul = hdr.x.s * hdr.x.t;
        hdr.y.sneg = -hdr.x.s;
        hdr.y.widen = (int<16>)hdr.x.s + (int<16>)hdr.x.t;
        hdr.y.cast1 = (bit<8>)hdr.x.s;
        hdr.y.cast2 = (bit<32>)(bit<8>)hdr.x.t;
        hdr.y.cast3 = (int<32>)hdr.x.v;
        hdr.y.prod = (bit<64>)hdr.x.e * (bit<64>)hdr.x.f;
    }
    action saturation() {
        hdr.y.usat1 = hdr.x.a |+| hdr.x.b;
        hdr.y.usat2 = hdr.x.a |-| hdr.x.b;
        hdr.y.ssat1 = hdr.x.s |+| hdr.x.t;
        hdr.y.ssat2 = hdr.x.s |-| hdr.x.t;
        hdr.y.usat64 = hdr.x.g |+| hdr.x.h;
        hdr.y.usub64 = hdr.x.g |-| hdr.x.h;
        hdr.y.ssat64 = hdr.x.v |+| (int<64>)hdr.x.u;
        hdr.y.usat128 = hdr.x.i |+| hdr.x.j;
    }
    action choices() {
        hdr.y.tern = hdr.x.a < hdr.x.b ? hdr.x.e : hdr.x.f;
        hdr.y.tern128 = hdr.x.n == 1 ? hdr.x.i : hdr.x.j;
        hdr.y.lt = hdr.x.a < hdr.x.b ? 1w1 : 0;
        hdr.y.le = hdr.x.a <= hdr.x.b ? 1w1 : 0;
        hdr.y.gt = hdr.x.a > hdr.x.b ? 1w1 : 0;
        hdr.y.ge = hdr.x.a >= hdr.x.b ? 1w1 : 0;
        hdr.y.eq = hdr.x.k == hdr.x.m[2:0] ? 1w1 : 0;
        hdr.y.ne = hdr.x.k != hdr.x.m[2:0] ? 1w1 : 0;
        hdr.y.slt = hdr.x.s < hdr.x.t ? 1w1 : 0;
        hdr.y.sge = hdr.x.s >= hdr.x.t ? 1w1 : 0;
        hdr.y.lt64 = hdr.x.g < hdr.x.h ? 1w1 : 0;
        hdr.y.slt64 = hdr.x.v < (int<64>)hdr.x.u ? 1w1 : 0;
        hdr.y.lt128 = hdr.x.i < hdr.x.j ? 1w1 : 0;
        hdr.y.eq128 = hdr.x.i == hdr.x.j ? 1w1 : 0;
        hdr.y.logic = (hdr.x.a < hdr.x.b && hdr.x.n == 1) || !(hdr.x.c > hdr.x.d) ? 1w1 : 0;
        hdr.y.mixed = hdr.x.a + hdr.x.b > hdr.x.b ? 1w1 : 0;
    }
    action odds() {
        hdr.y.odd1 = hdr.x.l + 1;
        hdr.y.odd2 = hdr.x.k - 1;
        hdr.y.odd3 = hdr.x.o * 3;
        hdr.y.odd4 = hdr.x.p + (bit<48>)hdr.x.o;
        hdr.y.odd5 = hdr.x.q - (bit<96>)hdr.x.p;
        hdr.y.pad = 2;
    }
    apply {
        hdr.y.setValid();
        arithmetic();
        bitwise();
        shifts();
        signs();
        saturation();
        choices();
        odds();
        meta.flag = hdr.x.a > 127;
        if (meta.flag && hdr.x.e >= hdr.x.f) {
            hdr.y.mod = 1;
        } else if (hdr.x.u < 0 || hdr.x.i[0:0] == 1) {
            hdr.y.mod = 2;
        } else {
            hdr.y.mod = 3;
        }
        if (!meta.flag == (hdr.x.b < 10)) {
            hdr.y.div = 7;
        }
        sm.egress_spec = 1;
    }
}

NO_CHECKSUMS
NO_EGRESS
EMIT_ALL
TEST_SWITCH
