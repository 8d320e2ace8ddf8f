// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/universal"
	"github.com/netsketch/netsketch/yang/table"
)

// The lists of module netsketch-univmon.
const (
	totalList    = "/netsketch-univmon:univmon/summary"
	summaryList  = "/netsketch-univmon:univmon/node-summaries/node-summary"
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
		r.complete = r.estimate != nil && r.status == sdk.StatusComplete && !(r.device == Network && a.renewed)
		if doubt := r.doubt(); doubt != "" {
			r.small = r.problem == ""
			r.status, r.problem = max(r.status, sdk.StatusPartial), cmp.Or(r.problem, doubt)
			a.problem(subject(r.scope), "%s", doubt)
		}
	}
	out := &sdk.Results{Events: p.watchdog.update(a, ordered)}
	counts := make(map[scope][2]uint64)
	out.Add(hitterTable(a, ordered, counts))
	out.Add(changeTable(a, ordered, counts))
	out.Add(summaryTable(ordered, counts))
	out.Add(victimTable(a, ordered))
	out.Add(unparsedTable(ordered))
	manifests, err := manifestTable(a.manifests)
	if err == nil && !a.config.Network.Manifests {
		a.omitted += uint64(manifests.Rows())
		manifests = manifests.Slice(0, 0)
	}
	out.Add(manifests, err)
	out.Add(p.watchdog.alerts.TableOfSubjects(alertList, severity))
	out.Add(functionTable(slices.Concat(p.functions, a.config.Functions), ordered))
	t, problem, err := watchedTable(a.epoch, results)
	if problem != "" {
		a.problem("watched flows", "%s", problem)
	}
	out.Add(t, err)
	out.Add(totalTable(a, ordered, p.watchdog.alerts.Active())) // last, because it counts omitted rows
	return out, out.Err()
}

// totalTable describes the results of the epoch as a whole.
func totalTable(a *analysis, results []*result, active uint64) (*table.Table, error) {
	b := table.NewBuilder(totalList)
	of := a.epoch.Range(a.epoch.Number, a.epoch.Number)
	of.Status = sdk.StatusLost
	for _, r := range results {
		if r.status != sdk.StatusLost {
			of.Status = sdk.StatusComplete
		}
	}
	for _, r := range results {
		if r.status != sdk.StatusComplete {
			of.Status = max(of.Status, sdk.StatusPartial)
			if of.Problem == "" && !r.small {
				of.Reason = sdk.SwitchMissing
				if len(a.epoch.Missing) > 0 {
					of.Reason = a.epoch.Missing[0].Condition()
				}
			}
			of.Problem = cmp.Or(of.Problem, clip(r.problem))
		}
	}
	of.Append(b)
	b.Uint("state/active-alerts").Append(active)
	b.Uint("state/omitted-rows").Append(a.omitted)
	return b.Table()
}

// limit returns the first rows of a list, and counts the rows that it leaves out.
func limit[T any](a *analysis, rows []T, most int) []T {
	if len(rows) <= most {
		return rows
	}
	a.omitted += uint64(len(rows) - most)
	return rows[:most]
}

// cut leaves out and counts flows beyond two limits: one for the network, one for all nodes
// together, each of which keeps its flows up to the same rank.
func cut[T any](a *analysis, results []*result, flows [][]T, network, nodes int) {
	var ofNetwork, ofNodes []*[]T
	for i, r := range results {
		if r.device == Network {
			ofNetwork = append(ofNetwork, &flows[i])
		} else {
			ofNodes = append(ofNodes, &flows[i])
		}
	}
	a.omitted += sdk.CutByRank(network, ofNetwork...) + sdk.CutByRank(nodes, ofNodes...)
}

// head has the first columns of most lists.
type head struct{ node, dimension *table.TextAppender }

func newHead(b *table.Builder) head { return head{b.TextKey("node"), b.TextKey("dimension")} }

func (h head) append(s scope) {
	h.node.Append(s.device)
	h.dimension.Append(s.dimension)
}

