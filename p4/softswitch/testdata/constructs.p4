// SPDX-License-Identifier: Apache-2.0
// What the other test programs leave out: stacks of unions, parsers inside of parsers, switch statements, value sets that are empty, entries with
// priorities, functions, copies of variable-length headers, checksums over the payload that are verified.
#include "common.p4"

header in_t {
    bit<8> op;
    bit<8> a;
    bit<16> b;
    bit<16> sum;
}

header wide_t {
    bit<8> mark;
    bit<32> v;
}

header narrow_t {
    bit<8> mark;
    bit<8> v;
}

header_union either_t {
    wide_t w;
    narrow_t n;
}

header options_t {
    bit<8> len;
    varbit<120> data;
}

header out_t {
    bit<8> ran;
    bit<8> chosen;
    bit<8> prio;
    bit<8> set;
    bit<8> unions;
    bit<8> bad;
    bit<16> f;
    bit<16> slices;
    bit<32> v;
}

struct headers_t {
    in_t x;
    out_t y;
    either_t[3] u;
    options_t o;
    options_t copy;
}

struct metadata_t {
    bit<8> set;
    bit<8> sub;
    bit<8> peek;
}

parser Sub(packet_in packet, inout headers_t hdr, inout metadata_t meta) {
    state start {
        meta.sub = meta.sub + 1;
        meta.peek = packet.lookahead<narrow_t>().v;
        transition select(packet.lookahead<bit<8>>()) {
            0x10 &&& 0xf0: wide;
            0x20 .. 0x2f: narrow;
            default: accept;
        }
    }
    state wide {
        packet.extract(hdr.u.next.w);
        transition accept;
    }
    state narrow {
        packet.extract(hdr.u.next.n);
        transition accept;
    }
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    value_set<bit<16>>(4) known;
    Sub() first;
    Sub() second;

    state start {
        packet.extract(hdr.x);
        transition select(hdr.x.b) {
            known: in_set;
            default: tuples;
        }
    }
    state in_set {
        meta.set = 1;
        transition tuples;
    }
    state tuples {
        transition select(hdr.x.op, hdr.x.a) {
            (1, 0 .. 127): one;
            (2, _): two;
            (3, 0x80 &&& 0x80): options;
            default: accept;
        }
    }
    state one {
        first.apply(packet, hdr, meta);
        transition accept;
    }
    state two {
        first.apply(packet, hdr, meta);
        second.apply(packet, hdr, meta);
        transition accept;
    }
    state options {
        packet.extract(hdr.o, (bit<32>)(packet.lookahead<bit<8>>() & 15) * 8);
        transition accept;
    }
}

control V(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum_with_payload(hdr.x.op == 5, { hdr.x.op, hdr.x.a, hdr.x.b }, hdr.x.sum, HashAlgorithm.csum16);
    }
}

bit<16> twist(in bit<16> v, in bit<8> by) {
    if (by == 0) {
        return v;
    }
    bit<16> r = v;
    if (by > 127) {
        r = r << 3;
    } else {
        r = r >> (bit<8>)2;
    }
    return r ^ (bit<16>)by;
}

control Inner(inout headers_t hdr, in bit<8> limit) {
    apply {
        hdr.y.v = (bit<32>)limit;
        if (hdr.x.a > limit) {
            exit;
        }
        hdr.y.v = hdr.y.v + 1;
    }
}

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    direct_counter(CounterType.bytes) counts;
    Inner() inner;
    action red() { hdr.y.ran = 1; }
    action green(bit<8> v) { hdr.y.ran = v; }
    action low(bit<8> v) { hdr.y.prio = v; }

    table colors {
        key = { hdr.x.a[3:0]: exact; }
        actions = { red; green; NoAction; }
        default_action = NoAction();
        counters = counts;
        const entries = {
            1: red();
            2: green(9);
            3: green(10);
        }
    }

    table priorities {
        key = { hdr.x.a: ternary; hdr.x.b: range; hdr.x.op: optional; }
        actions = { low; }
        default_action = low(0xff);
        largest_priority_wins = false;
        entries = {
            priority=30: (0x80 &&& 0x80, _, _): low(1);
            priority=10: (0xc0 &&& 0xc0, 0x1000 .. 0x7fff, _): low(2);
            priority=20: (_, 0 .. 0x2000, 2): low(3);
            priority=40: (_, _, 4): low(4);
        }
    }

    apply {
        sm.egress_spec = 1;
        hdr.y.setValid();
        hdr.y.ran = 0;
        hdr.y.chosen = 0;
        hdr.y.set = meta.set;
        hdr.y.v = 0;
        hdr.y.bad = (bit<8>)sm.checksum_error;
        hdr.y.unions = (meta.sub << 6) ^ meta.peek;
        hdr.y.f = twist(hdr.x.b, hdr.x.a);
        hdr.y.slices = 0;
        hdr.y.slices[11:4] = hdr.x.a;
        hdr.y.slices[3:0] = hdr.x.b[9:6];
        switch (colors.apply().action_run) {
            red: { hdr.y.chosen = 1; }
            green: { hdr.y.chosen = hdr.y.ran + 1; }
            default: { hdr.y.chosen = 0x77; }
        }
        if (priorities.apply().hit) {
            hdr.y.chosen = hdr.y.chosen | 0x80;
        }
        switch (hdr.x.op) {
            1:
            2: {
                if (hdr.u[0].w.isValid()) {
                    hdr.y.v = hdr.u[0].w.v;
                    hdr.u[0].n.setValid();
                    hdr.u[0].n.mark = 0x21;
                    hdr.u[0].n.v = (bit<8>)hdr.y.v;
                } else if (hdr.u[0].n.isValid()) {
                    hdr.u[0].n.setInvalid();
                }
                if (hdr.u[1].n.isValid()) {
                    hdr.u[1].n.v = hdr.u[1].n.v + 1;
                }
            }
            3: {
                hdr.copy = hdr.o;
                hdr.o.setInvalid();
                hdr.copy.len = 0x42;
            }
            4: { inner.apply(hdr, 100); }
            default: { hdr.y.v = 0xdeadbeef; }
        }
        assert(hdr.y.isValid());
        assume(sm.egress_spec == 1);
    }
}

NO_EGRESS

control C(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum_with_payload(hdr.x.op == 6, { hdr.x.op, hdr.x.a, hdr.y.f }, hdr.x.sum, HashAlgorithm.csum16);
    }
}

control D(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr.x);
        packet.emit(hdr.y);
        packet.emit(hdr.u);
        packet.emit(hdr.o);
        packet.emit(hdr.copy);
    }
}

TEST_SWITCH
