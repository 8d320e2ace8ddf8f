// SPDX-License-Identifier: Apache-2.0
// An action that reads OmniMon's header in one of its carriers, and counts this hop in it. It is a
// template: define OM_OPEN, its name, and OM_HEADER, the header, and include it.

    action OM_OPEN() {
        OM.epoch = OM_HEADER.epoch;
        OM.probe = OM_HEADER.probe;
        // The slot of this hop: number hops modulo slots per flow.
        OM.slot = OM_HEADER.slot0;
#if NS_OMNIMON_SLOTS_PER_FLOW == 2
        if (OM_HEADER.hops[0:0] == 1) {
            OM.slot = OM_HEADER.slot1;
        }
#elif NS_OMNIMON_SLOTS_PER_FLOW == 3
        // 171 / 512 exceeds a third by less than 1 / 768.
        OM.turn = (((bit<16>)OM_HEADER.hops * 171) >> 9) * 3;
        OM.turn = (bit<16>)OM_HEADER.hops - OM.turn;
        if (OM.turn == 1) {
            OM.slot = OM_HEADER.slot1;
        } else if (OM.turn == 2) {
            OM.slot = OM_HEADER.slot2;
        }
#elif NS_OMNIMON_SLOTS_PER_FLOW == 4
        if (OM_HEADER.hops[1:0] == 1) {
            OM.slot = OM_HEADER.slot1;
        } else if (OM_HEADER.hops[1:0] == 2) {
            OM.slot = OM_HEADER.slot2;
        } else if (OM_HEADER.hops[1:0] == 3) {
            OM.slot = OM_HEADER.slot3;
        }
#endif
#if NS_OMNIMON_DIFFERENCES > 0
        OM.difference0 = OM_HEADER.difference0;
#endif
#if NS_OMNIMON_DIFFERENCES > 1
        OM.difference1 = OM_HEADER.difference1;
#endif
#if NS_OMNIMON_DIFFERENCES > 2
        OM.difference2 = OM_HEADER.difference2;
#endif
#if NS_OMNIMON_DIFFERENCES > 3
        OM.difference3 = OM_HEADER.difference3;
#endif
        meta.bank = (bit<8>)OM_HEADER.epoch & (NS_BANKS - 1);
        OM_HEADER.hops = OM_HEADER.hops + 1;
    }

#undef OM_OPEN
#undef OM_HEADER
