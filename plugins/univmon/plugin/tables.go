// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/universal"
	"github.com/netsketch/netsketch/yang/table"
)

// The lists of module netsketch-univmon.
const (
	summaryList  = "/netsketch-univmon:univmon/summaries/summary"
	hitterList   = "/netsketch-univmon:univmon/heavy-hitters/heavy-hitter"
	changeList   = "/netsketch-univmon:univmon/heavy-changes/heavy-change"
	victimList   = "/netsketch-univmon:univmon/ddos-victims/ddos-victim"
	flowList     = "/netsketch-univmon:univmon/flows/flow"
	functionList = "/netsketch-univmon:univmon/functions/function"
	unparsedList = "/netsketch-univmon:univmon/unparsed-packets/unparsed-packet"
	manifestList = "/netsketch-univmon:univmon/manifests/manifest"
	alertList    = "/netsketch-univmon:univmon/alerts/alert"
)

// publish builds the tables of an epoch. Each replaces its whole list, so rows of earlier epochs
// disappear.
func (p *Plugin) publish(a *analysis, results map[scope]*result) (*sdk.Results, error) {
	ordered := slices.SortedFunc(maps.Values(results), func(a, b *result) int {
		return cmp.Or(cmp.Compare(a.device, b.device), cmp.Compare(a.dimension, b.dimension))
	})
	for _, r := range ordered {
		if doubt := r.doubt(); doubt != "" {
			r.status, r.problem = max(r.status, sdk.StatusPartial), cmp.Or(r.problem, doubt)
			a.problem(subject(r.scope), "%s", doubt)
		}
	}
	out := &sdk.Results{Events: p.watchdog.update(a, ordered)}
	counts := make(map[scope][2]uint64)
	for _, build := range []func() (*table.Table, error){
		func() (*table.Table, error) {
			return hitterTable(a.config, ordered, counts, a.epoch.End.Sub(a.epoch.Start))
		},
		func() (*table.Table, error) { return changeTable(a.config, ordered, counts) },
		func() (*table.Table, error) { return summaryTable(ordered, counts) },
		func() (*table.Table, error) { return victimTable(a.config, ordered) },
		func() (*table.Table, error) { return unparsedTable(ordered) },
		func() (*table.Table, error) { return manifestTable(a.manifests, a.epoch.Number) },
		func() (*table.Table, error) { return p.watchdog.table(a.epoch.Number) },
		func() (*table.Table, error) {
			return functionTable(slices.Concat(p.functions, a.config.Functions), ordered)
		},
		func() (*table.Table, error) {
			t, problem, err := watchedTable(a.epoch.Watched, results)
			if problem != "" {
				a.problem("watched flows", "%s", problem)
			}
			return t, err
		},
	} {
		t, err := build()
		if err != nil {
			return nil, fmt.Errorf("epoch %d: %w", a.epoch.Number, err)
		}
		out.Add(t, true)
	}
	return out, nil
}

// head has the first columns of most lists.
type head struct {
	device, dimension *table.TextAppender
	epoch             *table.UintAppender
}

func (h head) append(r *result) {
	h.device.Append(r.device)
	h.dimension.Append(r.dimension)
	h.epoch.Append(r.epoch)
}

func summaryTable(results []*result, counts map[scope][2]uint64) (*table.Table, error) {
	b := table.NewBuilder(summaryList)
	h := head{device: b.TextKey("device"), dimension: b.TextKey("dimension"), epoch: b.Uint("state/epoch")}
	status, problem := b.Text("state/status"), b.Text("state/problem")
	packets, distinct := b.Uint("state/packets"), b.Uint("state/distinct-flows")
	deviation := b.Uint("state/distinct-flows-error")
	unparsed, total := b.Uint("state/unparsed-packets"), b.Uint("state/total-packets")
	entropy, moment := b.Float("state/entropy"), b.Uint("state/second-moment")
	hitters, changes := b.Uint("state/heavy-hitters"), b.Uint("state/changes")
	for _, r := range results {
		h.append(r)
		status.Append(r.status.String())
		if r.problem == "" {
			problem.AppendNull()
		} else {
			problem.Append(clip(r.problem))
		}
		if r.estimate == nil {
			for _, c := range []*table.UintAppender{packets, unparsed, total, distinct, deviation, moment, hitters,
				changes} {
				c.AppendNull()
			}
			entropy.AppendNull()
			continue
		}
		n, _ := r.estimate.Packets()
		packets.Append(whole(n))
		if r.unparsed == nil {
			unparsed.AppendNull()
			total.AppendNull()
		} else {
			unparsed.Append(r.unparsed.sum())
			total.Append(whole(n) + r.unparsed.sum())
		}
		if r.estimate.CountsFlows() {
			distinct.Append(whole(r.estimate.Distinct()))
			deviation.Append(whole(r.estimate.Deviation()))
		} else {
			distinct.AppendNull()
			deviation.AppendNull()
		}
		if r.estimate.Represents() {
			entropy.Append(digits(r.estimate.Entropy(), 6))
		} else {
			entropy.AppendNull()
		}
		moment.Append(whole(r.estimate.Moment2()))
		hitters.Append(counts[r.scope][0])
		if r.change == nil {
			changes.AppendNull()
		} else {
			changes.Append(counts[r.scope][1])
		}
	}
	return b.Table()
}

