// SPDX-License-Identifier: Apache-2.0
// Forwarding: longest-prefix routes for IPv4 and IPv6 to a port or to an ECMP group, TTL and hop
// limit, MAC rewriting, and a trap for frames that are not IP.
//
// ECMP is a table of (group, member) rather than an action selector: the member is a defined
// function of the flow, the same on every target, and P4Runtime needs only table entries for it.
// Write members before the routes that refer to them.

#ifndef NETSKETCH_FORWARDING_P4
#define NETSKETCH_FORWARDING_P4

#include "headers.p4"

control Forwarding(inout headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t standard_metadata) {
    // Sends the packet out of port as a router with these addresses.
    action forward(port_t port, mac_t src_mac, mac_t dst_mac) {
        standard_metadata.egress_spec = port;
        hdr.ethernet.src = src_mac;
        hdr.ethernet.dst = dst_mac;
    }

    // Selects one of the members of group. size is the number of members, at least 1.
    action ecmp(bit<16> group, bit<16> size) {
        meta.ecmp_group = group;
        meta.ecmp_size = size;
    }

    action to_cpu() {
        hdr.packet_in.setValid();
        hdr.packet_in.reason = NS_REASON_PUNT;
        hdr.packet_in.ingress_port = (bit<16>)standard_metadata.ingress_port;
        hdr.packet_in.object = 0;
        hdr.packet_in.bank = 0;
        hdr.packet_in.index = 0;
        hdr.packet_in.seq = 0;
        standard_metadata.egress_spec = NS_CPU_PORT;
    }

    action drop() {
        meta.drop = NS_DROP_ROUTE;
    }

    action drop_not_ip() {
        meta.drop = NS_DROP_NOT_IP;
    }

    table ipv4_lpm {
        key = { hdr.ipv4.dst: lpm; }
        actions = { forward; ecmp; to_cpu; drop; }
        default_action = drop;
        size = 16384;
    }

    table ipv6_lpm {
        key = { hdr.ipv6.dst: lpm; }
        actions = { forward; ecmp; to_cpu; drop; }
        default_action = drop;
        size = 16384;
    }

    // Each switch has its own seed, so that consecutive switches choose independently. The seed is
    // a factor: another initial value or prefix of a CRC would only permute the members.
    action choose_member(bit<32> seed) {
        hash(meta.ecmp_member, HashAlgorithm.crc32, 16w0, { meta.flow.five_tuple * seed },
             meta.ecmp_size);
    }

    table ecmp_seed {
        actions = { choose_member; }
        default_action = choose_member(0x94d049bb);
        size = 1;
    }

    table ecmp_members {
        key = {
            meta.ecmp_group: exact;
            meta.ecmp_member: exact;
        }
        actions = { forward; to_cpu; drop; }
        default_action = drop;
        size = 16384;
    }

    // Handles frames that are not IP, by the EtherType after the MAC addresses.
    table trap {
        key = { hdr.ethernet.ether_type: exact; }
        actions = { to_cpu; drop_not_ip; }
        default_action = drop_not_ip;
        size = 64;
    }

    apply {
        if (hdr.ipv4.isValid()) {
            if (hdr.ipv4.ttl <= 1) {
                meta.drop = NS_DROP_TTL;
            } else {
                ipv4_lpm.apply();
                hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
            }
        } else if (hdr.ipv6.isValid()) {
            if (hdr.ipv6.hop_limit <= 1) {
                meta.drop = NS_DROP_TTL;
            } else {
                ipv6_lpm.apply();
                hdr.ipv6.hop_limit = hdr.ipv6.hop_limit - 1;
            }
        } else {
            trap.apply();
        }
        if (meta.ecmp_size != 0) {
            ecmp_seed.apply();
            ecmp_members.apply();
        }
    }
}

#endif
