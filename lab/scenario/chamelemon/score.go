// SPDX-License-Identifier: Apache-2.0

package chamelemon

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/lab/scenario/score"
	"github.com/netsketch/netsketch/lab/truth"
	"github.com/netsketch/netsketch/sketch/flow"
)

// undecoded is the dimension of epochs of which not everything was decoded.
const undecoded = "undecoded"

// Score is one epoch beside the truth.
type Score struct {
	Index        int    `json:"index"` // in the run, from 0
	Status       string `json:"status"`
	CollectionNS int64  `json:"collection_ns"`
	ResponseNS   int64  `json:"response_ns"`

	// The attention that the epoch was measured with.
	State    string  `json:"state"`
	Next     string  `json:"next_state"`
	Problem  string  `json:"problem,omitempty"`
	Decoded  bool    `json:"decoded"`
	Settled  bool    `json:"settled"`
	Sure     bool    `json:"victims_exact"` // all victims are called exact
	Balanced bool    `json:"balanced"`
	Low      float64 `json:"low_threshold"`
	High     float64 `json:"highest_threshold"`
	Sample   float64 `json:"sample_rate"`
	// Parts are those of the IPv4 encoders.
	Heavy Part            `json:"hh"` // of the edge switch with the most flows in it
	HL    Part            `json:"hl"`
	LL    Part            `json:"ll"`
	Edges map[string]Edge `json:"edges"`

	// Lost packets of the network.
	Victims     *score.Figure      `json:"victims,omitempty"`
	LostPackets *score.Figure      `json:"lost_packets,omitempty"`
	Found       *score.Confusion   `json:"found,omitempty"`
	Exact       int                `json:"exact"` // of the true victims so many with the right number
	Losers      *score.Confusion   `json:"heavy_losers,omitempty"`
	Ends        int                `json:"ends"` // of the true victims so many with the switches where they entered and left
	SizeARE     float64            `json:"victim_size_are"`
	Top         []score.FlowFigure `json:"top_victims,omitempty"`

	// What entered, by edge switch and for the network.
	Views map[string]*View `json:"views"`
	// False are claims of exactness that are not true.
	False []string `json:"false_claims,omitempty"`

	flows      float64 // true
	absent, of int
}

// Part is a part of the encoders.
type Part struct {
	Buckets float64 `json:"buckets"` // of all arrays
	Next    float64 `json:"next_buckets"`
	Flows   float64 `json:"flows"`
	Load    float64 `json:"load_factor"`
	Decoded bool    `json:"decoded"`
}

// Edge is the attention of an edge switch.
type Edge struct {
	High     float64 `json:"high_threshold"`
	NextHigh float64 `json:"next_high_threshold"`
	Heavy    Part    `json:"hh"`
}

// View is what entered at a switch, or in the network.
type View struct {
	Packets  score.Figure     `json:"packets"`
	Distinct *score.Figure    `json:"distinct_flows,omitempty"`
	Entropy  *score.Figure    `json:"entropy_bits,omitempty"`
	Hitters  *score.Confusion `json:"heavy_hitters,omitempty"`
	Changes  *score.Confusion `json:"heavy_changes,omitempty"`
	WMRE     *float64         `json:"distribution_wmre,omitempty"`
	SizeARE  *float64         `json:"flow_size_are,omitempty"` // of the watched flows
}

// topVictims is how many victims are shown.
const topVictims = 5

// Missing implements score.Result.
func (s *Score) Missing() (n, of int) { return s.absent, s.of }

func (p *part) figures() Part {
	out := Part{Buckets: p.Buckets, Next: p.Next, Decoded: p.Decoded}
	if p.Flows != nil {
		out.Flows = *p.Flows
	}
	if p.Load != nil {
		out.Load = *p.Load
	}
	return out
}

// Loads between which a part is as full as it should be; it is also in balance where nothing is changed any more.
const (
	lowLoad  = 0.55
	highLoad = 0.8
)

func (p *Part) balanced(free bool) bool {
	return !free || p.Next == p.Buckets || p.Load >= lowLoad && p.Load <= highLoad
}

