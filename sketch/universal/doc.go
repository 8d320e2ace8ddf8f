// SPDX-License-Identifier: Apache-2.0

// Package universal is the universal sketch of UnivMon (Liu et al., SIGCOMM 2016): one structure in
// the data plane, from which many statistics are estimated afterwards.
//
// Each flow reaches sampling levels 0 to l, where l is the number of leading ones in a hash of its
// key, so level i receives half the flows of level i-1. A level has a Count sketch of its flows and
// a small table of their heaviest keys. As in the P4 program, a packet updates only the deepest
// level that its flow reaches. The sketch is linear, so the paper's level i is exactly the sum over
// the levels from i on.
//
// A Sketch holds the registers of one bank, bit for bit as p4/programs/include/univmon.p4 does. A
// Reading holds the contents of one bank, or of several banks that were added (switches) or
// subtracted (epochs). An Estimate answers questions about a Reading: sizes of flows, heavy
// hitters, and sums of any function g of the flows' sizes (the paper's G-sum, Algorithm 2).
//
// Readings and Estimates can be used by several goroutines as long as none changes
// them; a Sketch by one at a time.
package universal
