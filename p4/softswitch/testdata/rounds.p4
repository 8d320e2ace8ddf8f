// SPDX-License-Identifier: Apache-2.0
// Loops in actions (p4c makes jumps back of them), also around registers, fields that are bool, log_msg without arguments. The first byte
// says what happens, the second how often.
#include "common.p4"

header in_t {
    bit<8> op;
    bit<8> n;
    bool one;
    bit<6> rest;
    bool two;
}

header item_t {
    bit<1> more;
    bit<7> value;
}

header out_t {
    bit<32> sum;
    bit<16> product;
    bit<8> last;
    bit<8> flags;
    bit<32> cell;
}

struct headers_t {
    in_t x;
    out_t y;
    item_t[6] items;
}

struct metadata_t {
    bit<7> last;
    bit<8> rounds;
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start {
        packet.extract(hdr.x);
        transition item;
    }
    state item {
        packet.extract(hdr.items.next);
        meta.last = hdr.items.last.value;
        transition select(hdr.items.last.more) {
            1: item;
            default: accept;
        }
    }
}

NO_CHECKSUMS

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    register<bit<32>, bit<32>>(16) cells;

    action sum_up() {
        for (bit<8> i = 1; i <= hdr.x.n; i = i + 1) {
            if (i[1:0] == 3) {
                continue;
            }
            if (hdr.y.sum > 3000) {
                break;
            }
            hdr.y.sum = hdr.y.sum + (bit<32>) i;
            if (i == 255) {
                break;
            }
        }
    }
    action multiply(bit<8> most) {
        for (bit<8> i = 0; i < (hdr.x.n & most); i = i + 1) {
            for (bit<8> j = 0; j < i; j = j + 1) {
                hdr.y.product = hdr.y.product + 1;
            }
            meta.rounds = meta.rounds + 1;
        }
    }
    action walk() {
        bit<32> v;
        for (bit<32> k = 0; k < 16; k = k + 1) {
            cells.read(v, k);
            v = v + (bit<32>) hdr.x.n;
            if (v[0:0] == 1) {
                v = v ^ 5;
            }
            cells.write(k, v);
            hdr.y.cell = hdr.y.cell + v;
        }
    }
    action by_steps() { // for ever, if n is 30
        for (bit<8> i = 0; i < 100; i = i + (hdr.x.n - 30)) {
            hdr.y.sum = hdr.y.sum + 1;
        }
    }
    action swap() {
        bool was = hdr.x.one;
        hdr.x.one = hdr.x.two;
        hdr.x.two = was && hdr.x.n > 7;
        log_msg("swapped");
    }
    table rounds {
        key = { hdr.x.op: exact; }
        actions = { sum_up; multiply; walk; swap; by_steps; NoAction; }
        const entries = {
            0: sum_up();
            1: multiply(31);
            2: walk();
            3: swap();
            4: multiply(7);
            9: by_steps();
        }
        const default_action = NoAction();
    }

    apply {
        sm.egress_spec = 1;
        hdr.y.setValid();
        hdr.y.sum = 0;
        hdr.y.product = 0;
        hdr.y.cell = 0;
        hdr.y.last = 0;
        hdr.y.flags = 0;
        if (sm.parser_error == error.NoError) {
            hdr.y.last = 0x80 | (bit<8>) meta.last;
        }
        rounds.apply();
        hdr.y.flags[0:0] = (bit<1>) hdr.x.one;
        hdr.y.flags[1:1] = (bit<1>) (hdr.x.two == hdr.x.one);
        hdr.y.flags[7:2] = meta.rounds[5:0];
    }
}

NO_EGRESS
EMIT_ALL
TEST_SWITCH
