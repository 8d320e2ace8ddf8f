// SPDX-License-Identifier: Apache-2.0

// The results of an epoch: tables, plans and events.

package sdk

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/netsketch/netsketch/yang/table"
)

// Results are the results of an epoch.
type Results struct {
	// Tables of the same range are published together, and those of earlier ranges first.
	Tables []TableResult
	// End is the end of the range that the tables of later calls of Add measured; the zero time
	// means the end of the epoch.
	End time.Time
	// Plans apply to later epochs.
	Plans []Plan
	// Events are messages for the operator. They go to the collector's log.
	Events []Event
	// State is the saved state of a Stateful plugin. The SDK sets it.
	State *State
	// Stats are set by the SDK.
	Stats Stats

	err error
}

// Add takes what table.Builder.Table returns: a table that replaces all rows of its list, or an
// error, which Err returns.
func (r *Results) Add(t *table.Table, err error) {
	if err != nil {
		r.err = cmp.Or(r.err, err)
		return
	}
	r.Tables = append(r.Tables, TableResult{Table: t, Replace: true, End: r.End})
}

// Err returns the first error that was added.
func (r *Results) Err() error { return r.err }

// CutByRank bounds a list that consists of parts, such as one for each node, whose rows are in the
// order of rank. It cuts all parts to the same length, the largest with which the list has at most
// limit rows, and returns how many rows it leaves out. If there are more parts than limit, it keeps
// the first row of each part.
func CutByRank[T any](limit int, parts ...*[]T) (omitted uint64) {
	rank := func(part *[]T) int { return len(*part) }
	lengths := make([]int, 0, len(parts))
	for _, part := range parts {
		if len(*part) > 0 {
			lengths = append(lengths, len(*part))
		}
	}
	slices.Sort(lengths)
	kept := 0 // rows of the parts that are kept whole
	for i, n := range lengths {
		if others := len(lengths) - i; kept+n*others > limit {
			most := max((limit-kept)/others, min(limit, 1))
			rank = func(part *[]T) int { return min(len(*part), most) }
			break
		}
		kept += n
	}
	for _, part := range parts {
		n := rank(part)
		omitted += uint64(len(*part) - n)
		*part = (*part)[:n]
	}
	return omitted
}

// TableResult is one table of results.
type TableResult struct {
	// Target is the gNMI target: a device's name for data in that device's tree, or empty, as usual,
	// for the collector's tree.
	Target string
	// Table holds the rows; its list is among Description.Lists.
	Table *table.Table
	// Replace is set if the table replaces all rows of its list and target.
	Replace bool
	// End is the timestamp of the rows: the end of the range that they measured. The zero time
	// means the end of the epoch.
	End time.Time
}

// Range is the time that results are about, and how complete they are: the leaves of the grouping
// range in the module netsketch-results.
type Range struct {
	First, Last uint64    // epochs
	Start, End  time.Time // start of the first epoch, and end of the last one
	// Provisional is set if later results about the same epochs follow.
	Provisional bool
	Status      Status
	// Reason is why the results are not complete or not exact: a condition of netsketch-results. If
	// it is empty and there is a problem, it is INEXACT.
	Reason  string
	Problem string // the reason in words; empty if the results are complete and exact
}

// Conditions of netsketch-results that a Range has as its reason.
const (
	HostMissing   = "HOST_MISSING"
	SwitchMissing = "SWITCH_MISSING"
	Inexact       = "INEXACT"
)

// Condition is the condition that the data of the host or device is missing.
func (m *Missing) Condition() string {
	if m.Host {
		return HostMissing
	}
	return SwitchMissing
}

// Append adds the range to the only row of the table of a summary.
func (r *Range) Append(b *table.Builder) {
	b.Uint("state/first-epoch").Append(r.First)
	b.Uint("state/last-epoch").Append(r.Last)
	b.Uint("state/start-time").Append(uint64(max(r.Start.UnixNano(), 0)))
	b.Uint("state/end-time").Append(uint64(max(r.End.UnixNano(), 0)))
	b.Bool("state/final").Append(!r.Provisional)
	b.Text("state/status").Append(r.Status.String())
	reason := ""
	if r.Problem != "" {
		reason = cmp.Or(r.Reason, Inexact)
	}
	b.Text("state/reason").AppendSome(reason)
	b.Text("state/problem").AppendSome(r.Problem)
}

// Quality is what is known about the true value of a leaf: the type quality of the module
// netsketch-results, which describes each.
type Quality string

// Qualities of values.
const (
	Exact      Quality = "EXACT"
	LowerBound Quality = "LOWER_BOUND"
	UpperBound Quality = "UPPER_BOUND"
	Bounded    Quality = "BOUNDED"
	Estimate   Quality = "ESTIMATE"
)

// ExactIf is the quality of a value that is exact or an estimate.
func ExactIf(exact bool) Quality {
	if exact {
		return Exact
	}
	return Estimate
}

// Plus returns the quality of the sum of two values, of which the second may be absent: "".
func (q Quality) Plus(other Quality) Quality {
	switch {
	case q == Exact && other != "":
		return other
	case other == Exact, other == "", q == other:
		return q
	}
	return Estimate
}

