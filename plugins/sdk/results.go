// SPDX-License-Identifier: Apache-2.0

// What a plugin makes of an epoch.

package sdk

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/netsketch/netsketch/yang/table"
)

// Results is what Analyse returns.
type Results struct {
	// Tables are the results. They are published together.
	Tables []TableResult
	// Plans are for coming epochs.
	Plans []Plan
	// Events are things to tell the operator; they go to the collector's log.
	Events []Event
	// State is filled in by the SDK for a plugin that is Stateful.
	State *State
	// Stats is filled in by the SDK.
	Stats Stats
}

// Add appends a table. With replace it takes the place of all rows that its list
// had; without, rows with the same keys are overwritten and the others stay.
func (r *Results) Add(t *table.Table, replace bool) {
	r.Tables = append(r.Tables, TableResult{Table: t, Replace: replace})
}

// TableResult is one table of results.
type TableResult struct {
	// Target is the gNMI target: a device's name for data of that device's own
	// tree, empty (as nearly always) for the collector's tree.
	Target string
	// Table holds the rows; its list is among Description.Lists.
	Table *table.Table
	// Replace: the table takes the place of all rows of its list and target.
	Replace bool
}

// Stats is what the work on an epoch took.
type Stats struct {
	Duration   time.Duration // of Analyse
	InputBytes int           // cells and host reports
	Tables     int
	Rows       int
}

// Event is something to tell the operator.
type Event struct {
	Level      slog.Level
	Message    string // one sentence, at most 1,024 bytes
	Attributes map[string]string
}

// Plan is what the network shall do from an epoch on.
type Plan struct {
	// ID is the plugin's number for the plan, by which Epoch.States and Epoch.Plans
	// tell what became of it: one that no other of its plans has, across restarts.
	// 0: the plugin need not be told.
	ID uint64 `json:"id,omitempty"`
	// FromEpoch is the first epoch for which it holds.
	FromEpoch uint64 `json:"fromEpoch"`
	// Ahead: all writes are to entries that only packets of FromEpoch's bank match
	// (Epoch.BankOf). They are done before that epoch begins, as soon as the epoch
	// that had the bank before has been read to the end, on all devices or on none.
	// A plan that cannot be written in that time is late, and not written at all.
	//
	// Without it the plan is written right after the flip that begins FromEpoch, or,
	// where it comes too late for that, after the next flip.
	Ahead bool `json:"ahead,omitempty"`
	// Writes go into devices' tables, in this order per device.
	Writes []DeviceWrite `json:"writes,omitempty"`
	// Hosts are settings for host agents.
	Hosts []HostSetting `json:"hosts,omitempty"`
}

// PlanStatus says what became of a plan.
type PlanStatus uint8

// What becomes of plans.
const (
	// PlanApplied: all of its writes for the device are done.
	PlanApplied PlanStatus = iota + 1
	// PlanLate: it came too late for its epoch; nothing of it was written.
	PlanLate
	// PlanFailed: the device refused it or did not answer. What was written of it was
	// taken back, unless DeviceState.Mixed says otherwise.
	PlanFailed
)

// String returns "applied", "late" or "failed".
func (s PlanStatus) String() string {
	switch s {
	case PlanApplied:
		return "applied"
	case PlanLate:
		return "late"
	case PlanFailed:
		return "failed"
	}
	return fmt.Sprintf("status(%d)", uint8(s))
}

// PlanOutcome is what became of a plan on a device.
type PlanOutcome struct {
	Plan uint64 // Plan.ID
	// FromEpoch is Plan.FromEpoch; of a plan that is not Ahead, the epoch from which
	// it really holds.
	FromEpoch uint64
	Device    string
	Status    PlanStatus
	Reason    string // empty when applied
}

// WriteOp is the kind of a DeviceWrite.
type WriteOp uint8

// The kinds of write.
const (
	// Insert adds an entry. Where one with the same key exists, from an earlier life
	// of the plugin or of the collector, its action is changed.
	Insert WriteOp = iota + 1
	// Modify changes the action of an entry that exists.
	Modify
	// Delete removes an entry; its action does not count.
	Delete
	// SetDefault sets a table's default action; matches do not count.
	SetDefault
)

// DeviceWrite changes one table entry of one device.
type DeviceWrite struct {
	Device string     `json:"device"`
	Op     WriteOp    `json:"op"`
	Entry  TableEntry `json:"entry"`
}

// TableEntry is a P4 table entry by P4Info names (full names or aliases).
type TableEntry struct {
	Table    string        `json:"table"`
	Matches  []FieldMatch  `json:"matches,omitempty"` // a field left out matches everything
	Priority int32         `json:"priority,omitempty"`
	Action   string        `json:"action,omitempty"`
	Params   []ActionParam `json:"params,omitempty"`
}

// FieldMatch matches one key field. Values are big-endian, of any length up to
// the field's width.
type FieldMatch struct {
	Field string `json:"field"`
	Value []byte `json:"value"`          // of a range the low end
	Mask  []byte `json:"mask,omitempty"` // of a ternary match
	High  []byte `json:"high,omitempty"` // of a range, included
	// PrefixLen is the length of an LPM match in bits; -1 for other kinds.
	PrefixLen int32 `json:"prefixLen"`
}

// ActionParam is the value of an action's parameter, big-endian.
type ActionParam struct {
	Name  string `json:"name"`
	Value []byte `json:"value"`
}

// HostSetting is a setting for the agent of a host.
type HostSetting struct {
	Host string `json:"host,omitempty"` // empty: every host
	Role string `json:"role"`
	Data []byte `json:"data"`
}
