// SPDX-License-Identifier: Apache-2.0
// LightGuardian's sketchlet, and the temporaries of lightguardian.p4.

#ifndef NETSKETCH_LIGHTGUARDIAN_HEADERS_P4
#define NETSKETCH_LIGHTGUARDIAN_HEADERS_P4

// Cells of a bucket in a sketchlet.
#define LG_CELLS \
    (NS_LIGHTGUARDIAN_SIZES + NS_LIGHTGUARDIAN_DELAYS + 2 * NS_LIGHTGUARDIAN_GAPS)
#define LG_WORDS (NS_LIGHTGUARDIAN_ROWS * LG_CELLS) // of a sketchlet
#define LG_HEADER_BYTES 10
#define LG_BYTES (LG_HEADER_BYTES + 4 * LG_WORDS)

// Follows the TCP or UDP header of a packet with the carry mark.
header sketchlet_t {
    bit<32> check; // crc32 of all that follows
    bit<16> device;
    bit<16> column;   // the sketchlet ID
    bit<8>  interval; // modulo 256; the lowest bit is the active bit
    bit<8>  words;    // that follow
}

// The cells of a sketchlet that arrived.
header sketchlet_cells_t {
    varbit<8160> cells;
}

// The cells of one row, of the sketchlet that this switch inserts.
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
    bit<1>  closed;   // IP fragments and packets in a shim or a tunnel carry no sketchlet
    bit<1>  ipv4;
    bit<1>  mark;     // the carry mark
    bit<1>  whole;    // the packet can carry a sketchlet
    bit<1>  present;  // a sketchlet follows the mark, by its length
    bit<32> payload;  // bytes after the headers above
    // of the interval
    bit<32> current;  // the newest interval
    bit<32> began;    // the interval in which the switch started
    bit<8>  step;
    bit<32> interval; // of this packet; 0: not measured
    bit<32> packets;  // since the switch started
    bit<8>  unit;
    bit<32> now;      // time since the interval began, from 1
    bit<32> start;
    // of the packet that carries
    bit<16> device;
    bit<17> probability;
    bit<8>  chances;
    bit<32> random;
    bit<1>  carry;
    bit<1>  strip;
    bit<1>  free;     // a sketchlet is chosen that was not carried before
    bit<32> column;
    bit<32> mtu;
    bit<32> length;   // of the IP packet
    bit<32> check;
    bit<16> growth;
    // of the checksum of TCP or UDP: terms that are added
    bit<1>  sum_tcp;
    bit<1>  sum_udp;
    bit<16> checksum;
    bit<16> content;
    bit<16> length_sum;
    bit<16> mark_sum;
    bit<16> zero;
    // of the sketch
    bit<32> delay;
    bit<32> range;
    bit<32> cell;     // the first cell of a bucket
    bit<32> at;
    bit<32> stamp;
    bit<32> value;
    bit<32> sum;
    bit<32> least_size;  // ω of the paper
    bit<32> least_delay;
}

#endif
