// SPDX-License-Identifier: Apache-2.0
// UnivMon's data plane for one flow key: a Count sketch per sampling level and the heavy keys of
// each level (paper, sections 4.2 and 6.2).
//
// This file is a template. Define the macros below and include it: it defines the control
// UM_CONTROL and undefines the macros. Include it once for each flow key.
//
//   UM_CONTROL  name of the control
//   UM_COUNTED  full name of its counter, in quotes
//   UM_KEY      NS_KEY_SRC, NS_KEY_DST, NS_KEY_FIVE_TUPLE, NS_KEY_PAIR, NS_KEY_SERVICE or
//               NS_KEY_PROTOCOL
//   UM_OBJECT   read-out number of the counters; the heavy keys have the next one
//   UM_LEVELS   sampling levels, 2 to 16
//   UM_ROWS     rows of a level's Count sketch, 3 to 5
//   UM_COLUMNS  counters of a row in the first eight levels
//   UM_SLOTS    heavy keys of each of the four ways in the first eight levels
//
// Levels from the ninth on have a quarter of the counters and heavy keys: few flows reach them,
// unless there are millions.
//
// A packet updates only the deepest level that it reaches. The sketch is linear, so level i's
// sketch is exactly the sum of the levels from i on. docs/p4.md has the layout of the registers
// and the arithmetic, bit for bit.

#ifndef NETSKETCH_UNIVMON_P4
#define NETSKETCH_UNIVMON_P4

#include "headers.p4"
#include "readout.p4"

#define NS_KEY_SRC 1
#define NS_KEY_DST 2
#define NS_KEY_FIVE_TUPLE 3
#define NS_KEY_PAIR 4     // source and destination
#define NS_KEY_SERVICE 5  // destination and destination port
#define NS_KEY_PROTOCOL 6

// Whether the switch counts the packet by this key; duties.p4 sets it.
#define NS_COUNTS(key) ((meta.duties.dimensions & (1 << (key - 1))) != 0)

// The input of each hash is the flow's hash times an odd constant: one for each row, one for the
// level, one for each way of the heavy keys.
#define UM_ODD_ROW0 0x9e3779b1
#define UM_ODD_ROW1 0x85ebca6b
#define UM_ODD_ROW2 0xc2b2ae35
#define UM_ODD_ROW3 0x27d4eb2f
#define UM_ODD_ROW4 0x165667b1
#define UM_ODD_LEVEL 0x2545f491
#define UM_ODD_WAY0 0x7feb352d
#define UM_ODD_WAY1 0x846ca68b
#define UM_ODD_WAY2 0xd6e8feb9
#define UM_ODD_WAY3 0xb5297a4d

// Ways of the heavy keys. With two ways, larger flows often hold both slots of one of the largest
// flows: for a flow of 0.5 % of the packets, once in a few epochs.
#define UM_WAYS 4

// Added to estimates, which are then compared as unsigned numbers.
#define UM_BIAS 0x80000000

#define UM meta.univmon

// Levels with all counters and heavy keys.
#define UM_WIDE 8

// Counts in the row that begins with cell UM.first, stores the row's estimate, and advances to the
// next row. The hash's lowest bit is the sign, the bits above it are the column. In a deep level,
// four columns share a counter.
#define UM_COUNT(odd, estimate) \
    hash(UM.value, HashAlgorithm.crc32, 32w0, { UM_HASH * odd }, 32w2 * UM_COLUMNS); \
    UM.cell = UM.first + (UM.value >> (shift + 1)); \
    UM.first = UM.first + columns; \
    counters.read(UM.count, UM.cell); \
    if ((UM.value & 1) == 0) { \
        UM.count = UM.count + 1; \
        UM.estimate = UM_BIAS + UM.count; \
    } else { \
        UM.count = UM.count - 1; \
        UM.estimate = UM_BIAS - UM.count; \
    } \
    counters.write(UM.cell, UM.count);

// Looks up the flow's slot in the way that begins with slot UM.first, and advances to the next way.
#define UM_LOOK(odd, slot_count, slot_hash) \
    hash(UM.slot, HashAlgorithm.crc32, 32w0, { UM_HASH * odd }, 32w1 * UM_SLOTS); \
    UM.slot = (UM.first + (UM.slot >> shift)) * UM_WORDS; \
    UM.first = UM.first + slots; \
    heavy.read(UM.slot_count, UM.slot); \
    heavy.read(UM.slot_hash, UM.slot + 1);

