// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/netsketch/netsketch/hostagent/omnimon/query"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/yang/table"
)

// The kinds of units: those in egress match the queue depth as well.
const (
	inIngress = iota
	inEgress
	kinds
)

// findUnits returns the filter tables of a register's units, by the kind and number of the unit.
func findUnits(o *sdk.Object) (filters [kinds][]string, err error) {
	for kind, a := range [kinds][2]string{{"units", "filters"}, {"queue_units", "queue_filters"}} {
		if o.Annotations[annotation][a[0]] == "" {
			continue
		}
		n := 0
		if err := number(o, a[0], &n); err != nil {
			return filters, err
		}
		template := o.Annotations[annotation][a[1]]
		if n < 0 || n > 256 || n > 0 && !strings.Contains(template, "%") {
			return filters, fmt.Errorf("annotations %s and %s of %s are %d and %q", a[0], a[1], o.Name, n, template)
		}
		for i := range n {
			filters[kind] = append(filters[kind], strings.ReplaceAll(template, "%", strconv.Itoa(i)))
		}
	}
	return filters, nil
}

// unitCount is the count of units of both kinds.
func (c *counts) unitCount() int { return len(c.units[inIngress]) + len(c.units[inEgress]) }

// use is the use of a unit of all switches by a value that a query adds up.
type use struct {
	Query uint64 // 0: the unit is free
	Value string // sequence and aggregate
	// From is the first epoch in which every packet met the entries.
	From    uint64
	Entries []query.Entry
	Adds    string
	// Plan is the plan that writes the entries, Failed the switch that did not apply it.
	Plan   uint64
	Failed string
}

// fail marks the uses whose entries a switch does not have.
func (p *Plugin) fail(outcomes []sdk.PlanOutcome) {
	for _, o := range outcomes {
		for _, uses := range p.uses {
			for i := range uses {
				if o.Status != sdk.PlanApplied && uses[i].Plan == o.Plan {
					uses[i].Failed = o.Device
				}
			}
		}
	}
}

// assign gives units to the queries whose sequences run at switches, and returns the changes of
// filters from an epoch on. A query that finds too few free units gets a problem.
func (p *Plugin) assign(s *setup, queries []*running, from uint64) (writes []sdk.DeviceWrite) {
	for kind := range kinds {
		writes = append(writes, p.assignKind(s, kind, queries, from)...)
	}
	return writes
}

func (p *Plugin) assignKind(s *setup, kind int, queries []*running, from uint64) (writes []sdk.DeviceWrite) {
	before, total := p.uses[kind], s.units[kind]
	after := make([]use, max(total, len(before)))
	copy(after, before)
	type want struct {
		q     *running
		value string
		unit  query.Unit
	}
	var wanted []want
	held := map[int]bool{}
	for _, q := range queries {
		if q.problem != "" || q.kind != kind || slices.ContainsFunc(wanted, func(w want) bool { return w.q.id == q.id }) {
			continue
		}
		q.units = nil
		for i := range q.plan.Steps {
			units, ok := q.plan.Steps[i].Units()
			if !ok {
				continue
			}
			for _, u := range units {
				value := q.plan.Steps[i].Name + "." + u.Name
				if n := slices.IndexFunc(after, func(x use) bool { return x.Query == q.id && x.Value == value }); n >= 0 {
					held[n] = true
					q.units = append(q.units, n)
				} else {
					wanted = append(wanted, want{q, value, u})
				}
			}
		}
	}
	for i := range after {
		if !held[i] {
			after[i] = use{}
		}
	}
	for len(wanted) > 0 && (total > 0 || kind == inEgress) { // hosts run a query of ingress units in any case
		q := wanted[0].q
		n := slices.IndexFunc(wanted, func(w want) bool { return w.q != q })
		if n < 0 {
			n = len(wanted)
		}
		var free []int
		for i := range total {
			if after[i].Query == 0 {
				free = append(free, i)
			}
		}
		if n > len(free) {
			q.problem = shortage(kind, n, len(free), total)
		} else {
			for i, w := range wanted[:n] {
				after[free[i]] = use{Query: q.id, Value: w.value, From: from + 1, Entries: w.unit.Entries, Adds: w.unit.Adds,
					Plan: p.plans + 1}
				q.units = append(q.units, free[i])
			}
		}
		wanted = wanted[n:]
	}
	for i := range s.network.switches {
		w := &s.network.switches[i]
		if w.counts == nil {
			continue
		}
		for n := range min(len(w.counts.units[kind]), len(after)) {
			u := w.counts.units[kind][n]
			was := use{}
			if n < len(before) {
				was = before[n]
			}
			if now := after[n]; was.Query == now.Query && was.Value == now.Value {
				if from == 0 { // a switch may be new
					writes = append(writes, now.writes(w.name, u, sdk.Insert)...)
				}
				continue
			}
			writes = append(writes, was.writes(w.name, u, sdk.Delete)...)
			writes = append(writes, after[n].writes(w.name, u, sdk.Insert)...)
		}
	}
	p.uses[kind] = after
	return writes
}

