// SPDX-License-Identifier: Apache-2.0

package sketchbench

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/netsketch/netsketch/sketch/countmin"
	"github.com/netsketch/netsketch/sketch/sumax"
)

func lightguardianFigure5() Suite {
	paper := "On CAIDA, 0.9 million flows: at 96 KB SuMax's ARE of flow size is 6.78 times below CM's and 1.75 times CU's."
	plots := memoryPlots("lightguardian-5", paper, [2]string{"flow size", "ARE"}, [2]string{"cardinality", "RE"}, [2]string{"entropy", "RE"}, [2]string{"flow size distribution", "WMRE"}, [2]string{"delay distribution", "ARE"}, [2]string{"maximum interval", "ARE"})
	partial := "55 % of the columns give more than 90 % valid answers with an ARE below 0.1 for the largest 1,000 flows, 80 % more than 99 % and below 0.01."
	plots = append(plots,
		Plot{File: "lightguardian-5-valid", Title: "share of valid answers, 768 KB", Task: "partial reconstruction", Metric: "valid share", X: "columns received (%)", Paper: partial},
		Plot{File: "lightguardian-5-partial-are", Title: "ARE of the largest 1,000 flows, 768 KB", Task: "partial reconstruction", Metric: "ARE", X: "columns received (%)", Log: true, Paper: partial},
		Plot{File: "lightguardian-5-chance", Title: "packets for every column, as multiples of the columns", Task: "reconstruction", Metric: "packets", X: "k", Paper: "k+chance selection needs fewer packets to reconstruct, fewer the larger k."})
	return Suite{
		Name: "lightguardian-5", Title: "LightGuardian, Figure 5: SuMax",
		Run: func(ctx context.Context, t *Trace, o Options) ([]Row, error) {
			rows, err := accuracy(ctx, t, o, []kind{sumaxKind(), countMin(false, "CM"), countMin(true, "CU")}, kilobytes(96, 192, 384, 768, 1536))
			if err != nil {
				return nil, err
			}
			for _, f := range []func(*Trace, Options) ([]Row, error){delays, intervals, partials} {
				more, err := f(t, o)
				if err != nil {
					return nil, err
				}
				rows = append(rows, more...)
			}
			return append(rows, chances(o)...), ctx.Err()
		},
		Plots: plots,
	}
}

// delayRange is a packet's delay range among eight; delays are chi-square distributed with
// 4 degrees of freedom, ranges are equal steps of 2.
func delayRange(r *rand.Rand) int {
	x := 0.0
	for range 4 {
		z := r.NormFloat64()
		x += z * z
	}
	return min(int(x/2), 7)
}

func delays(t *Trace, o Options) (rows []Row, err error) {
	truth := make(map[string]*[8]float64, len(t.flows))
	for _, f := range t.flows {
		truth[f.Key] = new([8]float64)
	}
	r := rand.New(rand.NewPCG(o.Seed, 0x64656c6179))
	ranges := make([]uint8, t.Len())
	for i := range ranges {
		ranges[i] = uint8(delayRange(r))
		truth[string(t.Key(i))][ranges[i]]++
	}
	for _, width := range []int{1 << 10, 1 << 12, 1 << 14, 1 << 16} {
		memory := 3 * width * 9 * 4
		s, err := sumax.New[host](sumax.Config{Width: width, Ranges: []uint32{1, 2, 3, 4, 5, 6, 7}, Seed: o.Seed})
		if err != nil {
			return nil, err
		}
		var cells [2][8]*countmin.Sketch[host]
		for v := range cells {
			for i := range cells[v] {
				if cells[v][i], err = countmin.New[host](countmin.Config{Width: width, Conservative: v == 1, Seed: o.Seed}); err != nil {
					return nil, err
				}
			}
		}
		for i := range t.Len() {
			s.Record(t.Key(i), sumax.Packet{Delay: uint32(ranges[i])})
			cells[0][ranges[i]].Insert(t.Key(i))
			cells[1][ranges[i]].Insert(t.Key(i))
		}
		var are [3]float64
		var buf []uint32
		for key, want := range truth {
			buf, _ = s.Delays(buf[:0], []byte(key))
			var sums [3]float64
			total := 0.0
			for i, n := range want {
				sums[0] += math.Abs(float64(buf[i]) - n)
				sums[1] += math.Abs(float64(cells[0][i].Query([]byte(key))) - n)
				sums[2] += math.Abs(float64(cells[1][i].Query([]byte(key))) - n)
				total += n
			}
			for v := range are {
				are[v] += sums[v] / total / float64(len(truth))
			}
		}
		for v, name := range []string{"SuMax", "CM", "CU"} {
			rows = append(rows, Row{name, "3 rows, 8 ranges", memory, "delay distribution", "ARE", are[v], "ratio", t.Name})
		}
	}
	return rows, nil
}

