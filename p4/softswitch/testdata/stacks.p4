// SPDX-License-Identifier: Apache-2.0
// Header stacks and unions in the control flow: push, pop, run-time indices, copies, comparison; emission order.
#include "common.p4"

header in_t {
    bit<8> op;
    bit<8> index;
    bit<8> count;
}

header elem_t {
    bit<8> tag;
    bit<16> value;
}

header long_t {
    bit<128> v;
}

header short_t {
    bit<8> v;
}

header_union choice_t {
    long_t l;
    short_t s;
}

header out_t {
    bit<8> flags;
    bit<16> sum;
    bit<8> equal;
    bit<32> length;
}

struct headers_t {
    in_t x;
    out_t y;
    elem_t[4] e;
    elem_t[4] f;
    elem_t one;
    choice_t choice;
    long_t copy;
}

struct metadata_t {
    bit<8> left;
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start {
        packet.extract(hdr.x);
        meta.left = hdr.x.count & 3;
        transition select(meta.left) {
            0: choose;
            default: elems;
        }
    }
    state elems {
        packet.extract(hdr.e.next);
        meta.left = meta.left - 1;
        transition select(meta.left) {
            0: choose;
            default: elems;
        }
    }
    state choose {
        transition select(hdr.x.index) {
            0x80 &&& 0xc0: long;
            0xc0 &&& 0xc0: short;
            default: accept;
        }
    }
    state long {
        packet.extract(hdr.choice.l);
        transition accept;
    }
    state short {
        packet.extract(hdr.choice.s);
        transition accept;
    }
}

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    action use_index() {
        meta.left = hdr.x.index & 1;
        hdr.e[meta.left].value = hdr.e[meta.left].value + 1;
        hdr.y.sum = hdr.e[meta.left].value;
    }
    table by_op {
        key = { hdr.x.op: exact; }
        actions = { use_index; NoAction; }
        default_action = NoAction();
        const entries = {
            10: use_index();
            11: use_index();
        }
    }
    apply {
        hdr.y.setValid();
        hdr.y.sum = 0;
        hdr.y.equal = 0;
        hdr.y.flags = 0;
        if (hdr.e[0].isValid() && hdr.e[1].isValid()) {
            if (hdr.e[0] == hdr.e[1]) {
                hdr.y.equal = 1;
            }
            by_op.apply();
        }
        if (hdr.x.op == 1) {
            hdr.e.push_front(1);
            hdr.e[0].setValid();
            hdr.e[0].tag = 0xaa;
            hdr.e[0].value = 0xbbcc;
        } else if (hdr.x.op == 2) {
            hdr.e.pop_front(1);
        } else if (hdr.x.op == 3) {
            hdr.e.push_front(2);
        } else if (hdr.x.op == 4) {
            hdr.f = hdr.e;
            hdr.e.pop_front(4);
        } else if (hdr.x.op == 5) {
            hdr.one = hdr.e[0];
            hdr.e[0].setInvalid();
        } else if (hdr.x.op == 6) {
            hdr.choice.s.setValid();
            hdr.choice.s.v = 0x5a;
        } else if (hdr.x.op == 7) {
            hdr.choice.l.setValid();
            hdr.choice.l.v = 0x0102030405060708090a0b0c0d0e0f;
        } else if (hdr.x.op == 8 && hdr.choice.l.isValid()) {
            hdr.copy = hdr.choice.l;
            hdr.copy.v = hdr.copy.v + 1;
        } else if (hdr.x.op == 9) {
            hdr.choice.l.setInvalid();
            hdr.choice.s.setInvalid();
        }
        if (hdr.choice.l.isValid()) {
            hdr.y.flags = hdr.y.flags | 1;
        }
        if (hdr.choice.s.isValid()) {
            hdr.y.flags = hdr.y.flags | 2;
        }
        if (hdr.e[3].isValid()) {
            hdr.y.flags = hdr.y.flags | 4;
        }
        if (hdr.one.isValid()) {
            hdr.y.flags = hdr.y.flags | 8;
        }
        sm.egress_spec = 1;
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        hdr.y.length = sm.packet_length;
    }
}

NO_CHECKSUMS
EMIT_ALL
TEST_SWITCH
