// SPDX-License-Identifier: Apache-2.0

// Package outputs says what an output is: a way for results to leave, fed by the
// store. The kinds of output are in folders of their own (gnmi, influxdb), which do
// not know each other; the program makes those that its configuration names and
// hands them to a Group.
//
// Concurrency: Output.Start is called once, and then Output.Run once, from any
// goroutine; Output.State may be called at any time from any goroutine.
package outputs

import (
	"context"

	"github.com/netsketch/netsketch/collector/store"
)

// Output delivers what is in the store, or published to it, to somebody.
type Output interface {
	// Name is the output's name in the configuration.
	Name() string
	// Type is the kind of output: "gnmi", "influxdb".
	Type() string
	// Start takes what the output needs: its port, its files, a tap of the store.
	// It does not wait for the far end. What is published after it has returned is
	// delivered. An error says what could not be had.
	Start(s *store.Store) error
	// Run delivers until ctx ends, and then stops in order: nothing that it took from
	// the store is lost without being counted. It returns nil for an orderly stop and
	// otherwise why it could not go on.
	Run(ctx context.Context) error
	// State is how the output is doing.
	State() State
}

// Status is the state of an output in a word, as /collector/outputs/output/state/status
// has it.
type Status string

// The states of an output.
const (
	Up      Status = "up"      // delivers
	Down    Status = "down"    // the far end is away; what arrives is queued
	Refused Status = "refused" // the far end refuses the credentials or does not have what the settings name
	Stopped Status = "stopped" // has ended
)

// State is what an output says of itself. The counters count what the output sends,
// leaf updates for gNMI and points for a database, from its start.
type State struct {
	Status    Status
	Sent      uint64 // delivered
	Dropped   uint64 // given up: refused by the far end, over a bound, too old
	Queued    uint64 // waiting, in memory and on disk
	Spooled   uint64 // bytes waiting on disk
	LastError string // newest error; empty when there was none
}
