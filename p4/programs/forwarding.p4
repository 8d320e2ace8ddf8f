// SPDX-License-Identifier: Apache-2.0
// Forwarding alone: a switch that measures nothing.

#include "include/switch.p4"