#define UM_HOLDS(slot_count, slot_hash) (UM.slot_hash == UM_HASH && UM.slot_count != 0)

// Selects the slot of another way if it holds the flow, or if its flow is to be replaced before the
// flow of the selected slot: the flow with the lower count, or of equal counts the flow with the
// larger hash.
#define UM_LOOK_FURTHER(odd) \
    if (UM.hit == 0) { \
        UM_LOOK(odd, other_count, other_hash) \
        if (UM_HOLDS(other_count, other_hash)) { \
            UM.hit = 1; \
        } \
        if (UM.hit == 1 || UM.other_count < UM.slot_count || \
            (UM.other_count == UM.slot_count && UM.other_hash > UM.slot_hash)) { \
            UM.cell = UM.slot; \
            UM.slot_count = UM.other_count; \
            UM.slot_hash = UM.other_hash; \
        } \
    }

// Writes the next word of the selected slot.
#define UM_PUT(word) \
    UM.cell = UM.cell + 1; \
    heavy.write(UM.cell, word);

#define UM_PUT_IPV4(field) UM_PUT(field) UM_PUT(0) UM_PUT(0) UM_PUT(0)

#define UM_PUT_IPV6(field) \
    UM_PUT(field[127:96]) UM_PUT(field[95:64]) UM_PUT(field[63:32]) UM_PUT(field[31:0])

#endif

// UM_PUT_KEY writes the words of the key behind the protocol, of IPv4 or IPv6.
#if UM_KEY == NS_KEY_SRC
#define UM_KEY_NAME "src"
#define UM_HASH meta.flow.src
#define UM_LAYOUT "count,hash,family<<8|proto,src[4]"
#define UM_WORDS 7
#define UM_PROTOCOL 0
#define UM_PUT_KEY(put, ip) put(ip.src)
#elif UM_KEY == NS_KEY_DST
#define UM_KEY_NAME "dst"
#define UM_HASH meta.flow.dst
#define UM_LAYOUT "count,hash,family<<8|proto,dst[4]"
#define UM_WORDS 7
#define UM_PROTOCOL 0
#define UM_PUT_KEY(put, ip) put(ip.dst)
#elif UM_KEY == NS_KEY_PAIR
#define UM_KEY_NAME "src+dst"
#define UM_HASH meta.flow.pair
#define UM_LAYOUT "count,hash,family<<8|proto,src[4],dst[4]"
#define UM_WORDS 11
#define UM_PROTOCOL 0
#define UM_PUT_KEY(put, ip) put(ip.src) put(ip.dst)
#elif UM_KEY == NS_KEY_SERVICE
#define UM_KEY_NAME "dst+dst-port"
#define UM_HASH meta.flow.service
#define UM_LAYOUT "count,hash,family<<8|proto,src-port<<16|dst-port,dst[4]"
#define UM_WORDS 8
#define UM_PROTOCOL 0
#define UM_PUT_KEY(put, ip) UM_PUT((bit<32>)meta.flow.dst_port) put(ip.dst)
#elif UM_KEY == NS_KEY_PROTOCOL
#define UM_KEY_NAME "proto"
#define UM_HASH meta.flow.protocol_hash
#define UM_LAYOUT "count,hash,family<<8|proto"
#define UM_WORDS 3
#define UM_PROTOCOL meta.flow.protocol
#define UM_PUT_KEY(put, ip)
#else
#define UM_KEY_NAME "5-tuple"
#define UM_HASH meta.flow.five_tuple
#define UM_LAYOUT "count,hash,family<<8|proto,src-port<<16|dst-port,src[4],dst[4]"
#define UM_WORDS 12
#define UM_PROTOCOL meta.flow.protocol
#define UM_PUT_KEY(put, ip) \
    UM_PUT(meta.flow.src_port ++ meta.flow.dst_port) put(ip.src) put(ip.dst)
#endif

