// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/netsketch/netsketch/plugins/omnimon/query"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/yang/table"
)

// findUnits returns the filter tables of the units of a register of counts, by number.
func findUnits(o *sdk.Object) (filters []string, err error) {
	if o.Annotations["units"] == "" {
		return nil, nil
	}
	n := 0
	if err := number(o, "units", &n); err != nil {
		return nil, err
	}
	template := o.Annotations["filters"]
	if n < 0 || n > 256 || n > 0 && !strings.Contains(template, "%") {
		return nil, fmt.Errorf("annotations units and filters of %s are %d and %q", o.Name, n, template)
	}
	for i := range n {
		filters = append(filters, strings.ReplaceAll(template, "%", strconv.Itoa(i)))
	}
	return filters, nil
}

// use is the use of a unit of all switches by a value that a query adds up.
type use struct {
	Query uint64 // 0: the unit is free
	Value string // sequence and aggregate
	// From is the first epoch in which every packet met the entries.
	From    uint64
	Entries []query.Entry
	Adds    string
}

// assign gives units to the queries whose sequences run at switches, and returns the changes of
// filters from an epoch on. A query that finds too few free units gets a problem.
func (p *Plugin) assign(s *setup, queries []*running, from uint64) (writes []sdk.DeviceWrite) {
	before := p.uses
	after := make([]use, max(s.units, len(before)))
	copy(after, before)
	type want struct {
		q     *running
		value string
		unit  query.Unit
	}
	var wanted []want
	held := map[int]bool{}
	for _, q := range queries {
		if q.problem != "" || slices.ContainsFunc(wanted, func(w want) bool { return w.q.id == q.id }) {
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
	for len(wanted) > 0 && s.units > 0 {
		q := wanted[0].q
		n := slices.IndexFunc(wanted, func(w want) bool { return w.q != q })
		if n < 0 {
			n = len(wanted)
		}
		var free []int
		for i := range s.units {
			if after[i].Query == 0 {
				free = append(free, i)
			}
		}
		if n > len(free) {
			q.problem = fmt.Sprintf("it needs %d more units of each switch, %d of %d are free: end another query first", n,
				len(free), s.units)
		} else {
			for i, w := range wanted[:n] {
				after[free[i]] = use{q.id, w.value, from + 1, w.unit.Entries, w.unit.Adds}
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
		for n := range min(len(w.counts.units), len(after)) {
			u := w.counts.units[n]
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
	p.uses = after
	return writes
}

// keys are the names and sizes in bytes of the keys of a filter, by the fields of queries.
var keys = map[string]struct {
	name  string
	bytes int
}{"src": {"src", 4}, "dst": {"dst", 4}, "proto": {"protocol", 1}, "sport": {"src_port", 2}, "dport": {"dst_port", 2},
	"length": {"length", 4}, "ttl": {"ttl", 1}, "window": {"window", 2}, "flags": {"flags", 1}}

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
			all := uint64(1)<<(8*k.bytes) - 1
			f := sdk.FieldMatch{Field: k.name, Value: bigEndian(m.Value, k.bytes), PrefixLen: -1}
			switch {
			case m.Field == "src" || m.Field == "dst" || m.Field == "flags":
				if m.Mask == 0 {
					continue
				}
				f.Mask = bigEndian(m.Mask, k.bytes)
			case m.Value == 0 && m.High == all:
				continue
			default:
				f.High = bigEndian(m.High, k.bytes)
			}
			t.Matches = append(t.Matches, f)
		}
		out = append(out, sdk.DeviceWrite{Device: device, Op: op, Entry: t})
	}
	return out
}

// sumUnits adds up the words of units over all slots.
func (c *counts) sumUnits(cells []uint32) []uint64 {
	sums := make([]uint64, len(c.units))
	for at := c.words - len(c.units); at < c.arrays*c.slots*c.words; at += c.words {
		for i := range sums {
			sums[i] += uint64(cells[at+i])
		}
	}
	return sums
}

// countTable lists what units counted.
func (r *run) countTable(answers []*answer) (*table.Table, error) {
	b := table.NewBuilder(countList)
	names, switches, values := b.TextKey("query/name"), b.TextKey("switch"), b.TextKey("value")
	epoch, number, sum := b.Uint("state/epoch"), b.Uint("state/unit"), b.Uint("state/sum")
	seen := map[string]bool{}
	for _, a := range answers {
		if seen[a.name] {
			continue
		}
		seen[a.name] = true
		for _, n := range a.units {
			for i := range r.switches {
				s := &r.switches[i]
				if n >= len(s.units) || n >= len(r.uses) || r.uses[n].Query != a.id || r.epoch.Number < r.uses[n].From {
					continue
				}
				names.Append(a.name)
				switches.Append(r.network.switches[i].name)
				values.Append(r.uses[n].Value)
				epoch.Append(r.epoch.Number)
				number.Append(uint64(n))
				sum.Append(s.units[n])
			}
		}
	}
	return b.Table()
}

// freeUnits is the count of units of each switch that no query uses.
func (r *run) freeUnits(uses []use) (n int) {
	for i := range r.setup.units {
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
