// SPDX-License-Identifier: Apache-2.0
// SketchINT's edge switch: sketchint.p4 with towers at the sink, by default of the paper's 192 KiB
// (section VI-A), in rows of a multiple of 256 cells of 4 bytes: 5 rows of flows, 3 of latencies.

#define NS_WITH_SKETCHINT
#define NS_WITH_SKETCHINT_TOWERS
#ifndef NS_SKETCHINT_DSCP
#define NS_SKETCHINT_DSCP 0x17
#endif
#ifndef NS_SKETCHINT_FLOW_CELLS
#define NS_SKETCHINT_FLOW_CELLS 9728
#endif
#ifndef NS_SKETCHINT_LATENCY_CELLS
#define NS_SKETCHINT_LATENCY_CELLS 16384
#endif

#include "include/switch.p4"
