// SPDX-License-Identifier: Apache-2.0
// Headers, metadata and constants that every netsketch program shares.

#ifndef NETSKETCH_HEADERS_P4
#define NETSKETCH_HEADERS_P4

#include <core.p4>
#include <v1model.p4>

// The port of packet-out and packet-in messages, the same number as BMv2's --cpu-port.
#define NS_CPU_PORT 255

// Banks of every measured register: one is written, the others are read. A power of two, at most
// 256.
#ifndef NS_BANKS
#define NS_BANKS 2
#endif

// Cells of 32 bits that one read-out packet carries.
#define NS_CELLS 256

// Values of packet_out.op.
#define NS_OP_SEND 0
#define NS_OP_READ 1

// Values of packet_in.reason. Algorithms use numbers from 2 to 254.
#define NS_REASON_PUNT 0
#define NS_REASON_READ 1
#define NS_REASON_REFUSED 255

// Why a packet was dropped: metadata_t.drop, and the index into ingress.drops.
#define NS_KEEP 0
#define NS_DROP_MALFORMED 1 // parser error: cut short, bad IP version, bad IHL
#define NS_DROP_CHECKSUM 2  // bad IPv4 header checksum
#define NS_DROP_NOT_IP 3    // neither IPv4 nor IPv6, and not trapped
#define NS_DROP_TTL 4       // TTL or hop limit would reach zero
#define NS_DROP_ROUTE 5     // no route, or a route with action drop
#define NS_DROP_REQUEST 6   // packet-out cut short or with an unknown op
#define NS_DROP_DEPTH 7     // more encapsulations than the parser has room for
#define NS_DROP_REASONS 8

// Why a packet has no flow: cells of ingress.unparsed.
#define NS_UNPARSED_NOT_IP 1
#define NS_UNPARSED_TRUNCATED 2
#define NS_UNPARSED_VERSION 3
#define NS_UNPARSED_LENGTH 4
#define NS_UNPARSED_CHECKSUM 5
#define NS_UNPARSED_DEPTH 6
// Added to the reason of a forwarded packet, of which only the packet in its tunnel has the fault.
#define NS_UNPARSED_FORWARDED 8

// The value of standard_metadata.instance_type for a packet that was cloned in egress.
#define NS_EGRESS_CLONE 2

// The full range of a 32-bit hash, as the modulus of v1model's hash().
#define NS_HASH_RANGE 64w0x100000000

typedef bit<48> mac_t;
typedef bit<9> port_t;

error {
    BadIpVersion,
    BadIpv4HeaderLength
#ifdef NS_WITH_ENCAPSULATION
    , BadInnerChecksum
#endif
}

// A packet from the controller. op NS_OP_SEND: the payload leaves by egress_port unchanged.
// op NS_OP_READ: the payload is one cells_t, which the switch fills and returns.
@controller_header("packet_out")
header packet_out_t {
    bit<8>  op;
    bit<16> egress_port;
    bit<8>  object;
    bit<8>  bank;
    bit<32> index;
    bit<32> seq;
}

// A packet to the controller; object, bank, index and seq are those of the request.
@controller_header("packet_in")
header packet_in_t {
    bit<8>  reason;
    bit<16> ingress_port;
    bit<8>  object;
    bit<8>  bank;
    bit<32> index;
    bit<32> seq;
}

header ethernet_t {
    mac_t   dst;
    mac_t   src;
    bit<16> ether_type;
}

header vlan_t {
    bit<3>  pcp;
    bit<1>  dei;
    bit<12> vid;
    bit<16> ether_type;
}

header ipv4_t {
    bit<4>  version;
    bit<4>  ihl;
    bit<8>  tos;
    bit<16> total_length;
    bit<16> identification;
    bit<3>  flags;
    bit<13> fragment_offset;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> src;
    bit<32> dst;
}

header ipv4_options_t {
    varbit<320> options;
}

header ipv6_t {
    bit<4>   version;
    bit<8>   traffic_class;
    bit<20>  flow_label;
    bit<16>  payload_length;
    bit<8>   next_header;
    bit<8>   hop_limit;
    bit<128> src;
    bit<128> dst;
}

header ipv6_fragment_t {
    bit<8>  next_header;
    bit<8>  reserved;
    bit<13> fragment_offset;
    bit<2>  reserved2;
    bit<1>  more;
    bit<32> identification;
}

