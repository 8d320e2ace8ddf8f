// SPDX-License-Identifier: Apache-2.0
// OmniMon with one slot array for each switch: 398,336 bytes of registers per bank. Sizes are
// parameters: p4c-bm2-ss -DNS_OMNIMON_SLOTS=4096 ...

#define NS_WITH_OMNIMON
#ifndef NS_OMNIMON_SLOTS
#define NS_OMNIMON_SLOTS 8192
#endif
#ifndef NS_OMNIMON_ARRAYS
#define NS_OMNIMON_ARRAYS 1
#endif
#ifndef NS_OMNIMON_UNITS
#define NS_OMNIMON_UNITS 4
#endif
#ifndef NS_OMNIMON_QUEUE_UNITS
#define NS_OMNIMON_QUEUE_UNITS 1
#endif
#define NS_BANKS 4

#include "include/switch.p4"
