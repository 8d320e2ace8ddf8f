// SPDX-License-Identifier: Apache-2.0
// UnivMon by source and 5-tuple for a small switch: 284,672 bytes of registers per bank.

#define NS_WITH_UNIVMON_SRC
#define NS_UNIVMON_SRC_LEVELS 16
#define NS_UNIVMON_SRC_ROWS 3
#define NS_UNIVMON_SRC_COLUMNS 512
#define NS_UNIVMON_SRC_SLOTS 32

#define NS_WITH_UNIVMON_5T
#define NS_UNIVMON_5T_LEVELS 16
#define NS_UNIVMON_5T_ROWS 3
#define NS_UNIVMON_5T_COLUMNS 512
#define NS_UNIVMON_5T_SLOTS 64

#include "include/switch.p4"
