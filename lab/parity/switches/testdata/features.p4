// SPDX-License-Identifier: Apache-2.0
// What the programs of p4/programs do not use and two switches can differ in: digests, clones of both kinds, multicast, resubmission,
// direct counters, ternary entries by priority. Each packet that leaves carries the register cell that it counted in.
#include <core.p4>
#define V1MODEL_VERSION 20200408
#include <v1model.p4>

#define CPU_PORT 255
#define CELLS 1024

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> ether_type;
}

header ipv4_t {
    bit<64> front;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> src;
    bit<32> dst;
}

header stamp_t {
    bit<16> ingress_port;
    bit<16> egress_rid;
    bit<16> instance_type;
    bit<16> cell;
    bit<32> count;
    bit<16> length;
}

@controller_header("packet_in")
header packet_in_t {
    bit<8> reason;
    bit<16> ingress_port;
    bit<32> count;
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
    ipv4_t ip;
}

struct metadata_t {
    bit<16> cell;
    bit<32> count;
    bit<16> late;
    @field_list(1) bit<8> again;
    @field_list(2) bit<32> kept;
}

struct seen_t {
    bit<32> src;
    bit<32> dst;
    bit<8> protocol;
    bit<16> cell;
    bit<32> count;
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
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
            0x0800: ip;
            default: accept;
        }
    }
    state ip {
        packet.extract(hdr.ip);
        transition accept;
    }
}

control V(inout headers_t hdr, inout metadata_t meta) { apply {} }

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    register<bit<32>, bit<32>>(CELLS) cells;
    counter<bit<32>>(8, CounterType.packets_and_bytes) arrivals;
    direct_counter(CounterType.packets_and_bytes) classes;

    action count() {
        cells.read(meta.count, (bit<32>) meta.cell);
        meta.count = meta.count + 1;
        cells.write((bit<32>) meta.cell, meta.count);
    }
    action forward(bit<9> port) { sm.egress_spec = port; }
    action flood(bit<16> group) { sm.mcast_grp = group; }
    action mirror(bit<9> port, bit<32> session) {
        sm.egress_spec = port;
        meta.kept = meta.count;
        clone_preserving_field_list(CloneType.I2E, session, 2);
    }
    action mirror_late(bit<9> port, bit<16> session) {
        sm.egress_spec = port;
        meta.late = session;
    }
    action learn(bit<9> port) {
        sm.egress_spec = port;
        digest<seen_t>(1, { hdr.ip.src, hdr.ip.dst, hdr.ip.protocol, meta.cell, meta.count });
    }
    action twice(bit<9> port) {
        sm.egress_spec = port;
        meta.again = 1;
        resubmit_preserving_field_list(1);
    }
    action punt() { sm.egress_spec = CPU_PORT; }
    action drop() { mark_to_drop(sm); }

    table classify {
        key = {
            hdr.ip.dst: ternary;
            hdr.ip.protocol: ternary;
            meta.again: ternary;
        }
        actions = { forward; flood; mirror; mirror_late; learn; twice; punt; drop; }
        default_action = drop();
        counters = classes;
    }

    apply {
        if (hdr.from_cpu.isValid()) {
            sm.egress_spec = (bit<9>) hdr.from_cpu.egress_port;
            hdr.from_cpu.setInvalid();
        } else if (hdr.ip.isValid()) {
            hash(meta.cell, HashAlgorithm.crc16, 16w0, { hdr.ip.src, hdr.ip.dst, hdr.ip.protocol }, 16w1024);
            count();
            arrivals.count((bit<32>) (sm.ingress_port & 7));
            classify.apply();
        } else {
            drop();
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        if (sm.egress_port == CPU_PORT) {
            hdr.to_cpu.setValid();
            hdr.to_cpu.reason = 0;
            hdr.to_cpu.ingress_port = (bit<16>) sm.ingress_port;
            hdr.to_cpu.count = meta.count;
        } else if (hdr.ip.isValid()) {
            if (meta.late != 0 && sm.instance_type == 0) {
                clone(CloneType.E2E, (bit<32>) meta.late);
            }
            hdr.stamp.setValid();
            hdr.stamp.ingress_port = (bit<16>) sm.ingress_port;
            hdr.stamp.egress_rid = sm.egress_rid;
            hdr.stamp.instance_type = (bit<16>) sm.instance_type;
            hdr.stamp.cell = meta.cell;
            hdr.stamp.count = meta.count + meta.kept;
            hdr.stamp.length = (bit<16>) sm.packet_length;
            hdr.ethernet.ether_type = 0x88b5;
        }
    }
}

control C(inout headers_t hdr, inout metadata_t meta) { apply {} }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
