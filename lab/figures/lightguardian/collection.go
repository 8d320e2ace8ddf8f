// SPDX-License-Identifier: Apache-2.0

package lightguardian

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/trace"
	"github.com/netsketch/netsketch/lab/traffic"
)

// The paper's testbed (sections 7 and 8.2): links of 40 Gbit/s, a sketch of two rows of 2^15
// buckets with four delay ranges, intervals of 5 s, and INT with 20 bytes a hop. The paper's
// sketchlets have the four cells of a bucket, 24 bytes with 8 of header; the switch program's
// sketchlets have a column of both rows. The bytes of a packet follow from the paper's rates.
const (
	capacity       = 40e9 / 8 // bytes a second
	seconds        = 5
	packetBytes    = 9000
	sketchletBytes = 10 + 4*2*4
	theirBytes     = 8 + 4*4
	theirChances   = 1       // k, the chances of k+chance selection
	theirColumns   = 1 << 16 // sketchlets of the paper's sketch, each of one bucket
	hopBytes       = 20      // bytes of INT for each hop
	buckets        = 1 << 15 // buckets of a row, which are the columns
	fullLoad       = 0.9
	ratePackets    = fullLoad * capacity / packetBytes // packets of a link in a second
)

// probabilities are values of λc in parts of 128. The paper's are 2 to 16. A sketchlet here has the
// cells of two of the paper's sketchlets, so that 1 to 8 here carry as many cells as 2 to 16 there.
var probabilities = []int{1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16}

const (
	chosen = 4          // carries as many cells as the paper's sketchlets with its λc of 1/16
	twice  = 2 * chosen // the paper's λc of 1/16
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
	packets   int // packets sent
	hops      int // number of switches that the packets passed
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
// the seconds that have passed, every hundredth of one. scale is the simulated share of the packets
// and of the columns.
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

// times measures when the switches of each layer have sent shares of their columns. In the name of
// the task, of follows the workload.
func times(name, of string, parts, columns, k int, scale float64, seed uint64) (rows []suite.Row, err error) {
	c := newCollection(testbed, chanceOf(parts), int(float64(columns)*scale), k)
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
				Variant: lambda(parts), Task: "collection, " + name + of, Metric: "time",
				Value: reached[layer][i], Unit: "s"})
		}
	}
	return rows, err
}

// theirSizes is a sketchlet of the paper's size in each packet that has one.
const theirSizes = "sketchlets of 24 bytes"

// Suffixes of the names of tasks that are measured with the paper's settings.
const (
	asTheirs = ", 2^16 sketchlets, k 1"
	withOne  = ", k 1"
	atTheirs = ", λc 1/16"
)

// bytesInBand measures the bytes that arrive at hosts in packets, for LightGuardian and for INT.
// The bytes do not depend on k and on the columns.
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
	ours, theirs, of := share(c.carried*sketchletBytes), share(c.carried*theirBytes), share(c.hops*hopBytes)
	task := "in-band bytes, " + name
	if load != fullLoad && parts == twice {
		task += atTheirs
	}
	row := func(structure, metric string, value float64, unit string) suite.Row {
		return suite.Row{Structure: structure, Variant: variant, Task: task, Metric: metric, Value: value, Unit: unit}
	}
	rows := []suite.Row{row("LightGuardian", "share of the capacity", ours, "%"),
		row("INT", "share of the capacity", of, "%"), row("LightGuardian", "saved", 100-ours/of*100, "% of INT's")}
	return append(rows, row(theirSizes, "share of the capacity", theirs, "%"),
		row(theirSizes, "saved", 100-theirs/of*100, "% of INT's")), nil
}

// oneSwitch measures the packets between two hosts of a rack until shares of the columns have
// arrived, and their time at 36 Gbit/s.
func oneSwitch(parts, columns, k int, variant, task string) (rows []suite.Row) {
	c := newCollection(testbed, chanceOf(parts), columns, k)
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

// loads are the paper's loads of a link, in percent.
var loads = []int{50, 60, 70, 80, 90}

// measureCollection returns the rows of the figures on the collection.
func measureCollection(ctx context.Context, scale float64, seed uint64) (rows []suite.Row, err error) {
	add := func(more []suite.Row, failed error) {
		rows = append(rows, more...)
		if err == nil {
			err = failed
		}
	}
	for _, name := range workloads {
		for _, parts := range []int{chosen, twice} {
			add(times(name, "", parts, buckets, chances, scale, seed))
		}
		add(times(name, asTheirs, twice, theirColumns, theirChances, scale, seed))
		for _, load := range loads[:4] {
			add(bytesInBand(name, float64(load)/100, chosen, scale, seed))
			add(bytesInBand(name, float64(load)/100, twice, scale, seed))
		}
		for _, parts := range probabilities {
			if name == workloads[0] || parts == chosen || parts == twice {
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
	for _, k := range []int{chances, theirChances} {
		of := ""
		if k == theirChances {
			of = withOne
		}
		for _, parts := range probabilities {
			add(oneSwitch(parts, int(buckets*scale), k, lambda(parts), byProbability+of), nil)
		}
		for _, columns := range columnCounts {
			columns = int(float64(columns) * scale)
			add(oneSwitch(twice, columns, k, fmt.Sprintf("columns %d", columns), byColumns+of), nil)
		}
	}
	return rows, err
}

func collectionFigure() suite.Suite {
	return suite.New(suite.Suite{
		Name: "lightguardian-13",
		Measure: func(ctx context.Context, _ *trace.Trace, o suite.Options) ([]suite.Row, error) {
			return measureCollection(ctx, 1, o.Seed)
		},
	})
}
