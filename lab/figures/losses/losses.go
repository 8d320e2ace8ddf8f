// SPDX-License-Identifier: Apache-2.0

// Package losses measures the memory and time that finding lost packets takes: ChameleMon's Figures
// 4 to 6, and 10 about fingerprints. It has no state. The same trace and seed give the same rows,
// except times.
package losses

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/netsketch/netsketch/lab/figures/baseline"
	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/trace"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/fermat"
)

// host is the hash of all structures.
type host = family.Fast

// Suites are the figures, in order.
func Suites() []suite.Suite {
	return []suite.Suite{chamelemonFigure4(), chamelemonFigure5(), chamelemonFigure6(), chamelemonFigure10()}
}

func row(structure, variant string, memory int, task, metric string, value float64, unit, trace string) suite.Row {
	return suite.Row{Structure: structure, Variant: variant, Memory: memory, Task: task, Metric: metric, Value: value,
		Unit: unit, Trace: trace}
}

// losses is one experiment of ChameleMon §5.1: flows pass a link and some of them lose packets.
type losses struct {
	flows []trace.Flow // those that pass
	lost  []uint32
}

// lossKey is the bytes of a flow's identifier there: the source address.
const lossKey = 4

func lossesOf(t *trace.Trace, flows, victims int, rate float64, seed uint64) losses {
	r := rand.New(rand.NewPCG(seed, 0x6c6f7373))
	l := losses{flows: t.Flows()[:min(flows, len(t.Flows()))]}
	for i := range l.flows {
		n := uint32(0)
		if i < victims {
			n = uint32(max(1, math.Round(rate*float64(l.flows[i].Packets)+r.Float64()-0.5)))
		}
		l.lost = append(l.lost, n)
	}
	return l
}

func (l losses) key(i int) []byte {
	k := l.flows[i].Key
	if len(k) == 16 {
		k = k[12:] // of an IPv6 address its last bytes, which are all of a mapped one
	}
	return []byte(k[:lossKey])
}

// recorder is a structure that finds lost packets.
type recorder struct {
	name string
	// items is the number of items to decode.
	items func(l losses) int
	// encode returns what decodes the losses from so much memory. A decoding returns the function
	// that checks it.
	encode func(l losses, memory int, seed uint64) (decode func() verdict, err error)
}

// verdict reports whether a decoding succeeded; it is not part of the decoding's time.
type verdict func() bool

func is(ok bool) verdict { return func() bool { return ok } }

func victims(l losses) (n int) {
	for _, lost := range l.lost {
		if lost > 0 {
			n++
		}
	}
	return n
}

func packets(l losses) (n int) {
	for _, lost := range l.lost {
		n += int(lost)
	}
	return n
}

func recorded(l losses) int { return len(l.flows) }

var recorders = []recorder{
	{"Fermat", victims, func(l losses, memory int, seed uint64) (func() verdict, error) {
		// What entered less what left holds the lost packets alone: sketches are linear.
		s, err := fermat.New[host, fermat.Prime32](fermat.Config{Memory: memory, KeyBytes: lossKey, FragmentBits: 32,
			Seed: seed})
		if err != nil {
			return nil, err
		}
		for i, n := range l.lost {
			if n > 0 {
				if err := s.Add(l.key(i), int64(n)); err != nil {
					return nil, err
				}
			}
		}
		return func() verdict { r, err := s.Decode(); return is(err == nil && r.Complete) }, nil
	}},
	{"FlowRadar", recorded, func(l losses, memory int, seed uint64) (func() verdict, error) {
		up, err := flowRadar(l, memory, seed)
		return func() verdict { _, ok := up.Decode(); return is(ok) }, err
	}},
	{flowRadarExact, recorded, func(l losses, memory int, seed uint64) (func() verdict, error) {
		up, err := flowRadar(l, memory, seed)
		return func() verdict {
			found, ok := up.Decode()
			return func() bool { return ok && l.exact(found) }
		}, err
	}},
	{"LossRadar", packets, func(l losses, memory int, seed uint64) (func() verdict, error) {
		s, err := baseline.NewLossRadar[host](memory, lossKey, seed)
		if err != nil {
			return nil, err
		}
		for i, n := range l.lost {
			key := l.key(i)
			for packet := range n {
				if err := s.Insert(key, uint16(packet*7)); err != nil {
					return nil, err
				}
			}
		}
		return func() verdict { _, ok := s.Decode(); return is(ok) }, nil
	}},
}

