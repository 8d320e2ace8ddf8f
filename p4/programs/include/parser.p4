// SPDX-License-Identifier: Apache-2.0
// Parser, header checksum and deparser.
//
// The flow of a packet is defined here: the outermost IPv4 or IPv6 header after at most two VLAN
// tags, without a carrier of OmniMon's header (carrier-parser.p4). A bad version, an IHL below 5 or
// a truncated header is a parser error; a bad IPv4 header checksum sets checksum_error. These
// packets are neither counted nor forwarded. Of IPv6's extension headers only a fragment header
// directly after the fixed header is parsed; any other extension header is the flow's protocol,
// without ports.
//
// With NS_WITH_ENCAPSULATION, the IP header may be behind more VLAN tags, MPLS labels or a PPPoE
// session, and the ports behind extension headers. A packet with more of them than headers.p4 has
// room for is an error, too, StackOutOfBounds or HeaderTooShort. What a tunnel carries is parsed in
// inner-parser.p4: hdr.inner is valid then, and an error concerns only that. Packets without these
// headers pass the same states in both cases.

#ifndef NETSKETCH_PARSER_P4
#define NETSKETCH_PARSER_P4

#include "headers.p4"

#define NS_ETHERTYPE_IPV4 0x0800
#define NS_ETHERTYPE_IPV6 0x86dd
#define NS_ETHERTYPE_VLAN 0x8100
#define NS_ETHERTYPE_QINQ 0x88a8
#define NS_ETHERTYPE_QINQ_OLD 0x9100

#define NS_PPPOE_SESSION 0x1100 // version 1, type 1, code 0
#define NS_PPP_IPV4 0x0021
#define NS_PPP_IPV6 0x0057

#define NS_PROTOCOL_TCP 6
#define NS_PROTOCOL_UDP 17
#define NS_PROTOCOL_IPV6_FRAGMENT 44
#define NS_PROTOCOL_IPV6_DESTINATION 60

#define NS_PORT_VXLAN 4789

#ifdef NS_WITH_ENCAPSULATION
// Cases of select by EtherType. The cases of other packets come first.
#define NS_IN_LINK \
            0x8847: mpls; \
            0x8848: mpls; /* multicast */ \
            0x8864: pppoe;
#define NS_IN_TAGS \
            NS_ETHERTYPE_VLAN: vlans; \
            NS_ETHERTYPE_QINQ: vlans; \
            NS_ETHERTYPE_QINQ_OLD: vlans; \
            NS_IN_LINK
// Cases of select by protocol: hop-by-hop, routing, mobility, HIP and Shim6 options, and the
// authentication header (RFC 7045). NS_DESTINATION_OPTIONS has the case of destination options.
#define NS_IN_IPV6 \
            0: ipv6_extension; \
            43: ipv6_extension; \
            135: ipv6_extension; \
            139: ipv6_extension; \
            140: ipv6_extension; \
            51: ipv6_authentication; \
            4: tunnel; \
            41: tunnel; \
            47: tunnel; \
            137: tunnel;
#define NS_IN_IPV4 \
            (0, 4): tunnel; \
            (0, 41): tunnel; \
            (0, 47): tunnel; \
            (0, 137): tunnel;
#define NS_DESTINATION_OPTIONS ipv6_extension // state for destination options that are no carrier
#else
#define NS_IN_LINK
#define NS_IN_TAGS
#define NS_IN_IPV6
#define NS_IN_IPV4
#define NS_DESTINATION_OPTIONS no_ports
#endif

#define NS_READ_PORTS \
        packet.extract(hdr.ports); \
        meta.flow.src_port = hdr.ports.src; \
        meta.flow.dst_port = hdr.ports.dst;

// Selects the state after the ports.
#if defined(NS_WITH_OMNIMON)
#define NS_PORTS_KEY hdr.ports.dst, meta.omnimon.present, meta.flow.protocol
#define NS_TUNNEL_CASE (NS_CARRIER_TUNNEL_PORT, _, NS_PROTOCOL_UDP)
#define NS_PORTS_CASES \
            (_, 1, NS_PROTOCOL_TCP): tcp;
