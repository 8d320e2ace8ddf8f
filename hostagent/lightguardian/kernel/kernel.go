// SPDX-License-Identifier: Apache-2.0

// Package kernel is LightGuardian's host role in the Linux kernel: an XDP program that removes
// sketchlets as package hostagent/lightguardian does, and the part of the role that need not see
// packets. It stands for the kernel module of the paper (section 7.2).
//
//	received ◀── stack ◀── XDP: program receive ◀── device
//	                    │        │
//	        two groups of counts └── sketchlets: a buffer that Path reads
//	                    │
//	sent ──▶ stack ──▶ TCX: program send ──▶ device
//
// Pinned programs outlive the agent: they go on to remove sketchlets, and the next agent reports
// what their maps hold. docs/lightguardian.md describes the data path.
package kernel
