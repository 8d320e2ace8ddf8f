// SPDX-License-Identifier: Apache-2.0
// ChameleMon's data plane of an edge switch (paper, section 3 and appendix D.1). A packet from a
// host is classified by the current size of its flow and summed into the upstream encoder. Three
// bits of its ToS or traffic class carry the time bit and the hierarchy to the switch where it
// leaves the network, which sums it into the downstream encoder.
//
//   NS_CHAMELEMON_TOWER8, NS_CHAMELEMON_TOWER16
//       counters of the classifier's rows of 8 and of 16 bits
//   NS_CHAMELEMON_UPSTREAM, NS_CHAMELEMON_DOWNSTREAM
//       buckets in each of an encoder's three arrays, for IPv4
//   NS_CHAMELEMON_UPSTREAM_IPV6, NS_CHAMELEMON_DOWNSTREAM_IPV6
//       the same for IPv6, whose identifiers take more than twice the space
//
// The upstream side is in ingress. The downstream side is in egress, after the queue of the port,
// so that packets that the queue drops count as losses. Each packet accesses a register there in
// one action only, because BMv2 runs egress in several threads and locks registers per action. The
// registers of the downstream side are outside of controls, because ingress reads them out.
//
// docs/chamelemon-p4.md has the layout of the registers and the arithmetic, bit for bit.

#ifndef NETSKETCH_CHAMELEMON_P4
#define NETSKETCH_CHAMELEMON_P4

#include "headers.p4"
#include "readout.p4"

// Read-out numbers.
#define CM_TOWER8_OBJECT 7
#define CM_TOWER16_OBJECT 8
#define CM_UPSTREAM_OBJECT 9
#define CM_DOWNSTREAM_OBJECT 10
#define CM_UPSTREAM_IPV6_OBJECT 11
#define CM_DOWNSTREAM_IPV6_OBJECT 12

#define CM_ARRAYS 3
#define CM_WORDS 5       // words of a bucket: the count, four fragments of the identifier
#define CM_WORDS_IPV6 11 // the count, ten fragments
#define CM_FINGERPRINT 20 // bits of the last fragment that hold a fingerprint of the flow

// The largest prime below 2^32.
#define CM_PRIME 4294967291

// The hashes of the classifier and the fingerprint have the flow's crc32 times an odd constant as
// input; the hash of the sample has the odd seed of the epoch instead, so that each epoch encodes
// other flows. The arrays of the encoders add the flow's crc16 times another constant.
#define CM_ODD_ROW0 0x9e3779b1
#define CM_ODD_ROW1 0x85ebca6b
#define CM_ODD_ROW2 0xc2b2ae35
#define CM_ODD_FINGERPRINT 0x7feb352d
#define CM_STEP_ROW0 0xff51afd7
#define CM_STEP_ROW1 0xed558ccd
#define CM_STEP_ROW2 0x1a85ec53

// Hierarchies, as carried in bits 4 and 3 of ToS or traffic class; bit 2 is the time bit.
#define CM_NONE 0  // not encoded
#define CM_LIGHT 1 // LL candidate that was sampled
#define CM_HEAVY 2 // HL candidate
#define CM_HITTER 3 // HH candidate

#define CM_TOWER8_MAX 0xff
#define CM_TOWER16_MAX 0xffff

#define CM_CELLS(words, buckets) (CM_ARRAYS * (words) * (buckets))

#if NS_BANKS != 2
#error ChameleMon has two banks: the time bit is one bit
#endif
#if NS_CHAMELEMON_TOWER8 % NS_CELLS != 0 || NS_CHAMELEMON_TOWER16 % NS_CELLS != 0
#error a row of the classifier must be a multiple of NS_CELLS counters
#endif
#if NS_CHAMELEMON_UPSTREAM % NS_CELLS != 0 || NS_CHAMELEMON_DOWNSTREAM % NS_CELLS != 0 || \
    NS_CHAMELEMON_UPSTREAM_IPV6 % NS_CELLS != 0 || NS_CHAMELEMON_DOWNSTREAM_IPV6 % NS_CELLS != 0