#define UM_DEEP_COLUMNS ((UM_COLUMNS + 3) / 4)
#define UM_DEEP_SLOTS ((UM_SLOTS + 3) / 4)
#define UM_LEVEL_CELLS (UM_ROWS * UM_COLUMNS)
#define UM_DEEP_CELLS (UM_ROWS * UM_DEEP_COLUMNS)
#if UM_LEVELS > UM_WIDE
#define UM_PACKETS (UM_WIDE * UM_LEVEL_CELLS + (UM_LEVELS - UM_WIDE) * UM_DEEP_CELLS)
#define UM_BANK_SLOTS (UM_WAYS * (UM_WIDE * UM_SLOTS + (UM_LEVELS - UM_WIDE) * UM_DEEP_SLOTS))
#else
#define UM_PACKETS (UM_LEVELS * UM_LEVEL_CELLS)
#define UM_BANK_SLOTS (UM_WAYS * UM_LEVELS * UM_SLOTS)
#endif
#define UM_COUNTER_CELLS (UM_PACKETS + NS_CELLS)
#define UM_HEAVY_CELLS (UM_BANK_SLOTS * UM_WORDS)

// The parameters of action count, by level.
#define UM_AT_WIDE(level) \
    count(level, level * UM_LEVEL_CELLS, UM_COLUMNS, level * UM_WAYS * UM_SLOTS, UM_SLOTS, 0)
