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
	// DeviceElsewhere and HostElsewhere: another collector of the cluster seals the switch or host,
	// collects from it and sends its readings. The engine does not seal; Part.Collect waits for the
	// readings.
	DeviceElsewhere
	HostElsewhere
)

// IsHost reports whether the source is a host.
func (s Sealing) IsHost() bool { return s == SealedBySource || s == HostElsewhere }

// IsElsewhere reports whether another collector collects from the source.
func (s Sealing) IsElsewhere() bool { return s == DeviceElsewhere || s == HostElsewhere }

// Source is a switch or host from which an epoch collects.
type Source interface {
	// Name identifies the source; constant.
	Name() string
	// Sealing states how the source is sealed; constant.
	Sealing() Sealing
	// Begin starts a boundary. It returns at once and does no input or output. warnings are the known
	// reasons why the ending epoch may be inexact; they may concern other sources, too.
	Begin(b Boundary) (part Part, warnings []string)
}

// Boundary is the end of one epoch and the start of the next.
type Boundary struct {
	// Number is the number of the epoch that ends; epoch Number+1 begins.
	Number uint64
	// Opening is set if no epoch ends, because epoch Number+1 is the first one. Data counted before
	// is discarded. The engine does not collect from sources that seal themselves or belong to
	// another collector.
	Opening bool
}

// Part is the work of one source at one boundary. The engine calls Seal and Collect at most once
// each, one after the other, in a goroutine of its own. They may go on after the deadline, even
// during later boundaries; the engine does not wait for them.
type Part interface {
	// Seal ends the epoch at the source: packets that arrive after Seal returned count in the next
	// epoch. If Seal fails, the source is missing from the epoch, the error is the reason, and
	// Collect is not called. ctx ends when the engine stops waiting for seals. The engine calls Seal
	// only if Sealing is SealedByCollector.
	Seal(ctx context.Context) error
	// Collect returns the source's measurements of the epoch. ctx ends at the deadline. Collect calls
	// drained once before it reads cells that packets in flight may still change.
	Collect(ctx context.Context, drained Drained) (Result, error)
}

// Drained waits until no packet of the epoch is in flight. If ctx ends first, it returns ctx's
// error.
type Drained = func(ctx context.Context) error

// Result is the outcome of a source at a boundary. Warnings and LateWarnings are used even if
// Collect fails.
type Result struct {
	// Reading holds the measurements of the epoch.
	Reading *Reading
	// Began is when a host began the next epoch, on the clock of the epochs; zero if the time is not
	// known.
	Began time.Time
	// Warnings are reasons why the epoch may be inexact.
	Warnings []string
	// Flips are the flips of the other collector that sent the reading; nil if the collector sealed
	// nothing.
	Flips *Flips
	// LateWarnings are reasons why epochs that were already delivered may be inexact. The engine sets
	// Source.
	LateWarnings []LateWarning
}

// Reading holds a source's measurements of one epoch.
type Reading struct {
	// Objects are the registers of a switch, sorted by name.
	Objects []sdk.Cells
	// Hosts are the reports of the roles of a host, sorted by role.
	Hosts []sdk.HostReport
	// MissingRoles holds, by role, why the report of a role of a host is missing.
	MissingRoles map[string]error
	// Merged describes the merges in which the registers of another collector's switch take part.
	Merged []*Merged
	// Release, if set, returns the memory of Objects to the source for a later epoch. It may be
	// called once, when nothing uses Objects any more. If it is never called, the garbage collector
	// frees the memory.
	Release func()
}

// Merged is a set of switches whose registers a plugin merged. A single switch's share of a merge
// has no meaning.
type Merged struct {
	Plugin  string
	Devices []string
}

// Cells is the number of cells in all objects.
func (r *Reading) Cells() int {
	n := 0
	for _, o := range r.Objects {
		n += o.Len()
	}
	return n
}
