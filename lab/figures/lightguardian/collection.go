// SPDX-License-Identifier: Apache-2.0

package lightguardian

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/trace"
	"github.com/netsketch/netsketch/lab/traffic"
)

// The paper's testbed (sections 7 and 8.2): links of 40 Gbit/s, a sketch of two rows of 2^15
// buckets with four delay ranges, intervals of 5 s, and INT with 20 bytes a hop. The paper's
// sketchlets have the four cells of a bucket, 24 bytes with 8 of header; those of the switch
// program have a column of both rows. The bytes of a packet follow from the paper's rates.
const (
	capacity       = 40e9 / 8 // bytes a second
	seconds        = 5
	packetBytes    = 9000
	sketchletBytes = 10 + 4*2*4
	theirBytes     = 8 + 4*4
	hopBytes       = 20      // of INT
	buckets        = 1 << 15 // of a row: columns
	fullLoad       = 0.9
	ratePackets    = fullLoad * capacity / packetBytes // of a link, a second
)

// probabilities are λc in parts of 128. The paper's are 2 to 16 of them. A sketchlet has the cells
// of two of the paper's, so that 1 to 8 of them carry as many cells.
var probabilities = []int{1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16}

const (
	chosen = 4          // carries the cells of the paper's 1/16
	twice  = 2 * chosen // the paper's own
)

func chanceOf(parts int) float64 { return float64(parts) / 128 }
func lambda(parts int) string    { return fmt.Sprintf("%s %d", lambdaAxis, parts) }

const lambdaAxis = "λc (1/128)"

// shares are the shares of received columns whose times are measured, in percent.
var shares = []int{90, 99}

// collection is one interval in which the sketches of the interval before are collected.
type collection struct {
	tree
	selectors []*selector
	received  [][]uint64 // columns of each switch, as bits
	count     []int
	packets   int // sent
	hops      int // switches that they passed
	carried   int // packets with a sketchlet that arrived
	dead      []bool
}

func newCollection(t tree, probability float64, columns, chances int) *collection {
	c := &collection{tree: t, count: make([]int, t.switches()), dead: make([]bool, t.hosts())}
	for node := range t.switches() {
		c.selectors = append(c.selectors, newSelector(node, probability, columns, chances))
		c.received = append(c.received, make([]uint64, (columns+63)/64))
	}
	return c
}

// send sends a packet over a path to a host.
func (c *collection) send(path []int, to int) {
	device, column := -1, 0
	for _, node := range path {
		if col, ok := c.selectors[node].packet(device >= 0); ok {
			device, column = node, col
		}
	}
	c.packets++
	c.hops += len(path)
	if device < 0 || c.dead[to] {
		return
	}
	c.carried++
	bits := c.received[device]
	if bits[column/64]>>(column%64)&1 == 0 {
		bits[column/64] |= 1 << (column % 64)
		c.count[device]++
	}
}

// layerShare is the mean share of received columns of the switches of a layer.
func (c *collection) layerShare(layer int) float64 {
	sum, n := 0, 0
	for node, count := range c.count {
		if c.layer(node) == layer {
			sum, n = sum+count, n+1
		}
	}
	return float64(sum) / float64(n) / float64(c.selectors[0].columns)
}

// workload draws flow sizes.
type workload struct {
	points []traffic.SizePoint
	r      *rand.Rand
}

// size draws the packets of a flow.
func (w *workload) size() int {
	x, low, from := w.r.Float64(), 0.0, 0.0
	for _, p := range w.points {
		if x <= p.Share {
			from += (p.Packets - from) * (x - low) / (p.Share - low)
			break
		}
		low, from = p.Share, p.Packets
	}
	return 1 + int(from*1500/packetBytes)
}

// fill sends the packets of all hosts of the testbed for an interval at a load and calls at with
// the seconds that have passed, every hundredth of one. scale is the share of the packets and of
// the columns.
func (c *collection) fill(name string, load, scale float64, seed uint64, at func(second float64)) error {
	points, err := traffic.Workload(name)
	if err != nil {
		return err
	}
	w := workload{points, rand.New(rand.NewPCG(seed, 0x636f6c6c))}
	second := load * capacity / packetBytes * float64(c.hosts()) * scale
	next := 1
	for number := 0; ; number++ {
		f := c.newFlow(number, w.r)
		for range w.size() {
			c.send(f.path, f.to)
			if float64(c.packets)*100 >= second*float64(next) {
				at(float64(next) / 100)
				if next++; next > 100*seconds {
					return nil
				}
			}
		}
	}
}

