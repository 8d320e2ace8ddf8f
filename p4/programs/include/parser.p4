// SPDX-License-Identifier: Apache-2.0
// Parser, header checksum and deparser.
//
// The flow of a packet is defined here: the outermost IPv4 or IPv6 header after at most two VLAN
// tags. A bad version, an IHL below 5 or a truncated header is a parser error; a bad IPv4 header
// checksum sets checksum_error. These packets are neither counted nor forwarded. Of IPv6's
// extension headers only a fragment header directly after the fixed header is parsed; any other
// extension header is the flow's protocol, without ports.

#ifndef NETSKETCH_PARSER_P4
#define NETSKETCH_PARSER_P4

#include "headers.p4"

#define NS_ETHERTYPE_IPV4 0x0800
#define NS_ETHERTYPE_IPV6 0x86dd
#define NS_ETHERTYPE_VLAN 0x8100
#define NS_ETHERTYPE_QINQ 0x88a8
#define NS_ETHERTYPE_QINQ_OLD 0x9100

#define NS_PROTOCOL_TCP 6
#define NS_PROTOCOL_UDP 17
#define NS_PROTOCOL_IPV6_FRAGMENT 44

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
        transition select(hdr.ethernet.ether_type) {
            NS_ETHERTYPE_IPV4: ipv4;
            NS_ETHERTYPE_IPV6: ipv6;
            NS_ETHERTYPE_VLAN: vlan_outer;
            NS_ETHERTYPE_QINQ: vlan_outer;
            NS_ETHERTYPE_QINQ_OLD: vlan_outer;
#ifdef NS_WITH_OMNIMON
            NS_OMNIMON_ETHERTYPE: omnimon;
#endif
            default: accept;
        }
    }

    state vlan_outer {
        packet.extract(hdr.vlan_outer);
        transition select(hdr.vlan_outer.ether_type) {
            NS_ETHERTYPE_IPV4: ipv4;
            NS_ETHERTYPE_IPV6: ipv6;
            NS_ETHERTYPE_VLAN: vlan_inner;
            NS_ETHERTYPE_QINQ: vlan_inner;
            NS_ETHERTYPE_QINQ_OLD: vlan_inner;
#ifdef NS_WITH_OMNIMON
            NS_OMNIMON_ETHERTYPE: omnimon;
#endif
            default: accept;
        }
    }

    state vlan_inner {
        packet.extract(hdr.vlan_inner);
        transition select(hdr.vlan_inner.ether_type) {
            NS_ETHERTYPE_IPV4: ipv4;
            NS_ETHERTYPE_IPV6: ipv6;
#ifdef NS_WITH_OMNIMON
            NS_OMNIMON_ETHERTYPE: omnimon;
#endif
            default: accept;
        }
    }

#ifdef NS_WITH_OMNIMON
    state omnimon {
        packet.extract(hdr.omnimon);
        meta.omnimon.present = 1;
        transition select(hdr.omnimon.next) {
            NS_ETHERTYPE_IPV4: ipv4;
            NS_ETHERTYPE_IPV6: ipv6;
            default: accept;
        }
    }
#endif

    state ipv4 {
        packet.extract(hdr.ipv4);
        verify(hdr.ipv4.version == 4, error.BadIpVersion);
        verify(hdr.ipv4.ihl >= 5, error.BadIpv4HeaderLength);
        meta.flow.protocol = hdr.ipv4.protocol;
        transition select(hdr.ipv4.ihl) {
            5: ipv4_payload;
            default: ipv4_options;
        }
    }

    state ipv4_options {
        packet.extract(hdr.ipv4_options, ((bit<32>)hdr.ipv4.ihl - 5) << 5);
        transition ipv4_payload;
    }

    state ipv4_payload {
        transition select(hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
            (0, NS_PROTOCOL_TCP): ports;
            (0, NS_PROTOCOL_UDP): ports;
            default: no_ports;
        }
    }

    state ipv6 {
        packet.extract(hdr.ipv6);
        verify(hdr.ipv6.version == 6, error.BadIpVersion);
        meta.flow.protocol = hdr.ipv6.next_header;
        transition select(hdr.ipv6.next_header) {
            NS_PROTOCOL_TCP: ports;
            NS_PROTOCOL_UDP: ports;
            NS_PROTOCOL_IPV6_FRAGMENT: ipv6_fragment;
            default: no_ports;
        }
    }

    state ipv6_fragment {
        packet.extract(hdr.ipv6_fragment);
        meta.flow.protocol = hdr.ipv6_fragment.next_header;
        transition select(hdr.ipv6_fragment.fragment_offset, hdr.ipv6_fragment.next_header) {
            (0, NS_PROTOCOL_TCP): ports;
            (0, NS_PROTOCOL_UDP): ports;
            default: no_ports;
        }
    }

    state ports {
        packet.extract(hdr.ports);
        meta.flow.src_port = hdr.ports.src;
        meta.flow.dst_port = hdr.ports.dst;
#ifdef NS_WITH_OMNIMON
        transition select(meta.omnimon.present, meta.flow.protocol) {
            (1, NS_PROTOCOL_TCP): tcp;
            default: accept;
        }
#else
        transition accept;
#endif
    }

#ifdef NS_WITH_OMNIMON
    state tcp {
        packet.extract(hdr.tcp);
        meta.omnimon.flags = hdr.tcp.flags;
        meta.omnimon.window = hdr.tcp.window;
        transition accept;
    }
#endif

    state no_ports {
        meta.flow.src_port = 0;
        meta.flow.dst_port = 0;
        transition accept;
    }
}

#define NS_IPV4_CHECKSUM(extern_function) \
    extern_function(hdr.ipv4.isValid(), \
        { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.total_length, \
          hdr.ipv4.identification, hdr.ipv4.flags, hdr.ipv4.fragment_offset, \
          hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst, \
          hdr.ipv4_options.options }, \
        hdr.ipv4.checksum, HashAlgorithm.csum16);

control VerifyHeader(inout headers_t hdr, inout metadata_t meta) {
    apply {
        NS_IPV4_CHECKSUM(verify_checksum)
    }
}

control UpdateHeader(inout headers_t hdr, inout metadata_t meta) {
    apply {
        NS_IPV4_CHECKSUM(update_checksum)
    }
}

control SwitchDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

#endif
