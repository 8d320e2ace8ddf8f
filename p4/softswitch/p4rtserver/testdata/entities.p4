// SPDX-License-Identifier: Apache-2.0
// One object of every kind that P4Runtime reads and writes, for the tests of the server.
//   p4c-bm2-ss --arch v1model --p4runtime-files entities.p4info.txtpb -o entities.json entities.p4

#include <core.p4>
#include <v1model.p4>

@controller_header("packet_out")
header packet_out_t {
    bit<9> egress_port;
    bit<7> padding;
}

@controller_header("packet_in")
header packet_in_t {
    bit<9> ingress_port;
    bit<7> padding;
}

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
}

struct headers_t {
    packet_out_t packet_out;
    packet_in_t  packet_in;
    ethernet_t   ethernet;
}

struct learned_t {
    bit<48> address;
    bit<9>  port;
}

struct metadata_t {
    bit<32> nothing;
}

parser P(packet_in pkt, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    value_set<bit<16>>(4) control_types;

    state start {
        transition select(sm.ingress_port) {
            255: from_controller;
            default: ethernet;
        }
    }
    state from_controller {
        pkt.extract(hdr.packet_out);
        transition ethernet;
    }
    state ethernet {
        pkt.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            control_types: control_packet;
            default: accept;
        }
    }
    state control_packet {
        meta.nothing = 1;
        transition accept;
    }
}

control Verify(inout headers_t hdr, inout metadata_t meta) { apply {} }

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    counter(8, CounterType.packets_and_bytes) packets_in;
    counter(4, CounterType.packets) only_packets;
    meter(4, MeterType.bytes) rates;
    register<bit<32>>(16) words;
    register<bit<12>>(8) narrow;
    register<int<16>>(4) signed_words;
    direct_counter(CounterType.packets_and_bytes) hits;
    direct_meter<bit<32>>(MeterType.packets) pace;
    action_selector(HashAlgorithm.crc32, 32w16, 32w14) spread;
    action_profile(8) profile;

    action drop() { mark_to_drop(sm); }
    action forward(bit<9> port) { sm.egress_spec = port; }
    action paced(bit<9> port) {
        sm.egress_spec = port;
        pace.read(meta.nothing);
    }
    action flood(bit<16> group) { sm.mcast_grp = group; }
    action learn() { digest<learned_t>(1, {hdr.ethernet.src, sm.ingress_port}); }
    action mirror(bit<32> session) { clone(CloneType.I2E, session); }
    action count(bit<32> index) {
        packets_in.count(index);
        only_packets.count(index);
        bit<32> word;
        words.read(word, index);
        words.write(index, word + 1);
        bit<12> n;
        narrow.read(n, index);
        narrow.write(index, n + 1);
        int<16> s;
        signed_words.read(s, index);
        signed_words.write(index, s - 1);
        rates.execute_meter(index, meta.nothing);
    }
    action only_entry() { forward(3); }
    action only_default() { mark_to_drop(sm); }

    table exact_t {
        key = { hdr.ethernet.dst: exact; }
        actions = { forward; flood; drop; @tableonly only_entry; @defaultonly only_default; }
        default_action = drop();
        counters = hits;
        size = 4;
    }
    table lpm_t {
        key = { hdr.ethernet.src: lpm; }
        actions = { paced; drop; NoAction; }
        default_action = NoAction();
        meters = pace;
        size = 64;
    }
    table ternary_t {
        key = { hdr.ethernet.type: ternary; sm.ingress_port: range; hdr.ethernet.dst: optional; }
        actions = { learn; mirror; count; NoAction; }
        const default_action = NoAction();
        size = 64;
    }
    table idle_t {
        key = { sm.ingress_port: exact; }
        actions = { count; NoAction; }
        support_timeout = true;
        size = 64;
    }
    table selected_t {
        key = { hdr.ethernet.type: exact; hdr.ethernet.dst: selector; }
        actions = { forward; drop; NoAction; }
        implementation = spread;
        size = 64;
    }
    table profiled_t {
        key = { sm.ingress_port: exact; }
        actions = { forward; NoAction; }
        implementation = profile;
        size = 64;
    }
    table const_t {
        key = { hdr.ethernet.type: ternary; }
        actions = { count; NoAction; }
        const entries = {
            0x0800: count(0);
            0x86dd &&& 0xffff: count(1);
        }
    }
    table keyless_t {
        actions = { count; NoAction; }
        default_action = count(2);
    }

    apply {
        if (hdr.packet_out.isValid()) {
            sm.egress_spec = hdr.packet_out.egress_port;
            hdr.packet_out.setInvalid();
        } else {
            keyless_t.apply();
            const_t.apply();
            idle_t.apply();
            profiled_t.apply();
            selected_t.apply();
            lpm_t.apply();
            ternary_t.apply();
            exact_t.apply();
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        if (sm.egress_port == 255) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = sm.ingress_port;
            hdr.packet_in.padding = 0;
        }
    }
}

control Compute(inout headers_t hdr, inout metadata_t meta) { apply {} }

control D(packet_out pkt, in headers_t hdr) {
    apply {
        pkt.emit(hdr.packet_in);
        pkt.emit(hdr.ethernet);
    }
}

V1Switch(P(), Verify(), I(), E(), Compute(), D()) main;
