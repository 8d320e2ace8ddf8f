// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"log/slog"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/univmon/manifest"
)

// Assignments on the switches: the entries of duties.p4, written before the epoch that they are
// for, on all switches or on none.

// banks is the number of banks of pipelines with duties.
const banks = 2

// all is the parameter of the action count for all dimensions.
const all = 0xff

// field is the key of an entry of duties.p4 without its bank. The value is a site or dimensions.
type field struct {
	table               string
	address             netip.Prefix // address of origins and destinations
	origin, destination uint16       // sites of pairs
	port                uint32       // port of ports
}

// entries are the table entries of a switch for one bank.
type entries map[field]uint16

// siteIDs numbers switches from 1 on, by a hash of their names, so that a switch keeps its number
// when others are added or removed.
func siteIDs(names []string) []uint16 {
	used := map[uint16]bool{0: true}
	ids := make([]uint16, len(names))
	order := make([]int, len(names))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(names[a], names[b]) })
	for _, i := range order {
		id := uint16(crc32.ChecksumIEEE([]byte(names[i])))
		for used[id] {
			id++
		}
		used[id] = true
		ids[i] = id
	}
	return ids
}

// entries returns the entries that the counting switches need, by switch. Pairs that cross a switch
// and are counted elsewhere have entries without dimensions, which replace the entries of an
// earlier assignment.
func (a *Assignment) entries() map[string]entries {
	var names []string
	for _, s := range a.Problem.Switches {
		names = append(names, s.Name)
	}
	ids := siteIDs(names)
	sites := make(entries)
	for i, prefixes := range a.Sites {
		for _, p := range prefixes {
			suffix := ""
			if p.Addr().Is6() {
				suffix = "_ipv6"
			}
			sites[field{table: "origins" + suffix, address: p}] = ids[i]
			sites[field{table: "destinations" + suffix, address: p}] = ids[i]
		}
	}
	of := make([]entries, len(names))
	for j := range names {
		of[j] = maps.Clone(sites)
		for _, port := range a.Internal[j] {
			of[j][field{table: "ports", port: port}] = 0
		}
	}
	pair := func(i int) field {
		p := a.Problem.Pairs[i]
		return field{table: "pairs", origin: ids[p.Origin], destination: ids[p.Destination]}
	}
	for i := range a.Problem.Pairs {
		for _, path := range a.Problem.Pairs[i].Paths {
			for _, j := range path {
				of[j][pair(i)] = 0
			}
		}
	}
	out := make(map[string]entries)
	for j, name := range names {
		for _, d := range a.Duties[j] {
			for k, dimension := range a.Problem.Dimensions {
				if d.Set.Has(k) {
					of[j][pair(d.Pair)] |= 1 << (a.bits[dimension.Name] - 1)
				}
			}
		}
		if a.Unfit[name] == "" {
			out[name] = of[j]
		}
	}
	return out
}

// write returns the write of an entry.
func (f field) write(device string, bank int, value uint16) sdk.DeviceWrite {
	number := func(name string, v uint64) sdk.FieldMatch {
		return sdk.FieldMatch{Field: name, Value: binary.BigEndian.AppendUint64(nil, v)[4:], PrefixLen: -1}
	}
	e := sdk.TableEntry{Table: "ingress.duties." + f.table, Matches: []sdk.FieldMatch{number("bank", uint64(bank))}}
	action, param := "count", "dimensions"
	switch {
	case f.address.IsValid():
		e.Matches = append(e.Matches, sdk.FieldMatch{Field: "address", Value: f.address.Addr().AsSlice(),
			PrefixLen: int32(f.address.Bits())})
		action, param = "to", "site"
		if strings.HasPrefix(f.table, "origins") {
			action = "from"
		}
	case f.table == "pairs":
		e.Matches = append(e.Matches, number("origin", uint64(f.origin)), number("destination", uint64(f.destination)))
	default:
		e.Matches = append(e.Matches, number("port", uint64(f.port)))
	}
	e.Action = "ingress.duties." + action
	e.Params = []sdk.ActionParam{{Name: param, Value: binary.BigEndian.AppendUint16(nil, value)}}
	if action == "count" {
		e.Params[0].Value = []byte{byte(value)}
	}
	return sdk.DeviceWrite{Device: device, Op: sdk.Insert, Entry: e}
}

// compare orders fields, so that plans are the same in every run.
func (f field) compare(o field) int {
	return cmp.Or(strings.Compare(f.table, o.table), f.address.Compare(o.address), cmp.Compare(f.origin, o.origin),
		cmp.Compare(f.destination, o.destination), cmp.Compare(f.port, o.port))
}

// duties holds a plugin's assignments: the desired assignment, and the assignments in force in each
// bank.
type duties struct {
	wanted  *Assignment
	desired map[string]entries // entries of wanted
	reason  string             // reason for which there is no assignment
	absent  map[string]string  // by switch: why wanted leaves the switch out
	last    uint64             // newest plan
	before  *Assignment        // assignment in force in the preceding epoch
	stale   bool               // the network or the configuration changed after wanted was computed
	plans   map[uint64]*Assignment
	misfits map[*Assignment]bool // that did not fit the routes at some time after the newest epoch was analyzed
	banks   [banks]struct {
		plan uint64             // newest plan for the bank; 0: there was no plan, or it failed
		held map[string]entries // entries that the switches hold, by name
	}
}

// outcomes handles plans that were not written.
func (d *duties) outcomes(epoch *sdk.Epoch) {
	for _, o := range epoch.Plans {
		for i := range d.banks {
			if b := &d.banks[i]; b.plan == o.Plan && o.Status != sdk.PlanApplied {
				b.plan = 0
				delete(b.held, o.Device) // the entries are written as a whole again
			}
		}
	}
}