func hitterTable(c *Configuration, results []*result, counts map[scope][2]uint64,
	epoch time.Duration,
) (*table.Table, error) {
	b := table.NewBuilder(hitterList)
	h := head{device: b.TextKey("device"), dimension: b.TextKey("dimension")}
	flows := keyColumn{TextAppender: b.TextKey("flow")}
	h.epoch = b.Uint("state/epoch")
	rank, packets, share := b.Uint("state/rank"), b.Uint("state/packets"), b.Float("state/share")
	for _, r := range results {
		if r.estimate == nil {
			continue
		}
		threshold := c.HeavyHitters
		if r.device == Network {
			threshold = c.icebergs()
		}
		total, _ := r.estimate.Packets()
		found := r.estimate.Above(threshold.Least(total, epoch))
		// Packets between two switches' bank flips can make a network's flow negative.
		found = slices.DeleteFunc(found, func(f universal.Flow) bool { return f.Packets < 0 })
		count := counts[r.scope]
		count[0] = uint64(len(found))
		counts[r.scope] = count
		for i, f := range found[:min(len(found), threshold.Limit)] {
			h.append(r)
			flows.append(f.Key)
			rank.Append(uint64(i + 1))
			packets.Append(whole(f.Packets))
			share.Append(digits(min(f.Packets/max(total, 1), 1), 6))
		}
	}
	return b.Table()
}

func changeTable(c *Configuration, results []*result, counts map[scope][2]uint64) (*table.Table, error) {
	b := table.NewBuilder(changeList)
	h := head{device: b.TextKey("device"), dimension: b.TextKey("dimension")}
	flows := keyColumn{TextAppender: b.TextKey("flow")}
	h.epoch = b.Uint("state/epoch")
	rank, kind := b.Uint("state/rank"), b.Text("state/kind")
	previous, current, delta := b.Uint("state/previous"), b.Uint("state/current"), b.Int("state/delta")
	for _, r := range results {
		if r.change == nil {
			continue
		}
		found := r.change.Above(max(c.HeavyChanges.Share*r.change.Total(), c.HeavyChanges.Packets, 1))
		count := counts[r.scope]
		count[1] = uint64(len(found))
		counts[r.scope] = count
		for i, f := range found[:min(len(found), c.HeavyChanges.Limit)] {
			h.append(r)
			flows.append(f.Key)
			rank.Append(uint64(i + 1))
			before, after := whole(f.Before), whole(f.After)
			previous.Append(before)
			current.Append(after)
			delta.Append(int64(after) - int64(before))
			if after >= before {
				kind.Append("increase")
			} else {
				kind.Append("decrease")
			}
		}
	}
	return b.Table()
}

func victimTable(c *Configuration, results []*result) (*table.Table, error) {
	b := table.NewBuilder(victimList)
	device, destinations := b.TextKey("device"), keyColumn{TextAppender: b.TextKey("destination")}
	epoch, sources := b.Uint("state/epoch"), b.Uint("state/distinct-sources")
	for _, r := range results {
		if r.estimate == nil || r.dimension != flow.FiveTuple.String() || !r.estimate.Represents() {
			continue
		}
		found := r.estimate.FanIns(c.DDoSVictims.Sources)
		for _, f := range found[:min(len(found), c.DDoSVictims.Limit)] {
			device.Append(r.device)
			destinations.append(f.Destination)
			epoch.Append(r.epoch)
			sources.Append(whole(f.Sources))
		}
	}
	return b.Table()
}

