// SPDX-License-Identifier: Apache-2.0
// OmniMon's switch (paper, sections 3.2 and 5.3). A packet carries its epoch, which selects the
// bank, and the numbers of the slots that its flow is mapped to; each switch on the path adds the
// packet to one of them. carrier-headers.p4 has the parameters of the header.
//
//   NS_OMNIMON_SLOTS           slots of an array, a multiple of 256, at most 65,536
//   NS_OMNIMON_ARRAYS          slot arrays, a power of two: 1 for the switch, or one for each port
//                              where packets enter
//   NS_OMNIMON_UNITS           units of queries in ingress, 0 to 8: omnimon-unit.p4
//   NS_OMNIMON_QUEUE_UNITS     units of queries in egress, which match the queue depth, 0 to 4
//
// docs/omnimon-p4.md has the layout of the registers, bit for bit.

#ifndef NETSKETCH_OMNIMON_P4
#define NETSKETCH_OMNIMON_P4

#include "headers.p4"
#include "readout.p4"

// Read-out numbers.
#define OM_COUNTS_OBJECT 13
#define OM_UNCOUNTED_OBJECT 14

// The layout of a bank of counts: slots, then packets with a header by port of arrival, and by port
// of departure.
#define OM_STATISTICS 7
#define OM_UNITS (OM_STATISTICS + NS_OMNIMON_DIFFERENCES) // first word of units in a slot
#define OM_WORDS (OM_UNITS + NS_OMNIMON_UNITS + NS_OMNIMON_QUEUE_UNITS)
#define OM_PORTS 512 // number of values of port_t
#define OM_ARRIVED (NS_OMNIMON_ARRAYS * NS_OMNIMON_SLOTS * OM_WORDS)
#define OM_DEPARTED (OM_ARRIVED + OM_PORTS)
#define OM_COUNTS_CELLS (OM_DEPARTED + OM_PORTS)

// The layout of a bank of uncounted: packets by epoch, then two single counts.
#define OM_EPOCHS 128
#define OM_NO_HEADER 128
#define OM_BAD_SLOT 129
#define OM_UNCOUNTED_CELLS NS_CELLS

#if NS_BANKS != 4
#error OmniMon has four banks: a bank is selected by two bits of the epoch
#endif
#if defined(NS_WITH_UNIVMON) || defined(NS_WITH_CHAMELEMON)
#error OmniMon cannot run with another algorithm: packets select the bank
#endif
#if NS_OMNIMON_SLOTS % NS_CELLS != 0 || NS_OMNIMON_SLOTS < NS_CELLS || NS_OMNIMON_SLOTS > 65536
#error NS_OMNIMON_SLOTS must be a multiple of NS_CELLS, at most 65536
#endif
#if NS_OMNIMON_ARRAYS < 1 || (NS_OMNIMON_ARRAYS & (NS_OMNIMON_ARRAYS - 1)) != 0
#error NS_OMNIMON_ARRAYS must be a power of two
#endif

#if NS_OMNIMON_UNITS < 0 || NS_OMNIMON_UNITS > 8
#error NS_OMNIMON_UNITS must be 0 to 8
#endif
#if NS_OMNIMON_QUEUE_UNITS < 0 || NS_OMNIMON_QUEUE_UNITS > 4
#error NS_OMNIMON_QUEUE_UNITS must be 0 to 4
#endif

#define OM meta.omnimon

// Departures are counted in egress, so that packets that a queue drops do not count as departed.
// The counter is by bank.
@netsketch_readout[object=OM_COUNTS_OBJECT, banks=NS_BANKS, drain=1, counter="omnimon_counted"]
@netsketch_omnimon[part="counts", ethertype=NS_OMNIMON_ETHERTYPE, arrays=NS_OMNIMON_ARRAYS,
                   slots=NS_OMNIMON_SLOTS, slots_per_flow=NS_OMNIMON_SLOTS_PER_FLOW,
                   differences=NS_OMNIMON_DIFFERENCES, units=NS_OMNIMON_UNITS,
                   filters="ingress.omnimon.unit%.filter", queue_units=NS_OMNIMON_QUEUE_UNITS,
                   queue_filters="egress.omnimon.unit%.filter", words=OM_WORDS, arrived=OM_ARRIVED,
                   departed=OM_DEPARTED, ports=OM_PORTS,
                   layout="packets,bytes,syn,fin-rst,syn-ack,ack,bare,differences,units,queue-units"]
register<bit<32>>(OM_COUNTS_CELLS * NS_BANKS) omnimon_counts;
counter(NS_BANKS, CounterType.packets) omnimon_counted;

#define OM_COUNT_ONE(name) \
    name.read(OM.value, OM.cell); \
    name.write(OM.cell, OM.value + 1);

