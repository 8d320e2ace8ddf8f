// SPDX-License-Identifier: Apache-2.0
// Which of UnivMon's dimensions a switch counts of a packet (paper, section 5.3). The two sites of
// a packet, those with the longest prefixes of its source and its destination, are its pair; an
// entry has the dimensions of a pair that this switch counts. A packet without a site for one of
// its addresses is counted where it enters the network: entries name the ports to other switches.
// Without any entries a switch counts all packets in all dimensions. Sites are those of the outer
// addresses of a packet in a tunnel, because these decide its path.
//
// All entries are for one bank, so a controller writes those of a coming epoch while another one is
// measured.

#ifndef NETSKETCH_DUTIES_P4
#define NETSKETCH_DUTIES_P4

#include "headers.p4"

control Duties(in headers_t hdr, inout metadata_t meta,
               in standard_metadata_t standard_metadata) {
    action from(bit<16> site) {
        meta.duties.origin = site;
    }

    action to(bit<16> site) {
        meta.duties.destination = site;
    }

    action count(bit<8> dimensions) {
        meta.duties.dimensions = dimensions;
    }

    // A forwarded packet without a flow belongs to no dimension. A switch that counts none of its
    // packets counts no reason for it either.
    action count_unparsed() {
        if (meta.duties.dimensions == 0) {
            meta.unparsed = 0;
        }
        meta.duties.dimensions = 0;
    }

    table origins {
        key = { meta.bank: exact @name("bank"); hdr.ipv4.src: lpm @name("address"); }
        actions = { from; }
        const default_action = from(0);
        size = 32768;
    }

    table origins_ipv6 {
        key = { meta.bank: exact @name("bank"); hdr.ipv6.src: lpm @name("address"); }
        actions = { from; }
        const default_action = from(0);
        size = 32768;
    }

    table destinations {
        key = { meta.bank: exact @name("bank"); hdr.ipv4.dst: lpm @name("address"); }
        actions = { to; }
        const default_action = to(0);
        size = 32768;
    }

    table destinations_ipv6 {
        key = { meta.bank: exact @name("bank"); hdr.ipv6.dst: lpm @name("address"); }
        actions = { to; }
        const default_action = to(0);
        size = 32768;
    }

    table pairs {
        key = {
            meta.bank: exact @name("bank");
            meta.duties.origin: exact @name("origin");
            meta.duties.destination: exact @name("destination");
        }
        actions = { count; }
        const default_action = count(0);
        size = 65536;
    }

    table ports {
        key = {
            meta.bank: exact @name("bank");
            standard_metadata.ingress_port: exact @name("port");
        }
        actions = { count; }
        const default_action = count(0xff);
        size = 1024;
    }

    apply {
        if (meta.unparsed != 0) {
            // The network has no sites: the packet is counted where it enters the network.
        } else if (hdr.ipv4.isValid()) {
            origins.apply();
            if (meta.duties.origin != 0) {
                destinations.apply();
            }
        } else {
            origins_ipv6.apply();
            if (meta.duties.origin != 0) {
                destinations_ipv6.apply();
            }
        }
        if (meta.duties.destination != 0) {
            pairs.apply();
        } else {
            ports.apply();
            if (meta.unparsed != 0) {
                count_unparsed();
            }
        }
    }
}

#endif
