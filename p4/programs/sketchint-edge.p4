// SPDX-License-Identifier: Apache-2.0
// SketchINT's edge switch: sketchint.p4 with towers at the sink, of 10,240 and 12,288 bytes.

#define NS_WITH_SKETCHINT
#define NS_WITH_SKETCHINT_TOWERS
#ifndef NS_SKETCHINT_DSCP
#define NS_SKETCHINT_DSCP 0x17
#endif
#define NS_SKETCHINT_FLOW_CELLS 512
#define NS_SKETCHINT_LATENCY_CELLS 1024

#include "include/switch.p4"