// workloads are the paper's W1 and, for its W2 (web servers of the same study), Hadoop.
var workloads = [2]string{"DCTCP", "HADOOP"}

// times measures when the switches of each layer have sent shares of their columns.
func times(name string, parts int, scale float64, seed uint64) (rows []suite.Row, err error) {
	c := newCollection(testbed, chanceOf(parts), int(buckets*scale), chances)
	var reached [3][2]float64
	err = c.fill(name, fullLoad, scale, seed, func(second float64) {
		for layer := range layers {
			for i, share := range shares {
				if reached[layer][i] == 0 && c.layerShare(layer) >= float64(share)/100 {
					reached[layer][i] = second
				}
			}
		}
	})
	for layer, l := range layers {
		for i, share := range shares {
			rows = append(rows, suite.Row{Structure: fmt.Sprintf("%s, %d %%", l, share),
				Variant: lambda(parts), Task: "collection, " + name, Metric: "time",
				Value: reached[layer][i], Unit: "s"})
		}
	}
	return rows, err
}

// theirSizes is a sketchlet of the paper's size in each packet that has one.
const theirSizes = "sketchlets of 24 bytes"

// bytesInBand measures the bytes that arrive at hosts in packets, for LightGuardian and for INT.
func bytesInBand(name string, load float64, parts int, scale float64, seed uint64) ([]suite.Row, error) {
	c := newCollection(testbed, chanceOf(parts), int(buckets*scale), chances)
	if err := c.fill(name, load, scale, seed, func(float64) {}); err != nil {
		return nil, err
	}
	share := func(bytes int) float64 {
		return float64(bytes) / (float64(c.packets) * packetBytes / load) * 100
	}
	variant := lambda(parts)
	if load != fullLoad {
		variant = fmt.Sprintf("load (%%) %.0f", load*100)
	}
	ours, of := share(c.carried*sketchletBytes), share(c.hops*hopBytes)
	row := func(structure, metric string, value float64, unit string) suite.Row {
		return suite.Row{Structure: structure, Variant: variant, Task: "in-band bytes, " + name, Metric: metric, Value: value,
			Unit: unit}
	}
	rows := []suite.Row{row("LightGuardian", "share of the capacity", ours, "%"),
		row("INT", "share of the capacity", of, "%"), row("LightGuardian", "saved", 100-ours/of*100, "% of INT's")}
	if load == fullLoad {
		rows = append(rows, row(theirSizes, "saved", 100-share(c.carried*theirBytes)/of*100, "% of INT's"))
	}
	return rows, nil
}

// oneSwitch measures the packets between two hosts of a rack until shares of the columns have
// arrived, and their time at 36 Gbit/s.
func oneSwitch(parts, columns int, variant, task string) (rows []suite.Row) {
	c := newCollection(testbed, chanceOf(parts), columns, chances)
	path := []int{0}
	for _, share := range shares {
		for c.count[0]*100 < columns*share {
			c.send(path, 1)
		}
		name := fmt.Sprintf("%d %%", share)
		rows = append(rows,
			suite.Row{Structure: name, Variant: variant, Task: task, Metric: "packets", Value: float64(c.packets),
				Unit: "packets"},
			suite.Row{Structure: name, Variant: variant, Task: task, Metric: "time",
				Value: float64(c.packets) / ratePackets, Unit: "s"})
	}
	return rows
}

const (
	byProbability = "one switch by λc"
	byColumns     = "one switch by columns"
)

var columnCounts = []int{1 << 12, 1 << 13, 1 << 14, 1 << 15, largest}

const largest = 1 << 16

// loads are the paper's, in percent.
var loads = []int{50, 60, 70, 80, 90}