#define UM_AT_DEEP(level) \
    count(level, UM_WIDE * UM_LEVEL_CELLS + (level - UM_WIDE) * UM_DEEP_CELLS, UM_DEEP_COLUMNS, \
          UM_WAYS * (UM_WIDE * UM_SLOTS + (level - UM_WIDE) * UM_DEEP_SLOTS), UM_DEEP_SLOTS, 2)

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
    @netsketch_readout[object=UM_OBJECT, banks=NS_BANKS, counter=UM_COUNTED,
                       piece=UM_LEVEL_CELLS, wide=UM_WIDE, deep=UM_DEEP_CELLS, marker=UM_OBJECT,
                       marks=UM_PACKETS]
    @netsketch_univmon[part="counters", key=UM_KEY_NAME, levels=UM_LEVELS, rows=UM_ROWS,
                       columns=UM_COLUMNS, packets=UM_PACKETS, duty=UM_KEY]
    register<bit<32>>(UM_COUNTER_CELLS * NS_BANKS) counters;

    @netsketch_readout[object=UM_OBJECT + 1, banks=NS_BANKS, counter=UM_COUNTED,
                       piece=UM_WAYS * UM_SLOTS * UM_WORDS, wide=UM_WIDE,
                       deep=UM_WAYS * UM_DEEP_SLOTS * UM_WORDS, marker=UM_OBJECT, marks=UM_PACKETS]
    @netsketch_univmon[part="heavy", key=UM_KEY_NAME, levels=UM_LEVELS, ways=UM_WAYS,
                       slots=UM_SLOTS, words=UM_WORDS, layout=UM_LAYOUT]
    register<bit<32>>(UM_HEAVY_CELLS * NS_BANKS) heavy;

    // Packets by bank. They are counted last, so that a client that reads a counter before the
    // registers misses no packet.
    counter(NS_BANKS, CounterType.packets) counted;

    // Counts the packet at its level, in one action, because tables and branches are slow on BMv2.
    // The parameters give the first counter and heavy key of the level in the first bank, and the
    // distances between its rows and ways.
    action count(bit<32> level, bit<32> first_counter, bit<32> columns, bit<32> first_slot,
                 bit<32> slots, bit<8> shift) {
        UM.cell = (bit<32>)meta.bank * UM_COUNTER_CELLS + UM_PACKETS + level;
        counters.read(UM.count, UM.cell);
        counters.write(UM.cell, UM.count + 1);

        UM.first = (bit<32>)meta.bank * UM_COUNTER_CELLS + first_counter;
        UM_COUNT(UM_ODD_ROW0, row0)
        UM_COUNT(UM_ODD_ROW1, row1)
        UM_COUNT(UM_ODD_ROW2, row2)
#if UM_ROWS > 3
        UM_COUNT(UM_ODD_ROW3, low)
#endif
#if UM_ROWS > 4
        UM_COUNT(UM_ODD_ROW4, low)
#endif

        // Puts the median of the first three rows into row0.
        if (UM.row1 < UM.row0) {
            UM.low = UM.row1;
            UM.row1 = UM.row0;
        } else {
            UM.low = UM.row0;
        }
        UM.row0 = UM.row2;
        if (UM.row2 < UM.low) {
            UM.row0 = UM.low;
        } else if (UM.row1 < UM.row2) {
            UM.row0 = UM.row1;
        }

        // Selects the slot that holds this key, or else the slot whose key is replaced first.
        UM.first = (bit<32>)meta.bank * UM_BANK_SLOTS + first_slot;
        UM_LOOK(UM_ODD_WAY0, slot_count, slot_hash)
        UM.cell = UM.slot;
        UM.hit = 0;
        if (UM_HOLDS(slot_count, slot_hash)) {
            UM.hit = 1;
        }
        UM_LOOK_FURTHER(UM_ODD_WAY1)
        UM_LOOK_FURTHER(UM_ODD_WAY2)
        UM_LOOK_FURTHER(UM_ODD_WAY3)

        // Of flows with equal estimates, the flow with the smallest hash stays, whichever was
        // first. The hash of an empty slot is 0.
        if (UM.row0 > UM_BIAS + UM.slot_count ||
            (UM.row0 == UM_BIAS + UM.slot_count && UM_HASH < UM.slot_hash)) {
            heavy.write(UM.cell, UM.row0 - UM_BIAS);
            if (UM.hit == 0) {
                UM_PUT(UM_HASH)
                if (hdr.inner.isValid()) {
                    UM_PUT((bit<32>)hdr.inner.version << 8 | (bit<32>)UM_PROTOCOL)
                    UM_PUT_KEY(UM_PUT_IPV6, hdr.inner)
                } else if (hdr.ipv4.isValid()) {
                    UM_PUT(4 << 8 | (bit<32>)UM_PROTOCOL)
                    UM_PUT_KEY(UM_PUT_IPV4, hdr.ipv4)
                } else {
                    UM_PUT(6 << 8 | (bit<32>)UM_PROTOCOL)
                    UM_PUT_KEY(UM_PUT_IPV6, hdr.ipv6)
                }
            }
        }
        counted.count((bit<32>)meta.bank);
    }

    // The level is the number of leading ones of a hash, at most the last level.
    table level {
        key = { UM.level_hash: lpm @name("hash"); }
        actions = { count; }
        const default_action = UM_AT_WIDE(0);
        const entries = {
            0x80000000 &&& 0x80000000: UM_AT_WIDE(1);
#if UM_LEVELS > 2
            0xc0000000 &&& 0xc0000000: UM_AT_WIDE(2);
#endif
#if UM_LEVELS > 3
            0xe0000000 &&& 0xe0000000: UM_AT_WIDE(3);
#endif
#if UM_LEVELS > 4
            0xf0000000 &&& 0xf0000000: UM_AT_WIDE(4);
#endif
#if UM_LEVELS > 5
            0xf8000000 &&& 0xf8000000: UM_AT_WIDE(5);
#endif
#if UM_LEVELS > 6
            0xfc000000 &&& 0xfc000000: UM_AT_WIDE(6);
#endif
#if UM_LEVELS > 7
            0xfe000000 &&& 0xfe000000: UM_AT_WIDE(7);
#endif
#if UM_LEVELS > 8
            0xff000000 &&& 0xff000000: UM_AT_DEEP(8);
#endif
#if UM_LEVELS > 9
            0xff800000 &&& 0xff800000: UM_AT_DEEP(9);
#endif
#if UM_LEVELS > 10
            0xffc00000 &&& 0xffc00000: UM_AT_DEEP(10);
#endif
#if UM_LEVELS > 11
            0xffe00000 &&& 0xffe00000: UM_AT_DEEP(11);
#endif
#if UM_LEVELS > 12
            0xfff00000 &&& 0xfff00000: UM_AT_DEEP(12);
#endif
#if UM_LEVELS > 13
            0xfff80000 &&& 0xfff80000: UM_AT_DEEP(13);
#endif
#if UM_LEVELS > 14
            0xfffc0000 &&& 0xfffc0000: UM_AT_DEEP(14);
#endif
#if UM_LEVELS > 15
            0xfffe0000 &&& 0xfffe0000: UM_AT_DEEP(15);
#endif
        }
    }

    action hash_level() {
        hash(UM.level_hash, HashAlgorithm.crc32, 32w0, { UM_HASH * UM_ODD_LEVEL }, NS_HASH_RANGE);
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
        }
    }
}

#undef UM_CONTROL
#undef UM_COUNTED
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
#undef UM_PUT_KEY
#undef UM_DEEP_COLUMNS
#undef UM_DEEP_SLOTS
#undef UM_LEVEL_CELLS
#undef UM_DEEP_CELLS
#undef UM_BANK_SLOTS
#undef UM_AT_WIDE
#undef UM_AT_DEEP
#undef UM_PACKETS
#undef UM_COUNTER_CELLS
#undef UM_HEAVY_CELLS
