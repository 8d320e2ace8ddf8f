// SPDX-License-Identifier: Apache-2.0
// LightGuardian's switch (paper, sections 4, 5 and 7.1): it measures every packet that leaves in a
// SuMax sketch of the current interval, and inserts columns of the sketch of the last interval,
// the sketchlets, into passing packets that carry none.
//
//   NS_LIGHTGUARDIAN_ROWS     rows of a sketch, 1 to 4
//   NS_LIGHTGUARDIAN_COLUMNS  buckets of a row, a power of two, at most 65,536
//   NS_LIGHTGUARDIAN_DELAYS   delay ranges, 2 to 8
//   NS_LIGHTGUARDIAN_SIZES    1: cells of flow sizes; 0: sizes are sums over delay ranges
//   NS_LIGHTGUARDIAN_GAPS     1: cells of the maximum inter-arrival time and of the last arrival
//   NS_LIGHTGUARDIAN_CHANCES  most chances of the selection (k), 1 to 4
//
// The switch decides in ingress, where packets keep their order, and measures in egress, behind
// the queue, where delays are known. No register is cleared: a bucket has the number of the
// interval that it counts, and counts from zero in another one.
//
// docs/lightguardian-p4.md has the tables and the format of sketchlets.

#ifndef NETSKETCH_LIGHTGUARDIAN_P4
#define NETSKETCH_LIGHTGUARDIAN_P4

#include "headers.p4"

#if defined(NS_WITH_UNIVMON) || defined(NS_WITH_CHAMELEMON) || defined(NS_WITH_OMNIMON) \
    || defined(NS_WITH_SKETCHINT)
#error LightGuardian does not share a switch with another algorithm
#endif
#if NS_LIGHTGUARDIAN_ROWS < 1 || NS_LIGHTGUARDIAN_ROWS > 4
#error NS_LIGHTGUARDIAN_ROWS must be 1 to 4
#endif
#if NS_LIGHTGUARDIAN_COLUMNS < 1 || NS_LIGHTGUARDIAN_COLUMNS > 65536 \
    || (NS_LIGHTGUARDIAN_COLUMNS & (NS_LIGHTGUARDIAN_COLUMNS - 1)) != 0
#error NS_LIGHTGUARDIAN_COLUMNS must be a power of two, at most 65536
#endif
#if NS_LIGHTGUARDIAN_DELAYS < 2 || NS_LIGHTGUARDIAN_DELAYS > 8
#error NS_LIGHTGUARDIAN_DELAYS must be 2 to 8
#endif
#if NS_LIGHTGUARDIAN_SIZES < 0 || NS_LIGHTGUARDIAN_SIZES > 1
#error NS_LIGHTGUARDIAN_SIZES must be 0 or 1
#endif
#if NS_LIGHTGUARDIAN_GAPS < 0 || NS_LIGHTGUARDIAN_GAPS > 1
#error NS_LIGHTGUARDIAN_GAPS must be 0 or 1
#endif
#if NS_LIGHTGUARDIAN_CHANCES < 1 || NS_LIGHTGUARDIAN_CHANCES > 4
#error NS_LIGHTGUARDIAN_CHANCES must be 1 to 4
#endif

#define LG meta.lightguardian

// The words of a bucket: the number of its interval, the size, the delay ranges, the gap, the last
// arrival.
#define LG_BUCKET (1 + LG_CELLS)
#define LG_FIRST_DELAY (1 + NS_LIGHTGUARDIAN_SIZES)
#define LG_GAP (LG_FIRST_DELAY + NS_LIGHTGUARDIAN_DELAYS)

// Cells of the switch's state.
#define LG_CURRENT 0
#define LG_BEGAN 1
#define LG_PACKETS 2
#define LG_START 3 // and 4: time of an interval's first packet, by the interval's lowest bit
#define LG_SEED 5
#define LG_STATE 6

// A packet with a step of -1 has read the bank before an earlier packet has.
#define LG_BEHIND 255
#define LG_FIRST_INTERVAL 256

// Odd factors of hashes, as in docs/p4.md.
#define LG_ODD_ROW0 0x9e3779b1
#define LG_ODD_ROW1 0x85ebca6b
#define LG_ODD_ROW2 0xc2b2ae35
#define LG_ODD_ROW3 0x27d4eb2f
#define LG_ODD_CHANCE0 0x7feb352d
#define LG_ODD_CHANCE1 0x846ca68b
#define LG_ODD_CHANCE2 0xd6e8feb9
#define LG_ODD_CHANCE3 0xb5297a4d
#define LG_ODD_ANY 0x2545f491

