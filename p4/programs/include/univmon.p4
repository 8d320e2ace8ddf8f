// SPDX-License-Identifier: Apache-2.0
// UnivMon's data plane for one flow key: a Count sketch per sampling level and the
// heavy keys of each level (paper, sections 4.2 and 6.2).
//
// This file is a template. Define the macros below and include it: it yields the
// control UM_CONTROL, and takes the macros back. Include it once for each flow key.
//
//   UM_CONTROL  name of the control
//   UM_KEY      NS_KEY_SRC, NS_KEY_DST or NS_KEY_FIVE_TUPLE
//   UM_OBJECT   read-out number of the counters; the heavy keys have the next one
//   UM_LEVELS   sampling levels, 2 to 16
//   UM_ROWS     rows of a level's Count sketch, 3 to 5
//   UM_COLUMNS  counters of a row
//   UM_SLOTS    heavy keys of a level in each of its two ways
//
// A packet updates only the deepest level it reaches. The sketch is linear, so the
// collector has level i's sketch as the sum over the levels from i on, exactly.
// docs/p4.md has the layout of the registers and the arithmetic, bit for bit.

#ifndef NETSKETCH_UNIVMON_P4
#define NETSKETCH_UNIVMON_P4

#include "headers.p4"
#include "readout.p4"

#define NS_KEY_SRC 1
#define NS_KEY_DST 2
#define NS_KEY_FIVE_TUPLE 3

// Scratch fields are written out in full: an argument of their own would overlap meta.

// What is hashed is the flow's hash times an odd constant: one for each row, one for
// the level, one for each way of the heavy keys.
#define UM_ODD_ROW0 0x9e3779b1
#define UM_ODD_ROW1 0x85ebca6b
#define UM_ODD_ROW2 0xc2b2ae35
#define UM_ODD_ROW3 0x27d4eb2f
#define UM_ODD_ROW4 0x165667b1
#define UM_ODD_LEVEL 0x2545f491
#define UM_ODD_WAY0 0x7feb352d
#define UM_ODD_WAY1 0x846ca68b

// Estimates are compared as unsigned numbers with this added.
#define UM_BIAS 0x80000000

// The hash's lowest bit is the sign, the bits above it are the column.
#define UM_COUNT(odd) \
    meta.univmon.product = UM_HASH * odd; \
    hash(meta.univmon.value, HashAlgorithm.crc32, 32w0, { meta.univmon.product }, 32w2 * UM_COLUMNS); \
    meta.univmon.cell = meta.univmon.base + (meta.univmon.value >> 1); \
    counters.read(meta.univmon.count, meta.univmon.cell); \
    meta.univmon.count = (meta.univmon.value & 1) == 0 ? meta.univmon.count + 1 : meta.univmon.count - 1; \
    counters.write(meta.univmon.cell, meta.univmon.count);

#define UM_ESTIMATE(row) \
    meta.univmon.row = (meta.univmon.value & 1) == 0 ? UM_BIAS + meta.univmon.count : UM_BIAS - meta.univmon.count;

#define UM_NEXT_ROW meta.univmon.base = meta.univmon.base + UM_COLUMNS;

#define UM_LOOK(odd, first_slot, slot_cell, slot_count, slot_hash) \
    meta.univmon.product = UM_HASH * odd; \
    hash(meta.univmon.slot_cell, HashAlgorithm.crc32, 32w0, { meta.univmon.product }, 32w1 * UM_SLOTS); \
    meta.univmon.slot_cell = (meta.univmon.slot_cell + (first_slot)) * UM_WORDS; \
    heavy.read(meta.univmon.slot_count, meta.univmon.slot_cell); \
    meta.univmon.cell = meta.univmon.slot_cell + 1; \
    heavy.read(meta.univmon.slot_hash, meta.univmon.cell);

#define UM_PUT(word) \
    meta.univmon.slot = meta.univmon.slot + 1; \
    heavy.write(meta.univmon.slot, word);

#define UM_PUT_WORD(field, high, low) \
    meta.univmon.value = field[high:low]; \
    UM_PUT(meta.univmon.value)

#endif

#if UM_KEY == NS_KEY_SRC
#define UM_KEY_NAME "src"
#define UM_HASH meta.flow.src
#define UM_LAYOUT "count,hash,family<<8|proto,src[4]"
#define UM_WORDS 7
#define UM_PROTOCOL 0
#elif UM_KEY == NS_KEY_DST
#define UM_KEY_NAME "dst"
#define UM_HASH meta.flow.dst
#define UM_LAYOUT "count,hash,family<<8|proto,dst[4]"
#define UM_WORDS 7
#define UM_PROTOCOL 0
#else
#define UM_KEY_NAME "5-tuple"
#define UM_HASH meta.flow.five_tuple
#define UM_LAYOUT "count,hash,family<<8|proto,src-port<<16|dst-port,src[4],dst[4]"
#define UM_WORDS 12
#define UM_PROTOCOL meta.flow.protocol
#endif