func intervals(t *Trace, o Options) (rows []Row, err error) {
	type gap struct{ last, most uint32 }
	truth := make(map[string]gap, len(t.flows))
	for i := range t.Len() {
		g := truth[string(t.Key(i))]
		if g.last != 0 && t.at[i] > g.last {
			g.most = max(g.most, t.at[i]-g.last)
		}
		g.last = max(g.last, t.at[i])
		truth[string(t.Key(i))] = g
	}
	for _, memory := range []int{750_000, 1_500_000, 3_000_000, 6_000_000, 12_000_000} {
		s, err := sumax.New[host](sumax.Config{Memory: memory, Intervals: true, Seed: o.Seed})
		if err != nil {
			return nil, err
		}
		for i := range t.Len() {
			s.Record(t.Key(i), sumax.Packet{At: t.at[i]})
		}
		are, n := 0.0, 0.0
		for key, g := range truth {
			if g.most > 0 {
				got, _, _ := s.MaxInterval([]byte(key))
				are += relative(float64(got), float64(g.most))
				n++
			}
		}
		rows = append(rows, Row{"SuMax", "3 rows", memory, "maximum interval", "ARE", are / max(n, 1), "ratio", t.Name})
	}
	return rows, nil
}

func partials(t *Trace, o Options) (rows []Row, err error) {
	const memory = 768_000
	s, err := sumax.New[host](sumax.Config{Memory: memory, Seed: o.Seed})
	if err != nil {
		return nil, err
	}
	if err := s.InsertBatch(t.keys, KeyBytes); err != nil {
		return nil, err
	}
	p, err := sumax.NewPartial[host](s.Config())
	if err != nil {
		return nil, err
	}
	width := s.Config().Width
	order := rand.New(rand.NewPCG(o.Seed, 0x636f6c)).Perm(width)
	for i, col := range order {
		cells, err := s.Column(nil, col)
		if err != nil {
			return nil, err
		}
		if err := p.SetColumn(col, cells); err != nil {
			return nil, err
		}
		percent := (i + 1) * 20 / width
		if percent == i*20/width || percent == 0 {
			continue
		}
		top := t.flows[:min(1000, len(t.flows))]
		valid, are := 0.0, 0.0
		for _, f := range top {
			if v, ok := p.Query([]byte(f.Key)); ok {
				valid++
				are += relative(float64(v), float64(f.Packets))
			}
		}
		variant := fmt.Sprintf("columns received (%%) %d", percent*5)
		rows = append(rows, Row{"SuMax", variant, memory, "partial reconstruction", "valid share", valid / float64(len(top)), "ratio", t.Name},
			Row{"SuMax", variant, memory, "partial reconstruction", "ARE", are / max(valid, 1), "ratio", t.Name})
	}
	return rows, nil
}

// chances counts the packets until every column has been sent, when each packet takes the
// least sent of 1+k columns drawn at random (LightGuardian §5.3).
func chances(o Options) (rows []Row) {
	r := rand.New(rand.NewPCG(o.Seed, 0x6b))
	for _, width := range []int{1 << 10, 1 << 13, 1 << 16} {
		for k := range 5 {
			sent := make([]uint32, width)
			left, packets := width, 0
			for ; left > 0; packets++ {
				best := r.IntN(width)
				for range k {
					if c := r.IntN(width); sent[c] < sent[best] {
						best = c
					}
				}
				if sent[best] == 0 {
					left--
				}
				sent[best]++
			}
			rows = append(rows, Row{fmt.Sprintf("%d columns", width), fmt.Sprintf("k %d", k), 0, "reconstruction", "packets", float64(packets) / float64(width), "packets per column", "none"})
		}
	}
	return rows
}