// The first four bytes of TCP and of UDP.
header ports_t {
    bit<16> src;
    bit<16> dst;
}

#ifdef NS_WITH_ENCAPSULATION
// How many headers are parsed. hostagent/packet and its eBPF program have the same bounds.
#define NS_MORE_TAGS 2 // VLAN tags behind the first two
#define NS_LABELS 6
#define NS_EXTENSIONS 3
#define NS_INNER_HEADERS 8 // headers behind the outer IP header and its extension headers

// An MPLS label (RFC 3032).
header mpls_t {
    bit<20> label;
    bit<3>  traffic_class;
    bit<1>  bottom;
    bit<8>  ttl;
}

// A PPPoE session (RFC 2516), and the protocol of PPP.
header pppoe_t {
    bit<16> kind; // version, type and code
    bit<16> session;
    bit<16> length;
    bit<16> protocol;
}

// An IPv6 extension header of at most 48 bytes.
header ipv6_extension_t {
    bit<8>      next_header;
    bit<8>      length;
    varbit<368> rest;
}

// A header behind the outer IP header, of any kind.
header inner_header_t {
    varbit<480> bytes;
}

// State of the parser behind the outer IP header. It is valid if headers follow there, and never
// emitted. It is a header because BMv2 clears all metadata of every packet.
header inner_t {
    bit<8>   headers;  // number of headers; each word of IPv4 options counts
    bit<16>  kind;     // EtherType of the next header
    bit<8>   words;    // words of IPv4 options that are still to come
    bit<32>  sum;      // sum over an IPv4 header
    // The fields of the last IP header.
    bit<8>   version;  // IP version; 0: no IP header
    bit<13>  fragment_offset;
    bit<3>   pad;
    bit<8>   protocol;
    bit<16>  src_port;
    bit<16>  dst_port;
    bit<32>  src4;     // source address of IPv4
    bit<32>  dst4;
    bit<128> src;      // source address; IPv4 has the first 32 bits
    bit<128> dst;
    bit<32>  outer;    // five_tuple of the outer flow
}
#endif

#if defined(NS_WITH_OMNIMON) || defined(NS_WITH_SKETCHINT) || defined(NS_WITH_LIGHTGUARDIAN)
// TCP's fixed header after the ports.
header tcp_t {
    bit<32> sequence;
    bit<32> acknowledgment;
    bit<4>  data_offset;
    bit<4>  reserved;
    bit<8>  flags;
    bit<16> window;
    bit<16> checksum;
    bit<16> urgent;
}
#endif

#if defined(NS_WITH_SKETCHINT) || defined(NS_WITH_LIGHTGUARDIAN)
// UDP's header after the ports.
header udp_t {
    bit<16> length;
    bit<16> checksum;
}

header tcp_options_t {
    varbit<320> options;
}
#endif

#include "carrier-headers.p4"

#ifdef NS_WITH_SKETCHINT
#include "int-headers.p4"
#endif

#ifdef NS_WITH_LIGHTGUARDIAN
#include "lightguardian-headers.p4"
#endif

