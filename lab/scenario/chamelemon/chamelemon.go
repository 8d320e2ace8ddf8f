// SPDX-License-Identifier: Apache-2.0

// Package chamelemon scores the results of the plugin chamelemon in a scenario: flows that lost
// packets, the tasks about what entered, and how the attention follows the network.
package chamelemon

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/openconfig/gnmi/proto/gnmi"

	"github.com/netsketch/netsketch/lab/scenario/score"
	"github.com/netsketch/netsketch/lab/truth"
	"github.com/netsketch/netsketch/plugins/chamelemon/analysis"
	"github.com/netsketch/netsketch/sketch/flow"
)

// The measures a scenario can bound. Those about lost packets have as dimension the state in which
// the epoch was measured: healthy, ill, or undecoded when not everything was decoded in it.
const (
	VictimF1          = "victim-f1"           // flows that lost packets: told and true
	VictimPrecision   = "victim-precision"    //
	VictimRecall      = "victim-recall"       //
	VictimsExact      = "victims-exact"       // share of the true victims told with the exact number of lost packets
	VictimsCountError = "victims-count-error" // of the number of victims, which is estimated while ill
	LostPacketsError  = "lost-packets-error"  // of all lost packets together
	HeavyLoserF1      = "heavy-loser-f1"      // flows that lost at least Tl packets
	VictimEnds        = "victim-ends"         // share of those told that are with the switches where they entered and left
	VictimSizeARE     = "victim-size-are"     // of the sizes of victims that the classifier tells

	// Those about what entered have edge or network as dimension. Errors are means of relative errors.
	FlowSizeARE      = "flow-size-are" // of the flows that the scenario watches
	HeavyHitterF1    = "heavy-hitter-f1"
	HeavyChangeF1    = "heavy-change-f1"
	EntropyError     = "entropy-error"
	DistinctError    = "distinct-error"
	PacketsError     = "packets-error"
	DistributionWMRE = "distribution-wmre"

	// Those about the run have none.
	FalseClaims   = "false-claims"   // what was published as exact and is not, on the average of epochs
	Decoded       = "decoded"        // share of epochs of which everything was decoded
	LostResults   = "lost"           // share of edge switches and epochs without a complete result
	BalanceEpochs = "balance-epochs" // most epochs after a change until all is in balance
	CollectionMS  = "collection-ms"  // from the read-out's begin until all banks were there: median, and the longest
	ResponseMS    = "response-ms"    // from there until the plugin had answered
)

// Algorithm returns how ChameleMon is scored.
func Algorithm() score.Algorithm {
	return score.Algorithm{
		Plugin: "chamelemon",
		Measures: []string{
			VictimF1, VictimPrecision, VictimRecall, VictimsExact, VictimsCountError, LostPacketsError, HeavyLoserF1, VictimEnds, VictimSizeARE,
			FlowSizeARE, HeavyHitterF1, HeavyChangeF1, EntropyError, DistinctError, PacketsError, DistributionWMRE,
			FalseClaims, Decoded, LostResults, BalanceEpochs, CollectionMS, ResponseMS,
		},
		New: newScorer,
	}
}

type scorer struct {
	config  analysis.Configuration
	edges   []string
	home    func(netip.Addr) string
	changes []int
	watch   int                     // flows that are to be watched, until they are known
	asked   []*gnmi.Path            // of them, until they are asked for
	before  map[string]truth.Counts // what entered in the epoch before, by device
	epochs  []*Score
}

func newScorer(s score.Setting) (score.Scorer, error) {
	out := &scorer{config: analysis.DefaultConfiguration(), edges: s.Edges, home: s.Home, changes: s.Changes, watch: s.Watch}
	if s.Config != nil {
		if err := json.Unmarshal(s.Config, &out.config); err != nil {
			return nil, fmt.Errorf("chamelemon: config: %w", err)
		}
	}
	return out, nil
}

func (s *scorer) Subtrees() [][]string { return [][]string{{"chamelemon"}} }

func (s *scorer) Marker() []string { return []string{"chamelemon", "attention", "state", "epoch"} }

// Commands implements score.Scorer.
func (s *scorer) Commands(addr string) []string {
	return []string{
		"gnmic -a " + addr + " --insecure subscribe --path /chamelemon/attention --stream-mode on-change",
		"gnmi_cli -a " + addr + " -insecure -query_type once -q /chamelemon/victims",
	}
}