#error an array of an encoder must be a multiple of NS_CELLS buckets
#endif
#if NS_CHAMELEMON_DOWNSTREAM > NS_CHAMELEMON_UPSTREAM || \
    NS_CHAMELEMON_DOWNSTREAM_IPV6 > NS_CHAMELEMON_UPSTREAM_IPV6
#error a downstream encoder must not be larger than the upstream encoder
#endif

#define CM meta.chamelemon

// An encoder: the size of its register, and the annotations in P4Info. drained is 1 if packets in
// transit, which carry the mark, write to it after the flip. counter_name names a counter by bank
// that is incremented after each packet that the encoder adds, and possibly for other packets: if
// it has not changed, the bank need not be read.
#define CM_ENCODER(side_name, drained, counter_name, family_number, number, words_number, \
                   buckets_number, ids) \
    @netsketch_readout[object=number, banks=NS_BANKS, drain=drained, counter=counter_name] \
    @netsketch_chamelemon[part="encoder", side=side_name, family=family_number, flow="5-tuple", \
                          arrays=CM_ARRAYS, buckets=buckets_number, words=words_number, hash=48, \
                          fragment=32, fingerprint=CM_FINGERPRINT, prime=CM_PRIME, layout=ids] \
    register<bit<32>>(CM_CELLS(words_number, buckets_number) * NS_BANKS)

CM_ENCODER("downstream", 1, "", 4, CM_DOWNSTREAM_OBJECT, CM_WORDS, NS_CHAMELEMON_DOWNSTREAM,
           "count,id[4]") chamelemon_downstream;
CM_ENCODER("downstream", 1, "egress.chamelemon.encoded_ipv6", 6, CM_DOWNSTREAM_IPV6_OBJECT,
           CM_WORDS_IPV6, NS_CHAMELEMON_DOWNSTREAM_IPV6, "count,id[10]") chamelemon_downstream_ipv6;

// Adds a fragment, which is below the prime, to the next word of a bucket.
#define CM_ADD(encoder, fragment) \
    CM.cell = CM.cell + 1; \
    encoder.read(CM.value, CM.cell); \
    if (CM.value < CM_PRIME - CM.fragment) { \
        CM.value = CM.value + CM.fragment; \
    } else { \
        CM.value = CM.value - (CM_PRIME - CM.fragment); \
    } \
    encoder.write(CM.cell, CM.value);