#define UM_LEVEL_CELLS (UM_ROWS * UM_COLUMNS)
#define UM_COUNTER_CELLS (UM_LEVELS * UM_LEVEL_CELLS)
#define UM_HEAVY_CELLS (UM_LEVELS * 2 * UM_SLOTS * UM_WORDS)

#if UM_COUNTER_CELLS % NS_CELLS != 0 || UM_HEAVY_CELLS % NS_CELLS != 0
#error a bank of each register must be a multiple of NS_CELLS cells
#endif
#if UM_ROWS < 3 || UM_ROWS > 5
#error UM_ROWS must be 3, 4 or 5
#endif
#if UM_LEVELS < 2 || UM_LEVELS > 16
#error UM_LEVELS must be 2 to 16
#endif

control UM_CONTROL(inout headers_t hdr, inout metadata_t meta) {
    @netsketch_readout[object=UM_OBJECT, banks=NS_BANKS]
    @netsketch_univmon[part="counters", key=UM_KEY_NAME, levels=UM_LEVELS, rows=UM_ROWS, columns=UM_COLUMNS]
    register<bit<32>>(UM_COUNTER_CELLS * NS_BANKS) counters;

    @netsketch_readout[object=UM_OBJECT + 1, banks=NS_BANKS]
    @netsketch_univmon[part="heavy", key=UM_KEY_NAME, levels=UM_LEVELS, ways=2, slots=UM_SLOTS, words=UM_WORDS, layout=UM_LAYOUT]
    register<bit<32>>(UM_HEAVY_CELLS * NS_BANKS) heavy;

    // Counts the packet at its level; looks up both slots its key may be in.
    action count(bit<32> level) {
        meta.univmon.base = ((bit<32>)meta.bank * UM_LEVELS + level) * UM_LEVEL_CELLS;
        UM_COUNT(UM_ODD_ROW0)
        UM_ESTIMATE(row0)
        UM_NEXT_ROW
        UM_COUNT(UM_ODD_ROW1)
        UM_ESTIMATE(row1)
        UM_NEXT_ROW
        UM_COUNT(UM_ODD_ROW2)
        UM_ESTIMATE(row2)
#if UM_ROWS > 3
        UM_NEXT_ROW
        UM_COUNT(UM_ODD_ROW3)
#endif
#if UM_ROWS > 4
        UM_NEXT_ROW
        UM_COUNT(UM_ODD_ROW4)
#endif
        // The median of the first three rows, into row0.
        meta.univmon.low = meta.univmon.row0 < meta.univmon.row1 ? meta.univmon.row0 : meta.univmon.row1;
        meta.univmon.row0 = meta.univmon.row0 < meta.univmon.row1 ? meta.univmon.row1 : meta.univmon.row0;
        meta.univmon.row0 = meta.univmon.row0 < meta.univmon.row2 ? meta.univmon.row0 : meta.univmon.row2;
        meta.univmon.row0 = meta.univmon.row0 < meta.univmon.low ? meta.univmon.low : meta.univmon.row0;

        meta.univmon.base = ((bit<32>)meta.bank * UM_LEVELS + level) * (2 * UM_SLOTS);
        UM_LOOK(UM_ODD_WAY0, meta.univmon.base, slot, slot_count, slot_hash)
        UM_LOOK(UM_ODD_WAY1, meta.univmon.base + UM_SLOTS, other, other_count, other_hash)

        // The slot that holds this key, else the one with the lower count, way 0 on a tie.
        meta.univmon.hit = meta.univmon.slot_hash == UM_HASH && meta.univmon.slot_count != 0 ? 1w1 : 1w0;
        meta.univmon.hit_other = meta.univmon.other_hash == UM_HASH && meta.univmon.other_count != 0 ? 1w1 : 1w0;
        meta.univmon.take_other = meta.univmon.hit == 0 && (meta.univmon.hit_other == 1 || meta.univmon.other_count < meta.univmon.slot_count) ? 1w1 : 1w0;
        meta.univmon.hit = meta.univmon.hit | meta.univmon.hit_other;
        meta.univmon.slot = meta.univmon.take_other == 1 ? meta.univmon.other : meta.univmon.slot;
        meta.univmon.slot_count = meta.univmon.take_other == 1 ? meta.univmon.other_count : meta.univmon.slot_count;
    }

    // The level is the number of leading ones of a hash, the last level at most.
    table level {
        key = { meta.univmon.value: lpm; }
        actions = { count; }
        const default_action = count(0);
        const entries = {
            0x80000000 &&& 0x80000000: count(1);
#if UM_LEVELS > 2
            0xc0000000 &&& 0xc0000000: count(2);
#endif
#if UM_LEVELS > 3
            0xe0000000 &&& 0xe0000000: count(3);
#endif
#if UM_LEVELS > 4
            0xf0000000 &&& 0xf0000000: count(4);
#endif
#if UM_LEVELS > 5
            0xf8000000 &&& 0xf8000000: count(5);
#endif
#if UM_LEVELS > 6
            0xfc000000 &&& 0xfc000000: count(6);
#endif
#if UM_LEVELS > 7
            0xfe000000 &&& 0xfe000000: count(7);
#endif
#if UM_LEVELS > 8
            0xff000000 &&& 0xff000000: count(8);
#endif
#if UM_LEVELS > 9
            0xff800000 &&& 0xff800000: count(9);
#endif
#if UM_LEVELS > 10
            0xffc00000 &&& 0xffc00000: count(10);
#endif
#if UM_LEVELS > 11
            0xffe00000 &&& 0xffe00000: count(11);
#endif
#if UM_LEVELS > 12
            0xfff00000 &&& 0xfff00000: count(12);
#endif
#if UM_LEVELS > 13
            0xfff80000 &&& 0xfff80000: count(13);
#endif
#if UM_LEVELS > 14
            0xfffc0000 &&& 0xfffc0000: count(14);
#endif
#if UM_LEVELS > 15
            0xfffe0000 &&& 0xfffe0000: count(15);
#endif
        }
    }

    action hash_level() {
        meta.univmon.product = UM_HASH * UM_ODD_LEVEL;
        hash(meta.univmon.value, HashAlgorithm.crc32, 32w0, { meta.univmon.product }, NS_HASH_RANGE);
    }

    action refresh() {
        meta.univmon.row0 = meta.univmon.row0 - UM_BIAS;
        heavy.write(meta.univmon.slot, meta.univmon.row0);
    }

    action store_ipv4() {
        meta.univmon.row0 = meta.univmon.row0 - UM_BIAS;
        heavy.write(meta.univmon.slot, meta.univmon.row0);
        UM_PUT(UM_HASH)
        meta.univmon.value = 4 << 8 | (bit<32>)UM_PROTOCOL;
        UM_PUT(meta.univmon.value)
#if UM_KEY == NS_KEY_FIVE_TUPLE
        meta.univmon.value = meta.flow.src_port ++ meta.flow.dst_port;
        UM_PUT(meta.univmon.value)
#endif
#if UM_KEY != NS_KEY_DST
        UM_PUT(hdr.ipv4.src)
        UM_PUT(0)
        UM_PUT(0)
        UM_PUT(0)
#endif
#if UM_KEY != NS_KEY_SRC
        UM_PUT(hdr.ipv4.dst)
        UM_PUT(0)
        UM_PUT(0)
        UM_PUT(0)
#endif
    }

    action store_ipv6() {
        meta.univmon.row0 = meta.univmon.row0 - UM_BIAS;
        heavy.write(meta.univmon.slot, meta.univmon.row0);
        UM_PUT(UM_HASH)
        meta.univmon.value = 6 << 8 | (bit<32>)UM_PROTOCOL;
        UM_PUT(meta.univmon.value)
#if UM_KEY == NS_KEY_FIVE_TUPLE
        meta.univmon.value = meta.flow.src_port ++ meta.flow.dst_port;
        UM_PUT(meta.univmon.value)
#endif
#if UM_KEY != NS_KEY_DST
        UM_PUT_WORD(hdr.ipv6.src, 127, 96)
        UM_PUT_WORD(hdr.ipv6.src, 95, 64)
        UM_PUT_WORD(hdr.ipv6.src, 63, 32)
        UM_PUT_WORD(hdr.ipv6.src, 31, 0)
#endif
#if UM_KEY != NS_KEY_SRC
        UM_PUT_WORD(hdr.ipv6.dst, 127, 96)
        UM_PUT_WORD(hdr.ipv6.dst, 95, 64)
        UM_PUT_WORD(hdr.ipv6.dst, 63, 32)
        UM_PUT_WORD(hdr.ipv6.dst, 31, 0)
#endif
    }

    action read_counters() {
        NS_READ_AND_CLEAR(counters, UM_COUNTER_CELLS)
    }

    action read_heavy() {
        NS_READ_AND_CLEAR(heavy, UM_HEAVY_CELLS)
    }

    apply {
        if (hdr.packet_in.isValid()) {
            if (NS_ASKED(UM_OBJECT, UM_COUNTER_CELLS)) {
                read_counters();
            } else if (NS_ASKED(UM_OBJECT + 1, UM_HEAVY_CELLS)) {
                read_heavy();
            }
        } else {
            hash_level();
            level.apply();
            if (meta.univmon.row0 > UM_BIAS + meta.univmon.slot_count) {
                if (meta.univmon.hit == 1) {
                    refresh();
                } else if (hdr.ipv4.isValid()) {
                    store_ipv4();
                } else {
                    store_ipv6();
                }
            }
        }
    }
}

#undef UM_CONTROL
#undef UM_KEY
#undef UM_OBJECT
#undef UM_LEVELS
#undef UM_ROWS
#undef UM_COLUMNS
#undef UM_SLOTS
#undef UM_KEY_NAME
#undef UM_HASH
#undef UM_LAYOUT
#undef UM_WORDS
#undef UM_PROTOCOL
#undef UM_LEVEL_CELLS
#undef UM_COUNTER_CELLS
#undef UM_HEAVY_CELLS
