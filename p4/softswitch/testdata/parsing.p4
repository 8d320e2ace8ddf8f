// SPDX-License-Identifier: Apache-2.0
// Stacks, variable-length fields, lookahead, advance, verify, selects with masks and ranges, parser errors.
#include "common.p4"

error { BadKind, BadValue }

header kind_t {
    bit<4> kind;
    bit<4> len;
    bit<16> value;
}

header label_t {
    bit<20> label;
    bit<3> tc;
    bit<1> bos;
    bit<8> ttl;
}

header options_t {
    varbit<320> data;
}

header mixed_t {
    bit<8> before;
    varbit<64> data;
    bit<3> after;
    bit<5> last;
}

header small_t {
    bit<16> x;
}

header report_t {
    bit<8> error_code;
    bit<8> path;
    bit<8> peek;
    bit<16> last;
    bit<8> depth;
    bit<32> length;
}

struct headers_t {
    report_t report;
    kind_t kind;
    label_t[3] labels;
    options_t options;
    mixed_t mixed;
    small_t small;
}

struct metadata_t {
    bit<8> path;
    bit<8> peek;
    bit<16> last;
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start {
        packet.extract(hdr.kind);
        transition select(hdr.kind.kind, hdr.kind.value) {
            (0, _): accept;
            (1, _): labels;
            (2, 0x100 &&& 0xff00): masked;
            (2, 16 .. 0xff): ranged;
            (2, _): looked;
            (3, _): options;
            (4, _): mixed;
            (5, _): skip;
            (6, _): checked;
            (7, _): reject;
            (8, _): unmatched;
        }
    }
    state labels {
        packet.extract(hdr.labels.next);
        meta.last = hdr.labels.last.label[15:0];
        transition select(hdr.labels.last.bos) {
            0: labels;
            1: labeled;
        }
    }
    state labeled {
        meta.path = 1;
        transition accept;
    }
    state masked {
        meta.path = 2;
        transition small;
    }
    state ranged {
        meta.path = 3;
        transition small;
    }
    state looked {
        meta.peek = packet.lookahead<bit<8>>();
        transition select(packet.lookahead<bit<12>>()) {
            0 .. 0x7ff: small;
            default: accept;
        }
    }
    state options {
        packet.extract(hdr.options, (bit<32>)hdr.kind.len << 5);
        meta.path = 4;
        transition small;
    }
    state mixed {
        packet.extract(hdr.mixed, (bit<32>)hdr.kind.len << 3);
        meta.path = 5;
        transition small;
    }
    state skip {
        packet.advance((bit<32>)hdr.kind.len * 8);
        meta.path = 6;
        transition small;
    }
    state checked {
        verify(hdr.kind.len < 8, error.BadKind);
        meta.path = 7;
        verify(hdr.kind.value[0:0] == 0, error.BadValue);
        meta.path = 8;
        transition small;
    }
    state unmatched {
        transition select(hdr.kind.len) {
            1: small;
            2: accept;
        }
    }
    state small {
        packet.extract(hdr.small);
        transition accept;
    }
}

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        hdr.report.setValid();
        if (sm.parser_error == error.NoError) {
            hdr.report.error_code = 0;
        } else if (sm.parser_error == error.PacketTooShort) {
            hdr.report.error_code = 1;
        } else if (sm.parser_error == error.NoMatch) {
            hdr.report.error_code = 2;
        } else if (sm.parser_error == error.StackOutOfBounds) {
            hdr.report.error_code = 3;
        } else if (sm.parser_error == error.HeaderTooShort) {
            hdr.report.error_code = 4;
        } else if (sm.parser_error == error.ParserInvalidArgument) {
            hdr.report.error_code = 5;
        } else if (sm.parser_error == error.BadKind) {
            hdr.report.error_code = 6;
        } else if (sm.parser_error == error.BadValue) {
            hdr.report.error_code = 7;
        } else {
            hdr.report.error_code = 99;
        }
        hdr.report.path = meta.path;
        hdr.report.peek = meta.peek;
        hdr.report.last = meta.last;
        hdr.report.length = sm.packet_length;
        hdr.report.depth = 0;
        if (hdr.labels[0].isValid()) {
            hdr.report.depth = hdr.report.depth + 1;
        }
        if (hdr.labels[1].isValid()) {
            hdr.report.depth = hdr.report.depth + 1;
        }
        if (hdr.labels[2].isValid()) {
            hdr.report.depth = hdr.report.depth + 1;
        }
        sm.egress_spec = 1;
    }
}

NO_CHECKSUMS
NO_EGRESS
EMIT_ALL
TEST_SWITCH
