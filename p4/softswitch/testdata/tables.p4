// SPDX-License-Identifier: Apache-2.0
// Every kind of match with const entries; hit, miss, action_run; exit and return; range and optional keys.
#include "common.p4"

header in_t {
    bit<8> a;
    bit<16> b;
    bit<32> c;
    bit<128> d;
    bit<8> e;
}

header out_t {
    bit<8> exact;
    bit<8> two;
    bit<8> lpm;
    bit<8> lpm6;
    bit<8> mixed;
    bit<8> ternary;
    bit<8> range;
    bit<8> opt;
    bit<8> hit;
    bit<8> run;
    bit<8> masked;
    bit<8> after;
    bit<128> data;
}

struct headers_t {
    in_t x;
    out_t y;
}

struct metadata_t {}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start {
        packet.extract(hdr.x);
        transition accept;
    }
}

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    action set_exact(bit<8> v, bit<128> data) { hdr.y.exact = v; hdr.y.data = data; }
    action set_two(bit<8> v) { hdr.y.two = v; }
    action set_lpm(bit<8> v) { hdr.y.lpm = v; }
    action set_lpm6(bit<8> v) { hdr.y.lpm6 = v; }
    action set_mixed(bit<8> v) { hdr.y.mixed = v; }
    action set_ternary(bit<8> v) { hdr.y.ternary = v; }
    action set_range(bit<8> v) { hdr.y.range = v; }
    action set_opt(bit<8> v) { hdr.y.opt = v; }
    action set_masked(bit<8> v) { hdr.y.masked = v; }
    action leave() { hdr.y.after = 77; exit; }
    action give_up() {
        hdr.y.after = 5;
        if (hdr.x.e < 100) {
            return;
        }
        hdr.y.after = 6;
    }

    table exacts {
        key = { hdr.x.a: exact; }
        actions = { set_exact; leave; }
        default_action = set_exact(255, 0x0102030405060708090a0b0c0d0e0f10);
        const entries = {
            1: set_exact(11, 0xffffffffffffffffffffffffffffffff);
            2: set_exact(12, 1);
            3: leave();
        }
    }
    table twos {
        key = { hdr.x.a: exact; hdr.x.b[3:0]: exact; hdr.y.isValid(): exact; }
        actions = { set_two; }
        const default_action = set_two(0xee);
        const entries = {
            (1, 1, true): set_two(1);
            (1, 2, true): set_two(2);
            (2, 2, false): set_two(3);
        }
    }
    table lpms {
        key = { hdr.x.c: lpm; }
        actions = { set_lpm; NoAction; }
        default_action = NoAction();
        const entries = {
            0x0a000000 &&& 0xff000000: set_lpm(8);
            0x0a010000 &&& 0xffff0000: set_lpm(16);
            0x0a010203 &&& 0xffffffff: set_lpm(32);
            0x80000000 &&& 0x80000000: set_lpm(1);
        }
    }
    table lpm6s {
        key = { hdr.x.d: lpm; }
        actions = { set_lpm6; }
        default_action = set_lpm6(200);
    }
    table mixes {
        key = { hdr.x.a: exact; hdr.x.c: lpm; }
        actions = { set_mixed; NoAction; }
        default_action = NoAction();
        const entries = {
            (1, 0x0a000000 &&& 0xff000000): set_mixed(1);
            (2, 0x0a000000 &&& 0xff000000): set_mixed(2);
            (1, 0x0a010000 &&& 0xffff0000): set_mixed(3);
        }
    }
    table ternaries {
        key = { hdr.x.b: ternary; hdr.x.c: lpm; hdr.x.a: exact; }
        actions = { set_ternary; NoAction; }
        default_action = NoAction();
        const entries = {
            (0x0100 &&& 0xff00, 0x0a000000 &&& 0xff000000, 1): set_ternary(1);
            (_, 0x0a010000 &&& 0xffff0000, 1): set_ternary(2);
            (0x0001 &&& 0x0001, _, 1): set_ternary(3);
            (_, _, 2): set_ternary(4);
        }
    }
    table ranges {
        key = { hdr.x.b: range; hdr.x.e: range; hdr.x.a: ternary; }
        actions = { set_range; NoAction; }
        default_action = NoAction();
        const entries = {
            (10 .. 20, 0 .. 255, _): set_range(1);
            (0x100 .. 0x1ff, 50 .. 60, 1): set_range(2);
            (0x100 .. 0x1ff, _, _): set_range(3);
            (_, 200 .. 255, 2 &&& 3): set_range(4);
        }
    }
    table opts {
        key = { hdr.x.a: optional; hdr.x.e: optional; }
        actions = { set_opt; NoAction; }
        default_action = NoAction();
        const entries = {
            (1, 7): set_opt(1);
            (1, _): set_opt(2);
            (_, 7): set_opt(3);
        }
    }
    table hits {
        key = { hdr.x.e: exact; }
        actions = { NoAction; }
        default_action = NoAction();
        const entries = { 7: NoAction(); }
    }
    table hits2 {
        key = { hdr.x.a: exact; }
        actions = { NoAction; }
        default_action = NoAction();
        const entries = { 2: NoAction(); }
    }
    table runs {
        key = { hdr.x.e: exact; }
        actions = { NoAction; give_up; leave; }
        default_action = NoAction();
        const entries = {
            7: give_up();
            55: leave();
            107: give_up();
        }
    }
    table maskeds {
        key = { hdr.x.c & 0x00ffff00: exact @name("c_middle"); }
        actions = { set_masked; NoAction; }
        default_action = NoAction();
        const entries = {
            0x00010200: set_masked(1);
            0x00000000: set_masked(2);
        }
    }

    apply {
        hdr.y.setValid();
        sm.egress_spec = 1;
        twos.apply();
        lpms.apply();
        lpm6s.apply();
        mixes.apply();
        ternaries.apply();
        ranges.apply();
        opts.apply();
        maskeds.apply();
        if (hits.apply().hit) {
            hdr.y.hit = 1;
        } else {
            hdr.y.hit = 2;
        }
        if (!hits2.apply().miss && hdr.x.e == 7) {
            hdr.y.hit = hdr.y.hit | 0x80;
        }
        exacts.apply();
        switch (runs.apply().action_run) {
            give_up: { hdr.y.run = 1; }
            NoAction: { hdr.y.run = 2; }
        }
        hdr.y.after = hdr.y.after + 1;
    }
}

NO_CHECKSUMS
NO_EGRESS
EMIT_ALL
TEST_SWITCH
