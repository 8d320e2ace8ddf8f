// SPDX-License-Identifier: Apache-2.0

package lightguardian

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/trace"
	"github.com/netsketch/netsketch/sketch/countmin"
	"github.com/netsketch/netsketch/sketch/sumax"
)

// delayRanges is the paper's λd for delays.
const delayRanges = 8

// delayLaw draws the delay range of a packet.
type delayLaw struct {
	name   string
	figure string // figure with errors by memory; empty: none
	draw   func(r *rand.Rand) uint8
}

// delayLaws are three delay distributions; the paper does not state its other datasets.
var delayLaws = []delayLaw{
	{"chi-square", "12(a)", func(r *rand.Rand) uint8 {
		x := 0.0
		for range 4 {
			z := r.NormFloat64()
			x += z * z
		}
		return uint8(min(int(x/2), delayRanges-1))
	}},
	{"exponential", "12(b)", func(r *rand.Rand) uint8 { return uint8(min(int(r.ExpFloat64()*2), delayRanges-1)) }},
	{"log-normal", "", func(r *rand.Rand) uint8 { return uint8(min(math.Exp(r.NormFloat64()), delayRanges-1)) }},
}

// structures names the compared structures in the results of delays.
var structures = [3]string{"SuMax", "CM", "CU"}

// delays returns the mean WMRE of the largest flows' delays, of each structure by the number of
// flows. memory is the size of the delay cells.
func (m *measured) delays(l delayLaw, memory int, flows []int) (errors [3][]float64, err error) {
	for v := range errors {
		errors[v] = make([]float64, len(flows))
	}
	width := memory / 3 / 4 / delayRanges
	s, err := sumax.New[local](sumax.Config{Width: width, Ranges: []uint32{1, 2, 3, 4, 5, 6, 7}, NoSizes: true,
		Seed: m.seed})
	if err != nil {
		return errors, err
	}
	var others [2][delayRanges]*countmin.Sketch[local]
	for v := range others {
		for i := range others[v] {
			if others[v][i], err = countmin.New[local](countmin.Config{Width: width, Conservative: v == 1,
				Seed: m.seed}); err != nil {
				return errors, err
			}
		}
	}
	ranges := m.rangesOf(l)
	most := min(max(int(float64(flows[len(flows)-1])*m.scale), 1), len(m.t.Flows()))
	truth := make(map[string]*[delayRanges]float64, most)
	for _, f := range m.t.Flows()[:most] {
		truth[f.Key] = new([delayRanges]float64)
	}
	for i := range m.t.Len() {
		key := m.t.Key(i)
		s.Record(key, sumax.Packet{Delay: uint32(ranges[i])})
		others[0][ranges[i]].Insert(key)
		others[1][ranges[i]].Insert(key)
		if want := truth[string(key)]; want != nil {
			want[ranges[i]]++
		}
	}
	var buf []uint32
	var sums [3]float64
	next := 0
	for i, f := range m.t.Flows()[:most] {
		key := []byte(f.Key)
		buf, _ = s.Delays(buf[:0], key)
		var off, all [3]float64
		for j, n := range truth[f.Key] {
			for v, got := range []float64{float64(buf[j]), float64(others[0][j].Query(key)), float64(others[1][j].Query(key))} {
				off[v] += math.Abs(got - n)
				all[v] += (got + n) / 2
			}
		}
		for v := range sums {
			sums[v] += off[v] / all[v]
		}
		for next < len(flows) && i+1 == min(max(int(float64(flows[next])*m.scale), 1), most) {
			for v := range sums {
				errors[v][next] = sums[v] / float64(i+1)
			}
			next++
		}
	}
	return errors, nil
}

// arrival holds the errors of the recorded time of a flow's previous packet, at each packet except
// the first.
type arrival struct {
	absolute float64 // mean, ms
	relative float64 // mean
	exact    float64 // share of the packets
}

// lastArrivals measures arrival with the given memory for the cells of last arrivals.
func (m *measured) lastArrivals(memory int) (a arrival, err error) {
	s, err := sumax.New[local](sumax.Config{Width: memory / 3 / 4, Intervals: true, Seed: m.seed})
	if err != nil {
		return a, err
	}
	before := make(map[string]uint32, len(m.t.Flows()))
	n := 0.0
	for i := range m.t.Len() {
		key, at := m.t.Key(i), m.t.At(i)
		if want := before[string(key)]; want != 0 {
			_, got, _ := s.MaxInterval(key)
			off := math.Abs(float64(got) - float64(want))
			a.absolute += off / 1000
			a.relative += off / float64(want)
			if off == 0 {
				a.exact++
			}
			n++
		}
		before[string(key)] = at
		s.Record(key, sumax.Packet{At: at})
	}
	a.absolute, a.relative, a.exact = a.absolute/n, a.relative/n, a.exact/n
	return a, nil
}