// The carry mark: TCP's first reserved bit; for UDP, the reserved flag of IPv4.
#define LG_MARK_TCP 0x0800 // the mark as a word of the checksum

#define LG_EVENTS 8 // number of indexes of lightguardian_events
#define LG_EVENT_INSERTED 0
#define LG_EVENT_MTU 1
#define LG_EVENT_FLIPPED 2
#define LG_EVENT_STRIPPED 3
#define LG_EVENT_UNKNOWN 4
#define LG_EVENT_OLD 5

register<bit<32>>(LG_STATE) lightguardian_state;
@netsketch_lightguardian[rows=NS_LIGHTGUARDIAN_ROWS, columns=NS_LIGHTGUARDIAN_COLUMNS,
                         sizes=NS_LIGHTGUARDIAN_SIZES, delays=NS_LIGHTGUARDIAN_DELAYS,
                         gaps=NS_LIGHTGUARDIAN_GAPS, chances=NS_LIGHTGUARDIAN_CHANCES]
register<bit<32>>(2 * NS_LIGHTGUARDIAN_ROWS * NS_LIGHTGUARDIAN_COLUMNS * LG_BUCKET)
    lightguardian_sketch;
// The k arrays of the selection. A bit is set if its cell has the number of the interval.
register<bit<32>>(NS_LIGHTGUARDIAN_CHANCES * NS_LIGHTGUARDIAN_COLUMNS) lightguardian_carried;
counter(LG_EVENTS, CounterType.packets) lightguardian_events;

// Determines the interval of a packet, and whether the packet carries a sketchlet.
control LightGuardianIngress(inout headers_t hdr, inout metadata_t meta,
                             inout standard_metadata_t standard_metadata) {
    // unit sets the unit of times: 2^unit microseconds.
    action set_clock(bit<8> unit) {
        LG.unit = unit;
    }

    table clock {
        actions = { set_clock; }
        default_action = set_clock(0);
        size = 1;
    }

    // The number of the interval grows by the difference of its lowest byte. A packet whose number
    // is one behind has read the table before another packet that came here first. Until the
    // controller has set a number other than 0, no interval begins: a restarted switch would take
    // what it measured in the meantime for an interval, and later intervals for measured ones.
    action begin() {
        lightguardian_state.read(LG.current, LG_CURRENT);
        lightguardian_state.read(LG.began, LG_BEGAN);
        LG.interval = (LG.current == 0) ? (bit<32>)meta.bank + LG_FIRST_INTERVAL : LG.current;
        LG.began = (LG.current == 0) ? LG.interval : LG.began;
        LG.step = meta.bank - LG.interval[7:0];
        LG.interval = (LG.step == LG_BEHIND) ? LG.interval - 1 : LG.interval + (bit<32>)LG.step;
        LG.at = LG_START + (bit<32>)LG.interval[0:0];
        lightguardian_state.read(LG.start, LG.at);
        LG.now = (bit<32>)(standard_metadata.ingress_global_timestamp >> LG.unit);
        LG.start = (LG.current == 0 || (LG.step != 0 && LG.step != LG_BEHIND)) ? LG.now : LG.start;
        lightguardian_state.write(LG.at, LG.start);
        LG.now = LG.now - LG.start + 1;
        LG.current = (LG.step == LG_BEHIND) ? LG.interval + 1 : LG.interval;
        LG.current = (LG.current == LG_FIRST_INTERVAL) ? 0 : LG.current;
        lightguardian_state.write(LG_CURRENT, LG.current);
        lightguardian_state.write(LG_BEGAN, LG.began);
        lightguardian_state.read(LG.packets, LG_PACKETS);
        LG.packets = LG.packets + 1;
        lightguardian_state.write(LG_PACKETS, LG.packets);
    }

    // probability is the number of packets, of 65,536 without a sketchlet, that get one (λc).
    // chances is k. seed is an odd factor of all hashes of the switch. An interval in which it
    // changes is not carried, because its buckets are those of two seeds.
    action set_carry(bit<16> device, bit<17> probability, bit<8> chances, bit<32> seed) {
        LG.device = device;
        LG.probability = probability;
        LG.chances = chances;
        hash(LG.random, HashAlgorithm.crc32, 32w0, { LG.packets * seed }, NS_HASH_RANGE);
        LG.flow = meta.flow.five_tuple * seed;
        lightguardian_state.read(LG.value, LG_SEED);
        LG.began = (LG.value == seed) ? LG.began : LG.interval;
        lightguardian_state.write(LG_BEGAN, LG.began);
        lightguardian_state.write(LG_SEED, seed);
    }

    // With different seeds the switches of a path choose different packets, and flows that share a
    // bucket at one of them do not share it at the others.
    table carry {
        actions = { set_carry; }
        default_action = set_carry(0, 0, 1, 0x94d049bb);
        size = 1;
    }

    action choose() {
        LG.carry = 1;
    }

    apply {
        clock.apply();
        begin();
        carry.apply();
        // Only an interval that the switch measured from begin to end is carried. A TCP checksum of
        // all ones is not valid, and the host could not restore it.
        if (LG.whole == 1 && LG.mark == 0 && (bit<17>)LG.random[15:0] < LG.probability
            && LG.step != LG_BEHIND && LG.interval - LG.began >= 2
            && (hdr.udp.isValid() || hdr.tcp.checksum != 0xffff)) {
            choose();
        }
    }
}

