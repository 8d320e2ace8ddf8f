// SPDX-License-Identifier: Apache-2.0
// What of v1model's externs and of simple_switch's ways features.p4 leaves out: action selectors and profiles, one-shot groups, meters
// of both kinds, every hash, random within its bounds, ranges and optional keys, checksums verified and updated, clones that keep
// fields, recirculation that keeps fields, truncation, queueing metadata, assertions. Destinations choose.
#include <core.p4>
#define V1MODEL_VERSION 20200408
#include <v1model.p4>

#define CPU_PORT 255
#define NORMAL 0
#define EGRESS_CLONE 2
#define RECIRCULATED 4
#define RESUBMITTED 6

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> ether_type;
}

header ipv4_t {
    bit<4> version;
    bit<4> ihl;
    bit<8> tos;
    bit<16> total;
    bit<16> id;
    bit<16> fragment;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> src;
    bit<32> dst;
}

header ports_t {
    bit<16> src;
    bit<16> dst;
}

header stamp_t {
    bit<16> ingress_port;
    bit<16> egress_rid;
    bit<8> instance_type;
    bit<8> flags;
    bit<16> length;
    bit<8> direct_colour;
    bit<8> packet_colour;
    bit<8> byte_colour;
    bit<8> queue;
    bit<16> group_member;
    bit<16> one_shot;
    bit<16> profile_member;
    bit<16> class;
    bit<32> crc32;
    bit<32> crc32_custom;
    bit<16> crc16;
    bit<16> crc16_custom;
    bit<16> csum16;
    bit<16> xor16;
    bit<32> identity;
    bit<32> offset;
    bit<72> wide;
    int<16> signed;
    bit<16> kept;
    bit<16> lost;
    bit<8> rounds;
    bit<8> priority;
    bit<16> checksum;
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
    ipv4_t ip;
    ports_t ports;
}

struct metadata_t {
    bit<16> late;
    bit<16> mode;
    bit<8> checked;
    bit<1> in_bounds;
    bit<1> selected;
    bit<8> direct_colour;
    bit<8> packet_colour;
    bit<8> byte_colour;
    bit<16> group_member;
    bit<16> one_shot;
    bit<16> profile_member;
    bit<16> class;
    bit<72> wide;
    int<16> signed;
    bit<16> lost;
    @field_list(1, 2, 3) bit<16> kept;
    @field_list(3, 4) bit<8> rounds;
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
            0x88b5: again;
            default: accept;
        }
    }
    state again {
        packet.extract(hdr.stamp);
        transition ip;
    }
    state ip {
        packet.extract(hdr.ip);
        transition select(hdr.ip.ihl, hdr.ip.fragment[12:0], hdr.ip.protocol) {
            (5, 0, 6): ports;
            (5, 0, 17): ports;
            default: accept;
        }
    }
    state ports {
        packet.extract(hdr.ports);
        transition accept;
    }
}