// measured are the rows of the figures on the collection.
func measureCollection(ctx context.Context, scale float64, seed uint64) (rows []suite.Row, err error) {
	add := func(more []suite.Row, failed error) {
		rows = append(rows, more...)
		if err == nil {
			err = failed
		}
	}
	for _, name := range workloads {
		for _, parts := range []int{chosen, twice} {
			add(times(name, parts, scale, seed))
		}
		for _, load := range loads[:4] {
			add(bytesInBand(name, float64(load)/100, chosen, scale, seed))
		}
		for _, parts := range probabilities {
			if name == workloads[0] || parts == chosen {
				add(bytesInBand(name, fullLoad, parts, scale, seed))
			}
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
	}
	for _, parts := range probabilities {
		add(oneSwitch(parts, int(buckets*scale), lambda(parts), byProbability), nil)
	}
	for _, columns := range columnCounts {
		columns = int(float64(columns) * scale)
		add(oneSwitch(twice, columns, fmt.Sprintf("columns %d", columns), byColumns), nil)
	}
	return rows, err
}

// smallProbability is why a statement does not hold.
const smallProbability = "with a small λc each hop adds λc × 42 bytes, where INT adds 20: 1.6 % with 1/128. The " +
	"paper's own sizes give 1.9 % with its 1/64, not 1.5 %"

func collectionFigure() suite.Suite {
	inBand := func(v suite.Values, name, structure, metric string, load int) float64 {
		x := fmt.Sprintf("load (%%) %d", load)
		if load == 90 {
			x = lambda(chosen)
		}
		return v.Variant(structure, x, "in-band bytes, "+name, metric)
	}
	each := func(v suite.Values, metric string) (least, most float64) {
		var all []float64
		for _, name := range workloads {
			for _, load := range loads {
				all = append(all, inBand(v, name, "LightGuardian", metric, load))
			}
		}
		return slices.Min(all), slices.Max(all)
	}
	reached := func(figure, name string, paper [3][2]float64, stated string) suite.Claim {
		get := func(v suite.Values, layer, i int) float64 {
			return v.Variant(fmt.Sprintf("%s, %d %%", layers[layer], shares[i]), lambda(chosen), "collection, "+name, "time")
		}
		return suite.Claim{Figure: figure, Paper: stated,
			Ours: func(v suite.Values) string {
				var parts []string
				for i, share := range shares {
					parts = append(parts, fmt.Sprintf("%d %% after %s, %s and %s s", share, suite.Short(get(v, 0, i)),
						suite.Short(get(v, 1, i)), suite.Short(get(v, 2, i))))
				}
				return "λc 1/32: " + strings.Join(parts, "; ")
			},
			Holds: func(v suite.Values) bool {
				for layer := range layers {
					for i := range shares {
						if x := get(v, layer, i); !(x > 0 && x <= paper[layer][i]) {
							return false
						}
					}
				}
				return true
			}}
	}
	falls := func(figure, metric, stated string) suite.Claim {
		get := func(v suite.Values, parts, share int) float64 {
			return v.Variant(fmt.Sprintf("%d %%", share), lambda(parts), byProbability, metric)
		}
		return suite.Claim{Figure: figure, Paper: stated,
			Ours: func(v suite.Values) string {
				return fmt.Sprintf("90 %%: %s at 1/128, %s at 1/16; 99 %%: %s and %s", suite.Short(get(v, 1, 90)),
					suite.Short(get(v, 8, 90)), suite.Short(get(v, 1, 99)), suite.Short(get(v, 8, 99)))
			},
			Holds: func(v suite.Values) bool {
				for _, share := range shares {
					for i, parts := range probabilities[1:] {
						if !(get(v, parts, share) < get(v, probabilities[i], share)) {
							return false
						}
					}
				}
				return true
			}}
	}
	linear := func(figure, metric, stated string) suite.Claim {
		get := func(v suite.Values, columns, share int) float64 {
			return v.Variant(fmt.Sprintf("%d %%", share), fmt.Sprintf("columns %d", columns), byColumns, metric)
		}
		return suite.Claim{Figure: figure, Paper: stated,
			Ours: func(v suite.Values) string {
				return fmt.Sprintf("90 %%: %s for 2^12, %s for 2^16 sketchlets; 99 %%: %s and %s",
					suite.Short(get(v, 1<<12, 90)), suite.Short(get(v, 1<<16, 90)), suite.Short(get(v, 1<<12, 99)),
					suite.Short(get(v, 1<<16, 99)))
			},
			Holds: func(v suite.Values) bool { // within a tenth of the line through the largest
				for _, share := range shares {
					for _, columns := range columnCounts {
						x := get(v, columns, share) * largest / float64(columns) / get(v, largest, share)
						if !(x > 0.9 && x < 1.1) {
							return false
						}
					}
				}
				return true
			}}
	}
	part := func(v suite.Values, structure string, parts int) float64 { // of INT's bytes
		return 100 - v.Variant(structure, lambda(parts), "in-band bytes, DCTCP", "saved")
	}
	return suite.Suite{
		Name: "lightguardian-13", Title: "LightGuardian, Figures 6, 13 and 14: collection of sketchlets",
		Setup: "The paper: 10 Tofino switches, 8 hosts, links of 40 Gbit/s, k 1. The sketch of a switch has two rows of " +
			"2^15 buckets with four delay ranges, in 2^16 sketchlets of one bucket and 24 bytes. Here: the same fat tree and " +
			"sketch, with the selection of the switch program packet by packet, k 4, packets of 9,000 bytes, which follow " +
			"from the paper's rates, and random pairs of hosts. A sketchlet is a column of both rows, with header and check " +
			"42 bytes, so that half of the paper's λc carries as many cells. W1 is DCTCP. W2 of the paper is the web servers " +
			"of a study whose Hadoop nodes are used here. Bytes are those that arrive at hosts, as a share of their links. " +
			"Figures 6(b) and 14(b) compare flow completion times with and without sketchlets, and 6(c) latencies: they show " +
			"what the paper's switches and TCP of its hosts cost, and are not measured here.",
		Measure: func(ctx context.Context, _ *trace.Trace, o suite.Options) ([]suite.Row, error) {
			return measureCollection(ctx, 1, o.Seed)
		},
		Plots: []suite.Plot{
			{File: "lightguardian-13-bytes", Title: "In-band bytes, DCTCP, load 90 %", Task: "in-band bytes, DCTCP",
				Metric: "share of the capacity", X: lambdaAxis},
			{File: "lightguardian-13-time", Title: "Seconds of one switch by λc", Task: byProbability, Metric: "time",
				X: lambdaAxis},
			{File: "lightguardian-13-packets", Title: "Packets of one switch by λc", Task: byProbability,
				Metric: "packets", X: lambdaAxis},
			{File: "lightguardian-13-columns-packets", Title: "Packets of one switch by columns", Task: byColumns,
				Metric: "packets", X: "columns"},
			{File: "lightguardian-13-columns-time", Title: "Seconds of one switch by columns", Task: byColumns,
				Metric: "time", X: "columns"},
		},
		Claims: []suite.Claim{
			{Figure: "6(a)", Paper: "λc 1/16: about 0.07 % of the total bandwidth, more than 93.5 % less than INT",
				Ours: func(v suite.Values) string {
					a, b := each(v, "share of the capacity")
					c, d := each(v, "saved")
					return fmt.Sprintf("λc 1/32, which carries as many cells, loads of 50 to 90 %%: %s to %s %%, %s to %s %% less; "+
						"1/16, load 90 %%: %s %%, %s %% less, with the paper's 24 bytes %s %%", suite.Short(a), suite.Short(b),
						suite.Short(c), suite.Short(d), suite.Short(v.Variant("LightGuardian", lambda(twice),
							"in-band bytes, DCTCP", "share of the capacity")), suite.Short(100-part(v, "LightGuardian", twice)),
						suite.Short(100-part(v, theirSizes, twice)))
				},
				Holds: func(v suite.Values) bool {
					_, most := each(v, "share of the capacity")
					least, _ := each(v, "saved")
					return most <= 0.07 && least >= 93.5
				}},
			reached("6(d)", "DCTCP", [3][2]float64{{1.3, 2.1}, {1.7, 2.8}, {2.1, 3.6}},
				"W1: edge, aggregation and core switches: 90 % after 1.3, 1.7 and 2.1 s; 99 % after 2.1, 2.8 and 3.6 s"),
			reached("14(a)", "HADOOP", [3][2]float64{{1.3, 2.1}, {1.7, 2.8}, {2.1, 3.6}},
				"W2: similar to W1, whose times are those of 6(d)"),
			{Figure: "13(a)", Paper: "1.5 % to 12.4 % of INT's bytes with λc of 1/64 to 8/64",
				Ours: func(v suite.Values) string {
					return fmt.Sprintf("1/128 to 8/128, which carry as many cells: %s %% to %s %%; with the paper's λc and 24 bytes "+
						"%s %% to %s %%", suite.Short(part(v, "LightGuardian", 1)), suite.Short(part(v, "LightGuardian", 8)),
						suite.Short(part(v, theirSizes, 2)), suite.Short(part(v, theirSizes, 16)))
				},
				Holds: func(v suite.Values) bool {
					return part(v, "LightGuardian", 1) <= 1.5 && part(v, "LightGuardian", 8) <= 12.4
				}, Why: smallProbability},
			falls("13(b)", "time", "the larger λc, the less time reconstructs (s)"),
			falls("13(c)", "packets", "the larger λc, the fewer packets reconstruct"),
			linear("14(c)", "packets", "packets grow linearly with the sketchlets"),
			linear("14(d)", "time", "the time grows linearly with the sketchlets (s)"),
		},
	}
}
