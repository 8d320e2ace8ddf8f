// SPDX-License-Identifier: Apache-2.0
// SketchINT's switch: INT-MD version 2.1 over TCP and UDP (INT specification, section 5). The
// source of a packet inserts shim and metadata header behind the TCP or UDP header and sets the
// DSCP of INT. Every switch on the path pushes its metadata. The sink removes all of it, and can
// send it to a collector in a telemetry report.
//
// All of it is in egress, after the queue, where its latency and occupancy are known. Checksums of
// TCP and UDP change by the difference of what changed (UpdateHeader), so that a packet that
// arrives corrupted also leaves corrupted.
//
// docs/sketchint-p4.md has the tables, and which packets carry INT.

#ifndef NETSKETCH_SKETCHINT_P4
#define NETSKETCH_SKETCHINT_P4

#include "headers.p4"

#if defined(NS_WITH_UNIVMON) || defined(NS_WITH_CHAMELEMON) || defined(NS_WITH_OMNIMON)
#error SketchINT does not share a switch with another algorithm
#endif

#define IM meta.sketchint

#define IM_KIND 1 // shim.kind: INT-MD
#define IM_VERSION 2
#define IM_HEADER_WORDS 3 // words of the metadata header
#define IM_HEADER_BYTES 16 // bytes of the shim and the metadata header

#ifdef NS_WITH_SKETCHINT_TOWERS
#define IM_LEFT_OUT 10 // number of reasons in sketchint_left_out
#else
#define IM_LEFT_OUT 9 // number of reasons in sketchint_left_out
#endif
#define IM_REASON_UNKNOWN 1
#define IM_REASON_LENGTH 2
#define IM_REASON_HOP_WORDS 3
#define IM_REASON_FULL 4
#define IM_REASON_HOPS 5
#define IM_REASON_MTU 6
#define IM_REASON_SOURCE_MTU 7
#define IM_REASON_DISCARDED 8
#define IM_REASON_UNREAD 9

#define IM_REPORT_VERSION 2
#define IM_REPORT_KIND 1  // INT
#define IM_REPORT_INNER 3 // Ethernet
#define IM_REPORT_BITS 0x7c00 // the metadata of a report: ports, latency, queue, times
#define IM_REPORT_METADATA 28 // bytes of this metadata
#define IM_REPORT_FIXED 56 // bytes of UDP, group, individual report and metadata
#define IM_REPORT_MOST 960 // bytes of the packet, at most: 8 bits count its words

// v1model has timestamps in microseconds, INT in nanoseconds.
#define IM_NANOSECONDS 1000

// Packets that the switch left as they were, did not push metadata on, or discarded as their header
// requests, by reason. Each of them carries INT or should start to.
counter(IM_LEFT_OUT, CounterType.packets) sketchint_left_out;

#ifdef NS_WITH_SKETCHINT_TOWERS
#include "sketchint-towers.p4"
#endif

// Selects the packets that start to carry INT here.
control SketchIntIngress(inout headers_t hdr, inout metadata_t meta,
                         inout standard_metadata_t standard_metadata) {
    action start(bit<16> instructions, bit<8> hops) {
        IM.start = 1;
        IM.instructions = instructions;
        IM.hops = hops;
    }

    table source_ipv4 {
        key = {
            standard_metadata.ingress_port: ternary @name("port");
            hdr.ipv4.src: ternary @name("src");
            hdr.ipv4.dst: ternary @name("dst");
            meta.flow.protocol: ternary @name("protocol");
            meta.flow.src_port: range @name("src_port");
            meta.flow.dst_port: range @name("dst_port");
        }
        actions = { start; @defaultonly NoAction; }
        default_action = NoAction;
        size = 1024;
    }

    table source_ipv6 {
        key = {
            standard_metadata.ingress_port: ternary @name("port");
            hdr.ipv6.src: ternary @name("src");
            hdr.ipv6.dst: ternary @name("dst");
            meta.flow.protocol: ternary @name("protocol");
            meta.flow.src_port: range @name("src_port");
            meta.flow.dst_port: range @name("dst_port");
        }
        actions = { start; @defaultonly NoAction; }
        default_action = NoAction;
        size = 1024;
    }

    action leave_out(bit<32> reason) {
        sketchint_left_out.count(reason);
    }

#ifdef NS_WITH_SKETCHINT_TOWERS
    action read_flows() {
        NS_READ_AND_CLEAR(sketchint_flows, IT_FLOWS)
    }

    action read_latencies() {
        NS_READ_AND_CLEAR(sketchint_latencies, IT_LATENCIES)
    }
#endif

    apply {
#ifdef NS_WITH_SKETCHINT_TOWERS
        if (hdr.packet_in.isValid()) {
            if (NS_ASKED(IT_FLOWS_OBJECT, IT_FLOWS)) {
                read_flows();
            } else if (NS_ASKED(IT_LATENCIES_OBJECT, IT_LATENCIES)) {
                read_latencies();
            }
        } else
#endif
        if (IM.state == IM_STATE_UNKNOWN) {
            leave_out(IM_REASON_UNKNOWN);
        } else if (IM.state == IM_STATE_LENGTH) {
            leave_out(IM_REASON_LENGTH);
        } else if (IM.state == IM_STATE_NONE && IM.whole == 1) {
            if (hdr.ipv4.isValid()) {
                source_ipv4.apply();
            } else {
                source_ipv6.apply();
            }
        }
    }
}

