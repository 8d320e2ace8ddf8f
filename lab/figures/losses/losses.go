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

// Suites returns the suites of the figures, in order.
func Suites() []suite.Suite {
	return []suite.Suite{chamelemonFigure4(), chamelemonFigure5(), chamelemonFigure6(), chamelemonFigure10()}
}

func row(structure, variant string, memory int, task, metric string, value float64, unit, trace string) suite.Row {
	return suite.Row{Structure: structure, Variant: variant, Memory: memory, Task: task, Metric: metric, Value: value,
		Unit: unit, Trace: trace}
}

// losses is one experiment of ChameleMon §5.1: flows pass a link and some of them lose packets.
type losses struct {
	flows []trace.Flow // flows that pass the link
	lost  []uint32
}

// lossKey is the length in bytes of a flow's identifier in these figures, the source address.
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
		k = k[12:] // last bytes of an IPv6 address, which are all bytes of a mapped one
	}
	return []byte(k[:lossKey])
}

// recorder is a structure that finds lost packets.
type recorder struct {
	name string
	// items is the number of items to decode.
	items func(l losses) int
	// encode encodes the losses into memory bytes and returns the function that decodes them, which in
	// turn returns the function that checks the result.
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
		// The sketch of packets that entered minus the sketch of packets that left holds only the lost
		// packets, because sketches are linear.
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

// exact reports whether flows equal the flows that passed, with their packets.
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
	// lossWork bounds the items that all tries at one memory decode together, and fewTries is the
	// least number of tries.
	lossWork, fewTries = 1_000_000, 20
	// most is the memory at which the search gives up.
	most = 1 << 26
)

// tries returns the number of decodings per memory.
func (r *recorder) tries(l losses, o suite.Options) int {
	return max(min(o.Decodings, lossWork/max(r.items(l), 1)), min(fewTries, o.Decodings))
}

// share reports whether the losses are decoded often enough: n sketches with different hashes are
// decoded, of which one in 1,000 may fail, but always at least one.
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

// least finds the least memory, to 2 %, at which 99.9 % of the tries decode; 0 if 64 MB are too
// little. A search with few tries comes first. LossRadar numbers a flow's packets in 16 bits, so
// that a flow which loses more than 65,536 packets never decodes.
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

// bracket finds two sizes, 2 % apart: lo is not enough and hi is. It starts at from, goes up in
// growing steps, and then bisects. hi is 0 if most is not enough.
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

// decodings is the number of decodings that are timed.
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
	}) // points with more flows than the trace has
	type job struct {
		r      *recorder
		l      losses
		p      link
		memory int
		same   int // earlier job with the same content, or -1
	}
	var jobs []job
	for _, p := range points {
		l := lossesOf(t, p.flows, p.victims, p.rate, o.Seed)
		for i := range recorders {
			// FlowRadar's content depends on the flows only, not on their losses.
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
			took *= 2 // the structure of the link's other end is decoded, too
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

func lossSuite(figure, x string, points []link) suite.Suite {
	return suite.New(suite.Suite{
		Name: "chamelemon-" + figure,
		Measure: func(ctx context.Context, t *trace.Trace, o suite.Options) ([]suite.Row, error) {
			all, err := t.Like(lossPackets*t.Len()/2000, lossRanks*t.Len()/2000, o.Seed)
			if err != nil {
				return nil, err
			}
			return lossRows(ctx, all.Sources(), o, x, points)
		},
	})
}

func chamelemonFigure4() suite.Suite {
	const x = "victim flows"
	var points []link
	for _, n := range []int{500, 1000, 2000, 4000, 6000, 8000, 10_000} {
		points = append(points, link{float64(n), 10_000, n, 0.01})
	}
	return lossSuite("4", x, points)
}

func chamelemonFigure5() suite.Suite {
	const x = "loss rate (%)"
	var points []link
	for _, p := range []float64{1, 2, 5, 10, 20, 30} {
		points = append(points, link{p, 10_000, 100, p / 100})
	}
	return lossSuite("5", x, points)
}

func chamelemonFigure6() suite.Suite {
	const x = "flows"
	var points []link
	for _, n := range []int{10_000, 20_000, 40_000, 60_000, 80_000, 100_000} {
		points = append(points, link{float64(n), n, 100, 0.01})
	}
	return lossSuite("6", x, points)
}