// flowRadarExact is FlowRadar with the other criterion of success: every flow is decoded with its
// exact number of packets. If its filter mistakes a new flow for an old one, that flow is missing,
// and others have its packets.
const flowRadarExact = "FlowRadar (exact)"

func flowRadar(l losses, memory int, seed uint64) (*baseline.FlowRadar[host], error) {
	up, err := baseline.NewFlowRadar[host](memory, lossKey, seed)
	for i := 0; err == nil && i < len(l.flows); i++ {
		err = up.Insert(l.key(i), int64(l.flows[i].Packets))
	}
	return up, err
}

// exact reports whether flows are those that passed, with their packets.
func (l losses) exact(flows []baseline.Flow) bool {
	if len(flows) != len(l.flows) {
		return false
	}
	packets := make(map[string]int64, len(flows))
	for _, f := range flows {
		packets[string(f.Key)] = f.Count
	}
	for i, f := range l.flows {
		if packets[string(l.key(i))] != int64(f.Packets) {
			return false
		}
	}
	return true
}

const (
	// success is the share of decodings that must succeed.
	success = 0.999
	// lossWork bounds what the tries at one memory have to decode together, and fewTries
	// is the least number of them.
	lossWork, fewTries = 1_000_000, 20
	// most is where the search gives up.
	most = 1 << 26
)

// tries returns the number of decodings per memory.
func (r *recorder) tries(l losses, o suite.Options) int {
	return max(min(o.Decodings, lossWork/max(r.items(l), 1)), min(fewTries, o.Decodings))
}

// share reports whether of n decodings, each with other hashes, at most one in 1,000 fails, or one
// when there are fewer.
func (r *recorder) share(ctx context.Context, l losses, memory, n int, seed uint64) (bool, error) {
	allowed := max(1, int(float64(n)*(1-success)+1e-9))
	for i := range n {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		decode, err := r.encode(l, memory, seed+uint64(i))
		if err != nil {
			return false, err
		}
		if !decode()() {
			if allowed--; allowed < 0 {
				return false, nil
			}
		}
	}
	return true, nil
}

// least finds the least memory, to 2 %, at which 99.9 % of the tries decode; 0 when 64 MB
// do not. A search with few tries comes first. LossRadar numbers a flow's packets in 16
// bits, so that a flow which loses more than 65,536 packets never decodes.
func (r *recorder) least(ctx context.Context, l losses, o suite.Options) (int, error) {
	lo, hi, err := bracket(256, most, func(memory int) (bool, error) {
		return r.share(ctx, l, memory, min(fewTries/2, o.Decodings), o.Seed)
	})
	if err != nil || hi == 0 {
		return 0, err
	}
	all := r.tries(l, o)
	_, hi, err = bracket(lo, most, func(memory int) (bool, error) { return r.share(ctx, l, memory, all, o.Seed) })
	return hi, err
}

// bracket finds neighbours, 2 % apart, of which lo is not enough and hi is; it starts at
// from, goes up by growing steps, and then in between. hi is 0 when most is not enough.
func bracket(from, most int, enough func(int) (bool, error)) (lo, hi int, err error) {
	lo, hi = from, 0
	for step := max(from/50, 8); hi == 0; step *= 2 {
		if step = min(step, most-lo); step <= 0 {
			return lo, 0, nil
		}
		ok, err := enough(lo + step)
		switch {
		case err != nil:
			return 0, 0, err
		case ok:
			hi = lo + step
		default:
			lo += step
		}
	}
	for hi-lo > max(lo/50, 8) {
		ok, err := enough((lo + hi) / 2)
		switch {
		case err != nil:
			return 0, 0, err
		case ok:
			hi = (lo + hi) / 2
		default:
			lo = (lo + hi) / 2
		}
	}
	return lo, hi, nil
}