#define LG_LOCATE(row, bank, in_column) \
    LG.cell = (((bank) * NS_LIGHTGUARDIAN_ROWS + row) * NS_LIGHTGUARDIAN_COLUMNS \
               + (in_column)) * LG_BUCKET;

// Adds one to a sum cell in the pipelined conservative update (Algorithm 1). Cells stop at
// 2^32 - 1.
#define LG_SUM(least) \
    lightguardian_sketch.read(LG.value, LG.at); \
    LG.sum = (LG.value == 0xffffffff) ? LG.value : LG.value + 1; \
    LG.least = (LG.sum < LG.least) ? LG.sum : LG.least; \
    LG.value = (LG.value < LG.least) ? LG.least : LG.value; \
    lightguardian_sketch.write(LG.at, LG.value);

// Sets the next cell of a bucket to zero if the bucket belongs to another interval.
#define LG_RESET_CELL \
    LG.at = LG.at + 1; \
    lightguardian_sketch.read(LG.value, LG.at); \
    LG.value = (LG.stamp == LG.interval) ? LG.value : 0; \
    lightguardian_sketch.write(LG.at, LG.value);

#define LG_ROW(row) \
    action locate##row() { \
        hash(LG.column, HashAlgorithm.crc32, 32w0, \
             { LG.flow * LG_ODD_ROW##row }, 32w1 * NS_LIGHTGUARDIAN_COLUMNS); \
        LG_LOCATE(row, (bit<32>)LG.interval[0:0], LG.column) \
        lightguardian_sketch.read(LG.stamp, LG.cell); \
    }

// Updates the sketch in one row.
#define LG_MEASURE(row) \
    locate##row(); \
    if (LG.stamp != LG.interval) { \
        reset(); \
    } \
    count();

// Copies the next cell of a bucket into a sketchlet, or zero if the bucket belongs to another
// interval.
#define LG_TAKE_CELL(field) \
    LG.at = LG.at + 1; \
    lightguardian_sketch.read(LG.value, LG.at); \
    field = (LG.stamp == LG.interval - 1) ? LG.value : 0;

#if NS_LIGHTGUARDIAN_SIZES > 0
#define LG_SIZE_FIELD(prefix) hdr.prefix.size,
#define LG_TAKE_SIZE(prefix) LG_TAKE_CELL(hdr.prefix.size)
#else
#define LG_SIZE_FIELD(prefix)
#define LG_TAKE_SIZE(prefix)
#endif

#if NS_LIGHTGUARDIAN_DELAYS == 2
#define LG_EACH_DELAY(M, prefix) M(prefix.delay0) M(prefix.delay1)
#define LG_EACH_LIMIT(M) M(limit1)
#elif NS_LIGHTGUARDIAN_DELAYS == 3
#define LG_EACH_DELAY(M, prefix) M(prefix.delay0) M(prefix.delay1) M(prefix.delay2)
#define LG_EACH_LIMIT(M) M(limit1) M(limit2)
#elif NS_LIGHTGUARDIAN_DELAYS == 4
#define LG_EACH_DELAY(M, prefix) \
    M(prefix.delay0) M(prefix.delay1) M(prefix.delay2) M(prefix.delay3)
#define LG_EACH_LIMIT(M) M(limit1) M(limit2) M(limit3)
#elif NS_LIGHTGUARDIAN_DELAYS == 5
#define LG_EACH_DELAY(M, prefix) \
    M(prefix.delay0) M(prefix.delay1) M(prefix.delay2) M(prefix.delay3) M(prefix.delay4)
#define LG_EACH_LIMIT(M) M(limit1) M(limit2) M(limit3) M(limit4)
#elif NS_LIGHTGUARDIAN_DELAYS == 6
#define LG_EACH_DELAY(M, prefix) \
    M(prefix.delay0) M(prefix.delay1) M(prefix.delay2) M(prefix.delay3) M(prefix.delay4) \
    M(prefix.delay5)
#define LG_EACH_LIMIT(M) M(limit1) M(limit2) M(limit3) M(limit4) M(limit5)
#elif NS_LIGHTGUARDIAN_DELAYS == 7
#define LG_EACH_DELAY(M, prefix) \
    M(prefix.delay0) M(prefix.delay1) M(prefix.delay2) M(prefix.delay3) M(prefix.delay4) \
    M(prefix.delay5) M(prefix.delay6)
#define LG_EACH_LIMIT(M) M(limit1) M(limit2) M(limit3) M(limit4) M(limit5) M(limit6)
#else
#define LG_EACH_DELAY(M, prefix) \
    M(prefix.delay0) M(prefix.delay1) M(prefix.delay2) M(prefix.delay3) M(prefix.delay4) \
    M(prefix.delay5) M(prefix.delay6) M(prefix.delay7)
#define LG_EACH_LIMIT(M) \
    M(limit1) M(limit2) M(limit3) M(limit4) M(limit5) M(limit6) M(limit7)
#endif

#define LG_FIELD(name) hdr.name,
#define LG_TAKE_DELAY(name) LG_TAKE_CELL(hdr.name)
#define LG_PAST_LIMIT(name) + ((LG.delay < name) ? 32w0 : 32w1)

#if NS_LIGHTGUARDIAN_GAPS > 0
#define LG_GAP_FIELDS(prefix) hdr.prefix.gap, hdr.prefix.last,
#define LG_TAKE_GAP(prefix) LG_TAKE_CELL(hdr.prefix.gap) LG_TAKE_CELL(hdr.prefix.last)
#else
#define LG_GAP_FIELDS(prefix)
#define LG_TAKE_GAP(prefix)
#endif

#define LG_ROW_FIELDS(prefix) \
    LG_SIZE_FIELD(prefix) LG_EACH_DELAY(LG_FIELD, prefix) LG_GAP_FIELDS(prefix)

#define LG_TAKE_ROW(row, prefix) \
    hdr.prefix.setValid(); \
    LG_LOCATE(row, (bit<32>)~LG.interval[0:0], LG.column) \
    LG.at = LG.cell; \
    lightguardian_sketch.read(LG.stamp, LG.cell); \
    LG_TAKE_SIZE(prefix) \
    LG_EACH_DELAY(LG_TAKE_DELAY, prefix) \
    LG_TAKE_GAP(prefix)

#define LG_HEADER_FIELDS \
    hdr.sketchlet.device, hdr.sketchlet.column, hdr.sketchlet.interval, hdr.sketchlet.words,

#define LG_ROWS_FIELDS_1 LG_ROW_FIELDS(sketchlet_row0)
#if NS_LIGHTGUARDIAN_ROWS > 1
#define LG_ROWS_FIELDS_2 LG_ROWS_FIELDS_1 LG_ROW_FIELDS(sketchlet_row1)
#else
#define LG_ROWS_FIELDS_2 LG_ROWS_FIELDS_1
#endif
#if NS_LIGHTGUARDIAN_ROWS > 2
#define LG_ROWS_FIELDS_3 LG_ROWS_FIELDS_2 LG_ROW_FIELDS(sketchlet_row2)
#else
#define LG_ROWS_FIELDS_3 LG_ROWS_FIELDS_2
#endif
#if NS_LIGHTGUARDIAN_ROWS > 3
#define LG_ROWS_FIELDS LG_ROWS_FIELDS_3 LG_ROW_FIELDS(sketchlet_row3)
#else
#define LG_ROWS_FIELDS LG_ROWS_FIELDS_3
#endif

// Chooses a random sketchlet in one of the k arrays.
#define LG_CHANCE(number) \
    action chance##number() { \
        hash(LG.column, HashAlgorithm.crc32, 32w0, { LG.random * LG_ODD_CHANCE##number }, \
             32w1 * NS_LIGHTGUARDIAN_COLUMNS); \
        LG.cell = LG.column + number * NS_LIGHTGUARDIAN_COLUMNS; \
        lightguardian_carried.read(LG.value, LG.cell); \
        lightguardian_carried.write(LG.cell, LG.interval); \
        LG.free = (LG.value == LG.interval) ? 1w0 : 1w1; \
    }

control LightGuardianEgress(inout headers_t hdr, inout metadata_t meta,
                            inout standard_metadata_t standard_metadata) {
    action set_mtu(bit<16> bytes) {
        LG.mtu = (bit<32>)bytes;
    }

    // The largest IP packet that a port sends.
    table mtu {
        key = { standard_metadata.egress_port: exact @name("port"); }
        actions = { set_mtu; }
        default_action = set_mtu(1500);
        size = 512;
    }

    action remove() {
        LG.strip = 1;
    }

    // Ports to hosts and networks that do not remove sketchlets, so that the switch removes them.
    table strip {
        key = { standard_metadata.egress_port: exact @name("port"); }
        actions = { remove; @defaultonly NoAction; }
        default_action = NoAction;
        size = 512;
    }

    // The lowest delays of the ranges after the first range, in microseconds.
    action set_delays(bit<32> limit1
#if NS_LIGHTGUARDIAN_DELAYS > 2
                      , bit<32> limit2
#endif
#if NS_LIGHTGUARDIAN_DELAYS > 3
                      , bit<32> limit3
#endif
#if NS_LIGHTGUARDIAN_DELAYS > 4
                      , bit<32> limit4
#endif
#if NS_LIGHTGUARDIAN_DELAYS > 5
                      , bit<32> limit5
#endif
#if NS_LIGHTGUARDIAN_DELAYS > 6
                      , bit<32> limit6
#endif
#if NS_LIGHTGUARDIAN_DELAYS > 7
                      , bit<32> limit7
#endif
                      ) {
        LG.range = 0 LG_EACH_LIMIT(LG_PAST_LIMIT);
    }

    table delays {
        actions = { set_delays; }
        default_action = set_delays(50
#if NS_LIGHTGUARDIAN_DELAYS > 2
                                    , 100
#endif
#if NS_LIGHTGUARDIAN_DELAYS > 3
                                    , 200
#endif
#if NS_LIGHTGUARDIAN_DELAYS > 4
                                    , 400
#endif
#if NS_LIGHTGUARDIAN_DELAYS > 5
                                    , 800
#endif
#if NS_LIGHTGUARDIAN_DELAYS > 6
                                    , 1600
#endif
#if NS_LIGHTGUARDIAN_DELAYS > 7
                                    , 3200
#endif
                                    );
        size = 1;
    }

    action log_event(bit<32> event) {
        lightguardian_events.count(event);
    }

    action begin() {
        lightguardian_state.read(LG.current, LG_CURRENT);
        LG.delay = (bit<32>)(standard_metadata.egress_global_timestamp
                             - standard_metadata.ingress_global_timestamp);
        LG.least_size = 0xffffffff;
        LG.least_delay = 0xffffffff;
    }

    LG_ROW(0)
#if NS_LIGHTGUARDIAN_ROWS > 1
    LG_ROW(1)
#endif
#if NS_LIGHTGUARDIAN_ROWS > 2
    LG_ROW(2)
#endif
#if NS_LIGHTGUARDIAN_ROWS > 3
    LG_ROW(3)
#endif

    // Begins the interval in a bucket, unless another packet has begun it.
    action reset() {
        lightguardian_sketch.read(LG.stamp, LG.cell);
        lightguardian_sketch.write(LG.cell, LG.interval);
        LG.at = LG.cell;
#if NS_LIGHTGUARDIAN_SIZES > 0
        LG_RESET_CELL
#endif
        LG_RESET_CELL
        LG_RESET_CELL
#if NS_LIGHTGUARDIAN_DELAYS > 2
        LG_RESET_CELL
#endif
#if NS_LIGHTGUARDIAN_DELAYS > 3
        LG_RESET_CELL
#endif
#if NS_LIGHTGUARDIAN_DELAYS > 4
        LG_RESET_CELL
#endif
#if NS_LIGHTGUARDIAN_DELAYS > 5
        LG_RESET_CELL
#endif
#if NS_LIGHTGUARDIAN_DELAYS > 6
        LG_RESET_CELL
#endif
#if NS_LIGHTGUARDIAN_DELAYS > 7
        LG_RESET_CELL
#endif
#if NS_LIGHTGUARDIAN_GAPS > 0
        LG_RESET_CELL
        LG_RESET_CELL
#endif
    }

    // Counts the packet in a bucket (paper, section 4.4).
    action count() {
#if NS_LIGHTGUARDIAN_SIZES > 0
        LG.at = LG.cell + 1;
        LG_SUM(least_size)
#endif
        LG.at = LG.cell + LG_FIRST_DELAY + LG.range;
        LG_SUM(least_delay)
#if NS_LIGHTGUARDIAN_GAPS > 0
        LG.at = LG.cell + (LG_GAP + 1);
        lightguardian_sketch.read(LG.value, LG.at); // time of the last arrival
        LG.sum = (LG.value == 0 || LG.now < LG.value) ? 0 : LG.now - LG.value;
        LG.value = (LG.value < LG.now) ? LG.now : LG.value;
        lightguardian_sketch.write(LG.at, LG.value);
        LG.at = LG.cell + LG_GAP;
        lightguardian_sketch.read(LG.value, LG.at);
        LG.value = (LG.value < LG.sum) ? LG.sum : LG.value;
        lightguardian_sketch.write(LG.at, LG.value);
#endif
    }

    LG_CHANCE(0)
#if NS_LIGHTGUARDIAN_CHANCES > 1
    LG_CHANCE(1)
#endif
#if NS_LIGHTGUARDIAN_CHANCES > 2
    LG_CHANCE(2)
#endif
#if NS_LIGHTGUARDIAN_CHANCES > 3
    LG_CHANCE(3)
#endif

    action any() {
        hash(LG.column, HashAlgorithm.crc32, 32w0, { LG.random * LG_ODD_ANY },
             32w1 * NS_LIGHTGUARDIAN_COLUMNS);
    }

    // Copies a column of the last interval's sketch.
    action take() {
        hdr.sketchlet.setValid();
        hdr.sketchlet.device = LG.device;
        hdr.sketchlet.column = (bit<16>)LG.column;
        hdr.sketchlet.interval = LG.interval[7:0] - 1;
        hdr.sketchlet.words = LG_WORDS;
        LG_TAKE_ROW(0, sketchlet_row0)
#if NS_LIGHTGUARDIAN_ROWS > 1
        LG_TAKE_ROW(1, sketchlet_row1)
#endif
#if NS_LIGHTGUARDIAN_ROWS > 2
        LG_TAKE_ROW(2, sketchlet_row2)
#endif
#if NS_LIGHTGUARDIAN_ROWS > 3
        LG_TAKE_ROW(3, sketchlet_row3)
#endif
        lightguardian_events.count(LG_EVENT_INSERTED);
    }

    action insert() {
        hash(hdr.sketchlet.check, HashAlgorithm.crc32, 32w0,
             { LG_HEADER_FIELDS LG_ROWS_FIELDS }, NS_HASH_RANGE);
        hash(LG.content, HashAlgorithm.csum16, 16w0,
             { hdr.sketchlet.check, LG_HEADER_FIELDS LG_ROWS_FIELDS }, 32w0x10000);
        LG.content = ~LG.content;
        LG.growth = LG_BYTES;
        LG.length_sum = LG_BYTES;
    }

    action mark_tcp() {
        hdr.tcp.reserved = hdr.tcp.reserved | 8;
        LG.mark_sum = LG_MARK_TCP;
    }

    action mark_udp() {
        hdr.ipv4.flags = hdr.ipv4.flags | 4;
    }

    // Computes the check of the sketchlet in the packet.
    action verify_check() {
        hash(LG.check, HashAlgorithm.crc32, 32w0,
             { LG_HEADER_FIELDS hdr.sketchlet_cells.cells }, NS_HASH_RANGE);
        hash(LG.content, HashAlgorithm.csum16, 16w0,
             { hdr.sketchlet.check, LG_HEADER_FIELDS hdr.sketchlet_cells.cells }, 32w0x10000);
    }

    action strip_sketchlet() {
        LG.growth = ((bit<16>)hdr.sketchlet.words << 2) + LG_HEADER_BYTES;
        LG.length_sum = ~LG.growth;
        LG.growth = -LG.growth;
        hdr.sketchlet.setInvalid();
        hdr.sketchlet_cells.setInvalid();
        lightguardian_events.count(LG_EVENT_STRIPPED);
    }

    action unmark_tcp() {
        hdr.tcp.reserved = hdr.tcp.reserved & 7;
        LG.mark_sum = 0xffff - LG_MARK_TCP;
    }

    action unmark_udp() {
        hdr.ipv4.flags = hdr.ipv4.flags & 3;
    }

    action measure_ipv4() {
        LG.length = (bit<32>)hdr.ipv4.total_length;
    }

    action measure_ipv6() {
        LG.length = (bit<32>)hdr.ipv6.payload_length + 40;
    }

    action change_length_ipv4() {
        hdr.ipv4.total_length = hdr.ipv4.total_length + LG.growth;
    }

    action change_length_ipv6() {
        hdr.ipv6.payload_length = hdr.ipv6.payload_length + LG.growth;
    }

    action change_tcp() {
        LG.sum_tcp = 1;
        LG.checksum = ~hdr.tcp.checksum;
    }

    action change_udp() {
        hdr.udp.length = hdr.udp.length + LG.growth;
        LG.checksum = ~hdr.udp.checksum;
        // A UDP checksum of zero means that there is none.
        if (hdr.udp.checksum != 0) {
            LG.sum_udp = 1;
        }
    }

    apply {
        if (LG.interval != 0 && standard_metadata.egress_port != NS_CPU_PORT) {
            begin();
            if (LG.current - LG.interval > 1) {
                log_event(LG_EVENT_OLD);
            } else {
                delays.apply();
                LG_MEASURE(0)
#if NS_LIGHTGUARDIAN_ROWS > 1
                LG_MEASURE(1)
#endif
#if NS_LIGHTGUARDIAN_ROWS > 2
                LG_MEASURE(2)
#endif
#if NS_LIGHTGUARDIAN_ROWS > 3
                LG_MEASURE(3)
#endif
            }
            if (LG.whole == 1) {
                strip.apply();
            }
            if (LG.carry == 1 && LG.strip == 0) {
                mtu.apply();
                if (hdr.ipv4.isValid()) {
                    measure_ipv4();
                } else {
                    measure_ipv6();
                }
                if (LG.current != LG.interval) {
                    log_event(LG_EVENT_FLIPPED);
                } else if (LG.length + LG_BYTES > LG.mtu) {
                    log_event(LG_EVENT_MTU);
                } else {
                    if (LG.chances > 0) {
                        chance0();
                    }
#if NS_LIGHTGUARDIAN_CHANCES > 1
                    if (LG.free == 0 && LG.chances > 1) {
                        chance1();
                    }
#endif
#if NS_LIGHTGUARDIAN_CHANCES > 2
                    if (LG.free == 0 && LG.chances > 2) {
                        chance2();
                    }
#endif
#if NS_LIGHTGUARDIAN_CHANCES > 3
                    if (LG.free == 0 && LG.chances > 3) {
                        chance3();
                    }
#endif
                    if (LG.free == 0) {
                        any();
                    }
                    take();
                    insert();
                    if (hdr.tcp.isValid()) {
                        mark_tcp();
                    } else {
                        mark_udp();
                    }
                }
            } else if (LG.strip == 1 && LG.mark == 1) {
                if (LG.present == 1) {
                    verify_check();
                }
                if (LG.present == 1 && LG.check == hdr.sketchlet.check) {
                    strip_sketchlet();
                    if (hdr.tcp.isValid()) {
                        unmark_tcp();
                    } else {
                        unmark_udp();
                    }
                } else {
                    log_event(LG_EVENT_UNKNOWN);
                }
            }
            if (LG.growth != 0) {
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
}

#endif
