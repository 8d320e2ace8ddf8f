// SPDX-License-Identifier: Apache-2.0

package sketches

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/trace"
	"github.com/netsketch/netsketch/sketch/countmin"
	"github.com/netsketch/netsketch/sketch/sumax"
)

// perFlow are memories. The first are the paper's 96 to 768 KB, scaled from its trace of 0.9
// million flows to one of 124 thousand, so that each flow has as many bytes; the larger ones are
// the paper's own.
var perFlow = kilobytes(13, 26, 53, 96, 192, 384, 768)

func lightguardianFigure5() suite.Suite {
	tasks := [][2]string{{"flow size", "ARE"}, {"cardinality", "RE"}, {"entropy", "RE"},
		{"flow size distribution", "WMRE"}}
	return suite.New(suite.Suite{
		Name: "lightguardian-5",
		Measure: func(ctx context.Context, t *trace.Trace, o suite.Options) ([]suite.Row, error) {
			rows, err := accuracy(ctx, t, o, []kind{sumaxKind(), countMin(false, "CM"), countMin(true, "CU")}, perFlow,
				tasks)
			if err != nil {
				return nil, err
			}
			parts := make([][]suite.Row, 3)
			err = suite.Each(ctx, len(parts), func(i int) (err error) {
				parts[i], err = []func(context.Context, *trace.Trace, suite.Options) ([]suite.Row, error){delays,
					intervals,
					partials}[i](ctx, t, o)
				return err
			})
			return append(append(rows, slices.Concat(parts...)...), chances(o, chanceWidths)...), err
		},
	})
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

// delayWidths are the paper's 2^10 to 2^17 buckets a row.
var delayWidths = []int{1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16, 1 << 17}

// delayBytes returns the memory of 3 rows of width buckets, each with 9 counters: 8 delay ranges
// and the packets.
func delayBytes(width int) int { return 3 * width * 9 * 4 }

func delays(ctx context.Context, t *trace.Trace, o suite.Options) (rows []suite.Row, err error) {
	truth := make(map[string]*[8]float64, len(t.Flows()))
	for _, f := range t.Flows() {
		truth[f.Key] = new([8]float64)
	}
	r := rand.New(rand.NewPCG(o.Seed, 0x64656c6179))
	ranges := make([]uint8, t.Len())
	for i := range ranges {
		ranges[i] = uint8(delayRange(r))
		truth[string(t.Key(i))][ranges[i]]++
	}
	for _, width := range delayWidths {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		memory := delayBytes(width)
		s, err := sumax.New[host](sumax.Config{Width: width, Ranges: []uint32{1, 2, 3, 4, 5, 6, 7}, Seed: o.Seed})
		if err != nil {
			return nil, err
		}
		var cells [2][8]*countmin.Sketch[host]
		for v := range cells {
			for i := range cells[v] {
				if cells[v][i], err = countmin.New[host](countmin.Config{Width: width, Conservative: v == 1,
					Seed: o.Seed}); err != nil {
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
		for _, f := range t.Flows() {
			key, want := f.Key, truth[f.Key]
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
			rows = append(rows, row(name, "3 rows, 8 ranges", memory, "delay distribution", "ARE", are[v], "ratio",
				t.Name))
		}
	}
	return rows, nil
}

func intervals(ctx context.Context, t *trace.Trace, o suite.Options) (rows []suite.Row, err error) {
	type gap struct{ last, most uint32 }
	truth := make(map[string]gap, len(t.Flows()))
	for i := range t.Len() {
		g := truth[string(t.Key(i))]
		if g.last != 0 && t.At(i) > g.last {
			g.most = max(g.most, t.At(i)-g.last)
		}
		g.last = max(g.last, t.At(i))
		truth[string(t.Key(i))] = g
	}
	for _, memory := range []int{750_000, 1_500_000, 3_000_000, 6_000_000, 12_000_000} {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s, err := sumax.New[host](sumax.Config{Memory: memory, Intervals: true, Seed: o.Seed})
		if err != nil {
			return nil, err
		}
		for i := range t.Len() {
			s.Record(t.Key(i), sumax.Packet{At: t.At(i)})
		}
		are, n := 0.0, 0.0
		for _, f := range t.Flows() {
			key, g := f.Key, truth[f.Key]
			if g.most > 0 {
				size, _ := s.Query([]byte(key))
				got, _, _ := s.OwnInterval([]byte(key), size)
				are += suite.Relative(float64(got), float64(g.most))
				n++
			}
		}
		rows = append(rows, row("SuMax", "3 rows", memory, "maximum interval", "ARE", are/max(n, 1), "ratio", t.Name))
	}
	return rows, nil
}

func partials(_ context.Context, t *trace.Trace, o suite.Options) (rows []suite.Row, err error) {
	const memory = 768_000
	s, err := sumax.New[host](sumax.Config{Memory: memory, Seed: o.Seed})
	if err != nil {
		return nil, err
	}
	if err := s.InsertBatch(t.Keys(), t.KeyBytes()); err != nil {
		return nil, err
	}
	const orders = 20
	width := s.Config().Width
	top := t.Flows()[:min(1000, len(t.Flows()))]
	var valid, are [21]float64 // means over the orders, by received twentieths of the columns
	for order := range uint64(orders) {
		p, err := sumax.NewPartial[host](s.Config())
		if err != nil {
			return nil, err
		}
		for i, col := range rand.New(rand.NewPCG(o.Seed, 0x636f6c+order)).Perm(width) {
			cells, err := s.Column(nil, col)
			if err != nil {
				return nil, err
			}
			if _, err := p.SetColumn(col, cells); err != nil {
				return nil, err
			}
			part := (i + 1) * 20 / width
			if part == i*20/width {
				continue
			}
			answers, sum := 0.0, 0.0
			for _, f := range top {
				if v, ok := p.Query([]byte(f.Key)); ok {
					answers++
					sum += suite.Relative(float64(v), float64(f.Packets))
				}
			}
			valid[part] += answers / float64(len(top)) / orders
			are[part] += sum / max(answers, 1) / orders
		}
	}
	for part := 1; part <= 20; part++ {
		variant := fmt.Sprintf("columns received (%%) %d", part*5)
		rows = append(rows, row("SuMax", variant, memory, "partial reconstruction", "valid share", valid[part], "ratio",
			t.Name),
			row("SuMax", variant, memory, "partial reconstruction", "ARE", are[part], "ratio", t.Name))
	}
	return rows, nil
}

var chanceWidths = []int{1 << 10, 1 << 13, 1 << 16}

// chances counts the packets until every column has been sent under k+chance selection
// (LightGuardian §5.3): each of k arrays has a bit for every column; a packet draws one random bit
// in each array, takes the column of the first bit that is still zero, and sets that bit. It takes
// any column if all these bits are set. The rows are means over 16 to 100 runs, or over fewer if a
// hundredth of the decodings of the options is less.
func chances(o suite.Options, widths []int) (rows []suite.Row) {
	r := rand.New(rand.NewPCG(o.Seed, 0x6b))
	for _, width := range widths {
		runs := min(100, 1<<20/width, max(o.Decodings/100, 1))
		for k := range 5 {
			total := 0
			for range runs {
				arrays := make([]bool, k*width)
				sent := make([]bool, width)
				for left := width; left > 0; total++ {
					col := -1
					for a := range k {
						if c := r.IntN(width); !arrays[a*width+c] {
							arrays[a*width+c], col = true, c
							break
						}
					}
					if col < 0 {
						col = r.IntN(width)
					}
					if !sent[col] {
						sent[col] = true
						left--
					}
				}
			}
			rows = append(rows, row(fmt.Sprintf("%d columns", width), fmt.Sprintf("k %d", k), k*width/8,
				"reconstruction", "packets", float64(total)/float64(width*runs), "packets per column", "none"))
		}
	}
	return rows
}
