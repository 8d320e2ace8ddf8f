// SPDX-License-Identifier: Apache-2.0

package lightguardian

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/trace"
	"github.com/netsketch/netsketch/plugins/lightguardian/analysis"
	"github.com/netsketch/netsketch/sketch/sumax"
)

// The paper's Mininet experiments (section 8.3.1). Choices that the paper does not state: flows
// have the same mean size, packets arrive at random times of an interval, packets loop until their
// TTL is over, and a slow link has a queue and a twentieth of the rate that its packets need.
const (
	allPackets  = 10_000_000
	flowsOfSize = 100_000 // flows in experiments with blackholes and loops
	flowsOfGap  = 10_000  // flows in experiments with jitter
	interval    = 5_000_000
	carrying    = 1. / 4
	chances     = 4
	loopShare   = 0.1
	ttl         = 64
	slowRate    = 0.05
	queue       = 32 // packets that a queue holds
)

// locatingColumns are the numbers of columns in Figures 7 to 10; the paper has 2^12 (50 KB) and
// 2^16 (800 KB).
var locatingColumns = []int{1 << 12, 1 << 14, 1 << 16}

// experiment is one fault with the thresholds that are compared.
type experiment struct {
	task, figure string
	fault        analysis.Fault
	flows        int
	config       sumax.Config
	thresholds   []float64
	rules        func(threshold float64) analysis.Rules
	prepare      func(n *network)
}

var experiments = []experiment{
	{"blackholes", "8", analysis.Blackhole, flowsOfSize, sumax.Config{}, []float64{0.1, 0.3, 0.5},
		func(x float64) analysis.Rules { return analysis.Rules{Blackhole: x} }, (*network).breakLinks},
	{"loops", "9", analysis.Loop, flowsOfSize, sumax.Config{}, []float64{2, 4, 8},
		func(x float64) analysis.Rules { return analysis.Rules{Loop: x} }, (*network).loopFlows},
	{"abnormal jitter", "10", analysis.AbnormalJitter, flowsOfGap, sumax.Config{Intervals: true},
		[]float64{2, 3, 4},
		func(x float64) analysis.Rules { return analysis.Rules{Jitter: x} }, (*network).slowLinks},
}

// link is a link between two switches, in one direction.
type link [2]int

// slowLink is a queue that sends packets at a fixed rate.
type slowLink struct {
	service float64 // µs a packet
	free    float64 // time at which the link can send the next packet
	queue   []delayed
}

// packet is a packet on its way.
type packet struct {
	flow           *flowState
	device, column int // device and column of the packet's sketchlet; device -1: no sketchlet
}

// delayed is a packet in a queue before a hop of its path.
type delayed struct {
	packet
	hop int
	at  float64 // time at which the packet leaves, in µs
}

// network is the switches with their sketches, and the flows in one experiment.
type network struct {
	tree
	r        *rand.Rand
	flows    []*flowState
	packets  int // packets of all flows in an interval
	broken   map[link]bool
	slow     map[link]*slowLink // slow links of every second flow
	sketches []*sumax.Sketch[hash]
	received []*sumax.Sketch[hash]
}

// newNetwork returns the flows of an experiment and its fault, the same for each number of columns.
func newNetwork(e experiment, flows, packets int, seed uint64) *network {
	n := &network{tree: mininet, r: rand.New(rand.NewPCG(seed, 0x6c6f63)), broken: map[link]bool{},
		slow: map[link]*slowLink{}, packets: packets}
	for i := range flows {
		n.flows = append(n.flows, n.newFlow(i, n.r))
	}
	e.prepare(n)
	return n
}

// randomLink returns a link between an aggregation switch and another switch, in one direction.
func (n *network) randomLink() link {
	for {
		f := n.flows[n.r.IntN(len(n.flows))]
		if len(f.path) > 1 {
			i := n.r.IntN(len(f.path) - 1)
			return link{f.path[i], f.path[i+1]}
		}
	}
}

// breakLinks shuts two links down, in both directions.
func (n *network) breakLinks() {
	for len(n.broken) < 4 {
		l := n.randomLink()
		n.broken[l], n.broken[link{l[1], l[0]}] = true, true
	}
}

