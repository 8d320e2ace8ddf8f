// SPDX-License-Identifier: Apache-2.0

// Package omnimon tests OmniMon as a whole: the data path of hosts, a model of its switches and the
// collective analysis.
package omnimon
