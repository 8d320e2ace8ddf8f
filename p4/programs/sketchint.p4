// SPDX-License-Identifier: Apache-2.0
// SketchINT's switch: source, transit and sink of INT-MD version 2.1 over TCP and UDP. The DSCP
// that marks packets with INT is a parameter: p4c-bm2-ss -DNS_SKETCHINT_DSCP=0x17 ...

#define NS_WITH_SKETCHINT
#ifndef NS_SKETCHINT_DSCP
#define NS_SKETCHINT_DSCP 0x17
#endif

#include "include/switch.p4"
