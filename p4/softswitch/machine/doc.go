// SPDX-License-Identifier: Apache-2.0

// Package machine executes programs: State is the state of a loaded program (table entries,
// registers, counters, meters, members and groups), Packet a packet in execution, and Lane a thread
// of execution with its packets. The inner loops are in vm.go (instructions), table.go and
// ternary.go (lookups), and packet.go (extraction and deparsing).
//
// Concurrency: a Packet and its Lane belong to one goroutine at a time. The caller excludes control
// plane calls on a State from all lanes; packets of several lanes run concurrently.
package machine
