// SPDX-License-Identifier: Apache-2.0

package chamelemon

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/netsketch/netsketch/lab/scenario/score"
	"github.com/netsketch/netsketch/lab/truth"
	"github.com/netsketch/netsketch/plugins/chamelemon/plugin"
	"github.com/netsketch/netsketch/settings"
	"github.com/netsketch/netsketch/sketch/flow"
)

var network = score.View{Device: score.Network}

// groundTruth reads from the plugin's configuration which flows count as heavy.
func groundTruth(s *score.Setting) (func(*score.Epoch) score.Tables, error) {
	var c plugin.Configuration
	if err := settings.DecodeJSON(s.Config, &c); err != nil {
		return nil, err
	}
	return func(e *score.Epoch) score.Tables {
		t := score.Tables{}
		for device, now := range entered(e.Truth, s.Edges) {
			v := view{t, e.Published, score.View{Device: device}, now}
			v.summary()
			v.hitters(math.Max(math.Max(float64(c.HeavyHitters.Packets),
				math.Ceil(c.HeavyHitters.Share*float64(now.Packets()))), 1))
			if before := entered(e.Before, s.Edges)[device]; before != nil {
				v.changes(before, c.HeavyChanges.Packets)
			}
			v.watched()
			v.distribution()
		}
		t.Rows("attention", network).Add("", score.Leaves{})
		if e.Truth.Network != nil {
			losses(t, e)
		}
		return t
	}, nil
}

// entered returns the packets that entered at each edge switch and in the network, if they are
// known.
func entered(t *score.Truth, edges []string) map[string]truth.Counts {
	out := map[string]truth.Counts{}
	if t == nil {
		return out
	}
	for _, name := range edges {
		if d := t.Devices[name]; d != nil {
			out[name] = d.Entered
		}
	}
	if t.Network != nil {
		out[score.Network] = t.Network
	}
	return out
}

// view is the ground truth of what entered at a device.
type view struct {
	tables, published score.Tables
	score.View
	now truth.Counts
}

func (v *view) summary() {
	v.tables.Rows("node-summary", v.View).Add("", score.Leaves{
		"packets": score.Number(v.now.Packets()), "distinct-flows": score.Number(len(v.now)),
		"entropy": score.Number(v.now.Entropy()),
	})
}

// size returns the packets of a flow. score.Read refuses texts that are no flows.
func (v *view) size(text string) score.Value {
	k, _ := flow.Parse(flow.FiveTuple, text)
	return score.Number(v.now[k])
}

func (v *view) hitters(limit float64) {
	rows := v.tables.Rows("heavy-hitter", v.View)
	for _, f := range v.now.AtLeast(limit) {
		rows.Add(f.Key.String(), score.Leaves{"packets": score.Number(f.Packets)})
	}
	for key := range v.published["heavy-hitter"][v.View] {
		if rows[key] == nil {
			rows.Add(key, score.Leaves{"packets": v.size(key)}).Unwanted = true
		}
	}
}

// changes enters the flows that changed by more than limit. The list may also hold other flows if
// their published delta is at most limit: the bounds of their change exceed limit.
func (v *view) changes(before truth.Counts, limit uint64) {
	rows := v.tables.Rows("heavy-change", v.View)
	for _, f := range truth.Changes(before, v.now) {
		if f.Packets > limit {
			rows.Add(f.Key.String(), changed(before, v.now, f.Key))
		}
	}
	for key, published := range v.published["heavy-change"][v.View] {
		if rows[key] == nil {
			k, _ := flow.Parse(flow.FiveTuple, key) // score.Read refuses texts that are no flows
			row := rows.Add(key, changed(before, v.now, k))
			row.Optional = math.Abs(published.Value("delta")) <= float64(limit)
			row.Unwanted = !row.Optional
		}
	}
}

// changed returns by how many packets a flow changed.
func changed(before, now truth.Counts, k flow.Key) score.Leaves {
	return score.Leaves{"delta": {Number: float64(now[k]) - float64(before[k])}}
}

// watched holds the sizes of the watched flows.
func (v *view) watched() {
	rows := v.tables.Rows("flow", v.View)
	for key := range v.published["flow"][v.View] {
		size := v.size(key)
		rows.Add(key, score.Leaves{"packets": size}).Unwanted = size.Number == 0
	}
}

