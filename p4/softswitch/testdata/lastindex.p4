// SPDX-License-Identifier: Apache-2.0
// A select on the last index of a stack, its last header taken as a whole, the validity of a union in a stack: p4c compiles them, BMv2
// does not run them. The first byte says how many headers of a byte follow.
#include <core.p4>
#include <v1model.p4>

header count_t { bit<8> n; }
header item_t { bit<8> value; }
header found_t { bit<8> items; bit<8> full; bit<8> last; }

header_union either_t {
    count_t count;
    item_t item;
}

struct headers_t { found_t found; count_t count; item_t[3] items; either_t[2] either; }
struct metadata_t { bit<8> full; item_t last; }

parser P(packet_in pkt, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start {
        pkt.extract(hdr.count);
        transition select(hdr.count.n) {
            0: accept;
            default: item;
        }
    }
    state item {
        pkt.extract(hdr.items.next);
        meta.last = hdr.items.last;
        transition select(hdr.items.lastIndex, hdr.count.n) {
            (0, 1): accept;
            (1, 2): accept;
            (2, 3..255): full;
            default: item;
        }
    }
    state full {
        meta.full = 1;
        transition accept;
    }
}

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        hdr.found.setValid();
        hdr.found.full = meta.full;
        if (hdr.count.n > 100) {
            hdr.either[1].item.setValid();
        }
        if (hdr.either[1].isValid() && !hdr.either[0].isValid()) {
            hdr.found.full = hdr.found.full | 2;
        }
        hdr.found.last = 0;
        if (meta.last.isValid()) {
            hdr.found.last = meta.last.value;
        }
        hdr.found.items = (bit<8>) (bit<1>) hdr.items[0].isValid() + (bit<8>) (bit<1>) hdr.items[1].isValid() + (bit<8>) (bit<1>) hdr.items[2].isValid();
    }
}

control N(inout headers_t hdr, inout metadata_t meta) { apply {} }
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) { apply {} }
control D(packet_out pkt, in headers_t hdr) { apply { pkt.emit(hdr.found); } }

V1Switch(P(), N(), I(), E(), N(), D()) main;
