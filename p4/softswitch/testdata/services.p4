// SPDX-License-Identifier: Apache-2.0
// What a control plane has to set up: profiles and selectors, meters, counters, digests, clones, multicast, value sets, timeouts.
// The first byte says what happens to a packet.
#include "common.p4"

#define OP_PLAIN 0
#define OP_CLONE 1
#define OP_MULTICAST 2
#define OP_DIGEST 3
#define OP_CLONE_EGRESS 4
#define OP_CLONE_FOREVER 5
#define OP_LOOP 6
#define OP_RANDOM 7
#define OP_ASSERT 8
#define OP_LOG 9
#define OP_METER 10
#define OP_TO_CPU 11
#define OP_FAR 12
#define OP_RESUBMIT_FOREVER 13

header in_t {
    bit<8> op;
    bit<8> session;
    bit<16> key;
    bit<32> flow;
    bit<32> v;
    bit<64> addr_high;
    bit<128> addr;
}

header out_t {
    bit<8> action_ran;
    bit<8> color;
    bit<8> direct_color;
    bit<8> in_set;
    bit<16> rid;
    bit<16> type;
    bit<32> kept;
    bit<32> lost;
    bit<48> in_ts;
    bit<48> out_ts;
    bit<32> enq_ts;
    bit<32> deq_delta;
    bit<19> enq_depth;
    bit<19> deq_depth;
    bit<10> pad;
    bit<16> in_port;
    bit<32> rand;
}

header tail_t {
    bit<32> x;
}

struct headers_t {
    in_t x;
    out_t y;
    tail_t t;
}

struct metadata_t {
    @field_list(1) bit<32> kept;
    bit<32> lost;
    bit<2> direct;
    bit<32> color;
    bit<8> in_set;
    bit<8> ran;
    bit<32> rand;
}

struct learn_t {
    bit<16> key;
    bit<9> port;
    bit<128> addr;
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    value_set<bit<16>>(4) keys;
    state start {
        packet.extract(hdr.x);
        transition select(hdr.x.key) {
            keys: member;
            default: accept;
        }
    }
    state member {
        meta.in_set = 1;
        transition accept;
    }
}

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    action_profile(16) members;
    action_selector(HashAlgorithm.crc16, 32, 16) groups;
    counter<bit<32>>(8, CounterType.packets_and_bytes) counted;
    meter<bit<32>>(8, MeterType.packets) cells;
    direct_counter(CounterType.packets_and_bytes) direct_counts;
    direct_meter<bit<2>>(MeterType.bytes) direct_meters;

    action to_port(bit<9> port, bit<8> mark) { sm.egress_spec = port; meta.ran = mark; }
    action drop() { mark_to_drop(sm); }
    action metered(bit<9> port) { direct_meters.read(meta.direct); sm.egress_spec = port; }
    action wide(bit<128> v, bit<8> mark) { hdr.x.addr = v; meta.ran = mark; }

    table exacts {
        key = { hdr.x.key: exact; hdr.x.flow: exact; }
        actions = { to_port; drop; }
        default_action = to_port(1, 0);
        size = 4;
        support_timeout = true;
        counters = direct_counts;
    }
    table metered_table {
        key = { hdr.x.key: exact; }
        actions = { metered; NoAction; }
        default_action = NoAction();
        meters = direct_meters;
    }
    table lpm4 {
        key = { hdr.x.flow: lpm; }
        actions = { to_port; NoAction; }
        default_action = NoAction();
        size = 2048;
    }
    table lpm6 {
        key = { hdr.x.key: exact; hdr.x.addr: lpm; }
        actions = { wide; NoAction; }
        default_action = NoAction();
    }
    table ternaries {
        key = { hdr.x.addr: ternary; hdr.x.key: range; hdr.x.v: optional; }
        actions = { to_port; NoAction; }
        default_action = NoAction();
    }
    table profiled {
        key = { hdr.x.key: exact; }
        actions = { to_port; drop; NoAction; }
        implementation = members;
    }
    table selected {
        key = { hdr.x.key: exact; hdr.x.flow: selector; hdr.x.v: selector; }
        actions = { to_port; drop; NoAction; }
        implementation = groups;
    }

    apply {
        exacts.apply();
        metered_table.apply();
        lpm4.apply();
        lpm6.apply();
        ternaries.apply();
        profiled.apply();
        selected.apply();
        counted.count((bit<32>)hdr.x.session);
        meta.kept = hdr.x.v;
        meta.lost = hdr.x.v;
        if (hdr.x.op == OP_CLONE) {
            clone_preserving_field_list(CloneType.I2E, (bit<32>)hdr.x.session, 1);
        } else if (hdr.x.op == OP_MULTICAST) {
            sm.mcast_grp = (bit<16>)hdr.x.session;
        } else if (hdr.x.op == OP_DIGEST) {
            digest<learn_t>(1, { hdr.x.key, sm.ingress_port, hdr.x.addr });
        } else if (hdr.x.op == OP_RANDOM) {
            random(meta.rand, 10, 20);
        } else if (hdr.x.op == OP_ASSERT) {
            assert(hdr.x.v < 100);
        } else if (hdr.x.op == OP_LOG) {
            log_msg("key {} and value {}", { hdr.x.key, hdr.x.v });
        } else if (hdr.x.op == OP_METER) {
            cells.execute_meter((bit<32>)hdr.x.session, meta.color);
        } else if (hdr.x.op == OP_TO_CPU) {
            sm.egress_spec = 255;
        } else if (hdr.x.op == OP_FAR) {
            sm.egress_spec = 300;
        } else if (hdr.x.op == OP_RESUBMIT_FOREVER) {
            resubmit_preserving_field_list(1);
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        if (hdr.x.op == OP_CLONE_EGRESS && sm.instance_type == 0) {
            clone_preserving_field_list(CloneType.E2E, (bit<32>)hdr.x.session, 1);
            meta.lost = 5;
        } else if (hdr.x.op == OP_CLONE_FOREVER) {
            clone_preserving_field_list(CloneType.E2E, (bit<32>)hdr.x.session, 1);
        } else if (hdr.x.op == OP_LOOP) {
            recirculate_preserving_field_list(1);
        }
        hdr.y.setValid();
        hdr.y.action_ran = meta.ran;
        hdr.y.color = (bit<8>)meta.color;
        hdr.y.direct_color = (bit<8>)meta.direct;
        hdr.y.in_set = meta.in_set;
        hdr.y.rid = sm.egress_rid;
        hdr.y.type = (bit<16>)sm.instance_type;
        hdr.y.kept = meta.kept;
        hdr.y.lost = meta.lost;
        hdr.y.in_ts = sm.ingress_global_timestamp;
        hdr.y.out_ts = sm.egress_global_timestamp;
        hdr.y.enq_ts = sm.enq_timestamp;
        hdr.y.deq_delta = sm.deq_timedelta;
        hdr.y.enq_depth = sm.enq_qdepth;
        hdr.y.deq_depth = sm.deq_qdepth;
        hdr.y.pad = 0;
        hdr.y.in_port = (bit<16>)sm.ingress_port;
        hdr.y.rand = meta.rand;
    }
}

NO_CHECKSUMS
EMIT_ALL
TEST_SWITCH