// decodings is how many are timed.
const decodings = 21

// time is the median time of decodings that succeed: processor time, if available, so that
// other work on the machine is not in it.
func (r *recorder) time(ctx context.Context, l losses, memory int, seed uint64) (time.Duration, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var took []time.Duration
	for i := range uint64(decodings) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		decode, err := r.encode(l, memory, seed+i)
		if err != nil {
			return 0, err
		}
		cpu, start := suite.ThreadTime(), time.Now()
		ok := decode()
		used, wall := suite.ThreadTime()-cpu, time.Since(start)
		switch {
		case !ok():
		case used > 0:
			took = append(took, used)
		default:
			took = append(took, wall)
		}
	}
	if len(took) == 0 {
		return 0, fmt.Errorf("%s: nothing decodes from %d bytes", r.name, memory)
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

// link is one point of the figures.
type link struct {
	x              float64
	flows, victims int
	rate           float64
}

func lossRows(ctx context.Context, t *trace.Trace, o suite.Options, x string,
	points []link) (rows []suite.Row, err error) {
	points = slices.DeleteFunc(slices.Clone(points), func(p link) bool {
		return p.flows > len(t.Flows())
	}) // more than the trace has
	type job struct {
		r      *recorder
		l      losses
		p      link
		memory int
		same   int // the job before with the same content, or -1
	}
	var jobs []job
	for _, p := range points {
		l := lossesOf(t, p.flows, p.victims, p.rate, o.Seed)
		for i := range recorders {
			// FlowRadar records flows, lost or not.
			same := slices.IndexFunc(jobs, func(j job) bool {
				return j.r == &recorders[i] && strings.HasPrefix(j.r.name, "FlowRadar") && j.p.flows == p.flows
			})
			jobs = append(jobs, job{&recorders[i], l, p, 0, same})
		}
	}
	err = suite.Each(ctx, len(jobs), func(i int) (err error) {
		if jobs[i].same < 0 {
			jobs[i].memory, err = jobs[i].r.least(ctx, jobs[i].l, o)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, j := range jobs {
		if j.same >= 0 {
			j.memory = jobs[j.same].memory
		}
		if j.memory == 0 {
			continue
		}
		took, err := j.r.time(ctx, j.l, j.memory, o.Seed)
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(j.r.name, "FlowRadar") {
			took *= 2 // the far end has the same flows to decode
		}
		variant := fmt.Sprintf("%s %g", x, j.p.x)
		rows = append(rows,
			row(j.r.name, variant, j.memory, "packet losses", "memory", float64(j.memory), "bytes", t.Name),
			row(j.r.name, variant, j.memory, "packet losses", "decoding time", took.Seconds()*1e3, "ms", t.Name),
			row(j.r.name, variant, j.memory, "packet losses", "tries", float64(j.r.tries(j.l, o)), "decodings", t.Name))
	}
	return rows, nil
}

// The traffic has 5.3 million packets of some 100 thousand sources if the trace is the standard one
// of 2 million packets. These are the numbers for 2,000.
const lossPackets, lossRanks = 5300, 110

const lossSetup = "The paper: 100 thousand source addresses of CAIDA with 5.3 million packets; memory is the least " +
	"at which 99.9 % of the decodings succeed, and time is the decoding time at this memory. " +
	"Here: the largest flows by source address of 5.3 million generated packets; memory is exact to 2 %. Every memory " +
	"is tried up to 10,000 times with other hashes, and fewer times if there is more to decode (the last chart). " +
	"One try in 1,000 may fail, or one if there are fewer tries. " +
	"With one failure in n tries, the share that succeeds is at least 1-4.7/n with 95 % confidence. Above some " +
	"thousand flows, where n is small, the share rises from 0 to nearly 1 within 2 % of the memory, so n matters " +
	"little. " +
	"Below that, the limit is not the threshold of 1.23 buckets a flow but the probability that two flows share all " +
	"three buckets: n flows need 24·n^(2/3) buckets to reduce it to 0.1 %. " +
	"FlowRadar has two lines, with both criteria of success: its cells end up empty, as in the authors' program, even " +
	"if its filter mistook a new flow for an old one; or (exact) every flow is decoded with its exact number of " +
	"packets. As the second one fails smoothly with less memory, it is known to the number of tries only. " +
	"Losses of Fermat are encoded directly: this equals the difference of the two ends. LossRadar numbers a flow's " +
	"packets in 16 bits; it has no point if a flow loses more than 65,536. " +
	"Times are medians of 21, of one thread's processor time on one machine."

// Reasons for the savings in memory, where the paper's are larger.
const (
	flowRadarWhy = "if Fermat's memory is that here, the paper's FlowRadar takes 114 bytes a flow, but for the same " +
		"10,000 flows in Figure 4 only 19; here it takes 17, and 31 by the exact criterion, so neither explains both. " +
		"LossRadar ends at 5 % here, as the largest flow loses more than 65,536 packets at 10 %; its memory grows " +
		"linearly and would come to 2,700 times at 30 %"
	manyFlowsWhy = "if Fermat's memory is that here, the paper's FlowRadar takes 62 bytes a flow, in Figure 4 only 19; " +
		"here it takes 16, and 31 by the exact criterion. LossRadar's memory is in proportion to the lost packets, so the " +
		"paper's 100 largest flows had 1.4 times the packets of those here"
)

func lossSuite(figure, x string, points []link, claims []suite.Claim) suite.Suite {
	name := "chamelemon-" + figure
	return suite.Suite{
		Name: name, Title: fmt.Sprintf("ChameleMon, Figure %s: packet losses by %s", figure, x), Setup: lossSetup,
		Claims: claims,
		Measure: func(ctx context.Context, t *trace.Trace, o suite.Options) ([]suite.Row, error) {
			all, err := t.Like(lossPackets*t.Len()/2000, lossRanks*t.Len()/2000, o.Seed)
			if err != nil {
				return nil, err
			}
			return lossRows(ctx, all.Sources(), o, x, points)
		},
		Plots: []suite.Plot{
			{File: name + "-memory", Title: "Memory to decode every loss (bytes)", Task: "packet losses",
				Metric: "memory", X: x, Log: true},
			{File: name + "-time", Title: "Decoding time (ms)", Task: "packet losses", Metric: "decoding time", X: x,
				Log: true},
			{File: name + "-tries", Title: "Tries at each memory", Task: "packet losses", Metric: "tries", X: x,
				Log: true},
		},
	}
}

// along is a metric of a structure at all points of a loss figure that it has.
func along(v suite.Values, x string, points []link, structure, metric string) (out []float64) {
	for _, p := range points {
		out = append(out, v.Variant(structure, fmt.Sprintf("%s %g", x, p.x), "packet losses", metric))
	}
	return out
}

// saving claims Fermat's largest saving of memory or time.
func saving(figure, paper, x string, points []link, metric string, atLeast [2]float64, why string) suite.Claim {
	best := func(v suite.Values, other string) float64 {
		ratio := math.Inf(-1)
		theirs := along(v, x, points, other, metric)
		for i, ours := range along(v, x, points, "Fermat", metric) {
			if !math.IsNaN(theirs[i] / ours) {
				ratio = max(ratio, theirs[i]/ours)
			}
		}
		return ratio
	}
	c := suite.Claim{
		Figure: figure, Paper: paper, Why: why,
		Ours: func(v suite.Values) string {
			return fmt.Sprintf("FlowRadar up to %s times, by the exact criterion %s times, LossRadar up to %s times",
				suite.Short(best(v, "FlowRadar")), suite.Short(best(v, flowRadarExact)), suite.Short(best(v, "LossRadar")))
		},
	}
	if atLeast[0] > 0 {
		c.Holds = func(v suite.Values) bool {
			return max(best(v, "FlowRadar"), best(v, flowRadarExact)) >= atLeast[0] && best(v, "LossRadar") >= atLeast[1]
		}
	}
	return c
}

// trend shows how a structure's memory grows with x: the last point relative to the first.
func trend(figure, paper, x string, points []link, structure string, holds func(growth float64) bool) suite.Claim {
	growth := func(v suite.Values) float64 {
		m := slices.DeleteFunc(along(v, x, points, structure, "memory"), math.IsNaN)
		if len(m) == 0 {
			return math.NaN()
		}
		return m[len(m)-1] / m[0]
	}
	return suite.Claim{
		Figure: figure, Paper: paper,
		Ours: func(v suite.Values) string {
			return fmt.Sprintf("the last point takes %s times the first", suite.Short(growth(v)))
		},
		Holds: func(v suite.Values) bool { return holds(growth(v)) },
	}
}

// steady allows for the chance in 0.1 %, which moves a memory by its cube root.
func steady(growth float64) bool { return growth > 0.9 && growth < 1.1 }

func above2(growth float64) bool { return growth > 2 }

func chamelemonFigure4() suite.Suite {
	const x = "victim flows"
	var points []link
	for _, n := range []int{500, 1000, 2000, 4000, 6000, 8000, 10_000} {
		points = append(points, link{float64(n), 10_000, n, 0.01})
	}
	return lossSuite("4", x, points, []suite.Claim{
		trend("4(a)", "Fermat's memory grows almost linearly with the victims", x, points, "Fermat", above2),
		trend("4(a)", "FlowRadar's memory stays", x, points, "FlowRadar", steady),
		saving("4(a)", "Fermat saves up to 15.9 times FlowRadar's and 23.2 times LossRadar's memory", x, points,
			"memory", [2]float64{15.9, 23.2}, ""),
		saving("4(b)", "Fermat saves up to 3.0 times FlowRadar's and 4.6 times LossRadar's decoding time", x, points,
			"decoding time", [2]float64{}, ""),
		{
			Figure: "4(b)", Paper: "above 6,000 victims Fermat decodes slower than FlowRadar",
			Ours: func(v suite.Values) string {
				ours, theirs := along(v, x, points, "Fermat", "decoding time"),
					along(v, x, points, "FlowRadar", "decoding time")
				return fmt.Sprintf("6,000: %s ms, FlowRadar %s; 10,000: %s ms, FlowRadar %s", suite.Short(ours[4]),
					suite.Short(theirs[4]), suite.Short(ours[6]), suite.Short(theirs[6]))
			},
		},
	})
}

func chamelemonFigure5() suite.Suite {
	const x = "loss rate (%)"
	var points []link
	for _, p := range []float64{1, 2, 5, 10, 20, 30} {
		points = append(points, link{p, 10_000, 100, p / 100})
	}
	return lossSuite("5", x, points, []suite.Claim{
		trend("5(a)", "Fermat's memory stays", x, points, "Fermat", steady),
		trend("5(a)", "FlowRadar's memory stays", x, points, "FlowRadar", steady),
		trend("5(a)", "LossRadar's memory grows linearly", x, points, "LossRadar", above2),
		saving("5(a)", "Fermat saves up to 276.1 times FlowRadar's and 6,411.2 times LossRadar's memory", x, points,
			"memory", [2]float64{276.1, 6411.2}, flowRadarWhy),
		saving("5(b)", "Fermat saves up to 64.5 times FlowRadar's and 1,585.6 times LossRadar's decoding time", x,
			points, "decoding time", [2]float64{}, ""),
	})
}

func chamelemonFigure6() suite.Suite {
	const x = "flows"
	var points []link
	for _, n := range []int{10_000, 20_000, 40_000, 60_000, 80_000, 100_000} {
		points = append(points, link{float64(n), n, 100, 0.01})
	}
	return lossSuite("6", x, points, []suite.Claim{
		trend("6(a)", "Fermat's memory stays", x, points, "Fermat", steady),
		trend("6(a)", "LossRadar's memory stays", x, points, "LossRadar", steady),
		trend("6(a)", "FlowRadar's memory grows linearly", x, points, "FlowRadar", above2),
		saving("6(a)", "Fermat saves up to 1,535.0 times FlowRadar's and 128.8 times LossRadar's memory", x, points,
			"memory", [2]float64{1535, 128.8}, manyFlowsWhy),
		saving("6(b)", "Fermat saves up to 821.3 times FlowRadar's and 23.7 times LossRadar's decoding time", x, points,
			"decoding time", [2]float64{}, ""),
	})
}