control V(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.ip.isValid() && hdr.ip.ihl == 5,
            { hdr.ip.version, hdr.ip.ihl, hdr.ip.tos, hdr.ip.total, hdr.ip.id, hdr.ip.fragment, hdr.ip.ttl, hdr.ip.protocol, hdr.ip.src, hdr.ip.dst },
            hdr.ip.checksum, HashAlgorithm.csum16);
    }
}

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    action_selector(HashAlgorithm.crc16, 32w64, 32w16) group;
    action_selector(HashAlgorithm.crc32, 32w64, 32w16) one_shot;
    action_profile(16) profile; // one for each table: BMv2 ends where two share one
    action_profile(8) ranges;
    direct_meter<bit<8>>(MeterType.packets) sources;
    meter<bit<32>>(16, MeterType.packets) by_packets;
    meter<bit<32>>(16, MeterType.bytes) by_bytes;
    direct_counter(CounterType.bytes) classes;
    direct_counter(CounterType.packets_and_bytes) limits;
    counter<bit<8>>(256, CounterType.packets) protocols;
    register<bit<72>, bit<32>>(64) wides;
    register<int<16>, bit<32>>(64) signeds;

    action drop() { mark_to_drop(sm); }
    action to_member(bit<9> port, bit<16> member) {
        sm.egress_spec = port;
        meta.group_member = member;
    }
    action choose(bit<16> member) { meta.one_shot = member; }
    action point(bit<16> member) { meta.profile_member = member; }
    action set_class(bit<16> class) { meta.class = class; }
    action limit() { sources.read(meta.direct_colour); }
    action limit_and_add(bit<8> n) {
        sources.read(meta.direct_colour);
        meta.direct_colour = meta.direct_colour + n;
    }

    action set_mode(bit<16> mode) { meta.mode = mode; }
    table modes {
        key = {
            hdr.ip.dst: ternary;
            hdr.from_cpu.isValid(): exact;
        }
        actions = { set_mode; NoAction; }
        default_action = NoAction();
    }
    table balance {
        key = {
            hdr.ip.dst[11:8]: exact;
            hdr.ip.src: selector;
            hdr.ip.dst: selector;
            hdr.ip.protocol: selector;
            hdr.ip.id: selector;
        }
        actions = { to_member; drop; }
        implementation = group;
    }
    table spread {
        key = {
            hdr.ip.dst[9:8]: exact;
            hdr.ip.dst: selector;
            hdr.ip.id: selector;
        }
        actions = { choose; NoAction; }
        implementation = one_shot;
    }
    table by_prefix {
        key = { hdr.ip.src: lpm; }
        actions = { point; NoAction; }
        implementation = profile;
    }
    table by_range {
        key = { hdr.ip.dst[15:8]: range; }
        actions = { point; NoAction; }
        implementation = ranges;
    }
    table classify {
        key = {
            hdr.ip.total: range;
            hdr.ip.protocol: optional;
            hdr.ip.src: lpm;
            hdr.ip.id[7:0]: ternary;
            hdr.ports.isValid(): exact;
        }
        actions = { set_class; NoAction; }
        default_action = set_class(0xffff);
        counters = classes;
    }
    table limits_by_source {
        key = { hdr.ip.src[3:0]: exact; }
        actions = { limit; limit_and_add; NoAction; }
        default_action = NoAction();
        meters = sources;
        counters = limits;
    }

    apply {
        if (hdr.from_cpu.isValid()) {
            sm.egress_spec = (bit<9>) hdr.from_cpu.egress_port;
            hdr.from_cpu.setInvalid();
        } else if (!hdr.ip.isValid()) {
            drop();
        } else {
            modes.apply();
            sm.egress_spec = 7;
            meta.selected = (bit<1>) balance.apply().hit;
            spread.apply();
            by_prefix.apply();
            if (by_range.apply().hit) {
                meta.profile_member = meta.profile_member | 0x8000;
            }
            classify.apply();
            if (sm.instance_type == NORMAL) { // the order of other packets is the switch's own
                limits_by_source.apply();
                by_packets.execute_meter((bit<32>) hdr.ip.dst[3:0], meta.packet_colour);
                by_bytes.execute_meter((bit<32>) hdr.ip.dst[3:0], meta.byte_colour);
                protocols.count(hdr.ip.protocol);
                bit<32> cell = (bit<32>) hdr.ip.src[5:0];
                wides.read(meta.wide, cell);
                meta.wide = meta.wide + 0x10000000000000003;
                wides.write(cell, meta.wide);
                signeds.read(meta.signed, cell);
                meta.signed = meta.signed - 300;
                signeds.write(cell, meta.signed);
            }
            bit<16> any;
            random<bit<16>>(any, 100, 107);
            bit<16> one;
            random<bit<16>>(one, 0xabc, 0xabc);
            meta.in_bounds = (bit<1>) (any >= 100 && any <= 107 && one == 0xabc);
            assert(meta.in_bounds == 1);
            assume(hdr.ip.isValid());
            meta.checked = (bit<8>) sm.checksum_error;
            meta.lost = hdr.ip.id;

            if (meta.mode == 1) {
                meta.kept = hdr.ip.id + 1;
                clone_preserving_field_list(CloneType.I2E, 1, 1);
            } else if (meta.mode == 2) {
                meta.late = 2;
                meta.kept = hdr.ip.id + 2;
            } else if (meta.mode == 3 || meta.mode == 4) {
                meta.kept = hdr.ip.id + 3;
                sm.egress_spec = 11;
            } else if (meta.mode == 5) {
                if (sm.instance_type != RESUBMITTED || meta.rounds < 3) {
                    meta.rounds = meta.rounds + 1;
                    meta.kept = 0x7777;
                    resubmit_preserving_field_list(4);
                }
            } else if (meta.mode == 6) {
                truncate(50);
            } else if (meta.mode == 7) {
                sm.mcast_grp = 6;
            } else if (meta.mode == 8) {
                clone_preserving_field_list(CloneType.I2E, 3, 1);
                drop();
            } else if (meta.mode == 9) {
                clone_preserving_field_list(CloneType.I2E, 404, 1); // there is no such session
            } else if (meta.mode == 10) {
                if (sm.instance_type == NORMAL) {
                    clone_preserving_field_list(CloneType.I2E, 3, 2);
                    resubmit_preserving_field_list(4);
                }
                meta.rounds = meta.rounds + 5;
            } else if (meta.mode == 11) {
                hdr.ip.ttl = hdr.ip.ttl - 1;
            } else if (meta.mode == 12) {
                sm.egress_spec = CPU_PORT;
            } else if (meta.mode == 13) {
                sm.mcast_grp = 404; // nor such a group
            } else if (meta.mode == 14) {
                log_msg("packet of {} bytes", { sm.packet_length });
                exit;
            }
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    counter<bit<9>>(512, CounterType.packets) leaving;

    action set_stamp() {
        hdr.stamp.setValid();
        hdr.stamp.ingress_port = (bit<16>) sm.ingress_port;
        hdr.stamp.egress_rid = sm.egress_rid;
        hdr.stamp.instance_type = (bit<8>) sm.instance_type;
        hdr.stamp.length = (bit<16>) sm.packet_length;
        hdr.stamp.direct_colour = meta.direct_colour;
        hdr.stamp.packet_colour = meta.packet_colour;
        hdr.stamp.byte_colour = meta.byte_colour;
        hdr.stamp.group_member = meta.group_member;
        hdr.stamp.one_shot = meta.one_shot;
        hdr.stamp.profile_member = meta.profile_member;
        hdr.stamp.class = meta.class;
        hdr.stamp.wide = meta.wide;
        hdr.stamp.signed = meta.signed;
        hdr.stamp.kept = meta.kept;
        hdr.stamp.lost = meta.lost;
        hdr.stamp.rounds = meta.rounds;
        hdr.stamp.priority = (bit<8>) sm.priority;
        hdr.ethernet.ether_type = 0x88b5;
    }
    action hashes() {
        hash(hdr.stamp.crc32, HashAlgorithm.crc32, 32w0, { hdr.ip.src, hdr.ip.dst, hdr.ip.id }, 64w0x100000000);
        hash(hdr.stamp.crc32_custom, HashAlgorithm.crc32_custom, 32w0, { hdr.ip.src, hdr.ip.dst, hdr.ip.id }, 64w0x100000000);
        hash(hdr.stamp.crc16, HashAlgorithm.crc16, 16w0, { hdr.ip.src, hdr.ip.dst, hdr.ip.id }, 32w0x10000);
        hash(hdr.stamp.crc16_custom, HashAlgorithm.crc16_custom, 16w0, { hdr.ip.src, hdr.ip.dst, hdr.ip.id }, 32w0x10000);
        hash(hdr.stamp.csum16, HashAlgorithm.csum16, 16w0, { hdr.ip.src, hdr.ip.dst, hdr.ip.ihl, hdr.ip.version }, 32w0x10000);
        hash(hdr.stamp.xor16, HashAlgorithm.xor16, 16w0, { hdr.ip.src, hdr.ip.dst, hdr.ip.protocol }, 32w0x10000);
        hash(hdr.stamp.identity, HashAlgorithm.identity, 32w0, { hdr.ip.protocol, hdr.ip.id, hdr.ip.ttl }, 64w0x100000000);
        hash(hdr.stamp.offset, HashAlgorithm.crc32, 32w1000, { hdr.ip.src, 3w5, hdr.ip.fragment }, 32w777);
    }

    apply {
        leaving.count(sm.egress_port);
        if (sm.egress_port == CPU_PORT) {
            hdr.to_cpu.setValid();
            hdr.to_cpu.ingress_port = (bit<16>) sm.ingress_port;
        } else if (hdr.ip.isValid()) {
            if (meta.late == 2 && sm.instance_type == NORMAL) {
                meta.kept = meta.kept + 0x100;
                clone_preserving_field_list(CloneType.E2E, 2, 2);
                if (hdr.ip.id[0:0] == 1) {
                    mark_to_drop(sm); // the clone leaves all the same
                }
            }
            set_stamp();
            hashes();
            bool queued = sm.enq_timestamp != 0 && sm.enq_qdepth < 64 && sm.deq_qdepth < 64 && sm.deq_timedelta < 0x8000000 &&
                sm.egress_global_timestamp >= (bit<48>) sm.enq_timestamp;
            hdr.stamp.queue = (bit<8>) (bit<1>) queued;
            hdr.stamp.flags = meta.checked | ((bit<8>) meta.in_bounds << 1) | ((bit<8>) meta.selected << 2);
            if (sm.instance_type == EGRESS_CLONE) {
                hdr.ip.tos = 0xff;
            }
            if ((meta.mode == 3 || meta.mode == 4) && sm.instance_type == NORMAL) {
                meta.rounds = meta.rounds + 1;
                if (meta.rounds < (bit<8>) meta.mode) {
                    recirculate_preserving_field_list(3);
                }
            }
        }
    }
}

control C(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ip.isValid() && hdr.ip.ihl == 5,
            { hdr.ip.version, hdr.ip.ihl, hdr.ip.tos, hdr.ip.total, hdr.ip.id, hdr.ip.fragment, hdr.ip.ttl, hdr.ip.protocol, hdr.ip.src, hdr.ip.dst },
            hdr.ip.checksum, HashAlgorithm.csum16);
        update_checksum_with_payload(hdr.stamp.isValid(), { hdr.ip.src, hdr.ip.dst, hdr.ports }, hdr.stamp.checksum, HashAlgorithm.csum16);
    }
}

control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }

V1Switch(P(), V(), I(), E(), C(), D()) main;
