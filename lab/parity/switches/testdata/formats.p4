// SPDX-License-Identifier: Apache-2.0
// Formats that programs parse and put together: stacks with a computed index, push and pop, whole stacks compared, unions and stacks
// of them, options of variable length, lookahead, value sets of one field and of two, ranges and masks in select, errors of one's
// own. Each packet that leaves tells what was found in it.
#include <core.p4>
#define V1MODEL_VERSION 20200408
#include <v1model.p4>

#define CPU_PORT 255

error { LabelTooLarge, NothingLeft }

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> ether_type;
}

header shim_t {
    bit<8> kind;
    bit<8> options;
    bit<16> port;
    int<8> left;
    int<8> right;
}

header label_t {
    bit<20> label;
    bit<3> class;
    bit<1> bottom;
    bit<8> ttl;
}

header short_t {
    bit<8> tag;
    bit<8> value;
}

header long_t {
    bit<8> tag;
    bit<40> value;
}

header wide_t {
    bit<8> tag;
    bit<72> value;
    bit<3> low;
    bit<5> high;
}

header_union body_t {
    short_t short;
    long_t long;
    wide_t wide;
}

header options_t {
    varbit<320> value;
}

header stamp_t {
    bit<16> error_code;
    bit<16> found;
    bit<16> peeked;
    bit<32> sum;
    int<8> saturated;
    int<8> wrapped;
    bit<16> sliced;
    bit<20> chosen;
    bit<4> flags;
    bit<16> length;
}

@controller_header("packet_in")
header packet_in_t {
    bit<16> ingress_port;
}

@controller_header("packet_out")
header packet_out_t {
    bit<16> egress_port;
}

struct headers_t {
    packet_in_t to_cpu;
    packet_out_t from_cpu;
    ethernet_t ethernet;
    stamp_t stamp;
    shim_t shim;
    label_t[4] labels;
    label_t[4] kept;
    options_t options;
    options_t copy;
    body_t[3] bodies;
    body_t last;
}

struct metadata_t {
    bit<16> found;
    bit<16> peeked;
    bit<8> left;
    bit<16> failed;
}

struct pair_t {
    bit<8> kind;
    bit<16> port;
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    value_set<bit<16>>(4) ports;
    value_set<pair_t>(4) pairs;

    state start {
        transition select(sm.ingress_port) {
            CPU_PORT: from_cpu;
            default: ethernet;
        }
    }
    state from_cpu {
        packet.extract(hdr.from_cpu);
        transition accept;
    }
    state ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            0x88b6: shim;
            default: accept;
        }
    }
    state shim {
        packet.extract(hdr.shim);
        transition select(hdr.shim.port) {
            ports: in_ports;
            default: pairs_or_not;
        }
    }
    state in_ports {
        meta.found = 1;
        transition pairs_or_not;
    }
    state pairs_or_not {
        transition select(hdr.shim.kind, hdr.shim.port) {
            pairs: in_pairs;
            (0x10..0x2f, 0x1000 &&& 0xf000): in_range;
            (_, 0x8000 &&& 0x8001): masked;
            default: labels;
        }
    }
    state in_pairs {
        meta.found = meta.found + 2;
        transition labels;
    }
    state in_range {
        meta.found = meta.found + 4;
        transition labels;
    }
    state masked {
        meta.found = meta.found + 8;
        transition labels;
    }
    state labels {
        transition select(hdr.shim.kind[1:0]) {
            0: options;
            default: label;
        }
    }
    state label {
        packet.extract(hdr.labels.next);
        verify(hdr.labels.last.label != 0xfffff, error.LabelTooLarge);
        transition select(hdr.labels.last.bottom) {
            0: label;
            default: options;
        }
    }
    state options {
        packet.extract(hdr.options, ((bit<32>) hdr.shim.options) << 3);
        meta.peeked = packet.lookahead<bit<16>>();
        meta.left = packet.lookahead<short_t>().tag;
        transition bodies;
    }
    state bodies {
        transition select(packet.lookahead<bit<8>>()) {
            1: short_body;
            2: long_body;
            3 &&& 0xf: wide_body;
            0xf0..0xff: skip;
            default: accept;
        }
    }
    state skip {
        packet.advance(16);
        transition bodies;
    }
    state short_body {
        packet.extract(hdr.bodies.next.short);
        transition bodies;
    }
    state long_body {
        packet.extract(hdr.bodies.next.long);
        transition bodies;
    }
    state wide_body {
        packet.extract(hdr.last.wide);
        transition accept;
    }
}