// A block of register cells for the collector, as readout.p4 describes it.
#define NS_CELL_FIELD(unused, name) bit<32> name;
#define NS_EACH_16(M, R, p) \
    M(R, p##0) M(R, p##1) M(R, p##2) M(R, p##3) M(R, p##4) M(R, p##5) M(R, p##6) M(R, p##7) \
    M(R, p##8) M(R, p##9) M(R, p##a) M(R, p##b) M(R, p##c) M(R, p##d) M(R, p##e) M(R, p##f)
#define NS_EACH_CELL(M, R) \
    NS_EACH_16(M, R, c0) NS_EACH_16(M, R, c1) NS_EACH_16(M, R, c2) NS_EACH_16(M, R, c3) \
    NS_EACH_16(M, R, c4) NS_EACH_16(M, R, c5) NS_EACH_16(M, R, c6) NS_EACH_16(M, R, c7) \
    NS_EACH_16(M, R, c8) NS_EACH_16(M, R, c9) NS_EACH_16(M, R, ca) NS_EACH_16(M, R, cb) \
    NS_EACH_16(M, R, cc) NS_EACH_16(M, R, cd) NS_EACH_16(M, R, ce) NS_EACH_16(M, R, cf)

header cells_t {
    NS_EACH_CELL(NS_CELL_FIELD, _)
}

struct headers_t {
    packet_in_t     packet_in;
    packet_out_t    packet_out;
#ifdef NS_WITH_SKETCHINT
    ethernet_t      report_ethernet;
    ipv4_t          report_ipv4;
    int_report_t    report;
#endif
    ethernet_t      ethernet;
    vlan_t          vlan_outer;
    vlan_t          vlan_inner;
#ifdef NS_WITH_ENCAPSULATION
    vlan_t[NS_MORE_TAGS] vlans;
    mpls_t[NS_LABELS] mpls;
    pppoe_t         pppoe;
#endif
    shim_t          shim;
    ipv4_t          ipv4;
#ifdef NS_WITH_OMNIMON
    ipv4_carrier_t  ipv4_carrier;
#endif
    ipv4_options_t  ipv4_options;
    ipv6_t          ipv6;
    ipv6_carrier_t  ipv6_carrier;
    ports_t         tunnel_ports;
    tunnel_t        tunnel;
    ipv4_t          carried_ipv4; // the packet in the tunnel
    ipv4_options_t  carried_ipv4_options;
    ipv6_t          carried_ipv6;
    ipv6_fragment_t ipv6_fragment;
#ifdef NS_WITH_ENCAPSULATION
    ipv6_extension_t[NS_EXTENSIONS] ipv6_extensions;
#endif
    ports_t         ports;
#ifdef NS_WITH_ENCAPSULATION
    inner_header_t[NS_INNER_HEADERS] inner_headers;
    inner_t         inner;
#endif
#if defined(NS_WITH_OMNIMON) || defined(NS_WITH_SKETCHINT) || defined(NS_WITH_LIGHTGUARDIAN)
    tcp_t           tcp;
#endif
#ifdef NS_WITH_LIGHTGUARDIAN
    tcp_options_t   tcp_options;
    udp_t           udp;
    sketchlet_t     sketchlet;
    sketchlet_cells_t sketchlet_cells;
    sketchlet_row_t sketchlet_row0;
#if NS_LIGHTGUARDIAN_ROWS > 1
    sketchlet_row_t sketchlet_row1;
#endif
#if NS_LIGHTGUARDIAN_ROWS > 2
    sketchlet_row_t sketchlet_row2;
#endif
#if NS_LIGHTGUARDIAN_ROWS > 3
    sketchlet_row_t sketchlet_row3;
#endif
#endif
#ifdef NS_WITH_SKETCHINT
    tcp_options_t   tcp_options;
    udp_t           udp;
    int_shim_t      int_shim;
    int_md_t        int_md;
    int_node_t      int_node;
    int_ports_t     int_ports;
    int_latency_t   int_latency;
    int_queue_t     int_queue;
    int_time_t      int_ingress_time;
    int_time_t      int_egress_time;
    int_pad1_t      int_pad1;
    int_pad2_t      int_pad2;
    int_pad4_t      int_pad4;
    int_pad8_t      int_pad8;
    int_pad16_t     int_pad16;
    int_stack_t     int_stack;
    int_fill_t      report_fill;
    // Headers that a sink removed; they are not emitted.
    int_shim_t      kept_shim;
    int_md_t        kept_md;
    int_stack_t     kept_stack;
#endif
    cells_t         cells;
}

// The flow of a packet. Ports are zero if the packet has none.
struct flow_t {
    bit<8>  protocol;
    bit<16> src_port;
    bit<16> dst_port;
    bit<32> five_tuple; // crc32 of source, destination, protocol and ports
    bit<32> src;        // crc32 of the source address
    bit<32> dst;        // crc32 of the destination address
#ifdef NS_WITH_UNIVMON_PAIR
    bit<32> pair;       // crc32 of both addresses
#endif
#ifdef NS_WITH_UNIVMON_SERVICE
    bit<32> service;    // crc32 of the destination address and port
#endif
#ifdef NS_WITH_UNIVMON_PROTOCOL
    bit<32> protocol_hash;
#endif
#ifdef NS_WITH_CHAMELEMON
    bit<32> check;      // crc16 of the same bytes as five_tuple
#endif
}

// Temporaries of univmon.p4. Its instances share them, because they run one after another and BMv2
// clears every metadata field for every packet.
struct univmon_scratch_t {
    bit<32> level_hash;
    bit<32> first;    // cell of a row; later the slot of a way
    bit<32> value;    // twice the column of a counter, plus 1 for the sign -
    bit<32> count;    // the value of that counter
    bit<32> row0;     // estimates of the rows, plus 2^31; row0 becomes their median
    bit<32> row1;
    bit<32> row2;
    bit<32> low;
    bit<32> slot;     // first cell of a slot
    bit<32> slot_count; // count of the selected slot
    bit<32> slot_hash;
    bit<32> other_count; // count of another way's slot
    bit<32> other_hash;
    bit<32> cell;     // first cell of the selected slot
    bit<1>  hit;      // the selected slot holds the flow already
}

// The result of duties.p4 for a packet.
struct duties_t {
    bit<16> origin;      // site of the source; 0: no site
    bit<16> destination; // site of the destination; 0: no site
    bit<8>  dimensions;  // dimensions that count the packet
}

// Temporaries of chamelemon.p4, in ingress and egress.
struct chamelemon_scratch_t {
    bit<1>  marked;    // the packet enters and gets a mark
    bit<1>  leaves;    // the packet leaves, and its mark is removed
    bit<32> time;      // time bit of the packet's epoch
    bit<2>  hierarchy;
    bit<3>  code;      // stands for the packet's DSCP inside the network
    bit<8>  tos;       // ToS or traffic class
    bit<8>  count8;
    bit<16> count16;
    bit<32> cell;
    bit<32> value;
    bit<32> id0;       // fragments of the flow's identifier
    bit<32> id1;
    bit<32> id2;
    bit<32> id3;
    bit<32> id4;
    bit<32> id5;
    bit<32> id6;
    bit<32> id7;
    bit<32> id8;
    bit<32> id9;
}

// Temporaries of omnimon.p4, in ingress and egress.
struct omnimon_scratch_t {
    bit<1>  present; // the packet has OmniMon's header
    bit<1>  probe;
    bit<1>  counted; // the packet is counted in the bank of its epoch
    bit<8>  flags;   // TCP flags; 0 without TCP
    bit<1>  bare;    // the IP and TCP headers have no options, and the packet no data
    bit<32> length;  // length of the IP packet without the carrier
    bit<8>  ttl;     // TTL or hop limit
    bit<16> window;  // TCP window
    bit<32> src;     // source address of IPv4
    bit<32> dst;
    bit<16> epoch;
#if NS_OMNIMON_DIFFERENCES > 0
    bit<32> difference0;
#endif
#if NS_OMNIMON_DIFFERENCES > 1
    bit<32> difference1;
#endif
#if NS_OMNIMON_DIFFERENCES > 2
    bit<32> difference2;
#endif
#if NS_OMNIMON_DIFFERENCES > 3
    bit<32> difference3;
#endif
    bit<16> first;   // first epoch of the window
    bit<16> size;    // epochs in the window
    bit<16> slot;
    bit<16> turn;    // number of the slot in the header
    bit<32> index;   // index of the slot among those of all arrays
    bit<32> slot_cell; // first cell of the slot
    bit<32> cell;
    bit<32> value;
}

#ifdef NS_WITH_OWN
struct own_scratch_t {
    NS_OWN_FIELDS
}
#endif

struct metadata_t {
    bit<8>  bank;
    bit<8>  drop;
    flow_t  flow;
    bit<16> ecmp_group;
    bit<16> ecmp_size;
    bit<16> ecmp_member;
#ifdef NS_WITH_UNIVMON
    bit<8> unparsed; // an NS_UNPARSED_ reason; 0: the packet has a flow
    duties_t duties;
    univmon_scratch_t univmon;
#endif
#ifdef NS_WITH_CHAMELEMON
    chamelemon_scratch_t chamelemon;
#endif
#ifdef NS_WITH_OMNIMON
    omnimon_scratch_t omnimon;
#endif
#ifdef NS_WITH_SKETCHINT
    sketchint_scratch_t sketchint;
#ifdef NS_WITH_SKETCHINT_TOWERS
    sketchint_towers_scratch_t sketchint_towers;
#endif
#endif
#ifdef NS_WITH_LIGHTGUARDIAN
    lightguardian_scratch_t lightguardian;
#endif
#ifdef NS_WITH_OWN
    own_scratch_t own;
#endif
}

#endif