func summaryTable(results []*result, counts map[scope][2]uint64) (*table.Table, error) {
	b := table.NewBuilder(summaryList)
	h := newHead(b)
	status, problem := b.Text("state/status"), b.Text("state/problem")
	quality, ofPackets := b.Text("state/quality"), b.Text("state/packets-quality")
	packets, distinct := b.Uint("state/packets"), b.Uint("state/distinct-flows")
	deviation := b.Uint("state/distinct-flows-error")
	unparsed, total := b.Uint("state/unparsed-packets"), b.Uint("state/total-packets")
	entropy, entropyDeviation := b.Float("state/entropy"), b.Float("state/entropy-error")
	moment := b.Uint("state/second-moment")
	hitters, changes := b.Uint("state/heavy-hitters"), b.Uint("state/changes")
	change, changeDeviation := b.Uint("state/total-change"), b.Uint("state/total-change-error")
	for _, r := range results {
		h.append(r.scope)
		status.Append(r.status.String())
		problem.AppendSome(clip(r.problem))
		if r.estimate == nil {
			continue
		}
		n, counted := r.estimate.Packets()
		packets.Append(table.Whole(n))
		quality.Append(string(sdk.Estimate))
		ofPackets.Append(string(packetsQuality(r.device, counted)))
		if r.unparsed != nil {
			unparsed.Append(r.unparsed.sum())
			total.Append(table.Whole(n) + r.unparsed.sum())
		}
		if r.estimate.CountsFlows() {
			distinct.Append(table.Whole(r.estimate.Distinct()))
			deviation.Append(table.Whole(r.estimate.Deviation()))
		}
		if r.estimate.Represents() {
			entropy.Append(table.Decimal(r.estimate.Entropy(), 6))
			entropyDeviation.Append(table.Decimal(min(r.estimate.EntropyDeviation(), 64), 6))
		}
		moment.Append(table.Whole(r.estimate.Moment2()))
		hitters.Append(counts[r.scope][0])
		if r.change != nil && r.change.Known() {
			changes.Append(counts[r.scope][1])
			change.Append(table.Whole(r.change.Total()))
			changeDeviation.Append(table.Whole(r.change.Deviation()))
		}
	}
	return b.Table()
}

// packetsQuality returns the quality of a node's number of packets. The number of the network is an
// estimate: some packets are lost, or are on their way when an epoch ends.
func packetsQuality(node string, counted bool) sdk.Quality {
	if counted && node != Network {
		return sdk.Exact
	}
	return sdk.Estimate
}

func hitterTable(a *analysis, results []*result, counts map[scope][2]uint64) (*table.Table, error) {
	c, e := a.config, a.epoch
	b := table.NewBuilder(hitterList)
	h := newHead(b)
	flows := b.TextKey("flow")
	rank, packets, share := b.Uint("state/rank"), b.Uint("state/packets"), b.Float("state/share")
	deviation, quality := b.Uint("state/packets-error"), b.Text("state/quality")
	hitters := make([][]universal.Flow, len(results))
	for n, r := range results {
		if r.estimate == nil {
			continue
		}
		threshold := c.HeavyHitters
		if r.device == Network {
			threshold = c.icebergs()
		}
		total, _ := r.estimate.Packets()
		found := r.estimate.Above(threshold.Least(total, e.End.Sub(e.Start)))
		// Packets between two switches' bank flips can make a network's flow negative.
		found = slices.DeleteFunc(found, func(f universal.Flow) bool { return f.Packets < 0 })
		count := counts[r.scope]
		count[0] = uint64(len(found))
		counts[r.scope] = count
		hitters[n] = found
	}
	cut(a, results, hitters, c.icebergs().Limit, c.HeavyHitters.Limit)
	for n, r := range results {
		if r.estimate == nil {
			continue
		}
		total, _ := r.estimate.Packets()
		for i, f := range hitters[n] {
			h.append(r.scope)
			flows.AppendText(&f.Key)
			rank.Append(uint64(i + 1))
			packets.Append(table.Whole(f.Packets))
			share.Append(table.Decimal(min(f.Packets/max(total, 1), 1), 6))
			deviation.Append(table.Whole(math.Ceil(f.Deviation)))
			quality.Append(string(sdk.Estimate))
		}
	}
	return b.Table()
}

func changeTable(a *analysis, results []*result, counts map[scope][2]uint64) (*table.Table, error) {
	c := a.config
	b := table.NewBuilder(changeList)
	h := newHead(b)
	flows := b.TextKey("flow")
	rank, kind, quality := b.Uint("state/rank"), b.Text("state/kind"), b.Text("state/quality")
	previous, current, delta := b.Uint("state/previous"), b.Uint("state/current"), b.Int("state/delta")
	changes := make([][]universal.FlowChange, len(results))
	for n, r := range results {
		if r.change == nil || !r.change.Known() {
			continue
		}
		found := r.change.Above(max(c.HeavyChanges.Share*r.change.Total(), c.HeavyChanges.Packets, 1))
		count := counts[r.scope]
		count[1] = uint64(len(found))
		counts[r.scope] = count
		changes[n] = found
	}
	cut(a, results, changes, c.HeavyChanges.Limit, c.HeavyChanges.Limit)
	for n, r := range results {
		for i, f := range changes[n] {
			h.append(r.scope)
			flows.AppendText(&f.Key)
			rank.Append(uint64(i + 1))
			before, after := table.Whole(f.Before), table.Whole(f.After)
			previous.Append(before)
			current.Append(after)
			delta.Append(int64(after) - int64(before))
			quality.Append(string(sdk.Estimate))
			if after >= before {
				kind.Append("INCREASE")
			} else {
				kind.Append("DECREASE")
			}
		}
	}
	return b.Table()
}