// Adds to the current cell and advances to the next cell.
#define OM_ADD(amount) \
    omnimon_counts.read(OM.value, OM.cell); \
    omnimon_counts.write(OM.cell, OM.value + (amount)); \
    OM.cell = OM.cell + 1;

// Adds to the word of a unit.
#define OM_UNIT_ADD(amount) \
    OM.cell = OM.slot_cell + (OM_UNITS + OM_UNIT_NUMBER); \
    omnimon_counts.read(OM.value, OM.cell); \
    omnimon_counts.write(OM.cell, OM.value + (amount));

#if NS_OMNIMON_UNITS > 0
#define OM_UNIT OmniMonUnit0
#define OM_UNIT_NUMBER 0
#include "omnimon-unit.p4"
#endif
#if NS_OMNIMON_UNITS > 1
#define OM_UNIT OmniMonUnit1
#define OM_UNIT_NUMBER 1
#include "omnimon-unit.p4"
#endif
#if NS_OMNIMON_UNITS > 2
#define OM_UNIT OmniMonUnit2
#define OM_UNIT_NUMBER 2
#include "omnimon-unit.p4"
#endif
#if NS_OMNIMON_UNITS > 3
#define OM_UNIT OmniMonUnit3
#define OM_UNIT_NUMBER 3
#include "omnimon-unit.p4"
#endif
#if NS_OMNIMON_UNITS > 4
#define OM_UNIT OmniMonUnit4
#define OM_UNIT_NUMBER 4
#include "omnimon-unit.p4"
#endif
#if NS_OMNIMON_UNITS > 5
#define OM_UNIT OmniMonUnit5
#define OM_UNIT_NUMBER 5
#include "omnimon-unit.p4"
#endif
#if NS_OMNIMON_UNITS > 6
#define OM_UNIT OmniMonUnit6
#define OM_UNIT_NUMBER 6
#include "omnimon-unit.p4"
#endif
#if NS_OMNIMON_UNITS > 7
#define OM_UNIT OmniMonUnit7
#define OM_UNIT_NUMBER 7
#include "omnimon-unit.p4"
#endif

// The units that egress measures.
#if NS_OMNIMON_QUEUE_UNITS > 0
#define OM_UNIT OmniMonQueueUnit0
#define OM_UNIT_NUMBER NS_OMNIMON_UNITS
#define OM_UNIT_QUEUE
#include "omnimon-unit.p4"
#endif
#if NS_OMNIMON_QUEUE_UNITS > 1
#define OM_UNIT OmniMonQueueUnit1
#define OM_UNIT_NUMBER (NS_OMNIMON_UNITS + 1)
#define OM_UNIT_QUEUE
#include "omnimon-unit.p4"
#endif
#if NS_OMNIMON_QUEUE_UNITS > 2
#define OM_UNIT OmniMonQueueUnit2
#define OM_UNIT_NUMBER (NS_OMNIMON_UNITS + 2)
#define OM_UNIT_QUEUE
#include "omnimon-unit.p4"
#endif
#if NS_OMNIMON_QUEUE_UNITS > 3
#define OM_UNIT OmniMonQueueUnit3
#define OM_UNIT_NUMBER (NS_OMNIMON_UNITS + 3)
#define OM_UNIT_QUEUE
#include "omnimon-unit.p4"
#endif

#define OM_FIN OM.flags[0:0]
#define OM_SYN OM.flags[1:1]
#define OM_RST OM.flags[2:2]
#define OM_ACK OM.flags[4:4]