control SketchIntEgress(inout headers_t hdr, inout metadata_t meta,
                        inout standard_metadata_t standard_metadata) {
    register<bit<32>>(1) sequence;

    action set_node(bit<32> id) {
        IM.node = id;
    }

    // The node id of this switch.
    table node {
        actions = { set_node; }
        default_action = set_node(0);
        size = 1;
    }

    action set_mtu(bit<16> bytes) {
        IM.mtu = (bit<32>)bytes;
    }

    // The largest IP packet that a port sends.
    table mtu {
        key = { standard_metadata.egress_port: exact @name("port"); }
        actions = { set_mtu; }
        default_action = set_mtu(1500);
        size = 512;
    }

    action remove() {
        IM.sink = 1;
    }

    action report(bit<16> session) {
        IM.sink = 1;
        IM.session = (bit<32>)session;
    }

    // Ports where INT ends: ports to hosts, and to networks without INT.
    table sink {
        key = { standard_metadata.egress_port: exact @name("port"); }
        actions = { remove; report; @defaultonly NoAction; }
        default_action = NoAction;
        size = 512;
    }

#ifdef NS_WITH_SKETCHINT_TOWERS
    SketchIntTowers() towers;
#endif

    action leave_out(bit<32> reason) {
        sketchint_left_out.count(reason);
    }

    // What this switch measured of the packet.
    action measure() {
        IM.ingress_port = (bit<16>)standard_metadata.ingress_port;
        IM.egress_port = (bit<16>)standard_metadata.egress_port;
        IM.occupancy = (bit<24>)standard_metadata.enq_qdepth;
        IM.ingress_time = (bit<64>)standard_metadata.ingress_global_timestamp * IM_NANOSECONDS;
        IM.egress_time = (bit<64>)standard_metadata.egress_global_timestamp * IM_NANOSECONDS;
        IM.latency = (bit<32>)(IM.egress_time - IM.ingress_time);
    }

    action measure_ipv4() {
        IM.ip_length = (bit<32>)hdr.ipv4.total_length;
    }

    action measure_ipv6() {
        IM.ip_length = (bit<32>)hdr.ipv6.payload_length + 40;
    }

    // Counts the words of metadata that the instructions request. The switch has values for bits 0
    // to 5.
    action count_words(bit<16> i) {
        IM.known = (bit<8>)i[15:15] + (bit<8>)i[14:14] + (bit<8>)i[13:13] + (bit<8>)i[12:12]
            + ((bit<8>)i[11:11] + (bit<8>)i[10:10] << 1);
        IM.words = IM.known + ((bit<8>)i[9:9] << 1) + (bit<8>)i[8:8] + (bit<8>)i[7:7]
            + (bit<8>)i[6:6] + (bit<8>)i[5:5] + (bit<8>)i[4:4] + (bit<8>)i[3:3] + (bit<8>)i[2:2]
            + (bit<8>)i[1:1] + (bit<8>)i[0:0];
    }

    // Keeps the terms that the TCP or UDP checksum includes, so that they can be subtracted later.
    action keep_header() {
        hdr.kept_shim = hdr.int_shim;
        hdr.kept_md = hdr.int_md;
    }

    action insert_header(bit<6> dscp) {
        hdr.int_shim.setValid();
        hdr.int_shim.kind = IM_KIND;
        hdr.int_shim.npt = 0;
        hdr.int_shim.reserved0 = 0;
        hdr.int_shim.length = IM_HEADER_WORDS;
        hdr.int_shim.reserved1 = 0;
        hdr.int_shim.dscp = dscp;
        hdr.int_shim.reserved2 = 0;
        hdr.int_md.setValid();
        hdr.int_md.version = IM_VERSION;
        hdr.int_md.discard = 0;
        hdr.int_md.hops_exceeded = 0;
        hdr.int_md.mtu_exceeded = 0;
        hdr.int_md.reserved = 0;
        hdr.int_md.hop_words = (bit<5>)IM.words;
        hdr.int_md.remaining_hops = IM.hops;
        hdr.int_md.instructions = IM.instructions;
        hdr.int_md.domain = 0;
        hdr.int_md.ds_instructions = 0;
        hdr.int_md.ds_flags = 0;
        IM.growth = IM_HEADER_BYTES;
        IM.length_sum = IM_HEADER_BYTES;
    }

    action set_dscp_ipv4(bit<6> dscp) {
        hdr.ipv4.tos = dscp ++ hdr.ipv4.tos[1:0];
    }

    action set_dscp_ipv6(bit<6> dscp) {
        hdr.ipv6.traffic_class = dscp ++ hdr.ipv6.traffic_class[1:0];
    }

    action exceed_hops() {
        hdr.int_md.hops_exceeded = 1;
        sketchint_left_out.count(IM_REASON_HOPS);
    }

    action exceed_mtu() {
        hdr.int_md.mtu_exceeded = 1;
        sketchint_left_out.count(IM_REASON_MTU);
    }

    // The metadata of this hop. Bits 6 to 15 request metadata that the switch does not have: it
    // writes all ones.
    action push() {
        IM.pad = (bit<8>)hdr.int_md.hop_words - IM.known;
        IM.growth = IM.growth + ((bit<16>)hdr.int_md.hop_words << 2);
        IM.length_sum = IM.growth;
        hdr.int_shim.length = hdr.int_shim.length + (bit<8>)hdr.int_md.hop_words;
        hdr.int_md.remaining_hops = hdr.int_md.remaining_hops - 1;
        if (hdr.int_md.instructions[15:15] == 1) {
            hdr.int_node.setValid();
            hdr.int_node.id = IM.node;
        }
        if (hdr.int_md.instructions[14:14] == 1) {
            hdr.int_ports.setValid();
            hdr.int_ports.ingress = IM.ingress_port;
            hdr.int_ports.egress = IM.egress_port;
        }
        if (hdr.int_md.instructions[13:13] == 1) {
            hdr.int_latency.setValid();
            hdr.int_latency.latency = IM.latency;
        }
        if (hdr.int_md.instructions[12:12] == 1) {
            hdr.int_queue.setValid();
            hdr.int_queue.id = 0;
            hdr.int_queue.occupancy = IM.occupancy;
        }
        if (hdr.int_md.instructions[11:11] == 1) {
            hdr.int_ingress_time.setValid();
            hdr.int_ingress_time.time = IM.ingress_time;
        }
        if (hdr.int_md.instructions[10:10] == 1) {
            hdr.int_egress_time.setValid();
            hdr.int_egress_time.time = IM.egress_time;
        }
        if (IM.pad[0:0] == 1) {
            hdr.int_pad1.setValid();
            hdr.int_pad1.ones = ~32w0;
        }
        if (IM.pad[1:1] == 1) {
            hdr.int_pad2.setValid();
            hdr.int_pad2.ones = ~64w0;
        }
        if (IM.pad[2:2] == 1) {
            hdr.int_pad4.setValid();
            hdr.int_pad4.ones = ~128w0;
        }
        if (IM.pad[3:3] == 1) {
            hdr.int_pad8.setValid();
            hdr.int_pad8.ones = ~256w0;
        }
        if (IM.pad[4:4] == 1) {
            hdr.int_pad16.setValid();
            hdr.int_pad16.ones = ~512w0;
        }
    }

    action discard() {
        sketchint_left_out.count(IM_REASON_DISCARDED);
        mark_to_drop(standard_metadata);
    }

    // The number of bytes of the packet that a report has: all headers and INT, filled up to a
    // word.
    action set_inner() {
        IM.inner = IM.link + IM.ip_length - IM.payload + 2;
    }

    // Removes INT and keeps it for the report.
    action strip() {
        IM.bytes = ((bit<16>)hdr.int_shim.length << 2) + 4;
        IM.growth = -IM.bytes;
        IM.length_sum = ~IM.bytes;
        hdr.kept_shim = hdr.int_shim;
        hdr.kept_md = hdr.int_md;
        hdr.kept_stack = hdr.int_stack;
        hdr.int_shim.setInvalid();
        hdr.int_md.setInvalid();
        hdr.int_stack.setInvalid();
    }

    action change_length_ipv4() {
        hdr.ipv4.total_length = hdr.ipv4.total_length + IM.growth;
    }

    action change_length_ipv6() {
        hdr.ipv6.payload_length = hdr.ipv6.payload_length + IM.growth;
    }

    action change_tcp() {
        IM.sum_tcp = 1;
        IM.checksum = ~hdr.tcp.checksum;
    }

    action change_udp() {
        hdr.udp.length = hdr.udp.length + IM.growth;
        IM.checksum = ~hdr.udp.checksum;
        // A UDP checksum of zero means that there is none.
        if (hdr.udp.checksum != 0) {
            IM.sum_udp = 1;
        }
    }

    // Restores the packet of a report as it was received, except addresses, TTL and the bytes after
    // INT.
    action restore_packet() {
        IM.growth = IM.bytes;
        hdr.int_shim = hdr.kept_shim;
        hdr.int_md = hdr.kept_md;
        hdr.int_stack = hdr.kept_stack;
    }

    action restore_udp() {
        hdr.udp.length = hdr.udp.length + IM.growth;
    }

    action limit_inner() {
        IM.inner = IM_REPORT_MOST;
    }

    action send(mac_t src_mac, mac_t dst_mac, bit<32> src, bit<32> dst, bit<16> src_port,
                bit<16> dst_port) {
        sequence.read(IM.sequence, 0);
        sequence.write(0, IM.sequence + 1);
        hdr.report_ethernet.setValid();
        hdr.report_ethernet.dst = dst_mac;
        hdr.report_ethernet.src = src_mac;
        hdr.report_ethernet.ether_type = 0x0800;
        hdr.report_ipv4.setValid();
        hdr.report_ipv4.version = 4;
        hdr.report_ipv4.ihl = 5;
        hdr.report_ipv4.tos = 0;
        hdr.report_ipv4.total_length = (bit<16>)IM.inner + (20 + IM_REPORT_FIXED);
        hdr.report_ipv4.identification = 0;
        hdr.report_ipv4.flags = 2; // do not fragment
        hdr.report_ipv4.fragment_offset = 0;
        hdr.report_ipv4.ttl = 64;
        hdr.report_ipv4.protocol = 17;
        hdr.report_ipv4.checksum = 0;
        hdr.report_ipv4.src = src;
        hdr.report_ipv4.dst = dst;
        hdr.report.setValid();
        hdr.report.src_port = src_port;
        hdr.report.dst_port = dst_port;
        hdr.report.udp_length = (bit<16>)IM.inner + IM_REPORT_FIXED;
        hdr.report.udp_checksum = 0;
        hdr.report.version = IM_REPORT_VERSION;
        hdr.report.hardware = 0;
        hdr.report.sequence = IM.sequence[21:0];
        hdr.report.node = IM.node;
        hdr.report.kind = IM_REPORT_KIND;
        hdr.report.inner = IM_REPORT_INNER;
        hdr.report.length = (bit<8>)((IM.inner + (8 + IM_REPORT_METADATA)) >> 2);
        hdr.report.metadata_length = IM_REPORT_METADATA / 4;
        hdr.report.dropped = 0;
        hdr.report.congested = 0;
        hdr.report.tracked = 1;
        hdr.report.intermediate = 0;
        hdr.report.reserved = 0;
        hdr.report.metadata_bits = IM_REPORT_BITS;
        hdr.report.domain = 0;
        hdr.report.ds_bits = 0;
        hdr.report.ds_status = 0;
        hdr.report.ingress_port = IM.ingress_port;
        hdr.report.egress_port = IM.egress_port;
        hdr.report.latency = IM.latency;
        hdr.report.queue = 0;
        hdr.report.occupancy = IM.occupancy;
        hdr.report.ingress_time = IM.ingress_time;
        hdr.report.egress_time = IM.egress_time;
        hdr.report_fill.setValid();
        hdr.report_fill.zero = 0;
        truncate(IM.inner + (14 + 20 + IM_REPORT_FIXED));
    }

    action drop() {
        mark_to_drop(standard_metadata);
    }

    // The destination of reports.
    table collector {
        actions = { send; drop; }
        default_action = drop;
        size = 1;
    }

    apply {
        if (standard_metadata.instance_type == NS_EGRESS_CLONE) {
            restore_packet();
            if (hdr.int_shim.isValid()) {
                if (hdr.ipv4.isValid()) {
                    set_dscp_ipv4(NS_SKETCHINT_DSCP);
                    change_length_ipv4();
                } else {
                    set_dscp_ipv6(NS_SKETCHINT_DSCP);
                    change_length_ipv6();
                }
                if (hdr.udp.isValid()) {
                    restore_udp();
                }
            }
            if (IM.inner > IM_REPORT_MOST) {
                limit_inner();
            }
            collector.apply();
        } else if (standard_metadata.egress_port != NS_CPU_PORT
                   && (IM.state == IM_STATE_PRESENT || IM.start == 1)) {
            node.apply();
            mtu.apply();
            sink.apply();
            measure();
            if (hdr.ipv4.isValid()) {
                measure_ipv4();
            } else {
                measure_ipv6();
            }
            if (IM.sink == 1) {
                set_inner();
#ifdef NS_WITH_SKETCHINT_TOWERS
                towers.apply(hdr, meta);
#endif
                if (IM.state == IM_STATE_PRESENT) {
                    if (hdr.ipv4.isValid()) {
                        set_dscp_ipv4(hdr.int_shim.dscp);
                    } else {
                        set_dscp_ipv6(hdr.int_shim.dscp);
                    }
                    if (hdr.int_md.discard == 1) {
                        discard();
                    }
                    strip();
                }
                if (IM.session != 0) {
                    clone_preserving_field_list(CloneType.E2E, IM.session, NS_SKETCHINT_CLONE);
                }
            } else if (IM.start == 1) {
                count_words(IM.instructions);
                if (IM.ip_length + IM_HEADER_BYTES > IM.mtu) {
                    leave_out(IM_REASON_SOURCE_MTU);
                } else if (hdr.ipv4.isValid()) {
                    insert_header(hdr.ipv4.tos[7:2]);
                    set_dscp_ipv4(NS_SKETCHINT_DSCP);
                } else {
                    insert_header(hdr.ipv6.traffic_class[7:2]);
                    set_dscp_ipv6(NS_SKETCHINT_DSCP);
                }
            } else {
                count_words(hdr.int_md.instructions);
                keep_header();
            }
            if (hdr.int_md.isValid()) {
                if ((bit<8>)hdr.int_md.hop_words < IM.words) {
                    leave_out(IM_REASON_HOP_WORDS);
                } else if (hdr.int_md.remaining_hops == 0) {
                    exceed_hops();
                } else if ((bit<16>)hdr.int_shim.length + (bit<16>)hdr.int_md.hop_words > 255) {
                    leave_out(IM_REASON_FULL);
                } else if (IM.ip_length + (bit<32>)IM.growth
                           + ((bit<32>)hdr.int_md.hop_words << 2) > IM.mtu) {
                    exceed_mtu();
                } else {
                    push();
                }
            }
            if (hdr.ipv4.isValid()) {
                change_length_ipv4();
            } else {
                change_length_ipv6();
            }
            if (hdr.tcp.isValid()) {
                change_tcp();
            } else {
                change_udp();
            }
        }
    }
}

#endif