// shortage describes too few free units.
func shortage(kind, needed, free, total int) string {
	switch {
	case kind == inIngress:
		return fmt.Sprintf("it needs %d more units of each switch, %d of %d are free: end another query first", needed,
			free, total)
	case total == 0:
		return "the field queue needs a unit in egress, and the program of a switch has none: compile it with " +
			"NS_OMNIMON_QUEUE_UNITS"
	}
	return fmt.Sprintf("it needs %d more units in egress of each switch, %d of %d are free: end another query with the "+
		"field queue first, or compile the program with more NS_OMNIMON_QUEUE_UNITS", needed, free, total)
}

// keys are the names and widths in bits of the keys of a filter, by the fields of queries.
var keys = map[string]struct {
	name string
	bits int
}{"src": {"src", 32}, "dst": {"dst", 32}, "proto": {"protocol", 8}, "sport": {"src_port", 16},
	"dport": {"dst_port", 16}, "length": {"length", 32}, "ttl": {"ttl", 8}, "window": {"window", 16},
	"flags": {"flags", 8}, "queue": {"queue", 19}}

// writes are the changes of the filter of a unit by its full name.
func (x *use) writes(device, filter string, op sdk.WriteOp) (out []sdk.DeviceWrite) {
	action := "add_one"
	if x.Adds != "" {
		action = "add_" + x.Adds
	}
	control := filter[:strings.LastIndex(filter, ".")+1]
	for i, e := range x.Entries {
		t := sdk.TableEntry{Table: filter, Priority: int32(len(x.Entries) - i), Action: control + action}
		for _, m := range e {
			k := keys[m.Field]
			all, bytes := uint64(1)<<k.bits-1, (k.bits+7)/8
			f := sdk.FieldMatch{Field: k.name, Value: bigEndian(m.Value, bytes), PrefixLen: -1}
			switch {
			case m.Field == "src" || m.Field == "dst" || m.Field == "flags":
				if m.Mask == 0 {
					continue
				}
				f.Mask = bigEndian(m.Mask, bytes)
			case m.Value == 0 && m.High == all:
				continue
			default:
				f.High = bigEndian(m.High, bytes)
			}
			t.Matches = append(t.Matches, f)
		}
		out = append(out, sdk.DeviceWrite{Device: device, Op: op, Entry: t})
	}
	return out
}

// sumUnits adds up the words of units over all slots.
func (c *counts) sumUnits(cells []uint32) (sums [kinds][]uint64) {
	ingress, all := len(c.units[inIngress]), make([]uint64, c.unitCount())
	for at := c.words - len(all); at < c.arrays*c.slots*c.words; at += c.words {
		for i := range all {
			all[i] += uint64(cells[at+i])
		}
	}
	sums[inIngress], sums[inEgress] = all[:ingress], all[ingress:]
	return sums
}

// countTable lists the counts of units.
func (r *run) countTable(answers []*answer) (*table.Table, error) {
	b := table.NewBuilder(countList)
	names, switches, values := b.TextKey("query/name"), b.TextKey("node"), b.TextKey("value")
	number, sum := b.Uint("state/unit"), b.Uint("state/sum")
	seen := map[string]bool{}
	for _, a := range answers {
		if seen[a.name] {
			continue
		}
		seen[a.name] = true
		for _, n := range a.units {
			for i := range r.switches {
				s := &r.switches[i]
				uses, units := r.uses[a.kind], s.units[a.kind]
				if n >= len(units) || n >= len(uses) || uses[n].Query != a.id || r.epoch.Number < uses[n].From {
					continue
				}
				names.Append(a.name)
				switches.Append(r.network.switches[i].name)
				values.Append(uses[n].Value)
				number.Append(uint64(n))
				sum.Append(units[n])
			}
		}
	}
	return b.Table()
}

// freeUnits is the count of units of a kind that no query uses.
func (r *run) freeUnits(kind int) (n int) {
	uses := r.uses[kind]
	for i := range r.setup.units[kind] {
		if i >= len(uses) || uses[i].Query == 0 {
			n++
		}
	}
	return n
}

// checkUses refuses a saved use that no version of the plugin has written.
func checkUses(uses []use) error {
	for i := range uses {
		for _, e := range uses[i].Entries {
			for _, m := range e {
				if _, ok := keys[m.Field]; !ok {
					return fmt.Errorf("unit %s matches the field %q", strconv.Itoa(i), m.Field)
				}
			}
		}
	}
	return nil
}
