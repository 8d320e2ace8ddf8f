// SPDX-License-Identifier: Apache-2.0
// SketchINT's towers at an edge switch (paper, sections IV and VI): the tower of flows and the
// tower of latencies by flow and switch, with CM insertion, at the sink of INT. The counters and
// their places are those of hostagent/sketchint and sketch/tower, so that a bank is the words of a
// tower: cell 2i has the lower half of word i, and cell 2i + 1 the upper one.
//
// Flows: five rows of NS_SKETCHINT_FLOW_CELLS cells, with counters of 2, 4, 8, 16 and 32 bits.
// Latencies: three rows of NS_SKETCHINT_LATENCY_CELLS cells, with buckets of 8 + 24, 16 + 28 and
// 24 + 40 bits for packets and their latencies, without gaps: those of 44 bits are in two or three
// cells. All ones mean that a counter has overflowed.
//
// The stack of INT is read if it has at most four hops, each with its node id and its latency and
// nothing else. Other stacks are counted; their packets count with the latency of this switch
// alone.

#ifndef NETSKETCH_SKETCHINT_TOWERS_P4
#define NETSKETCH_SKETCHINT_TOWERS_P4

#include "headers.p4"

#if NS_SKETCHINT_FLOW_CELLS % NS_CELLS != 0 || NS_SKETCHINT_LATENCY_CELLS % NS_CELLS != 0
#error a row of a tower must be a multiple of NS_CELLS cells
#endif

#define IT meta.sketchint_towers
#define IT_FLOWS (NS_SKETCHINT_FLOW_CELLS * 5)
#define IT_LATENCIES (NS_SKETCHINT_LATENCY_CELLS * 3)
#define IT_FLOWS_OBJECT 15
#define IT_LATENCIES_OBJECT 16

@netsketch_readout[object=IT_FLOWS_OBJECT, banks=NS_BANKS, drain=1]
@netsketch_sketchint[part="flows", flow="5-tuple", cells=NS_SKETCHINT_FLOW_CELLS,
                     rows="2,4,8,16,32"]
register<bit<32>>(IT_FLOWS * NS_BANKS) sketchint_flows;

@netsketch_readout[object=IT_LATENCIES_OBJECT, banks=NS_BANKS, drain=1]
@netsketch_sketchint[part="latencies", flow="5-tuple,node", cells=NS_SKETCHINT_LATENCY_CELLS,
                     rows="8+24,16+28,24+40"]
register<bit<32>>(IT_LATENCIES * NS_BANKS) sketchint_latencies;

// Counts the packet in a row whose counters have `bits` bits, 2^per of them in a cell.
#define IT_COUNT(row, odd, bits, per) \
    hash(IT.column, HashAlgorithm.crc32, 32w0, { meta.flow.five_tuple * odd }, \
         32w1 * NS_SKETCHINT_FLOW_CELLS << per); \
    IT.cell = IT.first + NS_SKETCHINT_FLOW_CELLS * row + (IT.column >> per); \
    IT.shift = (bit<8>)(IT.column & ((32w1 << per) - 1)) * bits; \
    sketchint_flows.read(IT.word, IT.cell); \
    if (((IT.word >> IT.shift) & ((32w1 << bits) - 1)) != ((32w1 << bits) - 1)) { \
        IT.word = IT.word + (32w1 << IT.shift); \
    } \
    sketchint_flows.write(IT.cell, IT.word);

// Adds a packet and its latency to a bucket, whose counters have these largest values.
#define IT_ADD_TO_BUCKET(bits, most, most_sum) \
    IT.sum = (IT.bucket >> bits) + (bit<64>)IT.latency; \
    if (IT.sum > most_sum) { \
        IT.sum = most_sum; \
    } \
    IT.packets = IT.bucket & most; \
    if (IT.packets != most) { \
        IT.packets = IT.packets + 1; \
    } \
    IT.bucket = (IT.sum << bits) | IT.packets;

// The same for the row with buckets of 44 bits, which are 11 times 4 bits.
#define IT_ADD_44(row, odd) \
    hash(IT.column, HashAlgorithm.crc32, 32w0, { IT.place * odd }, \
         32w1 * (NS_SKETCHINT_LATENCY_CELLS * 8 / 11)); \
    IT.column = IT.column * 11; \
    IT.cell = IT.first + NS_SKETCHINT_LATENCY_CELLS * row + (IT.column >> 3); \
    IT.upper = IT.cell + 1; \
    IT.third = IT.cell + 2; \
    IT.shift = (bit<8>)(IT.column & 7) << 2; \
    sketchint_latencies.read(IT.word, IT.cell); \
    sketchint_latencies.read(IT.high, IT.upper); \
    sketchint_latencies.read(IT.highest, IT.third); \
    IT.wide = IT.highest ++ IT.high ++ IT.word; \
    IT.bucket = (bit<64>)(IT.wide >> IT.shift) & 0xfffffffffff; \
    IT.wide = IT.wide ^ ((bit<96>)IT.bucket << IT.shift); \
    IT_ADD_TO_BUCKET(16, 0xffff, 0xfffffff) \
    IT.wide = IT.wide | ((bit<96>)IT.bucket << IT.shift); \
    sketchint_latencies.write(IT.cell, IT.wide[31:0]); \
    sketchint_latencies.write(IT.upper, IT.wide[63:32]); \
    sketchint_latencies.write(IT.third, IT.wide[95:64]);

