// SPDX-License-Identifier: Apache-2.0
// UnivMon by source and destination, by destination and its port, and by protocol: 336,896 bytes of
// registers per bank.

#define NS_WITH_UNIVMON_PAIR
#define NS_UNIVMON_PAIR_LEVELS 16
#define NS_UNIVMON_PAIR_ROWS 3
#define NS_UNIVMON_PAIR_COLUMNS 512
#define NS_UNIVMON_PAIR_SLOTS 64

#define NS_WITH_UNIVMON_SERVICE
#define NS_UNIVMON_SERVICE_LEVELS 16
#define NS_UNIVMON_SERVICE_ROWS 3
#define NS_UNIVMON_SERVICE_COLUMNS 512
#define NS_UNIVMON_SERVICE_SLOTS 64

#define NS_WITH_UNIVMON_PROTOCOL
#define NS_UNIVMON_PROTOCOL_LEVELS 4
#define NS_UNIVMON_PROTOCOL_ROWS 3
#define NS_UNIVMON_PROTOCOL_COLUMNS 64
#define NS_UNIVMON_PROTOCOL_SLOTS 64

#include "include/switch.p4"