// Score implements score.Scorer.
func (s *scorer) Score(e *score.Epoch) (score.Result, error) {
	r, err := read(e.Leaves, e.Number)
	if err != nil {
		return nil, err
	}
	entered := map[string]truth.Counts{}
	for _, name := range s.edges {
		if d := e.Truth.Devices[name]; d != nil {
			entered[name] = d.Entered
		}
	}
	if e.Truth.Network != nil {
		entered[score.Network] = e.Truth.Network
	}
	out := &Score{Index: e.Index, Status: e.Status, CollectionNS: int64(e.Collection), ResponseNS: int64(e.Analysis), of: len(s.edges) + 1}
	s.epochs = append(s.epochs, out)
	before := s.before
	s.before = entered
	if r.attention.Epoch != e.Number {
		out.absent = out.of
		out.State = "none"
		return out, nil
	}
	out.attention(r, s.edges)
	for _, name := range append(slices.Clone(s.edges), score.Network) {
		now, sum := entered[name], r.summaries[name]
		if now == nil || sum == nil || sum.Packets == nil || sum.Status != "complete" {
			out.absent++
		}
		if now != nil && sum != nil && sum.Packets != nil {
			out.View(s, r, name, now, before[name])
		}
	}
	if e.Truth.Network != nil {
		out.losses(s, r, e.Truth)
		s.choose(entered)
	}
	return out, nil
}

// choose picks the flows to watch, evenly, at their switches and of the network.
func (s *scorer) choose(entered map[string]truth.Counts) {
	if s.watch == 0 {
		return
	}
	for _, name := range s.edges {
		keys := slices.SortedFunc(maps.Keys(entered[name]), flow.Key.Compare)
		n := min((s.watch+len(s.edges)-1)/len(s.edges), len(keys))
		for i := range n {
			key := keys[i*len(keys)/n].String()
			for _, device := range []string{name, score.Network} {
				s.asked = append(s.asked, &gnmi.Path{Elem: []*gnmi.PathElem{
					{Name: "chamelemon"}, {Name: "flows"}, {Name: "flow", Key: map[string]string{"device": device, "flow": key}},
				}})
			}
		}
	}
	s.watch = 0
}

// Watch implements score.Watcher.
func (s *scorer) Watch() []*gnmi.Path {
	rows := s.asked
	s.asked = nil
	return rows
}

// Totals implements score.Scorer.
func (s *scorer) Totals() []score.Total {
	var out []score.Total
	if most, n := s.balance(); n > 0 {
		out = append(out, score.Total{Measure: BalanceEpochs, Value: float64(most), Worst: float64(most), Views: n})
	}
	for _, m := range []struct {
		name string
		of   func(*Score) int64
	}{{CollectionMS, func(e *Score) int64 { return e.CollectionNS }}, {ResponseMS, func(e *Score) int64 { return e.ResponseNS }}} {
		var all []int64
		for _, e := range s.epochs {
			all = append(all, m.of(e))
		}
		if len(all) == 0 {
			continue
		}
		slices.Sort(all)
		out = append(out, score.Total{Measure: m.name, Value: float64(all[len(all)/2]) / 1e6, Worst: float64(all[len(all)-1]) / 1e6, Views: len(all)})
	}
	return out
}

// balance returns the largest number of epochs from a change of the network to the first from which all
// epochs until the next change are in balance, and of how many changes. Where none is, it is the
// number of epochs until the next change.
func (s *scorer) balance() (most, changes int) {
	for _, n := range s.Balance() {
		most = max(most, n)
		changes++
	}
	return most, changes
}

// Balance returns for each change that the run came to, by its epoch, how many epochs it took.
func (s *scorer) Balance() map[int]int {
	out := map[int]int{}
	byIndex := map[int]*Score{}
	last := -1
	for _, e := range s.epochs {
		byIndex[e.Index] = e
		last = max(last, e.Index)
	}
	for i, from := range s.changes {
		if from > last {
			break
		}
		until := last + 1
		if i+1 < len(s.changes) {
			until = min(until, s.changes[i+1])
		}
		first := until
		for first > from && byIndex[first-1] != nil && byIndex[first-1].Balanced {
			first--
		}
		out[from] = first - from
	}
	return out
}

// changed lists the changes' epochs in order.
func changed(balance map[int]int) []int { return slices.Sorted(maps.Keys(balance)) }
