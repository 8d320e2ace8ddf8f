// SPDX-License-Identifier: Apache-2.0

// Package sdk is the package that a netsketch plugin imports.
//
// A plugin is a program whose main function calls Serve with a value that implements Plugin:
//
//	func main() { sdk.Serve(&hello{}) }
//
// A plugin maps the cells of one epoch and its saved state to result tables and plans. The
// collector starts the program, reads its description (Describe), passes the configuration and the
// network (Configure) and then calls Analyze once for each epoch with the cells and reports of the
// devices and hosts. It publishes the tables that Analyze returns and applies the plans. A plugin
// does no input or output of its own: the collector may kill and restart it at any time, and only
// state that it saves (Stateful) survives.
//
// Optional parts of the contract are optional interfaces: Querier, NetworkUpdater, Merger, Stateful
// and Drainer. Serve detects them; Describe does not list them.
//
// # Concurrency
//
// Describe, Configure, Analyze, NetworkChanged, SaveState and RestoreState run one at a time, in
// the order of the collector's calls, so a plugin needs no locks among them. Query, Merge and
// Drain may run concurrently with Analyze, so they must guard the data that they share with it.
//
// # Time
//
// The context of Analyze ends at the deadline of the epoch, or when the collector cancels the
// epoch. The collector kills a plugin that does not return soon after.
package sdk
