// SPDX-License-Identifier: Apache-2.0
// A switch that forwards packets and counts them with the control in own.p4.

#define NS_WITH_OWN
#define NS_OWN "own.p4"
// The fields of meta.own: what a packet needs while own.p4 processes it.
#define NS_OWN_FIELDS \
    bit<32> cell; bit<32> count; bit<32> hash; bit<32> other_cell; bit<32> other_count; \
    bit<32> other_hash; bit<32> draw; bit<8> hit;

#include "switch.p4"
