// SPDX-License-Identifier: Apache-2.0
// Packets choose their port and priority, and carry away what the queue did to them.
#include "common.p4"

header in_t {
    bit<8> port;
    bit<8> priority;
    bit<8> number;
    bit<8> again;
}

header out_t {
    bit<48> in_time;
    bit<48> out_time;
    bit<32> enq_time;
    bit<32> enq_depth;
    bit<32> waited;
    bit<32> deq_depth;
}

struct headers_t {
    in_t x;
    out_t y;
}

struct metadata_t { }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start {
        packet.extract(hdr.x);
        transition accept;
    }
}

NO_CHECKSUMS

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = (bit<9>)hdr.x.port;
        sm.priority = (bit<3>)hdr.x.priority;
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        if (hdr.x.again > 0) {
            hdr.x.again = hdr.x.again - 1;
            recirculate_preserving_field_list(0);
        } else {
            hdr.y.setValid();
            hdr.y.in_time = sm.ingress_global_timestamp;
            hdr.y.out_time = sm.egress_global_timestamp;
            hdr.y.enq_time = sm.enq_timestamp;
            hdr.y.enq_depth = (bit<32>)sm.enq_qdepth;
            hdr.y.waited = sm.deq_timedelta;
            hdr.y.deq_depth = (bit<32>)sm.deq_qdepth;
        }
    }
}

EMIT_ALL
TEST_SWITCH
