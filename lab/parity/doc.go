// SPDX-License-Identifier: Apache-2.0

// Package parity holds the data plane and its mirror together: its test runs the same
// packets through the compiled P4 programs on the soft switch and through
// sketch/universal, and compares every register cell.
package parity