// distribution counts the flows in the published ranges of sizes, and those beyond them.
func (v *view) distribution() {
	published := v.published["range"][v.View]
	type sizes struct {
		key      string
		from, to uint64
	}
	var ranges []sizes
	for key, row := range published {
		x := sizes{key: key}
		if _, err := fmt.Sscan(key, &x.from); err == nil {
			x.to = uint64(row.Value("upper"))
			ranges = append(ranges, x)
		}
	}
	slices.SortFunc(ranges, func(a, b sizes) int { return int(int64(a.from) - int64(b.from)) })
	counts := make([]float64, len(ranges))
	beyond := 0.0
	for _, n := range v.now {
		i, found := slices.BinarySearchFunc(ranges, n,
			func(x sizes, n uint64) int { return int(int64(x.from) - int64(n)) })
		if !found {
			i--
		}
		if i < 0 || n > ranges[i].to {
			beyond++
			continue
		}
		counts[i]++
	}
	rows := v.tables.Rows("range", v.View)
	for i, x := range ranges {
		rows.Add(x.key, score.Leaves{"flows": score.Number(counts[i])})
	}
	if beyond > 0 {
		rows.Add("beyond", score.Leaves{"flows": score.Number(beyond)})
	}
}

// losses enters the flows that lost packets. The table "heavy-victim" has the flows that lost at
// least Tl packets. A flow with at least Tl packets that lost fewer may be published as heavy; any
// other flow may not: a flow with fewer packets, or a flow that lost none.
func losses(t score.Tables, e *score.Epoch) {
	lost, published := e.Truth.Lost, e.Published["victim"][network]
	t.Row("attention", network, "").Leaves["victims"] = score.Number(len(lost))
	if of := t.Row("node-summary", network, ""); of != nil {
		of.Leaves["victims"], of.Leaves["lost-packets"] = score.Number(len(lost)), score.Number(lost.Packets())
	}
	low := e.Published.Row("attention", network, "").Value("low-threshold")
	victims, heavy := t.Rows("victim", network), t.Rows("heavy-victim", network)
	for k, n := range lost {
		key, leaves := k.String(), score.Leaves{"lost-packets": score.Number(n),
			"exit-node": score.Text(e.Home(k.DstAddr()))}
		for device, d := range e.Truth.Devices {
			if d.Lost[k] > 0 {
				leaves["entry-node"] = score.Text(device)
			}
		}
		if size := e.Truth.Network[k]; size > 0 {
			leaves["packets"] = score.Number(size)
		}
		victims.Add(key, leaves)
		if float64(n) >= low {
			heavy.Add(key, nil).Near = score.Near(float64(n), low)
		}
	}
	for key, row := range published {
		if victims[key] == nil {
			victims.Add(key, score.Leaves{}).Unwanted = true
		}
		if heavy[key] == nil && row.Value("lost-packets") < low && victims[key].Value("packets") >= low {
			heavy.Add(key, nil).Optional = true
		}
	}
}

// claims are what rows state about their values.
func claims() []score.Claim {
	return []score.Claim{
		{List: "victim", Quality: "quality", Leaves: []string{"lost-packets"}},
		{List: "victim", Quality: "packets-quality", Leaves: []string{"packets"}},
		{List: "victim", Leaves: []string{"entry-node", "exit-node"}},
		{List: "node-summary", Quality: "packets-quality", Leaves: []string{"packets"}},
		{List: "node-summary", Quality: "quality", Leaves: []string{"distinct-flows"}},
		{List: "node-summary", Quality: "quality", Leaves: []string{"entropy"}, Tolerance: 1e-5}, // with six digits
		{List: "node-summary", Quality: "quality", Leaves: []string{"flows"}, Of: "range"},
		{List: "node-summary", Quality: "lost-packets-quality", Leaves: []string{"lost-packets"}},
		{List: "node-summary", Quality: "victims-quality", Leaves: []string{"victims"}},
		{List: "node-summary", Quality: "victims-quality", Leaves: []string{"lost-packets"}, Of: "victim"},
		{List: "heavy-hitter", Quality: "quality", Leaves: []string{"packets"}},
		{List: "heavy-change", Quality: "quality", Leaves: []string{"delta"}},
		{List: "flow", Quality: "quality", Leaves: []string{"packets"}},
	}
}

// keysOf returns some keys of counts, evenly.
func keysOf(c truth.Counts, n int) []string {
	keys := slices.SortedFunc(maps.Keys(c), flow.Key.Compare)
	n = min(n, len(keys))
	out := make([]string, n)
	for i := range out {
		out[i] = keys[i*len(keys)/n].String()
	}
	return out
}