// attention takes what is said of the attention.
func (s *Score) attention(r *results, edges []string) {
	a := &r.attention
	s.State, s.Next, s.Problem = a.State, a.Next, a.Problem
	s.Decoded, s.Settled = a.Decoded, a.Settled
	s.Low, s.High, s.Sample = a.Low, a.High, a.Sample
	s.Edges, s.Views = map[string]Edge{}, map[string]*View{}
	for to, name := range map[*Part]string{&s.HL: "hl", &s.LL: "ll"} {
		if p := r.parts[partKey{score.Network, "ipv4", name}]; p != nil {
			*to = p.figures()
		}
	}
	s.Balanced = s.Decoded && s.Settled && s.State == s.Next && s.HL.balanced(true)
	for _, name := range edges {
		p, t := r.parts[partKey{name, "ipv4", "hh"}], r.thresholds[name]
		if p == nil || t == nil {
			s.Balanced = false
			continue
		}
		e := Edge{High: t.High, NextHigh: t.NextHigh, Heavy: p.figures()}
		s.Edges[name] = e
		if s.Heavy.Buckets == 0 || e.Heavy.Flows > s.Heavy.Flows {
			s.Heavy = e.Heavy
		}
		inBand := e.Heavy.Load >= lowLoad && e.Heavy.Load <= highLoad
		s.Balanced = s.Balanced && (t.High == t.NextHigh || inBand) && (t.Low == t.NextLow || s.HL.Load >= lowLoad && s.HL.Load <= highLoad)
	}
}

// View scores what entered at a device.
func (s *Score) View(by *scorer, r *results, name string, now, before truth.Counts) {
	sum, total := r.summaries[name], float64(now.Packets())
	v := &View{Packets: score.Of(*sum.Packets, total)}
	s.Views[name] = v
	if sum.PacketsExact && *sum.Packets != total {
		s.claim("%s: %.0f packets, %.0f entered", name, *sum.Packets, total)
	}
	if sum.Flows != nil {
		f := score.Of(*sum.Flows, float64(len(now)))
		v.Distinct = &f
	}
	if sum.Entropy != nil {
		f := score.Of(*sum.Entropy, now.Entropy())
		v.Entropy = &f
	}
	v.sizes(s, name, r.watched[name], now)
	for k, h := range r.hitters[name] {
		if h.Exact && h.Packets != float64(now[k]) {
			s.claim("%s: heavy hitter %v: %.0f packets, %d entered", name, k, h.Packets, now[k])
		}
	}
	if sum.Hitters != nil {
		c := by.config.HeavyHitters
		f := score.Compare(r.hitters[name], now.AtLeast(math.Max(math.Max(float64(c.Packets), math.Ceil(c.Share*total)), 1)))
		v.Hitters = &f
	}
	if sum.Changes != nil && before != nil {
		all := truth.Changes(before, now)
		all = slices.DeleteFunc(all, func(f truth.Flow) bool { return f.Packets <= by.config.HeavyChanges.Packets })
		f := score.Compare(r.changes[name], all)
		v.Changes = &f
	}
	if ranges := r.ranges[name]; len(ranges) > 0 {
		f := wmre(ranges, now)
		v.WMRE = &f
	}
	if sum.FlowsExact && (v.Distinct == nil || v.Distinct.Error() != 0 || v.Entropy == nil || math.Abs(v.Entropy.Measured-v.Entropy.True) > 1e-5 || v.WMRE == nil || *v.WMRE != 0) {
		s.claim("%s: flows are called exact: %v of them, an entropy of %v, a distribution with a WMRE of %v", name, v.Distinct, v.Entropy, v.WMRE)
	}
}

// sizes scores the sizes of the watched flows that entered.
func (v *View) sizes(s *Score, name string, watched map[flow.Key]*sized, now truth.Counts) {
	are, n := 0.0, 0
	for k, w := range watched {
		size := float64(now[k])
		if w.Exact && w.Packets != size {
			s.claim("%s: watched flow %v: %.0f packets, %.0f entered", name, k, w.Packets, size)
		}
		if size > 0 {
			are += math.Abs(w.Packets-size) / size
			n++
		}
	}
	if n > 0 {
		are /= float64(n)
		v.SizeARE = &are
	}
}

// wmre is the weighted mean relative error of a distribution, by the ranges that are told; what is beyond
// them counts as wrong.
func wmre(ranges map[uint64]*sizes, now truth.Counts) float64 {
	firsts := slices.Sorted(maps.Keys(ranges))
	actual := make([]float64, len(firsts))
	beyond := 0.0
	for _, n := range now {
		i, found := slices.BinarySearch(firsts, n)
		if !found {
			i--
		}
		if i < 0 || n > ranges[firsts[i]].To {
			beyond++
			continue
		}
		actual[i]++
	}
	wrong, sum := beyond, beyond
	for i, first := range firsts {
		told := ranges[first].Flows
		wrong += math.Abs(told - actual[i])
		sum += told + actual[i]
	}
	return wrong / (sum / 2)
}

