// SPDX-License-Identifier: Apache-2.0

package sketches

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"

	"github.com/netsketch/netsketch/lab/evidence"
	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/traffic"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/universal"
)

// rangePackets bounds the packets of an epoch of Ranges.
const rangePackets = 25_000_000

// rangeFlows are the numbers of flows that Ranges measures, and the number of runs for each.
var rangeFlows = [][2]int{{1000, 3}, {10_000, 3}, {100_000, 3}, {1_000_000, 1}, {4_000_000, 1}}

// rangeTraffic is the traffic of Ranges: one-packet floods, 1 to 10 packets, Zipf by its exponent,
// and published distributions.
var rangeTraffic = []string{
	"flood", "uniform", "Zipf 0.6", "Zipf 1.0", "Zipf 1.4", "DCTCP", "CACHE", "VL2", "HADOOP",
}

// Ranges writes UnivMon's accuracy over kinds of traffic and numbers of flows as a Markdown table:
// by source, with the sketches of the P4 programs univmon and univmon-300k.
func Ranges(ctx context.Context, w io.Writer) error {
	layouts := []universal.Layout{
		{Key: flow.Src, Levels: 16, Rows: 3, Columns: 2048, Ways: 4, Slots: 64},
		{Key: flow.Src, Levels: 16, Rows: 3, Columns: 512, Ways: 4, Slots: 32},
	}
	lines := make([]string, len(layouts)*len(rangeTraffic)*len(rangeFlows))
	err := suite.Each(ctx, len(lines), func(i int) error {
		name := rangeTraffic[i/len(rangeFlows)%len(rangeTraffic)]
		flows, runs := rangeFlows[i%len(rangeFlows)][0], rangeFlows[i%len(rangeFlows)][1]
		var worst rangeErrors
		for run := range runs {
			e, err := measureRange(ctx, layouts[i/len(rangeFlows)/len(rangeTraffic)], name, flows, uint64(run))
			if err != nil {
				return err
			}
			worst.add(&e)
		}
		program := "univmon"
		if i >= len(lines)/2 {
			program = "univmon-300k"
		}
		lines[i] = fmt.Sprintf("| %s | %s | %d | %s |\n", program, name, flows, worst.String())
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s\n\n", evidence.Run())
	fmt.Fprint(w, "| program | traffic | flows | distinct (standard error) | entropy | F2 | sum of √x | hitters, F1 | "+
		"total change (standard error) | changes, F1 |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, line := range lines {
		if _, err := io.WriteString(w, line); err != nil {
			return err
		}
	}
	return nil
}

// rangeErrors are the errors of an epoch, and of its change from the previous epoch. NaN marks a
// value that is not published.
type rangeErrors struct {
	distinct, deviation, entropy, moment, root, total, spread, hitters, changes float64
	runs, skipped                                                               int
}

func (e *rangeErrors) add(o *rangeErrors) {
	e.skipped += o.skipped
	if e.runs++; e.runs == 1 {
		*e = *o
		e.runs = 1
		return
	}
	e.distinct, e.deviation = math.Max(e.distinct, o.distinct), math.Max(e.deviation, o.deviation)
	e.entropy, e.moment = math.Max(e.entropy, o.entropy), math.Max(e.moment, o.moment)
	e.root, e.total, e.spread = math.Max(e.root, o.root), math.Max(e.total, o.total), math.Max(e.spread, o.spread)
	e.hitters, e.changes = math.Min(e.hitters, o.hitters), math.Min(e.changes, o.changes)
}

func (e *rangeErrors) String() string {
	if e.skipped > 0 {
		return "not measured | | | | | |"
	}
	percent := func(x float64) string {
		if math.IsNaN(x) {
			return "absent"
		}
		return fmt.Sprintf("%.1f %%", 100*x)
	}
	within := func(x, deviation float64) string {
		if math.IsNaN(x) {
			return percent(x)
		}
		return fmt.Sprintf("%s (%.1f %%)", percent(x), 100*deviation)
	}
	changes := "absent"
	if !math.IsNaN(e.changes) {
		changes = fmt.Sprintf("%.3f", e.changes)
	}
	return fmt.Sprintf("%s | %s | %s | %s | %.3f | %s | %s", within(e.distinct, e.deviation), percent(e.entropy),
		percent(e.moment), percent(e.root), e.hitters, within(e.total, e.spread), changes)
}

// sizesOf returns the packets of n flows.
func sizesOf(name string, n int, random *rand.Rand) ([]int, error) {
	sizes := make([]int, n)
	var skew float64
	zipf, _ := fmt.Sscanf(name, "Zipf %g", &skew)
	var points []traffic.SizePoint
	if zipf == 0 && name != "flood" && name != "uniform" {
		var err error
		if points, err = traffic.Workload(name); err != nil {
			return nil, err
		}
	}
	for i := range sizes {
		switch {
		case name == "flood":
			sizes[i] = 1
		case name == "uniform":
			sizes[i] = 1 + random.IntN(10)
		case zipf == 1:
			sizes[i] = max(1, int(min(3*math.Pow(float64(n)/float64(10*(i+1)), skew), 200_000)))
		default:
			sizes[i] = int(traffic.Size(points, random.Float64()))
		}
	}
	return sizes, nil
}

// measureRange measures two epochs. In the second one, every tenth flow has another source.
func measureRange(ctx context.Context, l universal.Layout, name string, n int, seed uint64) (rangeErrors, error) {
	random := rand.New(rand.NewPCG(seed, uint64(n)))
	sizes, err := sizesOf(name, n, random)
	if err != nil {
		return rangeErrors{}, err
	}
	packets := 0
	for _, x := range sizes {
		packets += x
	}
	if packets > rangePackets {
		return rangeErrors{skipped: 1}, nil
	}
	sources := make([]uint32, n)
	for i := range sources {
		sources[i] = random.Uint32()
	}
	before, err := sketched(ctx, l, sizes, sources, random)
	if err != nil {
		return rangeErrors{}, err
	}
	change := 0.0
	old := make(map[uint32]int)
	for i := 0; i < n; i += 10 {
		old[sources[i]] = sizes[i]
		sources[i] = random.Uint32()
		change += 2 * float64(sizes[i])
	}
	after, err := sketched(ctx, l, sizes, sources, random)
	if err != nil {
		return rangeErrors{}, err
	}
	truth := make(map[string]bool) // hitters
	changed := make(map[string]bool)
	xlogx, squares, roots := 0.0, 0.0, 0.0
	for i, x := range sizes {
		size := float64(x)
		xlogx, squares, roots = xlogx+universal.XLogX(size), squares+size*size, roots+math.Sqrt(size)
		if size >= univmonShare*float64(packets) {
			truth[sourceKey(sources[i]).String()] = true
		}
		if i%10 == 0 && size >= univmonShare*change {
			changed[sourceKey(sources[i]).String()] = true
		}
	}
	for source, x := range old {
		if float64(x) >= univmonShare*change {
			changed[sourceKey(source).String()] = true
		}
	}
	entropy := math.Log2(float64(packets)) - xlogx/float64(packets)
	e := rangeErrors{distinct: math.NaN(), entropy: math.NaN(), root: math.NaN(),
		moment: relative(after.Moment2(), squares)}
	if after.CountsFlows() {
		e.distinct, e.deviation = relative(after.Distinct(), float64(n)), after.Deviation()/after.Distinct()
	}
	if after.Represents() {
		e.entropy, e.root = relative(after.Entropy(), entropy), relative(after.Sum(math.Sqrt), roots)
	}
	found := make(map[string]float64)
	for _, f := range after.Above(univmonShare * float64(packets)) {
		found[f.Key.String()] = f.Packets
	}
	e.hitters = f1(found, truth)
	c, err := universal.Compare(before, after)
	if err != nil {
		return rangeErrors{}, err
	}
	if e.total, e.changes = math.NaN(), math.NaN(); !c.Known() {
		return e, nil
	}
	e.total, e.spread = relative(c.Total(), change), c.Deviation()/c.Total()
	found = make(map[string]float64)
	for _, f := range c.Above(univmonShare * c.Total()) {
		found[f.Key.String()] = f.Packets
	}
	e.changes = f1(found, changed)
	return e, nil
}

func sourceKey(source uint32) flow.Key {
	k := flow.Key{Mask: flow.Src}
	binary.BigEndian.PutUint32(k.Src[:], source)
	return k
}

// sketched counts the flows' packets, which arrive interleaved.
func sketched(ctx context.Context, l universal.Layout, sizes []int, sources []uint32,
	random *rand.Rand,
) (*universal.Estimate, error) {
	s, err := universal.New(l)
	if err != nil {
		return nil, err
	}
	live, sent := random.Perm(len(sizes)), make([]int, len(sizes))
	for len(live) > 0 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		next := live[:0]
		for _, i := range live {
			k := sourceKey(sources[i])
			for range min(sizes[i]-sent[i], 1+sizes[i]/50) {
				s.Update(&k)
				sent[i]++
			}
			if sent[i] < sizes[i] {
				next = append(next, i)
			}
		}
		live = next
	}
	return s.Reading().Estimate(), nil
}
