// SPDX-License-Identifier: Apache-2.0

// Package kernel is SketchINT's host role in the Linux kernel: an XDP program that reads, measures
// and removes INT as package hostagent/sketchint does, and the part of the role that need not see
// packets. It stands for the NIC of the paper (section III, offloading to the NIC).
//
//	received ◀── stack ◀── XDP: program receive ◀── device
//	                    │
//	        two groups of maps, which Path exchanges at the end of an interval and reports
//
// A pinned program outlives the agent, and goes on to measure and to remove INT.
// docs/sketchint.md describes the data path.
package kernel
