// SPDX-License-Identifier: Apache-2.0
// Headers of INT-MD version 2.1 over TCP and UDP and of telemetry reports version 2.0, as the
// specifications of the P4 applications working group define them.

#ifndef NETSKETCH_INT_HEADERS_P4
#define NETSKETCH_INT_HEADERS_P4

// The list of fields that a clone keeps.
#define NS_SKETCHINT_CLONE 1

// States of INT in a packet that arrived: values of sketchint_scratch_t.state.
#define IM_STATE_NONE 0
#define IM_STATE_UNKNOWN 1 // the DSCP of INT, but not INT-MD of version 2
#define IM_STATE_LENGTH 2  // a length below the header's length, or beyond the IP packet
#define IM_STATE_PRESENT 3

// Follows the TCP or UDP header of a packet with the DSCP of INT.
header int_shim_t {
    bit<4> kind; // 1: INT-MD
    bit<2> npt;  // 0: the DSCP marks INT
    bit<2> reserved0;
    bit<8> length; // length of what follows the shim, in words of four bytes
    bit<8> reserved1;
    bit<6> dscp; // DSCP of the packet before INT
    bit<2> reserved2;
}

header int_md_t {
    bit<4>  version;
    bit<1>  discard;
    bit<1>  hops_exceeded;
    bit<1>  mtu_exceeded;
    bit<12> reserved;
    bit<5>  hop_words; // metadata of a hop, in words
    bit<8>  remaining_hops;
    bit<16> instructions;
    bit<16> domain;
    bit<16> ds_instructions;
    bit<16> ds_flags;
}

// Metadata of this hop, by instruction bit from the highest one.
header int_node_t {
    bit<32> id;
}

header int_ports_t {
    bit<16> ingress;
    bit<16> egress;
}

header int_latency_t {
    bit<32> latency;
}

header int_queue_t {
    bit<8>  id;
    bit<24> occupancy;
}

header int_time_t {
    bit<64> time;
}

// The value of metadata that the switch does not have: all ones.
header int_pad1_t { bit<32> ones; }
header int_pad2_t { bit<64> ones; }
header int_pad4_t { bit<128> ones; }
header int_pad8_t { bit<256> ones; }
header int_pad16_t { bit<512> ones; }

// Metadata of earlier hops, the latest hop first: at most 255 words less the header.
header int_stack_t {
    varbit<8064> hops;
}

// A telemetry report from its UDP header to the metadata of the sink.
header int_report_t {
    bit<16> src_port;
    bit<16> dst_port;
    bit<16> udp_length;
    bit<16> udp_checksum;
    // group
    bit<4>  version;
    bit<6>  hardware;
    bit<22> sequence;
    bit<32> node;
    // individual report
    bit<4>  kind;  // 1: INT
    bit<4>  inner; // 3: Ethernet
    bit<8>  length;
    bit<8>  metadata_length;
    bit<1>  dropped;
    bit<1>  congested;
    bit<1>  tracked;
    bit<1>  intermediate;
    bit<4>  reserved;
    // INT
    bit<16> metadata_bits;
    bit<16> domain;
    bit<16> ds_bits;
    bit<16> ds_status;
    bit<16> ingress_port;
    bit<16> egress_port;
    bit<32> latency;
    bit<8>  queue;
    bit<24> occupancy;
    bit<64> ingress_time;
    bit<64> egress_time;
}

// Fills the truncated packet of a report up to a whole word. The headers of the packet have 4n + 2
// bytes.
header int_fill_t {
    bit<16> zero;
}

// Temporaries of sketchint-towers.p4. The parser sets the first ones.
struct sketchint_towers_scratch_t {
    bit<256> stack;  // the latest hops that were read; the lowest 64 bits hold the oldest one
    bit<8>  hops;    // hops in stack
    bit<1>  unread;  // INT has a stack of another form
    bit<32> node;
    bit<32> latency;
    bit<32> place;   // hash of the flow and the node id
    bit<32> first;   // first cell of the bank
    bit<32> column;
    bit<32> cell;
    bit<32> upper;
    bit<32> third;
    bit<32> word;
    bit<32> high;
    bit<32> highest;
    bit<96> wide;
    bit<8>  shift;
    bit<64> bucket;
    bit<64> packets;
    bit<64> sum;
}

// Temporaries of sketchint.p4. The parser sets the first ones.
struct sketchint_scratch_t {
    bit<6>  dscp;
    bit<1>  closed;    // INT is not inserted: IP fragments, and packets in a shim or a tunnel
    bit<1>  whole;     // the TCP or UDP header is complete: a source may insert INT
    bit<2>  state;     // state of INT in the packet: IM_STATE_
    bit<32> payload;   // bytes after the headers above, and after INT if there is INT
    bit<32> link;      // bytes of the Ethernet header and tags
    bit<1>  start;     // this switch is the INT source of the packet
    bit<16> instructions;
    bit<8>  hops;
    bit<32> mtu;
    bit<32> ip_length;
    bit<8>  known;     // words of metadata that the switch has
    bit<8>  words;     // words that the instructions request
    bit<8>  pad;       // words of all ones
    bit<16> checksum;  // complement of the TCP or UDP checksum
    bit<1>  sum_tcp;   // the TCP checksum changes
    bit<1>  sum_udp;
    bit<16> removed;   // complement of the sum of INT before this switch
    bit<16> zero;
    bit<16> length_sum; // change of the length, as a term of the checksum
    bit<16> growth;    // change of the length, in bytes
    bit<32> session;
    bit<32> sequence;
    bit<1>  sink;
    // These fields stay in a clone, which becomes the report.
    @field_list(NS_SKETCHINT_CLONE) bit<32> node;
    @field_list(NS_SKETCHINT_CLONE) bit<16> ingress_port;
    @field_list(NS_SKETCHINT_CLONE) bit<16> egress_port;
    @field_list(NS_SKETCHINT_CLONE) bit<32> latency;
    @field_list(NS_SKETCHINT_CLONE) bit<24> occupancy;
    @field_list(NS_SKETCHINT_CLONE) bit<64> ingress_time;
    @field_list(NS_SKETCHINT_CLONE) bit<64> egress_time;
    @field_list(NS_SKETCHINT_CLONE) bit<16> bytes;    // bytes that the sink removed
    @field_list(NS_SKETCHINT_CLONE) bit<32> inner;    // bytes of the packet in the report
}

#endif
