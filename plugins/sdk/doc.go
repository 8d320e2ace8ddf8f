// SPDX-License-Identifier: Apache-2.0

// Package sdk is what the author of a netsketch plugin imports.
//
// A plugin is a program of its own whose main function calls Serve with a value
// that implements Plugin:
//
//	func main() { sdk.Serve(&hello{}) }
//
// The collector starts the program, asks what it is (Describe), hands it
// configuration and network (Configure), and then calls Analyse once per epoch
// with what the epoch's devices and hosts recorded. What Analyse returns, tables
// of results and a plan for a coming epoch, the collector publishes and carries
// out. A plugin does no input or output of its own: it may be killed and started
// again at any moment, and what it loses then is its memory of earlier epochs.
//
// Optional parts are optional interfaces: Querier, Watcher, Merger, Drainer,
// NetworkUpdater. Describe need not name them, Serve finds them.
//
// # Concurrency
//
// Describe, Configure, Analyse, NetworkChanged and WatchesChanged are called one
// at a time, in the order in which the collector sent them, so a plugin needs no
// locks of its own for them. Query, Merge and Drain may be called at any time, beside
// a running Analyse, and must guard what they share with it.
//
// # Time
//
// Analyse's context ends when the epoch's time budget is used up or nobody waits
// for the results any more. A plugin that has not returned soon after is killed.
package sdk
