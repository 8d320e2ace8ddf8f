// SPDX-License-Identifier: Apache-2.0

// Package ports has the ports of a switch, with their states and counters, and their egress queues.
//
// Concurrency: the methods of Set and Queue may be called from any goroutine.
package ports