control V(inout headers_t hdr, inout metadata_t meta) { apply {} }

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    bit<20> chosen = 0;
    bit<4> flags = 0;
    bit<32> sum = 0;

    action stack(bit<8> kind) {
        if (kind == 1) {
            hdr.labels.push_front(1);
            hdr.labels[0].setValid();
            hdr.labels[0].label = 77;
            hdr.labels[0].class = 5;
            hdr.labels[0].bottom = 0;
            hdr.labels[0].ttl = 64;
        } else if (kind == 2) {
            hdr.labels.pop_front(2);
        } else if (kind == 3) {
            hdr.labels.push_front(2);
        }
    }

    apply {
        if (hdr.from_cpu.isValid()) {
            sm.egress_spec = (bit<9>) hdr.from_cpu.egress_port;
            hdr.from_cpu.setInvalid();
        } else if (hdr.shim.isValid()) {
            sm.egress_spec = (bit<9>) (hdr.shim.port & 7) + 1;
            bool first = hdr.labels[0].isValid();
            if (first && hdr.shim.kind[7:6] == 3) {
                hdr.kept = hdr.labels;
                if (hdr.kept[0].ttl > 128) {
                    hdr.kept[0].ttl = 9;
                }
            }
            if (hdr.kept == hdr.labels) {
                flags = flags | 1;
            }
            if (first) {
                chosen = hdr.labels[0].label;
                if (hdr.labels[3].isValid()) {
                    bit<2> at = hdr.shim.kind[5:4];
                    chosen = hdr.labels[at].label;
                    hdr.labels[at].class = 7;
                }
            }
            stack((bit<8>) hdr.shim.kind[3:2]);
            if (hdr.options.isValid()) {
                flags = flags | 2;
                if (hdr.shim.options[0:0] == 1) {
                    hdr.copy = hdr.options;
                    hdr.options.setInvalid();
                }
            }
            if (hdr.bodies[0].short.isValid() || hdr.bodies[0].long.isValid()) {
                if (hdr.bodies[0].short.isValid()) {
                    sum = sum + (bit<32>) hdr.bodies[0].short.value;
                    hdr.bodies[2].long.setValid(); // no parser fills it where two came
                    hdr.bodies[2].long.tag = 2;
                    hdr.bodies[2].long.value = 20w0xabcde ++ hdr.bodies[0].short.value ++ 12w0x123;
                } else {
                    sum = sum + hdr.bodies[0].long.value[31:0];
                    hdr.bodies[0].short.setValid(); // and long is not any more
                    hdr.bodies[0].short.tag = 1;
                    hdr.bodies[0].short.value = 0x5a;
                }
            }
            if (hdr.last.isValid()) {
                flags = flags | 4;
                hdr.last.wide.value = hdr.last.wide.value |-| 72w0x100000000000000000;
                hdr.last.wide.low = hdr.last.wide.low + 3;
                hdr.bodies[1] = hdr.last;
            }
            hdr.stamp.setValid();
            hdr.stamp.error_code = 0;
            if (sm.parser_error == error.LabelTooLarge) {
                hdr.stamp.error_code = 1;
            } else if (sm.parser_error == error.PacketTooShort) {
                hdr.stamp.error_code = 2;
            } else if (sm.parser_error == error.StackOutOfBounds) {
                hdr.stamp.error_code = 3;
            } else if (sm.parser_error == error.HeaderTooShort) {
                hdr.stamp.error_code = 4;
            } else if (sm.parser_error != error.NoError) {
                hdr.stamp.error_code = 5;
            }
            hdr.stamp.found = meta.found;
            hdr.stamp.peeked = meta.peeked ^ (bit<16>) meta.left;
            hdr.stamp.sum = sum;
            hdr.stamp.saturated = hdr.shim.left |+| hdr.shim.right;
            hdr.stamp.wrapped = hdr.shim.left - hdr.shim.right;
            hdr.stamp.sliced = hdr.shim.port[11:4] ++ (bit<8>) (hdr.shim.left >> 3);
            hdr.stamp.chosen = chosen;
            hdr.stamp.flags = flags;
            hdr.stamp.length = (bit<16>) sm.packet_length;
        } else {
            sm.egress_spec = 9;
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        if (sm.egress_port == CPU_PORT) {
            hdr.to_cpu.setValid();
            hdr.to_cpu.ingress_port = (bit<16>) sm.ingress_port;
        }
    }
}

control C(inout headers_t hdr, inout metadata_t meta) { apply {} }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