// Stats are measurements of the analysis of an epoch.
type Stats struct {
	Duration   time.Duration // duration of Analyze
	InputBytes int           // size of cells and host reports
	Tables     int
	Rows       int
}

// Event is a message for the operator.
type Event struct {
	Level      slog.Level
	Message    string // one sentence, at most 1,024 bytes
	Attributes map[string]string
}

// Plan is a configuration of the network that applies from an epoch on.
type Plan struct {
	// ID identifies the plan in Epoch.States and Epoch.Plans. The plugin chooses it, unique among its
	// plans, even across restarts. If it is 0, the plugin receives no outcome.
	ID uint64 `json:"id,omitempty"`
	// FromEpoch is the first epoch that the plan applies to.
	FromEpoch uint64 `json:"fromEpoch"`
	// PreEpoch is set if only packets of FromEpoch's bank (Epoch.BankOf) match the entries of the
	// plan. The collector writes the entries before that epoch begins, after the previous epoch of
	// the bank has been read, on all devices or on none. If the plan arrives too late, it is not
	// written.
	//
	// Without PreEpoch the collector writes the plan right after the flip that begins FromEpoch, or
	// after the next flip if the plan arrives later.
	PreEpoch bool `json:"preEpoch,omitempty"`
	// Writes change table entries of devices. For each device, they are applied in this order.
	Writes []DeviceWrite `json:"writes,omitempty"`
	// Hosts are settings for host agents.
	Hosts []HostSetting `json:"hosts,omitempty"`
}

// PlanStatus is the outcome of a plan on a device.
type PlanStatus uint8

// Outcomes of a plan on a device.
const (
	// PlanApplied: all writes for the device are applied.
	PlanApplied PlanStatus = iota + 1
	// PlanLate: the plan arrived too late for its epoch; nothing was written.
	PlanLate
	// PlanFailed: the device refused the plan or did not reply. Writes that were applied have been
	// reverted, unless DeviceState.Mixed is set.
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

// PlanOutcome is the outcome of a plan on a device.
type PlanOutcome struct {
	Plan uint64 // Plan.ID
	// FromEpoch is Plan.FromEpoch. For a plan without PreEpoch, it is the first epoch to which the
	// plan actually applies.
	FromEpoch uint64
	Device    string
	Status    PlanStatus
	Reason    string // empty if applied
}

// WriteOp is the kind of a DeviceWrite.
type WriteOp uint8

// Kinds of writes.
const (
	// Insert adds an entry. If an earlier process left an entry with the same key, Insert changes
	// that entry's action.
	Insert WriteOp = iota + 1
	// Modify changes the action of an existing entry.
	Modify
	// Delete removes an entry; its action is ignored.
	Delete
	// SetDefault sets the default action of a table; matches are ignored.
	SetDefault
)

// DeviceWrite changes one table entry of one device.
type DeviceWrite struct {
	Device string     `json:"device"`
	Op     WriteOp    `json:"op"`
	Entry  TableEntry `json:"entry"`
}

// CloneSessions is the table of a switch's clone sessions, which say where copies of packets go
// that the switch's program makes. The key is the field "session", 1 to 32,767; the action "clone"
// has the parameter "port".
const CloneSessions = "clone-sessions"

// TableEntry is a P4 table entry by P4Info names (full names or aliases), or an entry of
// CloneSessions.
type TableEntry struct {
	Table    string        `json:"table"`
	Matches  []FieldMatch  `json:"matches,omitempty"` // an omitted field matches everything
	Priority int32         `json:"priority,omitempty"`
	Action   string        `json:"action,omitempty"`
	Params   []ActionParam `json:"params,omitempty"`
}

// FieldMatch matches one key field. Values are big-endian and may have any length up to the
// field's width.
type FieldMatch struct {
	Field string `json:"field"`
	Value []byte `json:"value"`          // low end of a range, or the value
	Mask  []byte `json:"mask,omitempty"` // mask of a ternary match
	High  []byte `json:"high,omitempty"` // high end of a range, inclusive
	// PrefixLen is the prefix length of an LPM match in bits; -1 for other kinds of match.
	PrefixLen int32 `json:"prefixLen"`
}

// ActionParam is the big-endian value of an action's parameter.
type ActionParam struct {
	Name  string `json:"name"`
	Value []byte `json:"value"`
}

// HostSetting is a setting for the agent of a host.
type HostSetting struct {
	Host string `json:"host,omitempty"` // empty means every host
	Role string `json:"role"`
	Data []byte `json:"data"` // empty withdraws the setting, which ends the role
	// Tail is the end of the setting, behind Data. Settings of many hosts share it: it is sent once
	// with a plan, and again to a host only if it has changed.
	Tail []byte `json:"tail,omitempty"`
}

// Whole returns the setting as the role receives it.
func (h *HostSetting) Whole() []byte {
	if len(h.Tail) == 0 {
		return h.Data
	}
	return slices.Concat(h.Data, h.Tail)
}