#elif defined(NS_WITH_SKETCHINT)
#define NS_PORTS_KEY hdr.ports.dst, meta.sketchint.closed, meta.flow.protocol
#define NS_TUNNEL_CASE (NS_CARRIER_TUNNEL_PORT, _, NS_PROTOCOL_UDP)
#define NS_PORTS_CASES \
            (_, 0, NS_PROTOCOL_TCP): tcp; \
            (_, 0, NS_PROTOCOL_UDP): udp;
#elif defined(NS_WITH_LIGHTGUARDIAN)
// IPv6 has no bit for the carry mark of UDP.
#define NS_PORTS_KEY \
    hdr.ports.dst, meta.lightguardian.closed, meta.lightguardian.ipv4, meta.flow.protocol
#define NS_TUNNEL_CASE (NS_CARRIER_TUNNEL_PORT, _, _, NS_PROTOCOL_UDP)
#define NS_PORTS_CASES \
            (_, 0, _, NS_PROTOCOL_TCP): tcp; \
            (_, 0, 1, NS_PROTOCOL_UDP): udp;
#elif defined(NS_WITH_ENCAPSULATION)
#define NS_PORTS_KEY hdr.ports.dst, meta.flow.protocol
#define NS_TUNNEL_CASE (NS_CARRIER_TUNNEL_PORT, NS_PROTOCOL_UDP)
#define NS_PORTS_CASES \
            (NS_PORT_VXLAN, NS_PROTOCOL_UDP): tunnel;
#else
#define NS_PORTS_KEY hdr.ports.dst, meta.flow.protocol
#define NS_TUNNEL_CASE (NS_CARRIER_TUNNEL_PORT, NS_PROTOCOL_UDP)
#define NS_PORTS_CASES
#endif