func victimTable(a *analysis, results []*result) (*table.Table, error) {
	c := a.config
	b := table.NewBuilder(victimList)
	node, destinations, sources := b.TextKey("node"), b.TextKey("destination-address"), b.Uint("state/distinct-sources")
	deviation, quality := b.Uint("state/distinct-sources-error"), b.Text("state/quality")
	for _, r := range results {
		if r.estimate == nil || r.dimension != flow.FiveTuple.String() || !r.estimate.Represents() {
			continue
		}
		found := r.estimate.FanIns(c.DDoSVictims.Sources)
		for _, f := range limit(a, found, c.DDoSVictims.Limit) {
			node.Append(r.device)
			destinations.AppendText(&f.Destination)
			sources.Append(table.Whole(f.Sources))
			deviation.Append(table.Whole(math.Ceil(f.Deviation)))
			quality.Append(string(sdk.Estimate))
		}
	}
	return b.Table()
}

// unparsedTable lists the unparsed packets of each device once: they are the same in each
// dimension.
func unparsedTable(results []*result) (*table.Table, error) {
	b := table.NewBuilder(unparsedList)
	node, reason, packets := b.TextKey("node"), b.TextKey("reason"), b.Uint("state/packets")
	quality := b.Text("state/quality")
	last := ""
	for _, r := range results {
		if r.unparsed == nil || r.device == last {
			continue
		}
		last = r.device
		for c := range reasons {
			node.Append(r.device)
			// the name of the enumeration's value in the YANG module
			reason.Append(strings.ToUpper(strings.ReplaceAll(c.String(), "-", "_")))
			packets.Append(r.unparsed.of(c))
			quality.Append(string(packetsQuality(r.device, true)))
		}
	}
	return b.Table()
}

// manifestTable lists what each switch counts under an assignment; nil: no assignment is in force.
func manifestTable(a *Assignment) (*table.Table, error) {
	b := table.NewBuilder(manifestList)
	h := newHead(b)
	entry, exit := b.TextKey("entry-node"), b.TextKey("exit-node")
	if a == nil {
		return b.Table()
	}
	switches := a.Problem.Switches
	for j, duties := range a.Duties {
		for _, d := range duties {
			pair := &a.Problem.Pairs[d.Pair]
			for k, dimension := range a.Problem.Dimensions {
				if d.Set.Has(k) {
					h.append(scope{switches[j].Name, dimension.Name})
					entry.Append(switches[pair.Origin].Name)
					exit.Append(switches[pair.Destination].Name)
				}
			}
		}
	}
	return b.Table()
}

func functionTable(functions []Function, results []*result) (*table.Table, error) {
	b := table.NewBuilder(functionList)
	h := newHead(b)
	name := b.TextKey("name")
	value, deviation, quality := b.Float("state/value"), b.Float("state/value-error"), b.Text("state/quality")
	guaranteed, problem := b.Bool("state/guaranteed"), b.Text("state/problem")
	const most = 9e15 // most that a decimal64 with three digits after the point holds
	for _, r := range results {
		if r.estimate == nil || !r.estimate.Represents() {
			continue
		}
		for _, f := range functions {
			h.append(r.scope)
			name.Append(f.Name)
			guaranteed.Append(f.guaranteed())
			sum, spread := r.estimate.Sum(f.G()), r.estimate.SumDeviation(f.G())
			switch {
			case math.IsNaN(sum) || math.IsNaN(spread):
				problem.Append("the function is not a number for some flows")
			case spread > universal.MostDeviation*math.Abs(sum):
				problem.Append(clip(fmt.Sprintf("the standard error, %.4g, is above %.0f %% of the sum, %.4g: too few flows of "+
					"the sample represent it", spread, 100*universal.MostDeviation, sum)))
			default:
				value.Append(table.Decimal(min(max(sum, -most), most), 3))
				deviation.Append(table.Decimal(min(spread, most), 3))
				quality.Append(string(sdk.Estimate))
			}
		}
	}
	return b.Table()
}

// watchedTable builds the list of flows with the rows that clients watch. Flows without a result
// have no row; problem is the reason for one of them.
func watchedTable(e *sdk.Epoch, results map[scope]*result) (t *table.Table, problem string, err error) {
	b := table.NewBuilder(flowList)
	h := newHead(b)
	flows := b.TextKey("flow")
	packets, deviation, quality := b.Uint("state/packets"), b.Uint("state/packets-error"), b.Text("state/quality")
	for _, w := range e.Watched {
		if w.List != flowList {
			continue
		}
		s, text := scope{w.Keys["node"], w.Keys["dimension"]}, w.Keys["flow"]
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
		h.append(r.scope)
		flows.Append(text) // the text of the subscription, so that the path matches it
		f := r.estimate.Flow(key)
		packets.Append(table.Whole(f.Packets))
		deviation.Append(table.Whole(math.Ceil(f.Deviation)))
		quality.Append(string(sdk.Estimate))
	}
	t, err = b.Table()
	return t, problem, err
}
