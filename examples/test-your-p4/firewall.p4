// SPDX-License-Identifier: Apache-2.0
// A firewall between an inside and an outside port: an outgoing packet opens the path for its
// replies, and all other incoming packets are dropped unless the table allows them.
#include <core.p4>
#define V1MODEL_VERSION 20200408
#include <v1model.p4>

const bit<9> INSIDE = 1;
const bit<9> OUTSIDE = 2;
#define FLOWS 4096

header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> ether_type;
}

header ipv4_t {
    bit<4> version;
    bit<4> ihl;
    bit<8> tos;
    bit<16> length;
    bit<32> fragment;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> src;
    bit<32> dst;
}

header ports_t {
    bit<16> src;
    bit<16> dst;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t ipv4;
    ports_t ports;
}

struct metadata_t {
    bit<32> flow;
}

parser FirewallParser(packet_in packet, out headers_t hdr, inout metadata_t meta,
                      inout standard_metadata_t standard) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            0x0800: ipv4;
            default: accept;
        }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        verify(hdr.ipv4.ihl == 5, error.HeaderTooShort);
        transition select(hdr.ipv4.protocol) {
            6: ports;
            17: ports;
            default: accept;
        }
    }
    state ports {
        packet.extract(hdr.ports);
        transition accept;
    }
}

control Firewall(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    register<bit<1>, bit<32>>(FLOWS) open;
    counter<bit<32>>(1, CounterType.packets) refused;

    action allow() {
        standard.egress_spec = INSIDE;
    }

    action refuse() {
        refused.count(0);
        mark_to_drop(standard);
    }

    // Inside servers that are open to the outside.
    table servers {
        key = {
            hdr.ipv4.dst: lpm;
            hdr.ipv4.protocol: exact;
            hdr.ports.dst: range;
        }
        actions = { allow; refuse; }
        default_action = refuse();
        size = 64;
    }

    apply {
        bit<1> is_open;
        if (standard.parser_error != error.NoError || !hdr.ports.isValid()) {
            refuse();
        } else if (standard.ingress_port == INSIDE) {
            hash(meta.flow, HashAlgorithm.crc32, 32w0,
                 { hdr.ipv4.src, hdr.ipv4.dst, hdr.ipv4.protocol, hdr.ports.src, hdr.ports.dst },
                 32w1 * FLOWS);
            open.write(meta.flow, 1);
            standard.egress_spec = OUTSIDE;
        } else {
            hash(meta.flow, HashAlgorithm.crc32, 32w0,
                 { hdr.ipv4.dst, hdr.ipv4.src, hdr.ipv4.protocol, hdr.ports.dst, hdr.ports.src },
                 32w1 * FLOWS);
            open.read(is_open, meta.flow);
            if (is_open == 1) {
                allow();
            } else {
                servers.apply();
            }
        }
    }
}

control Out(inout headers_t hdr, inout metadata_t meta,
            inout standard_metadata_t standard) { apply {} }
control Check(inout headers_t hdr, inout metadata_t meta) { apply {} }
control Update(inout headers_t hdr, inout metadata_t meta) { apply {} }
control FirewallDeparser(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr); } }

V1Switch(FirewallParser(), Check(), Firewall(), Out(), Update(), FirewallDeparser()) main;