control OmniMonIngress(inout headers_t hdr, inout metadata_t meta,
                       inout standard_metadata_t standard_metadata) {
    @netsketch_readout[object=OM_UNCOUNTED_OBJECT, banks=NS_BANKS, drain=1]
    @netsketch_uncounted[epochs=OM_EPOCHS]
    @netsketch_omnimon[part="uncounted", no_header=OM_NO_HEADER, bad_slot=OM_BAD_SLOT]
    register<bit<32>>(OM_UNCOUNTED_CELLS * NS_BANKS) uncounted;

#if NS_OMNIMON_UNITS > 0
    OmniMonUnit0() unit0;
#endif
#if NS_OMNIMON_UNITS > 1
    OmniMonUnit1() unit1;
#endif
#if NS_OMNIMON_UNITS > 2
    OmniMonUnit2() unit2;
#endif
#if NS_OMNIMON_UNITS > 3
    OmniMonUnit3() unit3;
#endif
#if NS_OMNIMON_UNITS > 4
    OmniMonUnit4() unit4;
#endif
#if NS_OMNIMON_UNITS > 5
    OmniMonUnit5() unit5;
#endif
#if NS_OMNIMON_UNITS > 6
    OmniMonUnit6() unit6;
#endif
#if NS_OMNIMON_UNITS > 7
    OmniMonUnit7() unit7;
#endif

    // Epochs that have a bank: size epochs from first on. The bank of any other epoch belongs to
    // another epoch, is being read, or is not clean.
    action set_window(bit<16> first, bit<16> size) {
        OM.first = first;
        OM.size = size;
    }

    @netsketch_window[banks=NS_BANKS]
    table window {
        actions = { set_window; }
        default_action = set_window(0, 0);
        size = 1;
    }

#if NS_OMNIMON_ARRAYS > 1
    action use_array(bit<16> array) {
        OM.index = ((bit<32>)array & (NS_OMNIMON_ARRAYS - 1)) * NS_OMNIMON_SLOTS;
    }

    // The slot array of each port where packets enter the network.
    table port_array {
        key = { standard_metadata.ingress_port: exact @name("port"); }
        actions = { use_array; }
        default_action = use_array(0);
        size = OM_PORTS;
    }
#endif

#define OM_OPEN open_shim
#define OM_HEADER hdr.shim
#include "omnimon-header.p4"

#define OM_OPEN open_ipv4_option
#define OM_HEADER hdr.ipv4_carrier
#include "omnimon-header.p4"

#define OM_OPEN open_ipv6_option
#define OM_HEADER hdr.ipv6_carrier
#include "omnimon-header.p4"

#define OM_OPEN open_tunnel
#define OM_HEADER hdr.tunnel
#include "omnimon-header.p4"

    action measure_ipv4() {
        OM.length = (bit<32>)hdr.ipv4.total_length;
        OM.ttl = hdr.ipv4.ttl;
        OM.src = hdr.ipv4.src;
        OM.dst = hdr.ipv4.dst;
    }

    action measure_ipv6() {
        OM.length = (bit<32>)hdr.ipv6.payload_length + 40;
        OM.ttl = hdr.ipv6.hop_limit;
    }

    // The length of the packet without the carrier.
    action leave_out_ipv4_option() {
        OM.length = OM.length - 4 * NS_CARRIER_IPV4_WORDS;
    }

    action leave_out_ipv6_option() {
        OM.length = OM.length - NS_CARRIER_IPV6_BYTES;
    }

    action measure_carried_ipv4() {
        OM.length = (bit<32>)hdr.carried_ipv4.total_length;
    }

    action measure_carried_ipv6() {
        OM.length = (bit<32>)hdr.carried_ipv6.payload_length + 40;
    }

    action locate_slot() {
        OM.counted = 1;
        OM.index = OM.index + (bit<32>)OM.slot;
        OM.slot_cell = (bit<32>)meta.bank * OM_COUNTS_CELLS + OM.index * OM_WORDS;
        OM.cell = OM.slot_cell;
    }

    action set_bare() {
        OM.bare = 1;
    }

    action count() {
        OM_ADD(1)
        OM_ADD(OM.length)
        OM_ADD((bit<32>)(OM_SYN & ~OM_ACK))
        OM_ADD((bit<32>)(OM_FIN | OM_RST))
        OM_ADD((bit<32>)(OM_SYN & OM_ACK))
        OM_ADD((bit<32>)(OM_ACK & ~(OM_SYN | OM_FIN | OM_RST)))
        OM_ADD((bit<32>)OM.bare)
#if NS_OMNIMON_DIFFERENCES > 0
        OM_ADD(OM.difference0)
#endif
#if NS_OMNIMON_DIFFERENCES > 1
        OM_ADD(OM.difference1)
#endif
#if NS_OMNIMON_DIFFERENCES > 2
        OM_ADD(OM.difference2)
#endif
#if NS_OMNIMON_DIFFERENCES > 3
        OM_ADD(OM.difference3)
#endif
        OM.cell = (bit<32>)meta.bank * OM_COUNTS_CELLS + OM_ARRIVED
            + (bit<32>)standard_metadata.ingress_port;
        OM_COUNT_ONE(omnimon_counts)
        omnimon_counted.count((bit<32>)meta.bank);
    }

    // Counts a packet whose epoch is outside of the window.
    action count_epoch() {
        OM.cell = (bit<32>)meta.bank * OM_UNCOUNTED_CELLS + (bit<32>)(OM.epoch[8:2]);
        OM_COUNT_ONE(uncounted)
    }

    action count_bad_slot() {
        OM.cell = (bit<32>)meta.bank * OM_UNCOUNTED_CELLS + OM_BAD_SLOT;
        OM_COUNT_ONE(uncounted)
    }

    // Counts a packet without a header in the bank that is read next, because the packet states no
    // epoch.
    action count_no_header() {
        OM.cell = (bit<32>)(OM.first[1:0]) * OM_UNCOUNTED_CELLS + OM_NO_HEADER;
        OM_COUNT_ONE(uncounted)
    }

    action read_counts() {
        NS_READ_AND_CLEAR(omnimon_counts, OM_COUNTS_CELLS)
    }

    action read_uncounted() {
        NS_READ_AND_CLEAR(uncounted, OM_UNCOUNTED_CELLS)
    }

    apply {
        if (hdr.packet_in.isValid()) {
            if (NS_ASKED(OM_COUNTS_OBJECT, OM_COUNTS_CELLS)) {
                read_counts();
            } else if (NS_ASKED(OM_UNCOUNTED_OBJECT, OM_UNCOUNTED_CELLS)) {
                read_uncounted();
            }
        } else {
            window.apply();
            if (OM.present == 0) {
                count_no_header();
            } else if (hdr.shim.isValid()) {
                open_shim();
            } else if (hdr.ipv4_carrier.isValid()) {
                open_ipv4_option();
            } else if (hdr.ipv6_carrier.isValid()) {
                open_ipv6_option();
            } else {
                open_tunnel();
            }
            if (OM.present == 1 && OM.probe == 0) {
                if (OM.epoch - OM.first >= OM.size) {
                    count_epoch();
                } else if ((bit<32>)OM.slot >= NS_OMNIMON_SLOTS) {
                    count_bad_slot();
                } else {
#if NS_OMNIMON_ARRAYS > 1
                    port_array.apply();
#endif
                    if (hdr.ipv4.isValid()) {
                        measure_ipv4();
                        if (hdr.ipv4_carrier.isValid()) {
                            leave_out_ipv4_option();
                        } else if (hdr.carried_ipv4.isValid()) {
                            measure_carried_ipv4();
                        }
                        if (hdr.tcp.isValid() && OM.length == 40) {
                            set_bare();
                        }
                    } else {
                        measure_ipv6();
                        if (hdr.ipv6_carrier.isValid()) {
                            leave_out_ipv6_option();
                        } else if (hdr.carried_ipv6.isValid()) {
                            measure_carried_ipv6();
                        }
                        if (hdr.tcp.isValid() && OM.length == 60) {
                            set_bare();
                        }
                    }
                    locate_slot();
                    count();
#if NS_OMNIMON_UNITS > 0
                    unit0.apply(meta);
#endif
#if NS_OMNIMON_UNITS > 1
                    unit1.apply(meta);
#endif
#if NS_OMNIMON_UNITS > 2
                    unit2.apply(meta);
#endif
#if NS_OMNIMON_UNITS > 3
                    unit3.apply(meta);
#endif
#if NS_OMNIMON_UNITS > 4
                    unit4.apply(meta);
#endif
#if NS_OMNIMON_UNITS > 5
                    unit5.apply(meta);
#endif
#if NS_OMNIMON_UNITS > 6
                    unit6.apply(meta);
#endif
#if NS_OMNIMON_UNITS > 7
                    unit7.apply(meta);
#endif
                }
            }
        }
    }
}