// losses scores what is told of lost packets.
func (s *Score) losses(by *scorer, r *results, what score.Truth) {
	entered, lost := what.Network, what.Lost
	s.flows = float64(len(entered))
	if r.attention.Victims != nil {
		f := score.Of(*r.attention.Victims, float64(len(lost)))
		s.Victims = &f
	}
	told := 0.0
	found, losers := score.Confusion{}, score.Confusion{}
	n := 0
	for k, v := range r.victims {
		really := float64(lost[k])
		told += v.Lost
		if really == 0 {
			found.FalsePositive++
		} else {
			found.TruePositive++
			if really == v.Lost {
				s.Exact++
			}
		}
		if v.Exact && v.Lost != really {
			s.claim("victim %v: %.0f lost packets, in truth %.0f", k, v.Lost, really)
		}
		if really > 0 {
			d, exit := what.Devices[v.Entry], by.home(k.DstAddr())
			switch {
			case d != nil && d.Lost[k] == 0:
				s.claim("victim %v: entered at %s, in truth elsewhere", k, v.Entry)
			case v.Exit != "" && v.Exit != exit:
				s.claim("victim %v: left at %s, in truth %q", k, v.Exit, exit)
			case d != nil && v.Exit != "":
				s.Ends++
			}
		}
		if size := float64(entered[k]); size > 0 && v.Packets > 0 {
			s.SizeARE += math.Abs(v.Packets-size) / size
			n++
		}
		if v.heavy() && v.Lost >= s.Low && really < s.Low {
			losers.FalsePositive++
		}
	}
	if n > 0 {
		s.SizeARE /= float64(n)
	}
	for k, really := range lost {
		v := r.victims[k]
		if v == nil {
			found.FalseNegative++
		}
		switch {
		case float64(really) < s.Low:
		case v != nil && v.heavy():
			losers.TruePositive++
		default:
			losers.FalseNegative++
		}
	}
	s.Found, s.Losers = &found, &losers
	f := score.Of(told, float64(lost.Packets()))
	s.LostPackets = &f
	sum := r.summaries[score.Network]
	s.Sure = sum != nil && sum.VictimsExact
	if s.Sure && (s.Exact != len(lost) || found.FalsePositive > 0) {
		s.claim("all %.0f victims are called exact; %d of %d are, and %d lost nothing", *cmp.Or(sum.Victims, new(float64)), s.Exact, len(lost), found.FalsePositive)
	}
	for _, f := range lost.Top(topVictims) {
		fig := score.FlowFigure{Flow: f.Key.String(), Figure: score.Of(0, float64(f.Packets))}
		if v := r.victims[f.Key]; v != nil {
			fig.Measured = v.Lost
		}
		s.Top = append(s.Top, fig)
	}
}

// claim notes something that is called exact and is not.
func (s *Score) claim(format string, args ...any) {
	for i, a := range args {
		if k, ok := a.(flow.Key); ok {
			args[i] = k.String()
		}
	}
	s.False = append(s.False, fmt.Sprintf(format, args...))
}

// state is the dimension of what is told of lost packets.
func (s *Score) state() string {
	if !s.Decoded {
		return undecoded
	}
	return s.State
}

// Samples implements score.Result.
func (s *Score) Samples() []score.Sample {
	n := 0
	if s.Decoded {
		n = 1
	}
	out := []score.Sample{
		score.Share(Decoded, "", n, 1), score.Mean(FalseClaims, "", float64(len(s.False))),
		score.Mean(LostResults, "", float64(s.absent)/float64(s.of)),
	}
	if d := s.state(); s.Found != nil && s.Settled {
		c := *s.Found
		out = append(out,
			score.F1(VictimF1, d, c), score.Precision(VictimPrecision, d, c), score.Recall(VictimRecall, d, c),
			score.Share(VictimsExact, d, s.Exact, c.TruePositive+c.FalseNegative),
			score.Mean(LostPacketsError, d, s.LostPackets.Error()), score.F1(HeavyLoserF1, d, *s.Losers),
			score.Share(VictimEnds, d, s.Ends, c.TruePositive), score.Mean(VictimSizeARE, d, s.SizeARE))
		if s.Victims != nil {
			out = append(out, score.Mean(VictimsCountError, d, s.Victims.Error()))
		}
	}
	for _, name := range slices.SortedFunc(maps.Keys(s.Views), strings.Compare) {
		v, d := s.Views[name], "edge"
		if name == score.Network {
			d = score.Network
		}
		out = append(out, score.Mean(PacketsError, d, v.Packets.Error()))
		for m, f := range map[string]*score.Figure{DistinctError: v.Distinct, EntropyError: v.Entropy} {
			if f != nil {
				out = append(out, score.Mean(m, d, f.Error()))
			}
		}
		for m, c := range map[string]*score.Confusion{HeavyHitterF1: v.Hitters, HeavyChangeF1: v.Changes} {
			if c != nil {
				out = append(out, score.F1(m, d, *c))
			}
		}
		for m, x := range map[string]*float64{DistributionWMRE: v.WMRE, FlowSizeARE: v.SizeARE} {
			if x != nil {
				out = append(out, score.Mean(m, d, *x))
			}
		}
	}
	return out
}