// plan returns the plan of the wanted assignment for epoch N + 2, the next one in the same bank; ok
// is false if the switches hold it already.
func (d *duties) plan(epoch *sdk.Epoch) (plan sdk.Plan, ok bool) {
	plan = sdk.Plan{FromEpoch: epoch.Number + banks, PreEpoch: true}
	bank := epoch.BankOf(plan.FromEpoch, banks)
	b := &d.banks[bank]
	if d.wanted == nil || b.plan != 0 && d.plans[b.plan] == d.wanted {
		return plan, false
	}
	if b.held == nil {
		b.held = make(map[string]entries)
	}
	for _, device := range slices.Sorted(maps.Keys(d.desired)) {
		want, held := d.desired[device], b.held[device]
		next := maps.Clone(want)
		for f := range held {
			if _, still := want[f]; !still {
				next[f] = 0
				if f.table == "ports" {
					next[f] = all
				}
			}
		}
		before := len(plan.Writes)
		order := slices.SortedFunc(maps.Keys(next), field.compare)
		for _, f := range order {
			if value, known := held[f]; !known || value != next[f] {
				plan.Writes = append(plan.Writes, f.write(device, bank, next[f]))
			}
		}
		if len(plan.Writes) == before && len(order) > 0 { // so that the state of the switch names this plan
			plan.Writes = append(plan.Writes, order[0].write(device, bank, next[order[0]]))
		}
		b.held[device] = next
	}
	d.last = max(d.last+1, uint64(time.Now().UnixNano()))
	plan.ID, b.plan = d.last, d.last
	if d.plans == nil {
		d.plans = make(map[uint64]*Assignment)
	}
	d.plans[plan.ID] = d.wanted
	maps.DeleteFunc(d.plans, func(id uint64, a *Assignment) bool {
		return id != d.banks[0].plan && id != d.banks[1].plan && id+uint64(time.Hour) < d.last
	})
	return plan, len(plan.Writes) > 0
}

// route notes the assignments that do not fit the routes.
func (d *duties) route(m *manifest.Map) {
	if d.misfits == nil {
		d.misfits = make(map[*Assignment]bool)
	}
	for _, a := range d.plans {
		d.misfits[a] = d.misfits[a] || !a.fits(m)
	}
}

// want computes the assignment that suits the network and the switches that deliver no data. It
// reports what changed.
func (d *duties) want(c *Configuration, network *sdk.Network, epoch *sdk.Epoch) []sdk.Event {
	absent := make(map[string]string)
	for _, m := range epoch.Missing {
		if !m.Host && epoch.Device(m.Name) == nil {
			absent[m.Name] = m.Reason
		}
	}
	if !d.stale && (d.wanted != nil || d.reason != "") && slices.Equal(slices.Sorted(maps.Keys(absent)),
		slices.Sorted(maps.Keys(d.absent))) {
		return nil
	}
	d.absent, d.stale = absent, false
	next, err := c.Assign(network, c.Network.Scheme, absent)
	if err != nil {
		d.reason = err.Error()
		return []sdk.Event{{Level: slog.LevelWarn, Message: clip("no manifests: " + d.reason)}}
	}
	desired := next.entries()
	if d.wanted != nil && reflect.DeepEqual(desired, d.desired) {
		return nil
	}
	d.wanted, d.desired, d.reason = next, desired, ""
	text := fmt.Sprintf("manifests from epoch %d on: %d pairs, %d sketches, most %d bytes, all %d bytes",
		epoch.Number+banks, len(next.Problem.Pairs), next.Sketches(), next.Max, next.Sum)
	if next.Bound > 0 {
		text += fmt.Sprintf(", at most %.1f %% above the optimum", 100*next.Gap())
	}
	for _, name := range slices.Sorted(maps.Keys(next.Unfit)) {
		text += fmt.Sprintf("; %s counts nothing: %s", name, next.Unfit[name])
	}
	return []sdk.Event{{Level: slog.LevelInfo, Message: clip(text)}}
}

// inForce returns the newest plan under which switches measured an epoch, its assignment (nil if an
// earlier process made it), and the switches that measured under another plan. Plan 0 is none.
func (d *duties) inForce(epoch *sdk.Epoch) (plan uint64, a *Assignment, others map[string]bool) {
	others = make(map[string]bool)
	for _, s := range epoch.States {
		plan = max(plan, s.Plan)
	}
	for _, s := range epoch.States {
		if s.Plan != plan || s.Mixed {
			others[s.Device] = true
		}
	}
	return plan, d.plans[plan], others
}

// assigned returns the views of an epoch under an assignment: the sum of all switches that count.
// problem is the reason why packets may be missing; ok is false if no assignment is in force.
func (d *duties) assigned(epoch *sdk.Epoch, p *plan) (views []view, problem string, ok bool) {
	plan, a, others := d.inForce(epoch)
	if plan == 0 {
		return nil, "", false
	}
	var unfit map[string]string
	if a != nil {
		unfit = a.Unfit
		if n := len(a.Uncovered); n > 0 {
			problem = fmt.Sprintf("%d of %d pairs are not counted by any switch", n, len(a.Problem.Pairs))
		}
	}
	for _, dimension := range p.dimensions {
		v := view{dimension: dimension, assigned: true}
		for _, name := range epoch.Expected {
			if _, measured := p.instances[name][dimension]; measured && unfit[name] == "" {
				if others[name] {
					v.excluded = append(v.excluded, name)
				} else {
					v.plus = append(v.plus, name)
				}
			}
		}
		views = append(views, v)
	}
	return views, problem, true
}