// loopFlows lets a share of the flows loop between two neighbors on their paths.
func (n *network) loopFlows() {
	for _, f := range n.flows {
		if len(f.path) > 1 && n.r.Float64() < loopShare {
			f.loop = n.r.IntN(len(f.path) - 1)
		}
	}
}

// slowLinks gives two links a slow link in parallel, which has a twentieth of the rate that its
// flows need.
func (n *network) slowLinks() {
	for len(n.slow) < 2 {
		n.slow[n.randomLink()] = &slowLink{}
	}
	for l, s := range n.slow {
		flows := 0
		for i, f := range n.flows {
			f.slow = i%2 == 0
			if j := slices.Index(f.path, l[0]); f.slow && j >= 0 && j+1 < len(f.path) && f.path[j+1] == l[1] {
				flows++
			}
		}
		s.service = interval / (slowRate * float64(flows) * float64(n.packets) / float64(len(n.flows)))
	}
}

// faulty returns whether a hop of a flow has the fault of the experiment.
func (n *network) faulty(f *flowState, hop int, fault analysis.Fault) bool {
	if fault == analysis.Loop {
		return f.loop >= 0 && (hop == f.loop || hop == f.loop+1)
	}
	for i := 1; i <= hop; i++ { // the fault counts at the first such link, because the next one receives less traffic
		if l := (link{f.path[i-1], f.path[i]}); n.broken[l] || f.slow && n.slow[l] != nil {
			return i == hop
		}
	}
	return false
}

// send sends packets of random flows in an interval. at receives each packet at each switch, in the
// order of their times in µs, and may give it a sketchlet. deliver receives each packet at its
// host.
func (n *network) send(at func(p *packet, node int, time float64), deliver func(p *packet)) {
	var links []*slowLink
	for _, l := range slices.SortedFunc(maps.Keys(n.slow), func(a, b link) int { return slices.Compare(a[:], b[:]) }) {
		n.slow[l].free, n.slow[l].queue = 0, nil
		links = append(links, n.slow[l])
	}
	travel := func(p packet, hop int, time float64, queued bool) {
		f := p.flow
		for ; hop < len(f.path); hop++ {
			if hop > 0 && !queued {
				l := link{f.path[hop-1], f.path[hop]}
				if n.broken[l] {
					return
				}
				if s := n.slow[l]; s != nil && f.slow {
					if len(s.queue) < queue {
						s.free = max(s.free, time) + s.service
						s.queue = append(s.queue, delayed{p, hop, s.free})
					}
					return
				}
			}
			queued = false
			at(&p, f.path[hop], time)
			if f.loop >= 0 && hop == f.loop+1 {
				for i := range ttl - hop - 1 {
					at(&p, f.path[f.loop+i%2], time)
				}
				return
			}
		}
		deliver(&p)
	}
	drain := func(until float64) {
		for _, s := range links {
			for len(s.queue) > 0 && s.queue[0].at <= until {
				d := s.queue[0]
				s.queue = s.queue[1:]
				travel(d.packet, d.hop, d.at, true)
			}
		}
	}
	time := 1.
	for range n.packets {
		time += n.r.ExpFloat64() * interval / float64(n.packets)
		drain(time)
		f := n.flows[n.r.IntN(len(n.flows))]
		f.sent++
		travel(packet{f, -1, 0}, 0, time, false)
	}
	drain(math.Inf(1))
}

