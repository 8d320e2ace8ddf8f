// SPDX-License-Identifier: Apache-2.0
// LightGuardian's sketchlet, and the temporaries of lightguardian.p4.

#ifndef NETSKETCH_LIGHTGUARDIAN_HEADERS_P4
#define NETSKETCH_LIGHTGUARDIAN_HEADERS_P4

// The cells of a bucket that a sketchlet has.
#define LG_CELLS \
    (NS_LIGHTGUARDIAN_SIZES + NS_LIGHTGUARDIAN_DELAYS + 2 * NS_LIGHTGUARDIAN_GAPS)
#define LG_WORDS (NS_LIGHTGUARDIAN_ROWS * LG_CELLS) // cells of a sketchlet
#define LG_HEADER_BYTES 10
#define LG_BYTES (LG_HEADER_BYTES + 4 * LG_WORDS)

// Follows the TCP or UDP header of a packet with the carry mark.
header sketchlet_t {
    bit<32> check; // crc32 of the fields and cells after it
    bit<16> device;
    bit<16> column;   // the sketchlet ID
    bit<8>  interval; // modulo 256; the lowest bit is the active bit
    bit<8>  words;    // number of cells that follow
}

// The cells of a sketchlet that arrived.
header sketchlet_cells_t {
    varbit<8160> cells;
}

// The cells of one row, in the sketchlet that this switch inserts.
header sketchlet_row_t {
#if NS_LIGHTGUARDIAN_SIZES > 0
    bit<32> size;
#endif
    bit<32> delay0;
    bit<32> delay1;
#if NS_LIGHTGUARDIAN_DELAYS > 2
    bit<32> delay2;
#endif
#if NS_LIGHTGUARDIAN_DELAYS > 3
    bit<32> delay3;
#endif
#if NS_LIGHTGUARDIAN_DELAYS > 4
    bit<32> delay4;
#endif
#if NS_LIGHTGUARDIAN_DELAYS > 5
    bit<32> delay5;
#endif
#if NS_LIGHTGUARDIAN_DELAYS > 6
    bit<32> delay6;
#endif
#if NS_LIGHTGUARDIAN_DELAYS > 7
    bit<32> delay7;
#endif
#if NS_LIGHTGUARDIAN_GAPS > 0
    bit<32> gap;
    bit<32> last;
#endif
}

// Temporaries of lightguardian.p4. The parser sets the first ones.
struct lightguardian_scratch_t {
    bit<1>  closed;   // no sketchlet is inserted: IP fragments, and packets in a shim or a tunnel
    bit<1>  ipv4;
    bit<1>  mark;     // the packet has the carry mark
    bit<1>  whole;    // the packet can carry a sketchlet
    bit<1>  present;  // a sketchlet follows the mark, by the length of the packet
    bit<32> payload;  // bytes after the headers above
    // The state of the interval.
    bit<32> current;  // number of the newest interval
    bit<32> began;    // number of the interval in which the switch started, or got another seed
    bit<8>  step;
    bit<32> interval; // number of the packet's interval; 0: the packet is not measured
    bit<32> packets;  // packets since the switch started
    bit<8>  unit;
    bit<32> now;      // time since the interval began, from 1
    bit<32> start;
    // The packet that carries a sketchlet.
    bit<16> device;
    bit<17> probability;
    bit<8>  chances;
    bit<32> random;
    bit<1>  carry;
    bit<1>  strip;
    bit<1>  free;     // the chosen sketchlet was not carried before
    bit<32> column;
    bit<32> mtu;
    bit<32> length;   // length of the IP packet
    bit<32> check;
    bit<16> growth;
    // Terms that are added to the TCP or UDP checksum.
    bit<1>  sum_tcp;
    bit<1>  sum_udp;
    bit<16> checksum;
    bit<16> content;
    bit<16> length_sum;
    bit<16> mark_sum;
    bit<16> zero;
    // The sketch.
    bit<32> flow;     // hash of the flow with the seed of the switch
    bit<32> delay;
    bit<32> range;
    bit<32> cell;     // first cell of a bucket
    bit<32> at;
    bit<32> stamp;
    bit<32> value;
    bit<32> sum;
    bit<32> least_size;  // ω of the paper
    bit<32> least_delay;
}

#endif
