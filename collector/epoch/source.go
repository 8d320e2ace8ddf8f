// SPDX-License-Identifier: Apache-2.0

package epoch

import (
	"context"
	"time"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// Sealing states what ends an epoch at a source.
type Sealing uint8

// The ways to seal.
const (
	// SealedByCollector: the engine calls Part.Seal at the boundary, on all these sources at the
	// same time, and collects after the guard. Example: a switch whose bank the collector sets.
	SealedByCollector Sealing = iota + 1
	// SealedByPackets: each packet carries its epoch, which selects the bank that counts it. The
	// engine does not seal; it collects after the guard. At the opening, Collect begins to count.
	// Example: OmniMon's switches (OmniMon, section 5.3).
	SealedByPackets
	// SealedBySource: the source ends the epoch by its own clock and reports. The engine does not
	// seal; Part.Collect waits for the report. Example: a host agent.
	SealedBySource
	// DeviceElsewhere and HostElsewhere: another collector of the cluster seals a switch or a host,
	// collects from it and sends what it measured. The engine does not seal; Part.Collect waits for
	// that.
	DeviceElsewhere
	HostElsewhere
)

// IsHost reports whether the source is a host.
func (s Sealing) IsHost() bool { return s == SealedBySource || s == HostElsewhere }

// IsElsewhere reports whether another collector collects from the source.
func (s Sealing) IsElsewhere() bool { return s == DeviceElsewhere || s == HostElsewhere }

// Source is what an epoch collects from.
type Source interface {
	// Name identifies the source; constant.
	Name() string
	// Sealing states how the source is sealed; constant.
	Sealing() Sealing
	// Begin starts a boundary. It returns at once and does no input or output. warnings are the
	// known reasons why the ending epoch may be inexact, also at other sources.
	Begin(b Boundary) (part Part, warnings []string)
}

// Boundary is the end of one epoch and the start of the next.
type Boundary struct {
	// Number is the number of the epoch that ends; epoch Number+1 begins.
	Number uint64
	// Opening is set if no epoch ends, because epoch Number+1 is the first one. What was measured
	// before is discarded. Sources that seal themselves, or that another collector collects, are not
	// collected.
	Opening bool
}

// Part is what one source does at one boundary. The engine calls Seal and Collect at most once
// each, one after the other, in a goroutine of its own. They may go on after the deadline, even
// during later boundaries; the engine does not wait for them.
type Part interface {
	// Seal ends the epoch at the source: packets that arrive after it returned count in the next
	// epoch. Its error is the reason for which the source is missing from the epoch; Collect is not
	// called then. ctx ends when the engine stops waiting for seals. Only called for
	// SealedByCollector.
	Seal(ctx context.Context) error
	// Collect returns what the source measured in the epoch. ctx ends at the deadline. Before it
	// reads cells that packets in flight may still change, it calls drained once.
	Collect(ctx context.Context, drained Drained) (Result, error)
}

// Drained waits until no packet of the epoch is in flight, or until ctx ends, and then returns
// ctx's error.
type Drained = func(ctx context.Context) error

// Result is what a source returns at a boundary. Warnings, LateWarnings and Late count even if
// Collect fails.
type Result struct {
	// Reading is what was measured in the epoch.
	Reading *Reading
	// Began is when a host began the next epoch, on the clock of the epochs; the zero time if it is
	// not known.
	Began time.Time
	// Warnings are reasons why the epoch may be inexact.
	Warnings []string
	// Flips are those of another collector that sent the reading; nil: there was none.
	Flips *Flips
	// LateWarnings are reasons why epochs that were delivered before may be inexact. The engine sets
	// Source.
	LateWarnings []LateWarning
	// Late are reports of earlier epochs that arrived since the last boundary. The engine sets
	// Source.
	Late []Report
}

// Report is what a source measured in an epoch that was delivered before the report arrived.
type Report struct {
	// Epoch is the number of the epoch that the report belongs to.
	Epoch uint64
	// Source is the name of the source.
	Source string
	// Reading is what was measured.
	Reading *Reading
}

// Reading is what a source measured in one epoch.
type Reading struct {
	// Objects are the registers of a switch, sorted by name.
	Objects []sdk.Cells
	// Hosts are the reports of the roles of a host, sorted by role.
	Hosts []HostReport
	// Merged are the merges that registers of another collector's switch are part of.
	Merged []*Merged
	// Release, if set, returns the memory of Objects to the source for a later epoch. Whoever knows
	// that nothing uses Objects any more may call it, once. A reading that it is not called for is
	// left to the garbage collector.
	Release func()
}

// Merged is a set of switches whose registers a plugin merged. They have a meaning together only.
type Merged struct {
	Plugin  string
	Devices []string
}

// HostReport is what one role of a host measured.
type HostReport struct {
	// Role is the name of the role.
	Role string
	// Data is the report in the format that the role defines.
	Data []byte
	// Err is why there is no report; nil if there is one.
	Err error
}

// Cells is the number of cells in all objects.
func (r *Reading) Cells() int {
	n := 0
	for _, o := range r.Objects {
		n += o.Len()
	}
	return n
}