// measure fills the sketches in one interval and collects them in the next one.
func (n *network) measure(config sumax.Config) error {
	var selectors []*selector
	for node := range n.switches() {
		s, err := sumax.New[hash](config)
		if err != nil {
			return err
		}
		p, err := sumax.NewPartial[hash](config)
		if err != nil {
			return err
		}
		n.sketches, n.received = append(n.sketches, s), append(n.received, p)
		selectors = append(selectors, newSelector(node, carrying, config.Width, chances))
	}
	n.send(func(p *packet, node int, time float64) {
		n.sketches[node].Record(p.flow.key[:], sumax.Packet{At: uint32(time)})
	}, func(p *packet) { p.flow.arrived++ })
	for _, f := range n.flows {
		f.measured = f.sent
	}
	var cells []uint32
	var err error
	n.send(func(p *packet, node int, _ float64) {
		if col, ok := selectors[node].packet(p.device >= 0); ok {
			p.device, p.column = node, col
		}
	}, func(p *packet) {
		if p.device < 0 || err != nil {
			return
		}
		if cells, err = n.sketches[p.device].Column(cells[:0], p.column); err == nil {
			_, err = n.received[p.device].SetColumn(p.column, cells)
		}
	})
	return err
}

// score compares the findings of the rules with the faults.
type score struct{ right, found, faults int }

func (s score) precision() float64 { return float64(s.right) / float64(max(s.found, 1)) }
func (s score) recall() float64    { return float64(s.right) / float64(max(s.faults, 1)) }
func (s score) f1() float64        { return 2 * float64(s.right) / float64(max(s.found+s.faults, 1)) }

// hops returns what the received columns say of a flow at its sender, its switches and its
// receiver, and the numbers of these nodes; hosts have numbers below 0.
func (n *network) hops(f *flowState) (path []analysis.Hop, nodes []int) {
	path, nodes = append(path, analysis.Hop{Valid: true, Packets: f.measured}), append(nodes, -1-f.from)
	for _, node := range f.path {
		var h analysis.Hop
		h.Packets, h.Valid = n.received[node].Query(f.key[:])
		h.Shared = h.Valid && h.Packets > f.measured
		h.Interval, _, _ = n.received[node].OwnInterval(f.key[:], h.Packets)
		h.Mixed = h.Shared
		path, nodes = append(path, h), append(nodes, node)
	}
	return append(path, analysis.Hop{Valid: true, Packets: f.arrived}), append(nodes, -1-f.to)
}

// locate judges each flow by the received columns, and then again with the votes of all flows.
func (n *network) locate(fault analysis.Fault, rules analysis.Rules) (s score) {
	var findings []analysis.Finding
	votes := analysis.Votes[int]{}
	for _, f := range n.flows {
		if path, nodes := n.hops(f); f.measured > 0 {
			findings = rules.Locate(findings[:0], path)
			votes.Count(&rules, nodes, path, findings)
		}
	}
	for _, f := range n.flows {
		if f.measured == 0 {
			continue
		}
		for hop := range f.path {
			if n.faulty(f, hop, fault) {
				s.faults++
			}
		}
		path, nodes := n.hops(f)
		findings = votes.Settle(&rules, nodes, path, rules.Locate(findings[:0], path))
		for _, x := range findings {
			s.found++
			if x.Hop <= len(f.path) && n.faulty(f, x.Hop-1, fault) {
				s.right++
			}
		}
	}
	return s
}

// pl is the paper's own rule (section 8.3.1): P, the estimate at a switch, divided by L, the
// estimate at the switch before it. It is below the threshold at a blackhole, and above it at a
// loop or a jitter. The switches behind the first one of a loop belong to it as long as P does
// not fall again by the threshold (section 6.2: sizes are abnormally large on several switches).
// The rule says nothing about a switch if one of the two has no received bucket of the flow, or
// if L is 0, and nothing about the first switch of a path.
func (n *network) pl(fault analysis.Fault, threshold float64) (s score) {
	estimate := func(f *flowState, node int) (uint32, bool) {
		if fault != analysis.AbnormalJitter {
			return n.received[node].Query(f.key[:])
		}
		gap, _, valid := n.received[node].MaxInterval(f.key[:])
		return gap, valid
	}
	for _, f := range n.flows {
		if f.measured == 0 {
			continue
		}
		looped, before, known := false, uint32(0), false
		for hop, node := range f.path {
			actual := n.faulty(f, hop, fault)
			if actual {
				s.faults++
			}
			p, valid := estimate(f, node)
			found := false
			if ratio := float64(p) / float64(before); valid && known && before > 0 {
				switch fault {
				case analysis.Blackhole:
					found = ratio < threshold
				case analysis.Loop:
					looped = ratio > threshold || looped && ratio >= 1/threshold
					found = looped
				default:
					found = ratio > threshold
				}
			}
			before, known = p, valid
			if found {
				s.found++
				if actual {
					s.right++
				}
			}
		}
	}
	return s
}

