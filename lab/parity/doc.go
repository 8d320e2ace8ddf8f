// SPDX-License-Identifier: Apache-2.0

// Package parity compares the data plane with its model in Go: its test runs the same packets
// through the compiled P4 programs on the soft switch and through sketch/universal, and compares
// every register cell. ChameleMon's registers are compared with sketch/tower and sketch/fermat,
// which also decode the lost packets from them. Another test runs real packets through the switch
// and the UnivMon plugin and compares the results with the ground truth. The decoder of host agents
// reads INT that switches write. The network-wide results of plugins in a cluster of collectors are
// compared with the results of one collector.
package parity
