// SPDX-License-Identifier: Apache-2.0
// OmniMon with one slot array for each switch: 118,784 bytes of registers per bank. Sizes are
// parameters, as p4c-bm2-ss -DNS_OMNIMON_SLOTS=8192 ...; hosts and all switches need the same.

#define NS_WITH_OMNIMON
#ifndef NS_OMNIMON_ETHERTYPE
#define NS_OMNIMON_ETHERTYPE 0x88b5
#endif
#ifndef NS_OMNIMON_SLOTS_PER_FLOW
#define NS_OMNIMON_SLOTS_PER_FLOW 2
#endif
#ifndef NS_OMNIMON_DIFFERENCES
#define NS_OMNIMON_DIFFERENCES 0
#endif
#ifndef NS_OMNIMON_SLOTS
#define NS_OMNIMON_SLOTS 4096
#endif
#ifndef NS_OMNIMON_ARRAYS
#define NS_OMNIMON_ARRAYS 1
#endif
#define NS_BANKS 4

#include "include/switch.p4"
