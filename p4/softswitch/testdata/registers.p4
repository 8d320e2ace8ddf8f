// SPDX-License-Identifier: Apache-2.0
// Registers of every width of storage, written by one packet and read by the next; runs of read, clear, next.
#include "common.p4"

header in_t {
    bit<8> index;
    bit<8> op;
    bit<128> v;
}

header out_t {
    bit<8> r8;
    bit<16> r16;
    bit<32> r32;
    bit<48> r48;
    bit<64> r64;
    bit<128> r128;
    bit<8> r5;
    bit<32> count;
}

header cells_t {
    bit<32> c0;
    bit<32> c1;
    bit<32> c2;
    bit<32> c3;
    bit<32> c4;
    bit<32> c5;
}

struct headers_t {
    in_t x;
    out_t y;
    cells_t cells;
}

struct metadata_t {
    bit<32> i;
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start {
        packet.extract(hdr.x);
        transition accept;
    }
}

#define READ(field) counts.read(hdr.cells.field, meta.i); counts.write(meta.i, 0); meta.i = meta.i + 1;

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    register<bit<8>, bit<32>>(16) r8;
    register<bit<16>, bit<32>>(16) r16;
    register<bit<32>, bit<32>>(16) r32;
    register<bit<48>, bit<32>>(16) r48;
    register<bit<64>, bit<32>>(16) r64;
    register<bit<128>, bit<32>>(16) r128;
    register<bit<5>, bit<32>>(16) r5;
    register<bit<32>, bit<32>>(32) counts;
    counter<bit<32>>(16, CounterType.packets_and_bytes) c;
    direct_counter(CounterType.packets) dc;

    action write_all() {
        bit<32> i = (bit<32>)(hdr.x.index & 15);
        r8.read(hdr.y.r8, i);
        r16.read(hdr.y.r16, i);
        r32.read(hdr.y.r32, i);
        r48.read(hdr.y.r48, i);
        r64.read(hdr.y.r64, i);
        r128.read(hdr.y.r128, i);
        bit<5> five;
        r5.read(five, i);
        hdr.y.r5 = (bit<8>)five;
        r8.write(i, (bit<8>)hdr.x.v);
        r16.write(i, (bit<16>)hdr.x.v);
        r32.write(i, (bit<32>)hdr.x.v);
        r48.write(i, (bit<48>)hdr.x.v);
        r64.write(i, (bit<64>)hdr.x.v);
        r128.write(i, hdr.x.v);
        r5.write(i, (bit<5>)hdr.x.v);
        counts.read(hdr.y.count, i);
        hdr.y.count = hdr.y.count + 1;
        counts.write(i, hdr.y.count);
        c.count(i);
    }
    action read_and_clear() {
        hdr.cells.setValid();
        meta.i = (bit<32>)(hdr.x.index & 7);
        READ(c0) READ(c1) READ(c2) READ(c3) READ(c4) READ(c5)
    }
    table t {
        key = { hdr.x.op: exact; }
        actions = { read_and_clear; write_all; }
        default_action = write_all();
        counters = dc;
        const entries = { 1: read_and_clear(); }
    }
    apply {
        hdr.y.setValid();
        hdr.x.op = hdr.x.op & 3;
        t.apply();
        sm.egress_spec = 1;
    }
}

NO_CHECKSUMS
NO_EGRESS
EMIT_ALL
TEST_SWITCH
