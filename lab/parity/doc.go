// SPDX-License-Identifier: Apache-2.0

// Package parity holds the data plane and its mirror together: its test runs the same
// packets through the compiled P4 programs on the soft switch and through
// sketch/universal, and compares every register cell. ChameleMon's are compared with
// sketch/tower and sketch/fermat, which decode the lost packets from them besides. Another
// one runs real packets through the switch and the UnivMon plugin and compares the
// results with the ground truth. INT that switches write is read by the decoder of host agents. The
// network-wide results of plugins in a cluster of collectors are compared with those of one
// collector.
package parity
