// SPDX-License-Identifier: Apache-2.0
// Two tables share an action profile; p4c gives each of them copies of the actions. The first byte is the key, the next two are
// what the tables point at, and the port is the last one's.
#include <core.p4>
#include <v1model.p4>

header x_t {
    bit<8> key;
    bit<8> first;
    bit<8> second;
}

struct headers_t { x_t x; }
struct metadata_t { bit<8> mark; }

parser P(packet_in pkt, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start {
        pkt.extract(hdr.x);
        transition accept;
    }
}

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    action_profile(8) members;
    action point(bit<8> mark) { meta.mark = mark; }
    table one {
        key = { hdr.x.key: exact; }
        actions = { point; NoAction; }
        implementation = members;
    }
    table two {
        key = { hdr.x.key: exact; }
        actions = { point; NoAction; }
        implementation = members;
    }
    apply {
        one.apply();
        hdr.x.first = meta.mark;
        meta.mark = 0;
        two.apply();
        hdr.x.second = meta.mark;
        sm.egress_spec = 1;
    }
}

control N(inout headers_t hdr, inout metadata_t meta) { apply {} }
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) { apply {} }
control D(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr.x); } }

V1Switch(P(), N(), I(), E(), N(), D()) main;