// locate measures an experiment with one number of columns. scale multiplies the numbers of
// packets, flows and columns; part multiplies the number of flows once more.
func locate(e experiment, columns int, scale, part float64, seed uint64) ([]suite.Row, error) {
	n := newNetwork(e, int(float64(e.flows)*scale*part), int(allPackets*scale), seed)
	config := e.config
	config.Width = int(float64(columns) * scale)
	if err := n.measure(config); err != nil {
		return nil, err
	}
	received := 0.
	for _, s := range n.received {
		received += s.Received() / float64(len(n.received))
	}
	task := e.task
	if part < 1 {
		task += fmt.Sprintf(parted, part*100)
	}
	row := func(structure, metric string, value float64, unit string) suite.Row {
		return suite.Row{Structure: structure, Variant: fmt.Sprintf("columns %d", columns),
			Memory: n.received[0].Memory(), Task: task, Metric: metric, Value: value, Unit: unit}
	}
	theirs := func(structure, metric string, value float64) suite.Row {
		r := row(structure, metric, value, "ratio")
		r.Task += byPL
		return r
	}
	rows := []suite.Row{row("all", "received columns", received, "ratio")}
	for i, x := range e.thresholds {
		s := n.locate(e.fault, e.rules(x))
		name := e.threshold(x)
		if i == 0 {
			rows = append(rows, row("all", "faults", float64(s.faults), "flows at switches"))
		}
		rows = append(rows, row(name, "F1", s.f1(), "ratio"), row(name, "PR", s.precision(), "ratio"),
			row(name, "RR", s.recall(), "ratio"))
		s = n.pl(e.fault, x)
		rows = append(rows, theirs(name, "F1", s.f1()), theirs(name, "PR", s.precision()),
			theirs(name, "RR", s.recall()))
	}
	return rows, nil
}

const byPL = ", P and L" // follows the task of the paper's own rule

const parted = ", %g %% of the flows" // share of the flows in an interval

func (e experiment) threshold(x float64) string { return fmt.Sprintf("threshold %g", x) }

// measureLocating measures all experiments. scale is the parameter of locate.
func measureLocating(ctx context.Context, columns []int, runs int, scale float64, seed uint64) ([]suite.Row, error) {
	var work []func() ([]suite.Row, error)
	for _, e := range experiments {
		for _, c := range columns {
			work = append(work, func() ([]suite.Row, error) { return locate(e, c, scale, 1, seed) })
		}
	}
	work = append(work, func() ([]suite.Row, error) { return locate(experiments[0], 1<<16, scale, 0.5, seed) },
		func() ([]suite.Row, error) { return locate(experiments[2], 1<<12, scale, 0.1, seed) })
	for dead := 1; dead <= half; dead++ {
		work = append(work, func() ([]suite.Row, error) { return robustness(dead, robustColumns, runs, seed), nil })
	}
	work = append(work, func() ([]suite.Row, error) { return robustness(half, paperColumns, 1, seed), nil })
	return inTurn(ctx, work)
}

// extremes returns the smallest and the largest value of an experiment over its thresholds.
func (e experiment) extremes(v suite.Values, task, metric string, columns int) (least, most float64) {
	var all []float64
	for _, x := range e.thresholds {
		all = append(all, v.Variant(e.threshold(x), fmt.Sprintf("columns %d", columns), task, metric))
	}
	return slices.Min(all), slices.Max(all)
}

// half is half the number of hosts.
var half = mininet.hosts() / 2

func locatingFigure() suite.Suite {
	return suite.New(suite.Suite{
		Name: "lightguardian-7",
		Measure: func(ctx context.Context, _ *trace.Trace, o suite.Options) ([]suite.Row, error) {
			return measureLocating(ctx, locatingColumns, robustRuns, 1, o.Seed)
		},
	})
}
