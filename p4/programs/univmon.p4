// SPDX-License-Identifier: Apache-2.0
// UnivMon by source, destination and 5-tuple: 992,256 bytes of registers per bank.

#define NS_WITH_UNIVMON_SRC
#define NS_UNIVMON_SRC_LEVELS 16
#define NS_UNIVMON_SRC_ROWS 3
#define NS_UNIVMON_SRC_COLUMNS 2048
#define NS_UNIVMON_SRC_SLOTS 64

#define NS_WITH_UNIVMON_DST
#define NS_UNIVMON_DST_LEVELS 16
#define NS_UNIVMON_DST_ROWS 3
#define NS_UNIVMON_DST_COLUMNS 896
#define NS_UNIVMON_DST_SLOTS 64

#define NS_WITH_UNIVMON_5T
#define NS_UNIVMON_5T_LEVELS 16
#define NS_UNIVMON_5T_ROWS 3
#define NS_UNIVMON_5T_COLUMNS 2048
#define NS_UNIVMON_5T_SLOTS 128

#include "include/switch.p4"