// The same for the row with a bucket in each two cells.
#define IT_ADD_64(row, odd) \
    hash(IT.column, HashAlgorithm.crc32, 32w0, { IT.place * odd }, \
         32w1 * (NS_SKETCHINT_LATENCY_CELLS / 2)); \
    IT.cell = IT.first + NS_SKETCHINT_LATENCY_CELLS * row + (IT.column << 1); \
    IT.upper = IT.cell + 1; \
    sketchint_latencies.read(IT.word, IT.cell); \
    sketchint_latencies.read(IT.high, IT.upper); \
    IT.bucket = IT.high ++ IT.word; \
    IT_ADD_TO_BUCKET(24, 0xffffff, 0xffffffffff) \
    sketchint_latencies.write(IT.cell, IT.bucket[31:0]); \
    sketchint_latencies.write(IT.upper, IT.bucket[63:32]);

// A packet that leaves the network at this switch.
control SketchIntTowers(inout headers_t hdr, inout metadata_t meta) {
    action count_flow() {
        IT.first = (bit<32>)meta.bank * IT_FLOWS;
        IT_COUNT(0, 0x9e3779b1, 2, 4)
        IT_COUNT(1, 0x85ebca6b, 4, 3)
        IT_COUNT(2, 0xc2b2ae35, 8, 2)
        IT_COUNT(3, 0x27d4eb2f, 16, 1)
        hash(IT.column, HashAlgorithm.crc32, 32w0, { meta.flow.five_tuple * 0x165667b1 },
             32w1 * NS_SKETCHINT_FLOW_CELLS);
        IT.cell = IT.first + NS_SKETCHINT_FLOW_CELLS * 4 + IT.column;
        sketchint_flows.read(IT.word, IT.cell);
        if (IT.word != 0xffffffff) {
            IT.word = IT.word + 1;
        }
        sketchint_flows.write(IT.cell, IT.word);
    }

    action place_ipv4() {
        hash(IT.place, HashAlgorithm.crc32, 32w0,
             { hdr.ipv4.src, hdr.ipv4.dst, meta.flow.protocol, meta.flow.src_port,
               meta.flow.dst_port, IT.node }, NS_HASH_RANGE);
    }

    action place_ipv6() {
        hash(IT.place, HashAlgorithm.crc32, 32w0,
             { hdr.ipv6.src, hdr.ipv6.dst, meta.flow.protocol, meta.flow.src_port,
               meta.flow.dst_port, IT.node }, NS_HASH_RANGE);
    }

    // Adds the latency of the flow at one switch.
    action add_latency() {
        IT.first = (bit<32>)meta.bank * IT_LATENCIES;
        hash(IT.column, HashAlgorithm.crc32, 32w0, { IT.place * 0x9e3779b1 },
             32w1 * NS_SKETCHINT_LATENCY_CELLS);
        IT.cell = IT.first + IT.column;
        sketchint_latencies.read(IT.word, IT.cell);
        IT.bucket = (bit<64>)IT.word;
        IT_ADD_TO_BUCKET(8, 0xff, 0xffffff)
        sketchint_latencies.write(IT.cell, IT.bucket[31:0]);
        IT_ADD_44(1, 0x85ebca6b)
        IT_ADD_64(2, 0xc2b2ae35)
    }

    action count_unread() {
        sketchint_left_out.count(IM_REASON_UNREAD);
    }

    action own() {
        IT.node = IM.node;
        IT.latency = IM.latency;
    }

    action next_hop() {
        IT.node = IT.stack[63:32];
        IT.latency = IT.stack[31:0];
        IT.stack = IT.stack >> 64;
        IT.hops = IT.hops - 1;
    }

    apply {
        count_flow();
        own();
        if (hdr.ipv4.isValid()) {
            place_ipv4();
        } else {
            place_ipv6();
        }
        add_latency();
        if (IT.unread == 1) {
            count_unread();
        }
        if (IT.hops != 0) {
            next_hop();
            if (IT.latency != 0xffffffff) {
                if (hdr.ipv4.isValid()) {
                    place_ipv4();
                } else {
                    place_ipv6();
                }
                add_latency();
            }
        }
        if (IT.hops != 0) {
            next_hop();
            if (IT.latency != 0xffffffff) {
                if (hdr.ipv4.isValid()) {
                    place_ipv4();
                } else {
                    place_ipv6();
                }
                add_latency();
            }
        }
        if (IT.hops != 0) {
            next_hop();
            if (IT.latency != 0xffffffff) {
                if (hdr.ipv4.isValid()) {
                    place_ipv4();
                } else {
                    place_ipv6();
                }
                add_latency();
            }
        }
        if (IT.hops != 0) {
            next_hop();
            if (IT.latency != 0xffffffff) {
                if (hdr.ipv4.isValid()) {
                    place_ipv4();
                } else {
                    place_ipv6();
                }
                add_latency();
            }
        }
    }
}

#endif