// sizeClasses are the least packets of the classes of Figure 12(h).
var sizeClasses = []uint32{2, 5, 10, 100, 1000}

// sum is a sum of errors and their number.
type sum struct{ sum, n float64 }

// gapsBySize measures the relative errors of the maximum inter-arrival times by class of flow
// sizes, with the given memory for the cells of gaps and last arrivals.
func (m *measured) gapsBySize(memory int) (classes []sum, err error) {
	s, err := sumax.New[local](sumax.Config{Width: memory / 3 / 8, Intervals: true, Seed: m.seed})
	if err != nil {
		return nil, err
	}
	type gap struct{ last, most uint32 }
	truth := make(map[string]*gap, len(m.t.Flows()))
	for i := range m.t.Len() {
		key, at := m.t.Key(i), m.t.At(i)
		g := truth[string(key)]
		if g == nil {
			g = &gap{last: at}
			truth[string(key)] = g
		}
		g.most, g.last = max(g.most, at-g.last), at
		s.Record(key, sumax.Packet{At: at})
	}
	classes = make([]sum, len(sizeClasses))
	for _, f := range m.t.Flows() {
		g := truth[f.Key]
		if g.most == 0 {
			continue
		}
		size, _ := s.Query([]byte(f.Key))
		got, _, _ := s.OwnInterval([]byte(f.Key), size)
		class := 0
		for class+1 < len(sizeClasses) && f.Packets >= sizeClasses[class+1] {
			class++
		}
		classes[class].sum += math.Abs(float64(got)-float64(g.most)) / float64(g.most)
		classes[class].n++
	}
	return classes, nil
}

// delayMemories are the memories of the delay cells in Figure 12(a) and (b).
var delayMemories = []int{kilobytes768, 2 * kilobytes768, 4 * kilobytes768, 8 * kilobytes768}

const (
	sixMegabytes = 6_000_000
	arrivalTask  = "last arrival"
	gapTask      = "maximum inter-arrival time"
)

var arrivalMemories = []int{kilobytes768, 1_500_000, 3_000_000}
var gapMemories = []int{6_000_000, 12_000_000}

func delayTask(l delayLaw) string    { return "delays, " + l.name }
func delayTopTask(l delayLaw) string { return "delays of the largest flows, " + l.name }

func measureDelays(ctx context.Context, scale float64, seed uint64) (rows []suite.Row, err error) {
	t, err := workloadOf(scale, seed)
	if err != nil {
		return nil, err
	}
	m := &measured{t, seed, scale}
	sized := func(memory int) int { return int(float64(memory) * scale) }
	for _, l := range delayLaws {
		for _, memory := range delayMemories {
			if l.figure == "" {
				break
			}
			e, err := m.delays(l, sized(memory), tops[:1])
			if err != nil {
				return nil, err
			}
			for v, name := range structures {
				rows = append(rows, suite.Row{Structure: name, Memory: memory, Task: delayTask(l), Metric: "WMRE",
					Value: e[v][0], Unit: "ratio"})
			}
		}
		e, err := m.delays(l, sized(sixMegabytes), tops)
		if err != nil {
			return nil, err
		}
		for i, k := range tops {
			for v, name := range structures {
				rows = append(rows, suite.Row{Structure: name, Variant: fmt.Sprintf("flows %d", k), Memory: sixMegabytes,
					Task: delayTopTask(l), Metric: "WMRE", Value: e[v][i], Unit: "ratio"})
			}
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	for _, memory := range arrivalMemories {
		a, err := m.lastArrivals(sized(memory))
		if err != nil {
			return nil, err
		}
		rows = append(rows, suite.Row{Structure: "SuMax", Memory: memory, Task: arrivalTask, Metric: "AAE",
			Value: a.absolute, Unit: "ms"},
			suite.Row{Structure: "SuMax", Memory: memory, Task: arrivalTask, Metric: "exact", Value: a.exact, Unit: "ratio"})
	}
	for _, memory := range gapMemories {
		classes, err := m.gapsBySize(sized(memory))
		if err != nil {
			return nil, err
		}
		for i, c := range classes {
			rows = append(rows, suite.Row{Structure: fmt.Sprintf("%d KB", memory/1000),
				Variant: fmt.Sprintf("packets from %d", sizeClasses[i]), Memory: memory, Task: gapTask, Metric: "ARE",
				Value: c.sum / max(c.n, 1), Unit: "ratio"})
		}
	}
	return rows, nil
}

func delayFigure() suite.Suite {
	return suite.New(suite.Suite{
		Name: "lightguardian-12",
		Measure: func(ctx context.Context, _ *trace.Trace, o suite.Options) ([]suite.Row, error) {
			return measureDelays(ctx, 1, o.Seed)
		},
	})
}
