// SPDX-License-Identifier: Apache-2.0
// LightGuardian's switch: 786,432 bytes for its two sketches. Sizes are parameters:
// p4c-bm2-ss -DNS_LIGHTGUARDIAN_COLUMNS=65536 ...

#define NS_WITH_LIGHTGUARDIAN
#ifndef NS_LIGHTGUARDIAN_ROWS
#define NS_LIGHTGUARDIAN_ROWS 3
#endif
#ifndef NS_LIGHTGUARDIAN_COLUMNS
#define NS_LIGHTGUARDIAN_COLUMNS 4096
#endif
#ifndef NS_LIGHTGUARDIAN_DELAYS
#define NS_LIGHTGUARDIAN_DELAYS 4
#endif
#ifndef NS_LIGHTGUARDIAN_SIZES
#define NS_LIGHTGUARDIAN_SIZES 1
#endif
#ifndef NS_LIGHTGUARDIAN_GAPS
#define NS_LIGHTGUARDIAN_GAPS 1
#endif
#ifndef NS_LIGHTGUARDIAN_CHANCES
#define NS_LIGHTGUARDIAN_CHANCES 4
#endif
// The numbers of intervals that set_bank distinguishes; the lowest bit selects the sketch.
#define NS_BANKS 256

#include "include/switch.p4"
