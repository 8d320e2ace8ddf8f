// SPDX-License-Identifier: Apache-2.0

package chamelemon

import (
	"maps"
	"slices"

	"github.com/netsketch/netsketch/lab/scenario/score"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// Part is a part of the IPv4 encoders.
type Part struct {
	Buckets, Next float64 // buckets of all arrays together, in this epoch and in the epoch after the next
	Flows         float64
	Load          float64
	Decoded       bool
}

// exact is the quality of values that are true.
const exact = string(sdk.Exact)

// Edge is the attention of an edge switch.
type Edge struct {
	High, NextHigh float64
	Heavy          Part
}

// Attention is the published attention under which an epoch was measured.
type Attention struct {
	State, Next, Problem string
	Decoded, Settled     bool
	Sure                 bool // all victims are published as exact
	Balanced             bool
	Low, High, Sample    float64
	Heavy, HL, LL        Part // HH is the HH part of the edge switch with the most HH flows
	Edges                map[string]Edge
}

// A part is in balance if its load is between these bounds, or if it no longer changes.
const (
	LowLoad  = 0.55
	HighLoad = 0.8
)

func (p *Part) filled() bool { return p.Load >= LowLoad && p.Load <= HighLoad }

// AttentionOf reads the attention from the result of an epoch. State is "NONE" if the result has
// no attention.
func AttentionOf(r *score.Result, edges []string) *Attention {
	row := r.Published.Row("attention", network, "")
	a := &Attention{State: "NONE", Edges: map[string]Edge{}}
	if row == nil {
		return a
	}
	a.State, a.Next, a.Problem = row.Text("network-state"), row.Text("next-state"), row.Text("problem")
	a.Decoded, a.Settled = row.Text("status") == "COMPLETE", row.Is("configuration-known")
	a.Sure = r.Published.Row("node-summary", network, "").Text("victims-quality") == exact
	a.Low, a.High, a.Sample = row.Value("low-threshold"), row.Value("highest-threshold"), row.Value("sample-rate")
	a.HL, _ = partOf(r, network, "HL")
	a.LL, _ = partOf(r, network, "LL")
	a.Balanced = a.Decoded && a.Settled && a.State == a.Next && (a.HL.Next == a.HL.Buckets || a.HL.filled())
	for _, name := range edges {
		view := score.View{Device: name}
		heavy, ok := partOf(r, view, "HH")
		th := r.Published.Row("threshold", view, "")
		if !ok || th == nil {
			a.Balanced = false
			continue
		}
		e := Edge{th.Value("high-threshold"), th.Value("next-high-threshold"), heavy}
		low, nextLow := th.Value("low-threshold"), th.Value("next-low-threshold")
		a.Edges[name] = e
		if a.Heavy.Buckets == 0 || heavy.Flows > a.Heavy.Flows {
			a.Heavy = heavy
		}
		a.Balanced = a.Balanced && (e.High == e.NextHigh || heavy.filled()) && (low == nextLow || a.HL.filled())
	}
	return a
}

func partOf(r *score.Result, view score.View, name string) (Part, bool) {
	row := r.Published.Row("encoder", view, "IPV4/"+name)
	return Part{Buckets: row.Value("buckets"), Next: row.Value("next-buckets"), Flows: row.Value("flows"),
		Load: row.Value("load-factor"), Decoded: row.Text("quality") == exact}, row != nil
}

// balance is the largest number of epochs from a change of the network until balance.
func balance(h *score.History) (score.Total, bool) {
	all := Balance(h)
	if len(all) == 0 {
		return score.Total{}, false
	}
	most := float64(slices.Max(slices.Collect(maps.Values(all))))
	return score.Total{Value: most, Worst: most, Views: len(all)}, true
}

// Balance returns for each change of the network, by its epoch, the number of epochs after which
// all later epochs up to the next change are in balance. Without balance it returns the number of
// epochs up to the next change.
func Balance(h *score.History) map[int]int {
	out := map[int]int{}
	balanced := map[int]bool{}
	last := -1
	for _, r := range h.Results {
		balanced[r.Index] = AttentionOf(r, h.Edges).Balanced
		last = max(last, r.Index)
	}
	for i, from := range h.Changes {
		if from > last {
			break
		}
		until := last + 1
		if i+1 < len(h.Changes) {
			until = min(until, h.Changes[i+1])
		}
		first := until
		for first > from && balanced[first-1] {
			first--
		}
		out[from] = first - from
	}
	return out
}
