// SPDX-License-Identifier: Apache-2.0
// Forwarding only: a switch without measurement.

#include "include/switch.p4"
