// SPDX-License-Identifier: Apache-2.0
// mark_to_drop on the standard metadata and on copies of them, which p4c makes for inout
// parameters: the drop takes effect where p4c copies back.
#include "common.p4"

header in_t {
    bit<8> op;
    bit<8> late;
    bit<16> spec;
}

struct headers_t {
    in_t x;
}

struct metadata_t {
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start {
        packet.extract(hdr.x);
        transition accept;
    }
}

// Marks what the caller passes.
action drop_in(inout standard_metadata_t given) {
    mark_to_drop(given);
}

control Inner(inout standard_metadata_t given, in bit<8> op) {
    apply {
        if (op == 4) {
            drop_in(given);
        } else if (op == 5) {
            mark_to_drop(given);
            given.egress_spec = 1;
        }
    }
}

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    Inner() inner;
    action forward() {
        sm.egress_spec = 1;
    }
    action drop() {
        mark_to_drop(sm);
    }
    action drop_and_write(inout standard_metadata_t given, inout bit<16> spec) {
        mark_to_drop(given);
        spec = (bit<16>)given.egress_spec;
    }
    apply {
        forward();
        if (hdr.x.op == 1) {
            drop();
        } else if (hdr.x.op == 2) {
            drop_in(sm);
        } else if (hdr.x.op == 3) {
            standard_metadata_t copy = sm;
            mark_to_drop(copy);
            hdr.x.spec = (bit<16>)copy.egress_spec;
        } else if (hdr.x.op == 6) {
            sm.mcast_grp = 7;
            drop_in(sm);
            forward();
        } else if (hdr.x.op == 7) {
            drop_and_write(sm, hdr.x.spec);
            forward();
        } else if (hdr.x.op == 8) {
            sm.mcast_grp = 7;
            drop_and_write(sm, hdr.x.spec);
        } else {
            inner.apply(sm, hdr.x.op);
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        if (hdr.x.late == 1) {
            drop_in(sm);
        } else if (hdr.x.late == 2) {
            standard_metadata_t copy = sm;
            mark_to_drop(copy);
        }
    }
}

NO_CHECKSUMS
EMIT_ALL
TEST_SWITCH
