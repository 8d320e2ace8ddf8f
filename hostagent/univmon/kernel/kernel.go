// SPDX-License-Identifier: Apache-2.0

// Package kernel is UnivMon's host role in the Linux kernel: TCX programs that count packets in the
// sketches of package hostagent/univmon and change none, and the part of the role that need not see
// packets.
//
//	received ◀── stack ◀── TCX: program receive ◀── device
//	                             │
//	           two groups of cells for each processor
//	                             │
//	sent ──────▶ stack ──▶ TCX: program send ─────▶ device
//
// docs/univmon.md describes the data path.
package kernel
