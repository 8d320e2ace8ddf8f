// SPDX-License-Identifier: Apache-2.0

// Package outputs defines outputs, which deliver results from the store. The types of output are
// packages of their own (gnmi, influxdb), independent of each other; package all creates the
// outputs of a configuration as a Group.
//
// Concurrency: Output.Start is called once, and then Output.Run once, from any goroutine;
// Output.State may be called at any time from any goroutine.
package outputs

import (
	"context"

	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/yang/bindings"
)

// Output delivers results from the store to clients or to a database.
type Output interface {
	// Name returns the output's name in the configuration.
	Name() string
	// Type returns the type of output: "gnmi", "influxdb".
	Type() string
	// Start acquires the resources of the output: its port, its files, a tap of the store. It does not
	// wait for the remote end. Batches published after Start are delivered.
	Start(s *store.Store) error
	// Run delivers until ctx ends, and then stops in order: everything taken from the store is
	// delivered, kept for the next start, or counted as dropped. The error says why the output ended
	// early.
	Run(ctx context.Context) error
	// State returns the current state.
	State() State
}

// Status is the value of /collector/outputs/output/state/status.
type Status = bindings.E_Output_Status

// The states of an output.
const (
	Up      = bindings.Output_Status_UP      // delivers
	Down    = bindings.Output_Status_DOWN    // the remote end is unreachable; results are queued
	Refused = bindings.Output_Status_REFUSED // the remote end refuses the settings; results are queued
	Stopped = bindings.Output_Status_STOPPED // has ended
)

// State is the state of an output. The counters count leaf updates for gNMI and points for a
// database. They start with the output; Dropped includes points that were dropped on disk before a
// restart.
type State struct {
	Status    Status
	Sent      uint64 // delivered
	Dropped   uint64 // refused by the remote end, over a bound, or too old
	Queued    uint64 // points in memory and on disk
	Spooled   uint64 // bytes on disk
	LastError string // empty without an error
	// Serves is set if clients connect to the output. Clients is their state.
	Serves  bool
	Clients Clients
}

// Clients is the state of an output that clients connect to. The first four are
// current numbers, the others count since the start.
type Clients struct {
	Connections, Streams, StreamsWaiting, Gets int

	ConnectionsRefused, LoginsRefused, StreamsRefused, GetsRefused, PathsRefused, RequestsRefused uint64
}
