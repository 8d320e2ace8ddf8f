// SPDX-License-Identifier: Apache-2.0
// States of the parser for the carriers of OmniMon's header. A carrier is recognized by exactly the
// bytes that hosts write; anything else is an ordinary packet, and so is what IP's length has no
// room for. The flow is that of the packet without the carrier.

// Actions of the program's algorithms in every carrier.
#ifdef NS_WITH_OMNIMON
#define NS_CARRIED meta.omnimon.present = 1;
#else
#define NS_CARRIED
#endif

// No algorithm inserts anything into a packet that is in a shim or a tunnel, or has an IPv6 options
// header: hosts look for INT and sketchlets behind the first IP header, where these packets have
// another header.
#if defined(NS_WITH_SKETCHINT)
#define NS_CLOSE meta.sketchint.closed = 1;
#elif defined(NS_WITH_LIGHTGUARDIAN)
#define NS_CLOSE meta.lightguardian.closed = 1;
#else
#define NS_CLOSE
#endif

    state shim {
        packet.extract(hdr.shim);
        NS_CARRIED
        NS_CLOSE
        transition select(hdr.shim.ether_type) {
            NS_ETHERTYPE_IPV4: ipv4;
            NS_ETHERTYPE_IPV6: ipv6;
            default: accept;
        }
    }

#ifdef NS_WITH_OMNIMON
    // Other options, such as padding, may follow.
    state ipv4_carrier {
        packet.extract(hdr.ipv4_carrier);
        NS_CARRIED
        transition select(hdr.ipv4.ihl) {
#if NS_CARRIER_IPV4_LENGTH % 4 == 0
            5 + NS_CARRIER_IPV4_WORDS: ipv4_payload;
#endif
            default: more_ipv4_options;
        }
    }

    state more_ipv4_options {
        packet.extract(hdr.ipv4_options,
                       ((bit<32>)hdr.ipv4.ihl << 5) - (160 + 8 * NS_CARRIER_IPV4_LENGTH));
        transition ipv4_payload;
    }
#endif

    state ipv6_destination {
        transition select(hdr.ipv6.payload_length) {
            NS_CARRIER_IPV6_BYTES .. 0xffff: ipv6_destination_options;
            default: NS_DESTINATION_OPTIONS;
        }
    }

    state ipv6_destination_options {
        transition select(packet.lookahead<bit<32>>()) {
            ((NS_CARRIER_IPV6_BYTES / 8 - 1) << 16 | NS_CARRIER_IPV6_TYPE << 8 | NS_OMNIMON_BYTES)
                &&& 0xffffff: ipv6_carrier;
            default: NS_DESTINATION_OPTIONS;
        }
    }

    state ipv6_carrier {
        packet.extract(hdr.ipv6_carrier);
        NS_CARRIED
        NS_CLOSE
        meta.flow.protocol = hdr.ipv6_carrier.next_header;
        transition carried_ipv6_payload;
    }

    // Follows IPv6's fixed header and a carrier.
    state carried_ipv6_payload {
        transition select(meta.flow.protocol) {
            NS_PROTOCOL_TCP: ports;
            NS_PROTOCOL_UDP: ports;
            NS_PROTOCOL_IPV6_FRAGMENT: ipv6_fragment;
            NS_PROTOCOL_IPV6_DESTINATION: NS_DESTINATION_OPTIONS;
            NS_IN_IPV6
            default: no_ports;
        }
    }

    // A fragment is never a carrier, because the fragments after the first have no header.
    state ipv4_tunnel_port {
        transition select(hdr.ipv4.ihl, hdr.ipv4.flags[0:0], hdr.ipv4.total_length) {
            (5, 0, NS_CARRIER_TUNNEL_BYTES + 40 .. 0xffff): ipv4_tunnel_header;
            default: behind_ports;
        }
    }

// Moves the outer ports away, so that hdr.ports and the flow have the ports of the packet in the
// tunnel, if it has ports.
#define NS_MOVE_PORTS \
        hdr.tunnel_ports.setValid(); \
        hdr.tunnel_ports.src = hdr.ports.src; \
        hdr.tunnel_ports.dst = hdr.ports.dst; \
        hdr.ports.setInvalid(); \
        meta.flow.src_port = 0; \
        meta.flow.dst_port = 0;

// Matches the bytes after UDP's length: no checksum, Geneve of version 0 without flags and network,
// and the head of its only option.
#define NS_IS_TUNNEL(ether_type) \
    ((1 + NS_CARRIER_TUNNEL_WORDS) << 88 | ether_type << 64 | NS_CARRIER_TUNNEL_OPTION << 8 \
        | NS_CARRIER_TUNNEL_WORDS) &&& 0xffffffffffffffffffffffffffff

    state ipv4_tunnel_header {
        transition select(packet.lookahead<bit<128>>()) {
            NS_IS_TUNNEL(NS_ETHERTYPE_IPV4): ipv4_tunnel;
            default: behind_ports;
        }
    }

    state ipv4_tunnel {
        NS_MOVE_PORTS
        packet.extract(hdr.tunnel);
        NS_CARRIED
        NS_CLOSE
        packet.extract(hdr.carried_ipv4);
        verify(hdr.carried_ipv4.version == 4, error.BadIpVersion);
        verify(hdr.carried_ipv4.ihl >= 5, error.BadIpv4HeaderLength);
        meta.flow.protocol = hdr.carried_ipv4.protocol;
        transition select(hdr.carried_ipv4.ihl) {
            5: carried_ipv4_payload;
            default: carried_ipv4_options;
        }
    }

    state carried_ipv4_options {
        packet.extract(hdr.carried_ipv4_options, ((bit<32>)hdr.carried_ipv4.ihl - 5) << 5);
        transition carried_ipv4_payload;
    }

    state carried_ipv4_payload {
        transition select(hdr.carried_ipv4.fragment_offset, hdr.carried_ipv4.protocol) {
            (0, NS_PROTOCOL_TCP): ports;
            (0, NS_PROTOCOL_UDP): ports;
            NS_IN_IPV4
            default: no_ports;
        }
    }

    state ipv6_tunnel_port {
        transition select(hdr.ipv6.payload_length) {
            NS_CARRIER_TUNNEL_BYTES + 40 .. 0xffff: ipv6_tunnel_header;
            default: behind_ports;
        }
    }

    state ipv6_tunnel_header {
        transition select(packet.lookahead<bit<128>>()) {
            NS_IS_TUNNEL(NS_ETHERTYPE_IPV6): ipv6_tunnel;
            default: behind_ports;
        }
    }

    state ipv6_tunnel {
        NS_MOVE_PORTS
        packet.extract(hdr.tunnel);
        NS_CARRIED
        NS_CLOSE
        packet.extract(hdr.carried_ipv6);
        verify(hdr.carried_ipv6.version == 6, error.BadIpVersion);
        meta.flow.protocol = hdr.carried_ipv6.next_header;
        transition carried_ipv6_payload;
    }