// unparsedTable lists the unparsed packets of each device once: they are the same in each
// dimension.
func unparsedTable(results []*result) (*table.Table, error) {
	b := table.NewBuilder(unparsedList)
	device, reason := b.TextKey("device"), b.TextKey("reason")
	epoch, packets := b.Uint("state/epoch"), b.Uint("state/packets")
	last := ""
	for _, r := range results {
		if r.unparsed == nil || r.device == last {
			continue
		}
		last = r.device
		for c := range reasons {
			device.Append(r.device)
			reason.Append(c.String())
			epoch.Append(r.epoch)
			packets.Append(r.unparsed.of(c))
		}
	}
	return b.Table()
}

// manifestTable lists what each switch counts under an assignment; nil: no assignment is in force.
func manifestTable(a *Assignment, number uint64) (*table.Table, error) {
	b := table.NewBuilder(manifestList)
	h := head{device: b.TextKey("device"), dimension: b.TextKey("dimension")}
	origin, destination := b.TextKey("origin"), b.TextKey("destination")
	h.epoch = b.Uint("state/epoch")
	if a == nil {
		return b.Table()
	}
	switches := a.Problem.Switches
	for j, duties := range a.Duties {
		for _, d := range duties {
			pair := &a.Problem.Pairs[d.Pair]
			for k, dimension := range a.Problem.Dimensions {
				if d.Set.Has(k) {
					h.append(&result{scope: scope{switches[j].Name, dimension.Name}, epoch: number})
					origin.Append(switches[pair.Origin].Name)
					destination.Append(switches[pair.Destination].Name)
				}
			}
		}
	}
	return b.Table()
}

func functionTable(functions []Function, results []*result) (*table.Table, error) {
	b := table.NewBuilder(functionList)
	h := head{device: b.TextKey("device"), dimension: b.TextKey("dimension")}
	name := b.TextKey("name")
	h.epoch = b.Uint("state/epoch")
	value, guaranteed := b.Float("state/value"), b.Bool("state/guaranteed")
	const most = 9e15 // of a decimal64 with three digits after the point
	for _, r := range results {
		if r.estimate == nil || !r.estimate.Represents() {
			continue
		}
		for _, f := range functions {
			h.append(r)
			name.Append(f.Name)
			guaranteed.Append(f.guaranteed())
			if v := r.estimate.Sum(f.G()); math.IsNaN(v) {
				value.AppendNull()
			} else {
				value.Append(digits(min(max(v, -most), most), 3))
			}
		}
	}
	return b.Table()
}

// watchedTable builds the list of flows with the subscribed rows. Flows without a result have no
// row; problem is the reason for one of them.
func watchedTable(watched []sdk.RowKey, results map[scope]*result) (t *table.Table, problem string, err error) {
	b := table.NewBuilder(flowList)
	h := head{device: b.TextKey("device"), dimension: b.TextKey("dimension")}
	flows := b.TextKey("flow")
	h.epoch = b.Uint("state/epoch")
	packets := b.Uint("state/packets")
	for _, w := range watched {
		if w.List != flowList {
			continue
		}
		s, text := scope{w.Keys["device"], w.Keys["dimension"]}, w.Keys["flow"]
		fields, err := flow.ParseFields(s.dimension)
		if err != nil {
			problem = fmt.Sprintf("watched flow %q of %s: %v", text, s.device, err)
			continue
		}
		key, err := flow.Parse(fields, text)
		if err != nil {
			problem = fmt.Sprintf("watched flow of %s by %s: %v", s.device, s.dimension, err)
			continue
		}
		r := results[s]
		if r == nil || r.estimate == nil {
			problem = fmt.Sprintf("watched flow %q: no results of %s by %s", text, s.device, s.dimension)
			continue
		}
		h.append(r)
		flows.Append(text) // as subscribed, so that the path matches the subscription
		packets.Append(whole(r.estimate.Size(key)))
	}
	t, err = b.Table()
	return t, problem, err
}

// keyColumn is a column of flow keys in text.
type keyColumn struct {
	*table.TextAppender
	buffer []byte
}

func (c *keyColumn) append(k flow.Key) {
	c.buffer, _ = k.AppendText(c.buffer[:0])
	c.AppendBytes(c.buffer)
}

// whole rounds a number that cannot be negative.
func whole(x float64) uint64 {
	if !(x > 0) {
		return 0
	}
	return uint64(math.Round(min(x, math.MaxInt64/2)))
}

// digits rounds to the n fraction digits of the leaf's decimal64.
func digits(x float64, n int) float64 {
	scale := math.Pow10(n)
	return math.Round(x*scale) / scale
}