// Counts a packet in its bucket of one array. The bucket is in the part of the array that belongs
// to the packet's hierarchy, which has a number of buckets from first on.
#define CM_COUNT(encoder, array, words, size) \
    hash(CM.cell, HashAlgorithm.crc32, first, \
         { meta.flow.five_tuple * CM_ODD_ROW##array + meta.flow.check * CM_STEP_ROW##array }, \
         buckets); \
    CM.cell = (CM.cell + (CM.time * CM_ARRAYS + array) * size) * words; \
    encoder.read(CM.value, CM.cell); \
    encoder.write(CM.cell, CM.value + 1);

#define CM_ENCODE_ARRAY(encoder, array, size) \
    CM_COUNT(encoder, array, CM_WORDS, size) \
    CM_ADD(encoder, id0) CM_ADD(encoder, id1) CM_ADD(encoder, id2) CM_ADD(encoder, id3)

#define CM_ENCODE_ARRAY_IPV6(encoder, array, size) \
    CM_COUNT(encoder, array, CM_WORDS_IPV6, size) \
    CM_ADD(encoder, id0) CM_ADD(encoder, id1) CM_ADD(encoder, id2) CM_ADD(encoder, id3) \
    CM_ADD(encoder, id4) CM_ADD(encoder, id5) CM_ADD(encoder, id6) CM_ADD(encoder, id7) \
    CM_ADD(encoder, id8) CM_ADD(encoder, id9)

#define CM_ENCODE(CM_ARRAY, encoder, size) \
    CM_ARRAY(encoder, 0, size) \
    CM_ARRAY(encoder, 1, size) \
    CM_ARRAY(encoder, 2, size)

// Reduces a fragment modulo the prime.
#define CM_FRAGMENT(fragment, word) \
    if ((word) < CM_PRIME) { \
        CM.fragment = (word); \
    } else { \
        CM.fragment = (word) - CM_PRIME; \
    }

#define CM_READ_TOWER8(tower, field) NS_READ_NARROW_CELL(tower, field, CM.count8)
#define CM_READ_TOWER16(tower, field) NS_READ_NARROW_CELL(tower, field, CM.count16)

// Cuts the flow's canonical bytes into fragments of four bytes. The last fragment holds the last
// byte and, above it, a fingerprint of the flow (paper, appendices A.4 and D.1).
control ChameleMonIdentifier(in headers_t hdr, inout metadata_t meta) {
    action ipv4() {
        CM_FRAGMENT(id0, hdr.ipv4.src)
        CM_FRAGMENT(id1, hdr.ipv4.dst)
        CM_FRAGMENT(id2, meta.flow.protocol ++ meta.flow.src_port ++ meta.flow.dst_port[15:8])
        CM.id3 = (bit<32>)(CM.value[CM_FINGERPRINT-1:0] ++ meta.flow.dst_port[7:0]);
    }

    action ipv6() {
        CM_FRAGMENT(id0, hdr.ipv6.src[127:96])
        CM_FRAGMENT(id1, hdr.ipv6.src[95:64])
        CM_FRAGMENT(id2, hdr.ipv6.src[63:32])
        CM_FRAGMENT(id3, hdr.ipv6.src[31:0])
        CM_FRAGMENT(id4, hdr.ipv6.dst[127:96])
        CM_FRAGMENT(id5, hdr.ipv6.dst[95:64])
        CM_FRAGMENT(id6, hdr.ipv6.dst[63:32])
        CM_FRAGMENT(id7, hdr.ipv6.dst[31:0])
        CM_FRAGMENT(id8, meta.flow.protocol ++ meta.flow.src_port ++ meta.flow.dst_port[15:8])
        CM.id9 = (bit<32>)(CM.value[CM_FINGERPRINT-1:0] ++ meta.flow.dst_port[7:0]);
    }

    action fingerprint() {
        hash(CM.value, HashAlgorithm.crc32, 32w0,
             { meta.flow.five_tuple * CM_ODD_FINGERPRINT }, 32w1 << CM_FINGERPRINT);
    }

    apply {
        fingerprint();
        if (hdr.ipv4.isValid()) {
            ipv4();
        } else {
            ipv6();
        }
    }
}

// The upstream side: the flow classifier, the upstream encoder and the mark; and the read-out of
// all registers.
control ChameleMonEntry(inout headers_t hdr, inout metadata_t meta,
                        inout standard_metadata_t standard_metadata) {
    @netsketch_readout[object=CM_TOWER8_OBJECT, banks=NS_BANKS,
                       counter="ingress.chamelemon.counted"]
    @netsketch_chamelemon[part="classifier", flow="5-tuple", row=0, bits=8,
                          counters=NS_CHAMELEMON_TOWER8]
    register<bit<8>>(NS_CHAMELEMON_TOWER8 * NS_BANKS) tower8;

    @netsketch_readout[object=CM_TOWER16_OBJECT, banks=NS_BANKS,
                       counter="ingress.chamelemon.counted"]
    @netsketch_chamelemon[part="classifier", flow="5-tuple", row=1, bits=16,
                          counters=NS_CHAMELEMON_TOWER16]
    register<bit<16>>(NS_CHAMELEMON_TOWER16 * NS_BANKS) tower16;

    CM_ENCODER("upstream", 0, "ingress.chamelemon.counted", 4, CM_UPSTREAM_OBJECT, CM_WORDS,
               NS_CHAMELEMON_UPSTREAM, "count,id[4]") upstream;
    CM_ENCODER("upstream", 0, "ingress.chamelemon.encoded_ipv6", 6, CM_UPSTREAM_IPV6_OBJECT,
               CM_WORDS_IPV6, NS_CHAMELEMON_UPSTREAM_IPV6, "count,id[10]") upstream_ipv6;

    // Packets whose DSCP cannot be restored, because it is not one of the eight in dscp_in and
    // dscp_out.
    counter(1, CounterType.packets) dscp_lost;

    // Arrived packets, and encoded IPv6 packets, by bank. They are counted last, so that a client
    // that reads a counter before the registers misses no packet.
    counter(NS_BANKS, CounterType.packets) counted;
    counter(NS_BANKS, CounterType.packets) encoded_ipv6;

    ChameleMonIdentifier() identifier;

    action from_host() {
        CM.marked = 1;
    }

    // Measures the packet without a mark, for networks that packets can leave at exits that do not
    // remove marks.
    action measure() {
    }

    // Ports where packets enter the network from hosts or from other networks.
    table entry_port {
        key = { standard_metadata.ingress_port: exact @name("port"); }
        actions = { from_host; measure; @defaultonly NoAction; }
        default_action = NoAction;
        size = 512;
    }

    // Counts the packet and finds the hierarchy of its flow: HH from th packets on, HL from tl
    // packets on, otherwise LL. Of 65,536 LL flows, sample are encoded; the odd seed selects them.
    action classify(bit<32> th, bit<32> tl, bit<17> sample, bit<32> seed) {
        CM.time = (bit<32>)meta.bank;
        hash(CM.cell, HashAlgorithm.crc32, 32w0, { meta.flow.five_tuple * CM_ODD_ROW0 },
             32w1 * NS_CHAMELEMON_TOWER8);
        CM.cell = CM.cell + CM.time * NS_CHAMELEMON_TOWER8;
        tower8.read(CM.count8, CM.cell);
        if (CM.count8 != CM_TOWER8_MAX) {
            CM.count8 = CM.count8 + 1;
        }
        tower8.write(CM.cell, CM.count8);

        hash(CM.cell, HashAlgorithm.crc32, 32w0, { meta.flow.five_tuple * CM_ODD_ROW1 },
             32w1 * NS_CHAMELEMON_TOWER16);
        CM.cell = CM.cell + CM.time * NS_CHAMELEMON_TOWER16;
        tower16.read(CM.count16, CM.cell);
        if (CM.count16 != CM_TOWER16_MAX) {
            CM.count16 = CM.count16 + 1;
        }
        tower16.write(CM.cell, CM.count16);

        // A counter at its largest value has overflowed and counts as infinite.
        if (CM.count8 != CM_TOWER8_MAX && (bit<16>)CM.count8 < CM.count16) {
            CM.count16 = (bit<16>)CM.count8;
        }

        hash(CM.value, HashAlgorithm.crc32, 32w0, { meta.flow.five_tuple * seed },
             32w0x10000);
        CM.hierarchy = CM_NONE;
        if ((bit<32>)CM.count16 >= th) {
            CM.hierarchy = CM_HITTER;
        } else if ((bit<32>)CM.count16 >= tl) {
            CM.hierarchy = CM_HEAVY;
        } else if (CM.value < (bit<32>)sample) {
            CM.hierarchy = CM_LIGHT;
        }
    }

    // The thresholds, sample rate and seed of the epochs with each value of the time bit.
    table thresholds {
        key = { meta.bank: exact @name("time"); }
        actions = { classify; }
        default_action = classify(0xffffffff, 1, 0, 1);
        size = NS_BANKS;
    }

    action encode(bit<32> first, bit<32> buckets) {
        CM_ENCODE(CM_ENCODE_ARRAY, upstream, NS_CHAMELEMON_UPSTREAM)
    }

    action encode_ipv6(bit<32> first, bit<32> buckets) {
        CM_ENCODE(CM_ENCODE_ARRAY_IPV6, upstream_ipv6, NS_CHAMELEMON_UPSTREAM_IPV6)
        encoded_ipv6.count(CM.time);
    }

    // A packet that is not encoded here must not be encoded where it leaves the network.
    action leave_out() {
        CM.hierarchy = CM_NONE;
    }

    // The buckets of each array that belong to a hierarchy, from first on. A hierarchy without
    // buckets has no entry.
    table division {
        key = {
            meta.bank: exact @name("time");
            CM.hierarchy: exact @name("hierarchy");
        }
        actions = { encode; leave_out; }
        default_action = leave_out;
        size = 8;
    }

    table division_ipv6 {
        key = {
            meta.bank: exact @name("time");
            CM.hierarchy: exact @name("hierarchy");
        }
        actions = { encode_ipv6; leave_out; }
        default_action = leave_out;
        size = 8;
    }

    action carry(bit<3> code) {
        CM.code = code;
    }

    action carry_class() {
        CM.code = CM.tos[7:5];
    }

    // Inside the network, the upper three bits of the DSCP stand for all six. Without an entry they
    // do not change, which keeps class selectors.
    table dscp_in {
        key = { CM.tos[7:2]: exact @name("dscp"); }
        actions = { carry; carry_class; }
        default_action = carry_class;
        size = 64;
    }

    action count_dscp_lost() {
        dscp_lost.count(0);
    }

    action count_unmarked() {
        counted.count((bit<32>)meta.bank);
    }

    action mark_ipv4() {
        counted.count((bit<32>)meta.bank);
        hdr.ipv4.tos = CM.code ++ CM.hierarchy ++ meta.bank[0:0] ++ CM.tos[1:0];
    }

    action mark_ipv6() {
        counted.count((bit<32>)meta.bank);
        hdr.ipv6.traffic_class = CM.code ++ CM.hierarchy ++ meta.bank[0:0] ++ CM.tos[1:0];
    }

    action read_tower8() {
        NS_READ_AND_CLEAR_BY(CM_READ_TOWER8, tower8, NS_CHAMELEMON_TOWER8)
    }

    action read_tower16() {
        NS_READ_AND_CLEAR_BY(CM_READ_TOWER16, tower16, NS_CHAMELEMON_TOWER16)
    }

    action read_upstream() {
        NS_READ_AND_CLEAR(upstream, CM_CELLS(CM_WORDS, NS_CHAMELEMON_UPSTREAM))
    }

    action read_upstream_ipv6() {
        NS_READ_AND_CLEAR(upstream_ipv6, CM_CELLS(CM_WORDS_IPV6, NS_CHAMELEMON_UPSTREAM_IPV6))
    }

    action read_downstream() {
        NS_READ_AND_CLEAR(chamelemon_downstream, CM_CELLS(CM_WORDS, NS_CHAMELEMON_DOWNSTREAM))
    }

    action read_downstream_ipv6() {
        NS_READ_AND_CLEAR(chamelemon_downstream_ipv6,
                          CM_CELLS(CM_WORDS_IPV6, NS_CHAMELEMON_DOWNSTREAM_IPV6))
    }

    apply {
        if (hdr.packet_in.isValid()) {
            if (NS_ASKED(CM_TOWER8_OBJECT, NS_CHAMELEMON_TOWER8)) {
                read_tower8();
            } else if (NS_ASKED(CM_TOWER16_OBJECT, NS_CHAMELEMON_TOWER16)) {
                read_tower16();
            } else if (NS_ASKED(CM_UPSTREAM_OBJECT, CM_CELLS(CM_WORDS, NS_CHAMELEMON_UPSTREAM))) {
                read_upstream();
            } else if (NS_ASKED(CM_DOWNSTREAM_OBJECT,
                                CM_CELLS(CM_WORDS, NS_CHAMELEMON_DOWNSTREAM))) {
                read_downstream();
            } else if (NS_ASKED(CM_UPSTREAM_IPV6_OBJECT,
                                CM_CELLS(CM_WORDS_IPV6, NS_CHAMELEMON_UPSTREAM_IPV6))) {
                read_upstream_ipv6();
            } else if (NS_ASKED(CM_DOWNSTREAM_IPV6_OBJECT,
                                CM_CELLS(CM_WORDS_IPV6, NS_CHAMELEMON_DOWNSTREAM_IPV6))) {
                read_downstream_ipv6();
            }
        } else if (entry_port.apply().hit) {
            thresholds.apply();
            if (hdr.ipv4.isValid()) {
                CM.tos = hdr.ipv4.tos;
            } else {
                CM.tos = hdr.ipv6.traffic_class;
            }
            if (CM.hierarchy != CM_NONE) {
                identifier.apply(hdr, meta);
                if (hdr.ipv4.isValid()) {
                    division.apply();
                } else {
                    division_ipv6.apply();
                }
            }
            if (CM.marked == 1) {
                if (!dscp_in.apply().hit && CM.tos[4:2] != 0) {
                    count_dscp_lost();
                }
                if (hdr.ipv4.isValid()) {
                    mark_ipv4();
                } else {
                    mark_ipv6();
                }
            } else {
                count_unmarked();
            }
        }
    }
}

// The downstream side: downstream encoder, and removal of the mark.
control ChameleMonExit(inout headers_t hdr, inout metadata_t meta,
                       inout standard_metadata_t standard_metadata) {
    // Encoded IPv6 packets, by bank.
    counter(NS_BANKS, CounterType.packets) encoded_ipv6;

    ChameleMonIdentifier() identifier;

    action to_host() {
        CM.leaves = 1;
    }

    // Packets leave unchanged, because they have no mark.
    action keep() {
    }

    // Ports where packets leave the network. Packets to the controller leave it, too.
    table exit_port {
        key = { standard_metadata.egress_port: exact @name("port"); }
        actions = { to_host; keep; @defaultonly NoAction; }
        default_action = NoAction;
        size = 512;
    }

    action encode(bit<32> first, bit<32> buckets) {
        CM_ENCODE(CM_ENCODE_ARRAY, chamelemon_downstream, NS_CHAMELEMON_DOWNSTREAM)
    }

    action encode_ipv6(bit<32> first, bit<32> buckets) {
        CM_ENCODE(CM_ENCODE_ARRAY_IPV6, chamelemon_downstream_ipv6, NS_CHAMELEMON_DOWNSTREAM_IPV6)
        encoded_ipv6.count(CM.time);
    }

    action leave_out() {
    }

    // The same table as in ingress. HH candidates are encoded among the HL candidates, and have no
    // entry.
    table division {
        key = {
            CM.time: exact @name("time");
            CM.hierarchy: exact @name("hierarchy");
        }
        actions = { encode; leave_out; }
        default_action = leave_out;
        size = 4;
    }

    table division_ipv6 {
        key = {
            CM.time: exact @name("time");
            CM.hierarchy: exact @name("hierarchy");
        }
        actions = { encode_ipv6; leave_out; }
        default_action = leave_out;
        size = 4;
    }

    action restore(bit<6> dscp) {
        CM.tos = dscp ++ CM.tos[1:0];
    }

    action restore_class() {
        CM.tos = CM.tos & 0xe3;
    }

    // The inverse of dscp_in.
    table dscp_out {
        key = { CM.tos[7:5]: exact @name("code"); }
        actions = { restore; restore_class; }
        default_action = restore_class;
        size = 8;
    }

    action read_mark() {
        CM.time = (bit<32>)CM.tos[2:2];
        CM.hierarchy = CM.tos[4:3];
    }

    action join_heavy() {
        CM.hierarchy = CM_HEAVY;
    }

    action put_back_ipv4() {
        hdr.ipv4.tos = CM.tos;
    }

    action put_back_ipv6() {
        hdr.ipv6.traffic_class = CM.tos;
    }

    apply {
        if (hdr.ipv4.isValid() || hdr.ipv6.isValid()) {
            exit_port.apply();
            if (standard_metadata.egress_port == NS_CPU_PORT || CM.leaves == 1) {
                if (hdr.ipv4.isValid()) {
                    CM.tos = hdr.ipv4.tos;
                } else {
                    CM.tos = hdr.ipv6.traffic_class;
                }
                read_mark();
                if (CM.hierarchy == CM_HITTER) {
                    join_heavy();
                }
                if (CM.hierarchy != CM_NONE) {
                    identifier.apply(hdr, meta);
                    if (hdr.ipv4.isValid()) {
                        division.apply();
                    } else {
                        division_ipv6.apply();
                    }
                }
                dscp_out.apply();
                if (hdr.ipv4.isValid()) {
                    put_back_ipv4();
                } else {
                    put_back_ipv6();
                }
            }
        }
    }
}

#endif
