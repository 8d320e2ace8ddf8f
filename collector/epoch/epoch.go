// SPDX-License-Identifier: Apache-2.0

// Package epoch divides time into epochs and collects the measurements of all sources in each.
//
// A Source is a switch or a host; it states how it is sealed (Sealing). At each boundary the engine
// takes every source through the same phases:
//
//	begin    the source receives the number of the epoch that ends
//	seal     sources sealed by the collector start to count in the next epoch
//	settle   the guard passes: packets leave the pipelines
//	collect  sources are read, or report; the drain passes before cells are read that packets in
//	         flight may still change
//	deliver  at the deadline at the latest: the epoch is complete, partial or lost
//
// A slow or failed source makes epochs partial and delays nothing:
//
//   - Each source has a goroutine of its own at each boundary. At the deadline the epoch is
//     delivered with what has arrived.
//   - Every source is sealed at every boundary, so that all stay in step, even if it has not been
//     collected.
//   - A host's report that arrives after its epoch was delivered (Engine.Late) is delivered with a
//     later epoch (Epoch.Late), up to Config.LateEpochs later. Older reports are dropped and
//     counted. The cells of a switch that is read after the deadline are discarded.
//   - AccuracyWarnings are reasons why an epoch may be inexact although its data arrived.
//
// All waits use monotonic time. If the time of day is set, the epoch of that moment keeps its
// length, the next one ends at an aligned boundary of the new time, and both have an accuracy
// warning; numbers go on without a gap. If the time of day is slewed, boundaries follow it.
//
// Run drives the boundaries of a Clock. An emulation on virtual time calls Open and Close itself
// and decides what happens between them.
//
// # Concurrency
//
// Methods of Engine may be called from any goroutine, except that Open, Close and Run must not
// overlap. Shutdown waits for every goroutine that the engine started.
package epoch

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// Why a source is missing from an epoch. Other errors are the source's own.
var (
	// ErrJoining means that the source did not take part from the start of the epoch.
	ErrJoining = errors.New("joined during the epoch")
	// ErrStale is wrapped by a source's error if its data also covers an earlier epoch.
	ErrStale = errors.New("also holds data of an earlier epoch")
	// ErrLate means that the source was not collected before the deadline.
	ErrLate = errors.New("not read before the deadline")
)

// Status states for how many sources an epoch has data.
type Status uint8

// The states of an epoch.
const (
	// Complete epochs have data of every source. An epoch without sources is complete.
	Complete Status = iota + 1
	// Partial epochs lack the data of some sources.
	Partial
	// Lost epochs have data of no source.
	Lost
)

// String is "COMPLETE", "PARTIAL" or "LOST".
func (s Status) String() string {
	switch s {
	case Complete:
		return "COMPLETE"
	case Partial:
		return "PARTIAL"
	case Lost:
		return "LOST"
	}
	return "unknown"
}

// AccuracyWarning is a reason why results of an epoch may be inexact although its data arrived:
// packets of another epoch may be counted in it, or packets of the epoch may be missing.
type AccuracyWarning struct {
	// Source is the name of the source that causes the warning; empty if it concerns all sources.
	Source string
	// Reason is a text for the operator.
	Reason string
}

// LateWarning is a reason why an epoch that was already delivered may be inexact.
type LateWarning struct {
	// Epoch is the number of the epoch.
	Epoch uint64
	AccuracyWarning
}

// Outcome is the result of one source in one epoch.
type Outcome struct {
	// Name is the source's name.
	Name string
	// Sealing states how the source is sealed.
	Sealing Sealing
	// Err is the reason why the reading is missing; nil if there is a reading. It is one of this
	// package's errors or the source's own error.
	Err error
	// Reading holds the source's measurements.
	Reading *Reading
	// Began is when a host began the next epoch; the zero time if it is not known.
	Began time.Time
	// Flip is the duration of the seal. Read is the duration of the collection without the wait for
	// the network to drain. Each is zero if the phase did not take place.
	Flip, Read time.Duration
}

// Timings are the parts of the time from the end of an epoch to its delivery.
type Timings struct {
	// Late is the time from the boundary to the first seal request: the collector's own delay.
	Late time.Duration
	// Flip is the time from the boundary to the last acknowledged seal, or until the engine stopped
	// waiting for seals.
	Flip time.Duration
	// Skew is the time between the first and the last acknowledged seal of all collectors. Its
	// accuracy depends on how well the collectors' clocks agree.
	Skew time.Duration
	// Flips are this collector's seals; nil if it sealed no source.
	Flips *Flips
	// Wait is the time from the last seal to the start of the read-out.
	Wait time.Duration
	// Read is the time from the start of the read-out to the last source collected, or to the
	// deadline.
	Read time.Duration
	// Drain is the part of Read before the network had drained; zero if no source waited for the
	// drain.
	Drain time.Duration
}

// Flips are the first and the last acknowledged seal of some switches, each as the time since the
// boundary on the epochs' clock.
type Flips struct{ First, Last time.Duration }

// with returns the earliest and the latest flip of f and other, either of which may be nil.
func (f *Flips) with(other *Flips) *Flips {
	switch {
	case f == nil:
		return other
	case other == nil:
		return f
	}
	return &Flips{min(f.First, other.First), max(f.Last, other.Last)}
}

// apart returns the time between the first and the last flip; 0 if f is nil.
func (f *Flips) apart() time.Duration {
	if f == nil {
		return 0
	}
	return f.Last - f.First
}

// Epoch is one epoch with the results of its sources.
type Epoch struct {
	// Number counts from 1 at the origin.
	Number uint64
	// Start is the first instant of the epoch and End the first instant of the next one, as times of
	// day.
	Start, End time.Time
	// Status states for how many sources the epoch has data.
	Status Status
	// Sources has one outcome per source, sorted by name.
	Sources []Outcome
	// Warnings are the reasons why the epoch may be inexact.
	Warnings []AccuracyWarning
	// LateWarnings are reasons, found since the last delivery, why earlier epochs may be inexact.
	LateWarnings []LateWarning
	// Late are reports of hosts on earlier epochs that arrived since the last delivery, in order of
	// arrival.
	Late []sdk.LateReport
	// Dropped is the number of reports that arrived more than Config.LateEpochs epochs late, since
	// the last delivery.
	Dropped uint64
	// Skipped is the number of epochs before this one that were not sealed because the collector
	// did not run.
	Skipped uint64
	// Timings are the parts of the time from End to Closed.
	Timings Timings
	// Open is the epoch that was open when this one was collected.
	Open uint64
	// Closed is when the epoch was ready for delivery.
	Closed time.Time
}

// AllWarnings returns the warnings of this epoch and the late warnings of earlier epochs, whose
// reasons name the epoch.
func (e *Epoch) AllWarnings() []AccuracyWarning {
	all := slices.Clone(e.Warnings)
	for _, w := range e.LateWarnings {
		w.Reason = fmt.Sprintf("epoch %d: %s", w.Epoch, w.Reason)
		all = append(all, w.AccuracyWarning)
	}
	return all
}
