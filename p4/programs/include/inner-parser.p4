// SPDX-License-Identifier: Apache-2.0
// States of the parser for what tunnels carry: IP (RFC 2003, 2473, 4213) and MPLS (RFC 4023) in IP,
// GRE (RFC 2784 and 2890; Ethernet by RFC 7637) and VXLAN (RFC 7348, UDP port 4789), one in the
// other. Any header is one of hdr.inner_headers, so they may come in any order. hdr.inner has the
// flow of the last IP header behind the outer one.
//
// Anything else in a tunnel, and later fragments, end it without an error. A header that is damaged
// or one too many is an error. hostagent/packet and its eBPF program have the same rules, in the
// same order.

// Counts headers, up to a small number.
#define NS_COUNT_INNER(n) \
        hdr.inner.headers = hdr.inner.headers + n; \
        verify(hdr.inner.headers <= NS_INNER_HEADERS, error.StackOutOfBounds);

    state tunnel {
        hdr.inner.setValid();
        hdr.inner.headers = 0;
        hdr.inner.version = 0;
        hdr.inner.fragment_offset = 0;
        hdr.inner.sum = 0;
        transition select(meta.flow.protocol) {
            4: inner_ipv4;
            41: inner_ipv6;
            47: inner_gre;
            137: inner_mpls;
            default: outer_vxlan;
        }
    }

    // Follows the ports and the rest of UDP's header. The identifier must be valid.
    state outer_vxlan {
        NS_COUNT_INNER(1)
        transition select(packet.lookahead<bit<96>>()) {
            96w0x08000000 << 32 &&& 96w0x08000000 << 32: outer_vxlan_header;
            default: accept;
        }
    }

    state outer_vxlan_header {
        packet.extract(hdr.inner_headers.next, 96);
        transition inner_ethernet;
    }

    state inner_vxlan {
        NS_COUNT_INNER(1)
        transition select(packet.lookahead<bit<128>>()) {
            128w0x08000000 << 32 &&& 128w0x08000000 << 32: inner_vxlan_header;
            default: accept;
        }
    }

    state inner_vxlan_header {
        packet.extract(hdr.inner_headers.next, 128);
        transition inner_ethernet;
    }

    // GRE of version 0, without source routes (RFC 1701).
    state inner_gre {
        NS_COUNT_INNER(1)
        transition select(packet.lookahead<bit<32>>()) {
            0 &&& 0x40070000: inner_gre_header;
            default: accept;
        }
    }

    // GRE with a checksum, a key and a sequence number.
    state inner_gre_header {
        bit<32> head = packet.lookahead<bit<32>>();
        packet.extract(hdr.inner_headers.next, 32 + (((bit<32>)head[31:31] + (bit<32>)head[29:29]
                                                      + (bit<32>)head[28:28]) << 5));
        hdr.inner.kind = head[15:0];
        transition inner;
    }

    state inner {
        transition select(hdr.inner.kind) {
            NS_ETHERTYPE_IPV4: inner_ipv4;
            NS_ETHERTYPE_IPV6: inner_ipv6;
            NS_ETHERTYPE_VLAN: inner_tag;
            NS_ETHERTYPE_QINQ: inner_tag;
            NS_ETHERTYPE_QINQ_OLD: inner_tag;
            0x6558: inner_ethernet;
            0x8847: inner_mpls;
            0x8848: inner_mpls;
            0x8864: inner_pppoe;
            default: accept;
        }
    }

    state inner_ethernet {
        NS_COUNT_INNER(1)
        bit<112> head = packet.lookahead<bit<112>>();
        packet.extract(hdr.inner_headers.next, 112);
        hdr.inner.kind = head[15:0];
        transition inner;
    }

    state inner_tag {
        NS_COUNT_INNER(1)
        bit<32> head = packet.lookahead<bit<32>>();
        packet.extract(hdr.inner_headers.next, 32);
        hdr.inner.kind = head[15:0];
        transition inner;
    }

    state inner_mpls {
        NS_COUNT_INNER(1)
        bit<32> head = packet.lookahead<bit<32>>();
        packet.extract(hdr.inner_headers.next, 32);
        transition select(head[8:8]) {
            0: inner_mpls;
            default: inner_mpls_payload;
        }
    }

    state inner_mpls_payload {
        transition select(packet.lookahead<bit<4>>()) {
            4: inner_ipv4;
            6: inner_ipv6;
            default: accept;
        }
    }

    state inner_pppoe {
        NS_COUNT_INNER(1)
        bit<64> head = packet.lookahead<bit<64>>();
        packet.extract(hdr.inner_headers.next, 64);
        transition select(head[63:48], head[15:0]) {
            (NS_PPPOE_SESSION, NS_PPP_IPV4): inner_ipv4;
            (NS_PPPOE_SESSION, NS_PPP_IPV6): inner_ipv6;
            default: accept;
        }
    }

    state inner_ipv4 {
        bit<160> head = packet.lookahead<bit<160>>();
        verify(head[159:156] == 4, error.BadIpVersion);
        verify(head[155:152] >= 5, error.BadIpv4HeaderLength);
        hdr.inner.words = (bit<8>)head[155:152] - 5;
        NS_COUNT_INNER(1 + hdr.inner.words)
        packet.extract(hdr.inner_headers.next, 160);
        hdr.inner.version = 4;
        hdr.inner.fragment_offset = head[108:96];
        hdr.inner.protocol = head[87:80];
        hdr.inner.src_port = 0;
        hdr.inner.dst_port = 0;
        hdr.inner.src4 = head[63:32];
        hdr.inner.dst4 = head[31:0];
        hdr.inner.src = head[63:32] ++ 96w0;
        hdr.inner.dst = head[31:0] ++ 96w0;
        hdr.inner.sum = (bit<32>)head[159:144] + (bit<32>)head[143:128] + (bit<32>)head[127:112]
            + (bit<32>)head[111:96] + (bit<32>)head[95:80] + (bit<32>)head[79:64]
            + (bit<32>)head[63:48] + (bit<32>)head[47:32] + (bit<32>)head[31:16]
            + (bit<32>)head[15:0];
        transition inner_ipv4_options;
    }

    state inner_ipv4_options {
        transition select(hdr.inner.words) {
            0: inner_ipv4_payload;
            default: inner_ipv4_option;
        }
    }

    state inner_ipv4_option {
        bit<32> head = packet.lookahead<bit<32>>();
        packet.extract(hdr.inner_headers.next, 32);
        hdr.inner.sum = hdr.inner.sum + (bit<32>)head[31:16] + (bit<32>)head[15:0];
        hdr.inner.words = hdr.inner.words - 1;
        transition inner_ipv4_options;
    }

    state inner_ipv4_payload {
        transition select(hdr.inner.fragment_offset, hdr.inner.protocol) {
            (0, NS_PROTOCOL_TCP): inner_ports;
            (0, NS_PROTOCOL_UDP): inner_ports;
            default: inner_checksum;
        }
    }

    // The last check of a header.
    state inner_checksum {
        hdr.inner.sum = (hdr.inner.sum & 0xffff) + (hdr.inner.sum >> 16);
        hdr.inner.sum = (hdr.inner.sum & 0xffff) + (hdr.inner.sum >> 16);
        verify(hdr.inner.sum == 0xffff, error.BadInnerChecksum);
        transition select(hdr.inner.fragment_offset) {
            0: inner_payload;
            default: accept;
        }
    }

    state inner_ipv6 {
        bit<320> head = packet.lookahead<bit<320>>();
        verify(head[319:316] == 6, error.BadIpVersion);
        NS_COUNT_INNER(1)
        packet.extract(hdr.inner_headers.next, 320);
        hdr.inner.version = 6;
        hdr.inner.protocol = head[271:264];
        hdr.inner.src_port = 0;
        hdr.inner.dst_port = 0;
        hdr.inner.src = head[255:128];
        hdr.inner.dst = head[127:0];
        transition inner_ipv6_payload;
    }

    state inner_ipv6_payload {
        transition select(hdr.inner.protocol) {
            NS_PROTOCOL_TCP: inner_ports;
            NS_PROTOCOL_UDP: inner_ports;
            NS_PROTOCOL_IPV6_FRAGMENT: inner_fragment;
            0: inner_extension;
            43: inner_extension;
            60: inner_extension;
            135: inner_extension;
            139: inner_extension;
            140: inner_extension;
            51: inner_authentication;
            default: inner_payload;
        }
    }

    // An extension header of at most 48 bytes, which is also the bound behind the outer IP header.
    state inner_extension {
        bit<16> head = packet.lookahead<bit<16>>();
        NS_COUNT_INNER(1)
        packet.extract(hdr.inner_headers.next, ((bit<32>)head[7:0] << 6) + 64);
        verify(head[7:0] <= 5, error.HeaderTooShort);
        hdr.inner.protocol = head[15:8];
        transition inner_ipv6_payload;
    }

    state inner_authentication {
        bit<16> head = packet.lookahead<bit<16>>();
        NS_COUNT_INNER(1)
        packet.extract(hdr.inner_headers.next, ((bit<32>)head[7:0] << 5) + 64);
        verify(head[7:0] <= 10, error.HeaderTooShort);
        hdr.inner.protocol = head[15:8];
        transition inner_ipv6_payload;
    }

    state inner_fragment {
        bit<32> head = packet.lookahead<bit<32>>();
        NS_COUNT_INNER(1)
        packet.extract(hdr.inner_headers.next, 64);
        hdr.inner.protocol = head[31:24];
        transition select(head[15:3]) {
            0: inner_ipv6_payload;
            default: accept;
        }
    }

    state inner_ports {
        bit<32> head = packet.lookahead<bit<32>>();
        hdr.inner.src_port = head[31:16];
        hdr.inner.dst_port = head[15:0];
        transition select(hdr.inner.version) {
            4: inner_checksum;
            default: inner_payload;
        }
    }

    state inner_payload {
        transition select(hdr.inner.protocol, hdr.inner.dst_port) {
            (NS_PROTOCOL_UDP, NS_PORT_VXLAN): inner_vxlan;
            (4, _): inner_ipv4;
            (41, _): inner_ipv6;
            (47, _): inner_gre;
            (137, _): inner_mpls;
            default: accept;
        }
    }