// Counts departing packets, after the queue of the port.
control OmniMonEgress(inout metadata_t meta, inout standard_metadata_t standard_metadata) {
#if NS_OMNIMON_QUEUE_UNITS > 0
    OmniMonQueueUnit0() unit0;
#endif
#if NS_OMNIMON_QUEUE_UNITS > 1
    OmniMonQueueUnit1() unit1;
#endif
#if NS_OMNIMON_QUEUE_UNITS > 2
    OmniMonQueueUnit2() unit2;
#endif
#if NS_OMNIMON_QUEUE_UNITS > 3
    OmniMonQueueUnit3() unit3;
#endif

    action depart() {
        OM.cell = (bit<32>)meta.bank * OM_COUNTS_CELLS + OM_DEPARTED
            + (bit<32>)standard_metadata.egress_port;
        OM_COUNT_ONE(omnimon_counts)
        omnimon_counted.count((bit<32>)meta.bank);
    }

    apply {
        if (OM.counted == 1) {
            depart();
#if NS_OMNIMON_QUEUE_UNITS > 0
            unit0.apply(meta, standard_metadata.enq_qdepth);
#endif
#if NS_OMNIMON_QUEUE_UNITS > 1
            unit1.apply(meta, standard_metadata.enq_qdepth);
#endif
#if NS_OMNIMON_QUEUE_UNITS > 2
            unit2.apply(meta, standard_metadata.enq_qdepth);
#endif
#if NS_OMNIMON_QUEUE_UNITS > 3
            unit3.apply(meta, standard_metadata.enq_qdepth);
#endif
        }
    }
}

#endif
