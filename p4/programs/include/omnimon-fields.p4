// SPDX-License-Identifier: Apache-2.0
// The fields of OmniMon's header, to be included in the header of each carrier: a switch clears and
// tests every header for every packet, so a carrier is one.

    bit<16> epoch;
    bit<24> host_index;
    bit<1>  probe; // the packet only tests the path, and is not counted
    bit<7>  hops;
    bit<16> slot0;
#if NS_OMNIMON_SLOTS_PER_FLOW > 1
    bit<16> slot1;
#endif
#if NS_OMNIMON_SLOTS_PER_FLOW > 2
    bit<16> slot2;
#endif
#if NS_OMNIMON_SLOTS_PER_FLOW > 3
    bit<16> slot3;
#endif
#if NS_OMNIMON_DIFFERENCES > 0
    bit<32> difference0;
#endif
#if NS_OMNIMON_DIFFERENCES > 1
    bit<32> difference1;
#endif
#if NS_OMNIMON_DIFFERENCES > 2
    bit<32> difference2;
#endif
#if NS_OMNIMON_DIFFERENCES > 3
    bit<32> difference3;
#endif