parser SwitchParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard_metadata) {
    state start {
        transition select(standard_metadata.ingress_port) {
            NS_CPU_PORT: controller;
            default: ethernet;
        }
    }

    state controller {
        packet.extract(hdr.packet_out);
        transition select(hdr.packet_out.op) {
            NS_OP_READ: cells;
            default: accept;
        }
    }

    // The request has the size of its answer: a packet can grow by only 512 bytes on BMv2.
    state cells {
        packet.extract(hdr.cells);
        transition accept;
    }

    state ethernet {
        packet.extract(hdr.ethernet);
#ifdef NS_WITH_SKETCHINT
        meta.sketchint.link = 14;
#endif
        transition select(hdr.ethernet.ether_type) {
            NS_ETHERTYPE_IPV4: ipv4;
            NS_ETHERTYPE_IPV6: ipv6;
            NS_ETHERTYPE_VLAN: vlan_outer;
            NS_ETHERTYPE_QINQ: vlan_outer;
            NS_ETHERTYPE_QINQ_OLD: vlan_outer;
            NS_OMNIMON_ETHERTYPE: shim;
            NS_IN_LINK
            default: accept;
        }
    }

    state vlan_outer {
        packet.extract(hdr.vlan_outer);
#ifdef NS_WITH_SKETCHINT
        meta.sketchint.link = 18;
#endif
        transition select(hdr.vlan_outer.ether_type) {
            NS_ETHERTYPE_IPV4: ipv4;
            NS_ETHERTYPE_IPV6: ipv6;
            NS_ETHERTYPE_VLAN: vlan_inner;
            NS_ETHERTYPE_QINQ: vlan_inner;
            NS_ETHERTYPE_QINQ_OLD: vlan_inner;
            NS_OMNIMON_ETHERTYPE: shim;
            NS_IN_LINK
            default: accept;
        }
    }

    state vlan_inner {
        packet.extract(hdr.vlan_inner);
#ifdef NS_WITH_SKETCHINT
        meta.sketchint.link = 22;
#endif
        transition select(hdr.vlan_inner.ether_type) {
            NS_ETHERTYPE_IPV4: ipv4;
            NS_ETHERTYPE_IPV6: ipv6;
            NS_OMNIMON_ETHERTYPE: shim;
            NS_IN_TAGS
            default: accept;
        }
    }

#ifdef NS_WITH_ENCAPSULATION
    state vlans {
        packet.extract(hdr.vlans.next);
        transition select(hdr.vlans.last.ether_type) {
            NS_ETHERTYPE_IPV4: ipv4;
            NS_ETHERTYPE_IPV6: ipv6;
            NS_OMNIMON_ETHERTYPE: shim;
            NS_IN_TAGS
            default: accept;
        }
    }

    state mpls {
        packet.extract(hdr.mpls.next);
        transition select(hdr.mpls.last.bottom) {
            0: mpls;
            default: mpls_payload;
        }
    }

    // The first four bits distinguish IPv4 from IPv6 (RFC 4928).
    state mpls_payload {
        transition select(packet.lookahead<bit<4>>()) {
            4: ipv4;
            6: ipv6;
            default: accept;
        }
    }

    state pppoe {
        packet.extract(hdr.pppoe);
        transition select(hdr.pppoe.kind, hdr.pppoe.protocol) {
            (NS_PPPOE_SESSION, NS_PPP_IPV4): ipv4;
            (NS_PPPOE_SESSION, NS_PPP_IPV6): ipv6;
            default: accept;
        }
    }

    state ipv6_extension {
        bit<16> head = packet.lookahead<bit<16>>();
        packet.extract(hdr.ipv6_extensions.next, ((bit<32>)head[7:0] << 6) + 48);
        meta.flow.protocol = head[15:8];
        transition ipv6_payload;
    }

    // The length of this header is in units of four bytes.
    state ipv6_authentication {
        bit<16> head = packet.lookahead<bit<16>>();
        packet.extract(hdr.ipv6_extensions.next, ((bit<32>)head[7:0] << 5) + 48);
        meta.flow.protocol = head[15:8];
        transition ipv6_payload;
    }

    // A fragment header behind another extension header.
    state ipv6_inner_fragment {
        bit<32> head = packet.lookahead<bit<32>>();
        packet.extract(hdr.ipv6_extensions.next, 48);
        meta.flow.protocol = head[31:24];
        transition select(head[15:3]) {
            0: ipv6_payload;
            default: no_ports;
        }
    }

    state ipv6_payload {
        transition select(meta.flow.protocol) {
            NS_PROTOCOL_TCP: ports;
            NS_PROTOCOL_UDP: ports;
            NS_PROTOCOL_IPV6_FRAGMENT: ipv6_inner_fragment;
            NS_PROTOCOL_IPV6_DESTINATION: ipv6_extension;
            NS_IN_IPV6
            default: no_ports;
        }
    }
#endif

#include "carrier-parser.p4"

    state ipv4 {
        packet.extract(hdr.ipv4);
        verify(hdr.ipv4.version == 4, error.BadIpVersion);
        verify(hdr.ipv4.ihl >= 5, error.BadIpv4HeaderLength);
        meta.flow.protocol = hdr.ipv4.protocol;
#ifdef NS_WITH_SKETCHINT
        meta.sketchint.dscp = hdr.ipv4.tos[7:2];
        meta.sketchint.closed = meta.sketchint.closed | hdr.ipv4.flags[0:0];
        meta.sketchint.payload = (bit<32>)hdr.ipv4.total_length - ((bit<32>)hdr.ipv4.ihl << 2);
#endif
#ifdef NS_WITH_LIGHTGUARDIAN
        meta.lightguardian.ipv4 = 1;
        meta.lightguardian.closed = meta.lightguardian.closed | hdr.ipv4.flags[0:0];
        meta.lightguardian.mark = hdr.ipv4.flags[2:2]; // the mark of UDP
        meta.lightguardian.payload = (bit<32>)hdr.ipv4.total_length - ((bit<32>)hdr.ipv4.ihl << 2);
#endif
        transition select(hdr.ipv4.ihl) {
            5: ipv4_payload;
            default: ipv4_options;
        }
    }

#ifdef NS_WITH_OMNIMON
    state ipv4_options {
        transition select(hdr.ipv4.ihl, packet.lookahead<bit<16>>()) {
            (5 + NS_CARRIER_IPV4_WORDS .. 15, NS_CARRIER_IPV4_TYPE << 8 | NS_CARRIER_IPV4_LENGTH):
                ipv4_carrier;
            default: other_ipv4_options;
        }
    }

    state other_ipv4_options {
#else
    state ipv4_options {
#endif
        packet.extract(hdr.ipv4_options, ((bit<32>)hdr.ipv4.ihl - 5) << 5);
        transition ipv4_payload;
    }

    state ipv4_payload {
        transition select(hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
            (0, NS_PROTOCOL_TCP): ipv4_ports;
            (0, NS_PROTOCOL_UDP): ipv4_ports;
            NS_IN_IPV4
            default: no_ports;
        }
    }

    state ipv6 {
        packet.extract(hdr.ipv6);
        verify(hdr.ipv6.version == 6, error.BadIpVersion);
        meta.flow.protocol = hdr.ipv6.next_header;
#ifdef NS_WITH_SKETCHINT
        meta.sketchint.dscp = hdr.ipv6.traffic_class[7:2];
        meta.sketchint.payload = (bit<32>)hdr.ipv6.payload_length;
#endif
#ifdef NS_WITH_LIGHTGUARDIAN
        meta.lightguardian.payload = (bit<32>)hdr.ipv6.payload_length;
#endif
        transition select(hdr.ipv6.next_header) {
            NS_PROTOCOL_TCP: ipv6_ports;
            NS_PROTOCOL_UDP: ipv6_ports;
            NS_PROTOCOL_IPV6_FRAGMENT: ipv6_fragment;
            NS_PROTOCOL_IPV6_DESTINATION: ipv6_destination;
            NS_IN_IPV6
            default: no_ports;
        }
    }

    state ipv6_fragment {
        packet.extract(hdr.ipv6_fragment);
        meta.flow.protocol = hdr.ipv6_fragment.next_header;
#ifdef NS_WITH_SKETCHINT
        meta.sketchint.closed = 1;
#endif
#ifdef NS_WITH_LIGHTGUARDIAN
        meta.lightguardian.closed = 1;
#endif
        transition select(hdr.ipv6_fragment.fragment_offset, hdr.ipv6_fragment.next_header) {
            (0, NS_PROTOCOL_TCP): ports;
            (0, NS_PROTOCOL_UDP): ports;
#ifdef NS_WITH_ENCAPSULATION
            (0, _): ipv6_payload;
#endif
            default: no_ports;
        }
    }

    // The ports directly behind an IP header, where a tunnel with OmniMon's header may follow.
    state ipv4_ports {
        NS_READ_PORTS
        transition select(NS_PORTS_KEY) {
            NS_TUNNEL_CASE: ipv4_tunnel_port;
            NS_PORTS_CASES
            default: accept;
        }
    }

    state ipv6_ports {
        NS_READ_PORTS
        transition select(NS_PORTS_KEY) {
            NS_TUNNEL_CASE: ipv6_tunnel_port;
            NS_PORTS_CASES
            default: accept;
        }
    }

    state ports {
        NS_READ_PORTS
        transition behind_ports;
    }

    state behind_ports {
        transition select(NS_PORTS_KEY) {
            NS_PORTS_CASES
            default: accept;
        }
    }

#ifdef NS_WITH_ENCAPSULATION
#include "inner-parser.p4"
#endif

#ifdef NS_WITH_OMNIMON
    state tcp {
        packet.extract(hdr.tcp);
        meta.omnimon.flags = hdr.tcp.flags;
        meta.omnimon.window = hdr.tcp.window;
        transition accept;
    }
#endif

#ifdef NS_WITH_SKETCHINT
    state tcp {
        packet.extract(hdr.tcp);
        meta.sketchint.payload = meta.sketchint.payload - ((bit<32>)hdr.tcp.data_offset << 2);
        transition select(hdr.tcp.data_offset) {
            0 .. 4: accept; // not a TCP header
            5: sketchint;
            default: tcp_options;
        }
    }

    state tcp_options {
        packet.extract(hdr.tcp_options, ((bit<32>)hdr.tcp.data_offset - 5) << 5);
        transition sketchint;
    }

    state udp {
        packet.extract(hdr.udp);
        meta.sketchint.payload = meta.sketchint.payload - 8;
        transition sketchint;
    }

    // A payload below 0 wraps to more than 16 bits: IP's length ends within the headers.
    state sketchint {
        meta.sketchint.whole = 1;
        transition select(meta.sketchint.dscp, meta.sketchint.payload) {
            (NS_SKETCHINT_DSCP, 16 .. 0xffff): int_header;
            (_, 0 .. 0xffff): accept;
            default: no_int;
        }
    }

    state no_int {
        meta.sketchint.whole = 0;
        transition accept;
    }

    state int_header {
        packet.extract(hdr.int_shim);
        packet.extract(hdr.int_md);
        meta.sketchint.state = IM_STATE_UNKNOWN;
        transition select(hdr.int_shim.kind, hdr.int_shim.npt, hdr.int_md.version) {
            (1, 0, 2): int_length;
            default: accept;
        }
    }

    state int_length {
        meta.sketchint.state = IM_STATE_LENGTH;
        meta.sketchint.payload = meta.sketchint.payload - 4
            - ((bit<32>)hdr.int_shim.length << 2);
        transition select(hdr.int_shim.length, meta.sketchint.payload) {
            (0 .. 2, _): accept;
            (3, 0 .. 0xffff): int_present;
            (_, 0 .. 0xffff): int_stack;
            default: accept;
        }
    }

#ifdef NS_WITH_SKETCHINT_TOWERS
    // Reads hops that have a node id and a latency. The deparser needs the stack unchanged.
    state int_stack {
        transition select(hdr.int_md.hop_words, hdr.int_md.instructions, hdr.int_shim.length) {
            (2, 0xa000, 5): int_hop1;
            (2, 0xa000, 7): int_hop2;
            (2, 0xa000, 9): int_hop3;
            (2, 0xa000, 11): int_hop4;
            default: int_unread;
        }
    }

    state int_hop1 {
        meta.sketchint_towers.stack = (bit<256>)packet.lookahead<bit<64>>();
        meta.sketchint_towers.hops = 1;
        transition int_hops;
    }

    state int_hop2 {
        meta.sketchint_towers.stack = (bit<256>)packet.lookahead<bit<128>>();
        meta.sketchint_towers.hops = 2;
        transition int_hops;
    }

    state int_hop3 {
        meta.sketchint_towers.stack = (bit<256>)packet.lookahead<bit<192>>();
        meta.sketchint_towers.hops = 3;
        transition int_hops;
    }

    state int_hop4 {
        meta.sketchint_towers.stack = packet.lookahead<bit<256>>();
        meta.sketchint_towers.hops = 4;
        transition int_hops;
    }

    state int_unread {
        meta.sketchint_towers.unread = 1;
        transition int_hops;
    }

    state int_hops {
#else
    state int_stack {
#endif
        packet.extract(hdr.int_stack, ((bit<32>)hdr.int_shim.length - 3) << 5);
        transition int_present;
    }

    state int_present {
        meta.sketchint.state = IM_STATE_PRESENT;
        transition accept;
    }
#endif

#ifdef NS_WITH_LIGHTGUARDIAN
    state tcp {
        packet.extract(hdr.tcp);
        meta.lightguardian.mark = hdr.tcp.reserved[3:3];
        meta.lightguardian.payload = meta.lightguardian.payload
            - ((bit<32>)hdr.tcp.data_offset << 2);
        transition select(hdr.tcp.data_offset) {
            0 .. 4: accept; // not a TCP header
            5: lightguardian;
            default: tcp_options;
        }
    }

    state tcp_options {
        packet.extract(hdr.tcp_options, ((bit<32>)hdr.tcp.data_offset - 5) << 5);
        transition lightguardian;
    }

    state udp {
        packet.extract(hdr.udp);
        meta.lightguardian.payload = meta.lightguardian.payload - 8;
        transition lightguardian;
    }

    // A payload below 0 wraps to more than 16 bits: IP's length ends within the headers.
    state lightguardian {
        meta.lightguardian.whole = 1;
        transition select(meta.lightguardian.mark, meta.lightguardian.payload) {
            (1, 10 .. 0xffff): sketchlet;
            (_, 0 .. 0xffff): accept;
            default: no_sketchlet;
        }
    }

    state no_sketchlet {
        meta.lightguardian.whole = 0;
        transition accept;
    }

    state sketchlet {
        packet.extract(hdr.sketchlet);
        meta.lightguardian.payload = meta.lightguardian.payload - 10
            - ((bit<32>)hdr.sketchlet.words << 2);
        transition select(hdr.sketchlet.words, meta.lightguardian.payload) {
            (0, _): accept;
            (_, 0 .. 0xffff): sketchlet_cells;
            default: accept;
        }
    }

    state sketchlet_cells {
        packet.extract(hdr.sketchlet_cells, (bit<32>)hdr.sketchlet.words << 5);
        meta.lightguardian.present = 1;
        transition accept;
    }
#endif

    state no_ports {
        meta.flow.src_port = 0;
        meta.flow.dst_port = 0;
        transition accept;
    }
}

#define NS_IPV4_FIELDS(name) \
    hdr.name.version, hdr.name.ihl, hdr.name.tos, hdr.name.total_length, hdr.name.identification, \
    hdr.name.flags, hdr.name.fragment_offset, hdr.name.ttl, hdr.name.protocol, hdr.name.src, \
    hdr.name.dst

// The sum over an IPv4 header, including the carrier in its options.
#ifdef NS_WITH_OMNIMON
#define NS_IPV4_CHECKSUM(extern_function) \
    extern_function(hdr.ipv4.isValid() && !hdr.ipv4_carrier.isValid(), \
        { NS_IPV4_FIELDS(ipv4), hdr.ipv4_options.options }, \
        hdr.ipv4.checksum, HashAlgorithm.csum16); \
    extern_function(hdr.ipv4_carrier.isValid(), \
        { NS_IPV4_FIELDS(ipv4), hdr.ipv4_carrier, hdr.ipv4_options.options }, \
        hdr.ipv4.checksum, HashAlgorithm.csum16);
#else
#define NS_IPV4_CHECKSUM(extern_function) \
    extern_function(hdr.ipv4.isValid(), { NS_IPV4_FIELDS(ipv4), hdr.ipv4_options.options }, \
        hdr.ipv4.checksum, HashAlgorithm.csum16);
#endif

control VerifyHeader(inout headers_t hdr, inout metadata_t meta) {
    apply {
        NS_IPV4_CHECKSUM(verify_checksum)
        verify_checksum(hdr.carried_ipv4.isValid(),
            { NS_IPV4_FIELDS(carried_ipv4), hdr.carried_ipv4_options.options },
            hdr.carried_ipv4.checksum, HashAlgorithm.csum16);
    }
}

#ifdef NS_WITH_SKETCHINT
#define NS_INT_HEADER(prefix) \
    hdr.prefix##_shim.kind, hdr.prefix##_shim.npt, hdr.prefix##_shim.reserved0, \
    hdr.prefix##_shim.length, hdr.prefix##_shim.reserved1, hdr.prefix##_shim.dscp, \
    hdr.prefix##_shim.reserved2, hdr.prefix##_md.version, hdr.prefix##_md.discard, \
    hdr.prefix##_md.hops_exceeded, hdr.prefix##_md.mtu_exceeded, hdr.prefix##_md.reserved, \
    hdr.prefix##_md.hop_words, hdr.prefix##_md.remaining_hops, hdr.prefix##_md.instructions, \
    hdr.prefix##_md.domain, hdr.prefix##_md.ds_instructions, hdr.prefix##_md.ds_flags

// What INT adds to the checksum of a packet. Words of all ones do not change a sum and are left
// out, as are fields of headers that the packet does not have.
#define NS_INT_SUM \
    meta.sketchint.checksum, meta.sketchint.removed, meta.sketchint.length_sum, \
    NS_INT_HEADER(int), hdr.int_node.id, hdr.int_ports.ingress, hdr.int_ports.egress, \
    hdr.int_latency.latency, hdr.int_queue.id, hdr.int_queue.occupancy, \
    hdr.int_ingress_time.time, hdr.int_egress_time.time
#endif

control UpdateHeader(inout headers_t hdr, inout metadata_t meta) {
    apply {
        NS_IPV4_CHECKSUM(update_checksum)
#ifdef NS_WITH_SKETCHINT
        update_checksum(hdr.report_ipv4.isValid(),
            { hdr.report_ipv4.version, hdr.report_ipv4.ihl, hdr.report_ipv4.tos,
              hdr.report_ipv4.total_length, hdr.report_ipv4.identification, hdr.report_ipv4.flags,
              hdr.report_ipv4.fragment_offset, hdr.report_ipv4.ttl, hdr.report_ipv4.protocol,
              hdr.report_ipv4.src, hdr.report_ipv4.dst },
            hdr.report_ipv4.checksum, HashAlgorithm.csum16);
        update_checksum(hdr.kept_shim.isValid(), { NS_INT_HEADER(kept), hdr.kept_stack.hops },
            meta.sketchint.removed, HashAlgorithm.csum16);
        // The pseudo-header and the UDP header contain the length.
        update_checksum(meta.sketchint.sum_tcp == 1, { NS_INT_SUM },
            hdr.tcp.checksum, HashAlgorithm.csum16);
        update_checksum(meta.sketchint.sum_udp == 1, { NS_INT_SUM, meta.sketchint.length_sum },
            hdr.udp.checksum, HashAlgorithm.csum16);
        // UDP sends all ones if the checksum is zero.
        update_checksum(meta.sketchint.sum_udp == 1 && hdr.udp.checksum == 0,
            { meta.sketchint.zero }, hdr.udp.checksum, HashAlgorithm.csum16);
#endif
#ifdef NS_WITH_LIGHTGUARDIAN
        update_checksum(meta.lightguardian.sum_tcp == 1,
            { meta.lightguardian.checksum, meta.lightguardian.content,
              meta.lightguardian.length_sum, meta.lightguardian.mark_sum },
            hdr.tcp.checksum, HashAlgorithm.csum16);
        // The pseudo-header and the UDP header contain the length.
        update_checksum(meta.lightguardian.sum_udp == 1,
            { meta.lightguardian.checksum, meta.lightguardian.content,
              meta.lightguardian.length_sum, meta.lightguardian.length_sum },
            hdr.udp.checksum, HashAlgorithm.csum16);
        // UDP sends all ones if the checksum is zero.
        update_checksum(meta.lightguardian.sum_udp == 1 && hdr.udp.checksum == 0,
            { meta.lightguardian.zero }, hdr.udp.checksum, HashAlgorithm.csum16);
#endif
    }
}

control SwitchDeparser(packet_out packet, in headers_t hdr) {
    apply {
#ifdef NS_WITH_SKETCHINT
        packet.emit(hdr.packet_in);
        packet.emit(hdr.packet_out);
        packet.emit(hdr.report_ethernet);
        packet.emit(hdr.report_ipv4);
        packet.emit(hdr.report);
        packet.emit(hdr.ethernet);
        packet.emit(hdr.vlan_outer);
        packet.emit(hdr.vlan_inner);
        packet.emit(hdr.shim);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.ipv4_options);
        packet.emit(hdr.ipv6);
        packet.emit(hdr.ipv6_carrier);
        packet.emit(hdr.tunnel_ports);
        packet.emit(hdr.tunnel);
        packet.emit(hdr.carried_ipv4);
        packet.emit(hdr.carried_ipv4_options);
        packet.emit(hdr.carried_ipv6);
        packet.emit(hdr.ipv6_fragment);
        packet.emit(hdr.ports);
        packet.emit(hdr.tcp);
        packet.emit(hdr.tcp_options);
        packet.emit(hdr.udp);
        packet.emit(hdr.int_shim);
        packet.emit(hdr.int_md);
        packet.emit(hdr.int_node);
        packet.emit(hdr.int_ports);
        packet.emit(hdr.int_latency);
        packet.emit(hdr.int_queue);
        packet.emit(hdr.int_ingress_time);
        packet.emit(hdr.int_egress_time);
        packet.emit(hdr.int_pad1);
        packet.emit(hdr.int_pad2);
        packet.emit(hdr.int_pad4);
        packet.emit(hdr.int_pad8);
        packet.emit(hdr.int_pad16);
        packet.emit(hdr.int_stack);
        packet.emit(hdr.report_fill);
        packet.emit(hdr.cells);
#else
        packet.emit(hdr);
#endif
    }
}

#endif
