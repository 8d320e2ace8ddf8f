// SPDX-License-Identifier: Apache-2.0
// Resubmit and recirculate with preserved metadata, truncation, drops, packet length, checksums with and without payload.
#include "common.p4"

header in_t {
    bit<8> op;
    bit<8> rounds;
    bit<16> sum;
    bit<16> sum2;
    bit<32> value;
}

header trail_t {
    bit<8> kind;
    bit<8> type;
    bit<32> kept;
    bit<32> lost;
    bit<32> length;
}

struct headers_t {
    in_t x;
    trail_t t;
}

struct metadata_t {
    @field_list(1) bit<32> kept;
    @field_list(1, 2) bit<8> round;
    bit<32> lost;
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start {
        packet.extract(hdr.x);
        transition accept;
    }
}

control V(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.x.op < 128, { hdr.x.op, hdr.x.rounds, hdr.x.value }, hdr.x.sum, HashAlgorithm.csum16);
    }
}

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        meta.lost = meta.lost + 3;
        if (hdr.x.op == 1 && meta.round < (hdr.x.rounds & 7)) {
            meta.round = meta.round + 1;
            meta.kept = meta.kept + hdr.x.value;
            hdr.x.value = 0;
            resubmit_preserving_field_list(1);
        } else if (hdr.x.op == 2) {
            mark_to_drop(sm);
        } else if (hdr.x.op == 3) {
            truncate((bit<32>)hdr.x.rounds);
        } else if (hdr.x.op == 4) {
            sm.egress_spec = 511;
        }
        hdr.x.sum2 = hdr.x.sum2 ^ (bit<16>)sm.checksum_error;
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        if (hdr.x.op == 5 && meta.round < (hdr.x.rounds & 7)) {
            meta.round = meta.round + 1;
            meta.kept = meta.kept + 1;
            hdr.x.value = hdr.x.value + 1;
            recirculate_preserving_field_list(2);
        } else if (hdr.x.op == 6) {
            mark_to_drop(sm);
        } else {
            hdr.t.setValid();
            hdr.t.kind = meta.round;
            hdr.t.type = (bit<8>)sm.instance_type;
            hdr.t.kept = meta.kept;
            hdr.t.lost = meta.lost;
            hdr.t.length = sm.packet_length;
        }
    }
}

control C(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.x.op != 7, { hdr.x.op, hdr.x.rounds, hdr.x.value }, hdr.x.sum, HashAlgorithm.csum16);
        update_checksum_with_payload(hdr.x.op == 8, { hdr.x.op, hdr.x.value }, hdr.x.sum2, HashAlgorithm.csum16);
    }
}

EMIT_ALL
TEST_SWITCH
