// SPDX-License-Identifier: Apache-2.0
// An example, CocoSketch (Zhang et al., SIGCOMM 2021): two arrays of slots for flows and packets.
//
// A packet looks up one slot of each array. If one holds its flow, the slot counts the packet.
// Otherwise the slot with fewer packets counts it, and takes over the flow with probability 1 / n,
// where n is the slot's number of packets with this one. So the expected count of every flow is
// exact, and so is that of any part of the key: it is the sum over the slots with that part.

#define CS meta.own
#ifndef CS_SLOTS
#define CS_SLOTS 512 // in one array
#endif
#define CS_WORDS 12
// Cells of a bank, a multiple of NS_CELLS.
#define CS_CELLS (2 * CS_SLOTS * CS_WORDS)

// Different odd factors give independent hashes of a flow's five_tuple.
#define CS_ODD_0 32w0x9e3779b1
#define CS_ODD_1 32w0x85ebca6b

// Looks up the flow's slot in an array.
#define CS_LOOK(array, odd, to_cell, to_count, to_hash) \
    hash(CS.to_cell, HashAlgorithm.crc32, 32w0, { meta.flow.five_tuple * odd }, 32w1 * CS_SLOTS); \
    CS.to_cell = (bit<32>)meta.bank * CS_CELLS + (array * CS_SLOTS + CS.to_cell) * CS_WORDS; \
    slots.read(CS.to_count, CS.to_cell); \
    slots.read(CS.to_hash, CS.to_cell + 1);

#define CS_PUT(word) \
    CS.cell = CS.cell + 1; \
    slots.write(CS.cell, word);

#define CS_PUT_IPV6(field) \
    CS_PUT(field[127:96]) CS_PUT(field[95:64]) CS_PUT(field[63:32]) CS_PUT(field[31:0])

control OwnIngress(inout headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t standard_metadata) {
    // The words of a slot: packets, hash of the flow, family << 8 | protocol, source port << 16 |
    // destination port, source (4 words), destination (4). An IPv4 address is in the first word.
    @netsketch_readout[object=128, banks=NS_BANKS, counter="ingress.own.counted"]
    @cocosketch_slots[arrays=2, slots=CS_SLOTS, words=CS_WORDS]
    register<bit<32>>(CS_CELLS * NS_BANKS) slots;

    // Packets by bank: a bank without packets is not read.
    counter(NS_BANKS, CounterType.packets) counted;

    action count() {
        CS_LOOK(0, CS_ODD_0, cell, count, hash)
        CS.hit = 0;
        if (CS.hash == meta.flow.five_tuple && CS.count != 0) {
            CS.hit = 1;
        }
        if (CS.hit == 0) {
            CS_LOOK(1, CS_ODD_1, other_cell, other_count, other_hash)
            if (CS.other_hash == meta.flow.five_tuple && CS.other_count != 0) {
                CS.hit = 1;
            }
            if (CS.hit == 1 || CS.other_count < CS.count) {
                CS.cell = CS.other_cell;
                CS.count = CS.other_count;
            }
        }
        CS.count = CS.count + 1;
        slots.write(CS.cell, CS.count);
        if (CS.hit == 0) {
            random(CS.draw, 32w1, CS.count);
            if (CS.draw == 1) {
                CS_PUT(meta.flow.five_tuple)
                if (hdr.ipv4.isValid()) {
                    CS_PUT(4 << 8 | (bit<32>)meta.flow.protocol)
                    CS_PUT(meta.flow.src_port ++ meta.flow.dst_port)
                    CS_PUT(hdr.ipv4.src) CS_PUT(0) CS_PUT(0) CS_PUT(0)
                    CS_PUT(hdr.ipv4.dst) CS_PUT(0) CS_PUT(0) CS_PUT(0)
                } else {
                    CS_PUT(6 << 8 | (bit<32>)meta.flow.protocol)
                    CS_PUT(meta.flow.src_port ++ meta.flow.dst_port)
                    CS_PUT_IPV6(hdr.ipv6.src)
                    CS_PUT_IPV6(hdr.ipv6.dst)
                }
            }
        }
        counted.count((bit<32>)meta.bank);
    }

    action read_slots() {
        NS_READ_AND_CLEAR(slots, CS_CELLS)
    }

    apply {
        if (!hdr.packet_in.isValid()) {
            count();
        } else if (NS_ASKED(128, CS_CELLS)) {
            read_slots();
        }
    }
}
