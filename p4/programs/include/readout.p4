// SPDX-License-Identifier: Apache-2.0
// Read-out: a packet-out with op NS_OP_READ names an object, a bank and the first of NS_CELLS
// cells, and returns as packet-in with those cells. The action that reads a cell sets it to zero.
// A request for cells that do not exist returns with reason NS_REASON_REFUSED and changes nothing.
//
// A structure declares a register of NS_BANKS * CELLS cells, CELLS a multiple of NS_CELLS, has
// NS_READ_AND_CLEAR(register) in an action, and calls that action if NS_ASKED(object, CELLS).

#ifndef NETSKETCH_READOUT_P4
#define NETSKETCH_READOUT_P4

#include "headers.p4"

// The index is a header field that is incremented in place: an expression in each call would take
// one metadata field per call.
#define NS_READ_CELL(register_name, field) \
    register_name.read(hdr.cells.field, hdr.packet_out.index); \
    register_name.write(hdr.packet_out.index, 0); \
    hdr.packet_out.index = hdr.packet_out.index + 1;

// NS_READ_CELL for a register with narrower cells, through a field of the cells' width.
#define NS_READ_NARROW_CELL(register_name, field, narrow) \
    register_name.read(narrow, hdr.packet_out.index); \
    hdr.cells.field = (bit<32>)narrow; \
    register_name.write(hdr.packet_out.index, 0); \
    hdr.packet_out.index = hdr.packet_out.index + 1;

#define NS_READ_AND_CLEAR_BY(READ_CELL, register_name, cells) \
    hdr.packet_in.reason = NS_REASON_READ; \
    hdr.packet_out.index = hdr.packet_out.index + (bit<32>)hdr.packet_out.bank * (cells); \
    NS_EACH_CELL(READ_CELL, register_name)

#define NS_READ_AND_CLEAR(register_name, cells) \
    NS_READ_AND_CLEAR_BY(NS_READ_CELL, register_name, cells)

#define NS_ASKED(number, cells) \
    (hdr.packet_out.object == (number) && hdr.packet_out.bank < NS_BANKS \
     && hdr.packet_out.index < (cells) && (hdr.packet_out.index & (NS_CELLS - 1)) == 0)

// Converts a request to its answer. The answer is a refusal until a structure fills it.
control BeginAnswer(inout headers_t hdr, inout standard_metadata_t standard_metadata) {
    action answer() {
        hdr.packet_in.setValid();
        hdr.packet_in.reason = NS_REASON_REFUSED;
        hdr.packet_in.ingress_port = (bit<16>)standard_metadata.ingress_port;
        hdr.packet_in.object = hdr.packet_out.object;
        hdr.packet_in.bank = hdr.packet_out.bank;
        hdr.packet_in.index = hdr.packet_out.index;
        hdr.packet_in.seq = hdr.packet_out.seq;
        standard_metadata.egress_spec = NS_CPU_PORT;
    }

    apply {
        answer();
    }
}

#endif
