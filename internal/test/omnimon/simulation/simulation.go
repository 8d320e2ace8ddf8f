// SPDX-License-Identifier: Apache-2.0

// Package simulation sends flows through a network that counts them as OmniMon's hosts and switches
// do, makes the reports and slots of one epoch, and records how many packets of each flow each
// switch and link lost. Tests compare results of the collective analysis with this record.
//
// It has no clock and no bytes of packets, so an epoch of a million flows takes seconds. The lab
// and package lab/omnimon run the data paths themselves.
package simulation

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/plugins/omnimon/analysis"
	"github.com/netsketch/netsketch/sketch/flow"
)

// Topology is a network of switches, with the path of each pair of hosts and hash.
type Topology struct {
	Hosts, Switches int
	Links           []analysis.Link
	HostsPerEdge    int

	ids  map[[2]int32]int32 // ids of links, by nodes: switches, and hosts as -1-number
	path func(from, to int, hash uint32) []int32
}

func (tp *Topology) join(a, b int32) {
	for _, ends := range [][2]int32{{a, b}, {b, a}} {
		if tp.ids == nil {
			tp.ids = map[[2]int32]int32{}
		}
		tp.ids[ends] = int32(len(tp.Links))
		tp.Links = append(tp.Links, analysis.Link{From: max(ends[0], analysis.Host), To: max(ends[1], analysis.Host)})
	}
}

func node(host int) int32 { return int32(-1 - host) }

// Testbed is the paper's: two edge switches, 0 and 1, with four hosts each, and core switch 2.
func Testbed() *Topology {
	tp := &Topology{Hosts: 8, Switches: 3, HostsPerEdge: 4}
	tp.join(0, 2)
	tp.join(1, 2)
	for h := range 8 {
		tp.join(node(h), int32(h/4))
	}
	tp.path = func(from, to int, _ uint32) []int32 {
		if from/4 == to/4 {
			return []int32{int32(from / 4)}
		}
		return []int32{int32(from / 4), 2, int32(to / 4)}
	}
	return tp
}

// FatTree is a k-ary fat tree, with ECMP by the hash. Its switches are the edges, then the
// aggregations, then the cores.
func FatTree(k int) *Topology {
	half := k / 2
	tp := &Topology{Hosts: k * half * half, Switches: 5 * half * half, HostsPerEdge: half}
	edge := func(pod, i int) int32 { return int32(pod*half + i) }
	aggregation := func(pod, i int) int32 { return int32(k*half + pod*half + i) }
	core := func(i, j int) int32 { return int32(2*k*half + i*half + j) }
	for pod := range k {
		for i := range half {
			for j := range half {
				tp.join(edge(pod, i), aggregation(pod, j))
				tp.join(aggregation(pod, i), core(i, j))
				tp.join(node((pod*half+i)*half+j), edge(pod, i))
			}
		}
	}
	tp.path = func(from, to int, hash uint32) []int32 {
		a, b := from/half, to/half // edge switches
		up, over := int(hash)%half, int(hash>>8)%half
		switch {
		case a == b:
			return []int32{int32(a)}
		case a/half == b/half:
			return []int32{int32(a), aggregation(a/half, up), int32(b)}
		}
		return []int32{int32(a), aggregation(a/half, up), core(up, over), aggregation(b/half, up), int32(b)}
	}
	return tp
}

// Settings of a simulation.
type Settings struct {
	Flows, Slots int
	Values       int     // statistics that switches count; 0: all but maxima and minima
	Local        float64 // share of flows that stay within one edge switch, at least
	Mean         float64 // packets per flow
	PerPort      bool
	Counters     bool // ports count packets
	// Extremes is the count of fields with a random value in each packet; their maxima, and the minima
	// of those with an odd number, are statistics. With MinimumFirst, numbers are one higher.
	Extremes     int
	MinimumFirst bool
	// Plain reports whether a switch does not measure; nil: all do.
	Plain func(number int32) bool
	Seed  uint64
	// Mapping returns the slots of flow number n; nil: a new pair for each flow of all hosts.
	Mapping func(n int, f *Flow) [4]uint16
	// Drop reports whether an element drops a packet of a flow at a time from 0 to 1. Elements are
	// switches, then links.
	Drop func(element int, f *Flow, time float64, r *rand.Rand) bool
}

// Flow is a flow with its path and its losses.
type Flow struct {
	Key            flow.Key
	From, To       int
	Index          uint32 // index in the table of the flow's source
	Slots          [4]uint16
	Path           *analysis.Path
	Sent, Received wire.Values
	Lost           []wire.Values // losses, as in analysis.LossyFlow.Losses
	// Arrived are by hop the maxima and minima of the packets that arrived at the switch; none
	// without packets.
	Arrived []*[wire.MaxExtremes]int64
	// Uncounted are packets that arrived and that the destination could not attribute to the flow.
	Uncounted wire.Values
	// Hidden is set if no report contains the flow, as for a source that is not a host.
	Hidden bool
}

// Lossy reports whether packets of the flow were lost.
func (f *Flow) Lossy() bool { return f.Sent != f.Received }

// Simulation is one epoch.
type Simulation struct {
	*Topology
	Net   analysis.Network
	Flows []*Flow
	Epoch analysis.Epoch

	settings Settings
	random   *rand.Rand
	indexes  []uint32 // next index of each host
	routes   map[flow.Key]*Flow
}

// New returns an epoch without flows, for Add and Count.
func New(tp *Topology, s Settings) *Simulation {
	sim := &Simulation{Topology: tp, settings: s, random: rand.New(rand.NewPCG(s.Seed, 11)), routes: map[flow.Key]*Flow{},
		indexes: make([]uint32, tp.Hosts)}
	arrays := tp.Switches
	if s.PerPort {
		arrays = len(tp.Links)
	}
	sim.Net = analysis.Network{Hosts: tp.Hosts, Switches: tp.Switches, Arrays: arrays, Links: tp.Links, Flows: s.Flows,
		Slots: s.Slots, SlotsPerFlow: 2, Values: cmp.Or(s.Values, int(wire.FirstExtreme)), Extremes: s.Extremes,
		Bits: 32, Route: sim.route}
	for h := range tp.Hosts {
		edge := int32(h / tp.HostsPerEdge)
		sim.Net.Uplinks = append(sim.Net.Uplinks, tp.ids[[2]int32{node(h), edge}])
		sim.Net.Downlinks = append(sim.Net.Downlinks, tp.ids[[2]int32{edge, node(h)}])
	}
	for array := range int32(arrays) {
		if s.PerPort {
			array = max(tp.Links[array].To, 0) // links to hosts count nothing
		}
		sim.Net.SwitchOf = append(sim.Net.SwitchOf, array)
	}
	return sim
}

// Run simulates an epoch.
func Run(tp *Topology, s Settings) *Simulation {
	sim := New(tp, s)
	for n := range s.Flows {
		from, to := sim.hosts()
		f := sim.Add(from, to, flow.Key{Proto: 6, SrcPort: uint16(n), DstPort: uint16(n >> 16)})
		packets := 1 + int(sim.random.ExpFloat64()*(s.Mean-1)*math.Exp(sim.random.NormFloat64()-0.5))
		for i := range packets {
			sim.send(f, (float64(i)+sim.random.Float64())/float64(packets))
		}
	}
	sim.Count()
	return sim
}

// Controller simulates the epoch of Exp#3: flows on the testbed, of which about 0.6 % are lossy if
// losses is set. As in a real network, routes are a function of the addresses.
func Controller(flows int, losses bool) *Simulation {
	s := Settings{Flows: flows, Slots: 3072, Local: 0.85, Mean: 10, Counters: true, Seed: 2}
	if losses {
		s.Drop = func(element int, _ *Flow, _ float64, r *rand.Rand) bool {
			return element == 2 && r.Float64() < 0.004 || element == 0 && r.Float64() < 0.0005
		}
	}
	sim := Run(Testbed(), s)
	var paths [8][8]*analysis.Path
	for _, f := range sim.Flows {
		if p := &paths[f.From][f.To]; *p == nil {
			*p = f.Path
		}
		f.Path = paths[f.From][f.To]
	}
	sim.Net.Route = func(source int, k *flow.Key) (int, *analysis.Path) {
		to := int(k.Dst[3])
		return to, paths[source][to]
	}
	return sim
}

// hosts draws the ends of a flow.
func (sim *Simulation) hosts() (from, to int) {
	r := sim.random
	from = r.IntN(sim.Hosts)
	for to = from; to == from; {
		if r.Float64() < sim.settings.Local {
			to = from/sim.HostsPerEdge*sim.HostsPerEdge + r.IntN(sim.HostsPerEdge)
		} else {
			to = r.IntN(sim.Hosts)
		}
	}
	return from, to
}

// Add adds a flow without packets between two hosts. It sets the addresses of the key, whose
// protocol and ports differ from those of other flows.
func (sim *Simulation) Add(from, to int, key flow.Key) *Flow {
	s, n := &sim.settings, len(sim.Flows)
	f := &Flow{Key: between(from, to, key), From: from, To: to, Index: sim.indexes[from]}
	sim.indexes[from]++
	if s.Mapping != nil {
		f.Slots = s.Mapping(n, f)
	} else {
		pairs := s.Slots * (s.Slots - 1) / 2 // pair number n in a pseudo-random order
		f.Slots = Pair(int(uint64(n) * 0x9e3779b1 % uint64(pairs)))
	}
	f.Path = sim.Path(from, to, key)
	f.Lost = make([]wire.Values, 2*len(f.Path.Hops)+1)
	f.Arrived = make([]*[wire.MaxExtremes]int64, len(f.Path.Hops))
	sim.Flows = append(sim.Flows, f)
	sim.routes[f.Key] = f
	return f
}

// between sets the addresses of a key.
func between(from, to int, key flow.Key) flow.Key {
	key.Mask = flow.FiveTuple
	binary.BigEndian.PutUint16(key.Src[2:], uint16(from))
	binary.BigEndian.PutUint16(key.Dst[2:], uint16(to))
	return key
}

// Path is the path of a flow that Add would add.
func (sim *Simulation) Path(from, to int, key flow.Key) *analysis.Path {
	key = between(from, to, key)
	p := &analysis.Path{}
	at := node(from)
	for _, sw := range sim.path(from, to, uint32(wire.Hash(&key, 1))) {
		h := analysis.Hop{Link: sim.ids[[2]int32{at, sw}], Switch: sw, Array: sw}
		if sim.settings.PerPort {
			h.Array = h.Link
		}
		if sim.plain(sw) {
			h.Array = analysis.None
		}
		p.Hops = append(p.Hops, h)
		at = sw
	}
	p.Last = sim.ids[[2]int32{at, node(to)}]
	return p
}

// Pair returns pair number n of all pairs of slots. The smaller slot is the first one in half of
// them.
func Pair(n int) [4]uint16 {
	high := int((1 + math.Sqrt(float64(1+8*n))) / 2)
	for high*(high-1)/2 > n {
		high--
	}
	low := n - high*(high-1)/2
	if (low+high)%2 > 0 {
		return [4]uint16{uint16(high), uint16(low)}
	}
	return [4]uint16{uint16(low), uint16(high)}
}

// elements calls f with each switch and link on a path until it returns false, in the order of
// Flow.Lost. Links follow switches.
func (sim *Simulation) elements(p *analysis.Path, f func(n, element int) bool) {
	for i, h := range p.Hops {
		if !f(2*i, sim.Switches+int(h.Link)) || !f(2*i+1, int(h.Switch)) {
			return
		}
	}
	f(2*len(p.Hops), sim.Switches+int(p.Last))
}

// send sends one packet.
func (sim *Simulation) send(f *Flow, time float64) {
	v := wire.Values{1, 40 + sim.random.Int64N(1460)}
	v[wire.SYN+wire.Statistic(sim.random.IntN(4))] = 1
	var fields [wire.MaxExtremes]int64
	for i := range sim.settings.Extremes {
		fields[i] = sim.random.Int64N(1 << sim.random.IntN(17))
		if s := wire.FirstExtreme + wire.Statistic(i); f.Sent[wire.Packets] == 0 {
			v[s] = fields[i]
		} else {
			v[s] = sim.extreme(i, f.Sent[s], fields[i]) - f.Sent[s]
		}
	}
	f.Sent.Add(&v)
	lost := false
	if drop := sim.settings.Drop; drop != nil || sim.settings.Extremes > 0 {
		sim.elements(f.Path, func(n, element int) bool {
			if lost = drop != nil && drop(element, f, time, sim.random); lost {
				f.Lost[n].Add(&v)
			} else if n%2 == 0 && n/2 < len(f.Arrived) {
				sim.arrive(f, n/2, fields)
			}
			return !lost
		})
	}
	if !lost {
		f.Received.Add(&v)
	}
}

// extreme is the maximum or minimum number i of two values.
func (sim *Simulation) extreme(i int, a, b int64) int64 {
	if i%2 > 0 != sim.settings.MinimumFirst {
		return min(a, b)
	}
	return max(a, b)
}

// arrive counts the fields of a packet that arrives at a switch.
func (sim *Simulation) arrive(f *Flow, hop int, fields [wire.MaxExtremes]int64) {
	if f.Arrived[hop] == nil {
		f.Arrived[hop] = &fields
		return
	}
	for i, v := range fields {
		f.Arrived[hop][i] = sim.extreme(i, f.Arrived[hop][i], v)
	}
}

// Count makes the epoch anew from the flows, after a change of their slots.
func (sim *Simulation) Count() {
	sim.Epoch = analysis.Epoch{Number: 5, Recorded: make([][]int64, sim.Net.Arrays)}
	for i := range sim.Epoch.Recorded {
		sim.Epoch.Recorded[i] = make([]int64, sim.Net.Slots*sim.words())
	}
	arrived, departed := make([]int64, len(sim.Links)), make([]int64, len(sim.Links))
	if sim.settings.Counters {
		sim.Epoch.Arrived, sim.Epoch.Departed = arrived, departed
	}
	for _, f := range sim.Flows {
		v, counted := f.Sent, 0
		for i, h := range f.Path.Hops {
			if i > 0 {
				departed[h.Link] += v[wire.Packets]
			}
			v.Sub(&f.Lost[2*i])
			arrived[h.Link] += v[wire.Packets]
			if h.Array != analysis.None {
				at := int(f.Slots[counted%sim.Net.SlotsPerFlow]) * sim.words()
				for j := range sim.words() {
					statistic := j
					if j >= sim.Net.Values {
						statistic = int(wire.FirstExtreme) + j - sim.Net.Values
					}
					sim.Epoch.Recorded[h.Array][at+j] += v[statistic]
				}
				counted++
			}
			v.Sub(&f.Lost[2*i+1])
		}
		departed[f.Path.Last] += v[wire.Packets]
	}
	for i, l := range sim.Links {
		if sim.plain(l.From) {
			departed[i] = -1
		}
		if sim.plain(l.To) {
			arrived[i] = -1
		}
	}
	sim.report()
}

// words is the count of numbers in a slot.
func (sim *Simulation) words() int { return sim.Net.Values + sim.Net.Extremes }

// plain reports whether a switch does not measure.
func (sim *Simulation) plain(number int32) bool {
	return number >= 0 && sim.settings.Plain != nil && sim.settings.Plain(number)
}

func (sim *Simulation) route(_ int, k *flow.Key) (destination int, path *analysis.Path) {
	f, ok := sim.routes[*k]
	if !ok {
		return 0, nil
	}
	return f.To, f.Path
}

// Route returns the flow with a key, or nil.
func (sim *Simulation) Route(k *flow.Key) *Flow { return sim.routes[*k] }

// report makes the reports of all hosts.
func (sim *Simulation) report() {
	out, in := make([][]*Flow, sim.Hosts), make([][][]*Flow, sim.Hosts)
	for h := range in {
		in[h] = make([][]*Flow, sim.Hosts)
	}
	counters := make([][wire.Counters]uint64, sim.Hosts)
	for _, f := range sim.Flows {
		if f.Hidden {
			counters[f.To][wire.UnknownHost] += uint64(f.Received[wire.Packets])
			continue
		}
		out[f.From] = append(out[f.From], f)
		if f.Received[wire.Packets] > f.Uncounted[wire.Packets] {
			in[f.To][f.From] = append(in[f.To][f.From], f)
		}
		counters[f.To][wire.IngressFull] += uint64(f.Uncounted[wire.Packets])
	}
	for host := range sim.Hosts {
		var b wire.Builder
		b.Begin(&wire.Summary{Host: host, Epoch: sim.Epoch.Number, Counters: counters[host]}, sim.Net.SlotsPerFlow,
			len(out[host]))
		for _, f := range out[host] {
			b.Egress(&wire.EgressRow{Index: f.Index, Key: f.Key, Slots: f.Slots}, &f.Sent)
		}
		sources := 0
		for _, rows := range in[host] {
			if len(rows) > 0 {
				sources++
			}
		}
		b.BeginIngress(sources)
		for source, rows := range in[host] {
			if len(rows) == 0 {
				continue
			}
			b.BeginHost(source, len(rows))
			for _, f := range rows {
				counted := f.Received
				counted.Sub(&f.Uncounted)
				b.Ingress(f.Index, wire.Check(&f.Key), &counted)
			}
		}
		sim.Epoch.Reports = append(sim.Epoch.Reports, b.Data)
	}
}

// Analyze analyzes the epoch.
func (sim *Simulation) Analyze() (*analysis.Result, error) {
	a, err := analysis.New(sim.Net)
	if err != nil {
		return nil, err
	}
	return a.Analyze(&sim.Epoch), nil
}

// Compare returns an error if a result differs from what happened: any value of any flow at any
// switch, any bound that does not contain the loss, any exact loss that differs.
func (sim *Simulation) Compare(r *analysis.Result) error {
	lossy := 0
	for _, f := range sim.Flows {
		if f.Lossy() {
			lossy++
		}
	}
	if r.Flows != len(sim.Flows) || len(r.Lossy) != lossy {
		return fmt.Errorf("%d flows, %d lossy; want %d, %d; %v", r.Flows, len(r.Lossy), len(sim.Flows), lossy, Reasons(r))
	}
	complete := Complete(r)
	for i := range complete {
		f := &complete[i]
		want := sim.routes[f.Key]
		if f.Sent != want.Sent || f.Source != want.From || f.Destination != want.To || f.Path != want.Path {
			return fmt.Errorf("flow %v: %v from %d to %d, want %v", f.Key, f.Sent, f.Source, f.Destination, want)
		}
	}
	if len(complete) != len(sim.Flows)-lossy {
		return fmt.Errorf("%d complete flows, want %d", len(complete), len(sim.Flows)-lossy)
	}
	return sim.Contains(r)
}

// Contains returns an error if the bounds of a loss exclude the simulated loss, or if an exact loss
// or value differs from the simulation.
func (sim *Simulation) Contains(r *analysis.Result) error {
	for _, flows := range [][]analysis.LossyFlow{r.Lossy, r.Open} {
		for i := range flows {
			if err := sim.contains(&flows[i]); err != nil {
				return err
			}
		}
	}
	switches, links := sim.Losses()
	for i, b := range slices.Concat(r.Switches, r.Links) {
		if lost := slices.Concat(switches, links)[i]; b.Low > lost || b.High < lost {
			return fmt.Errorf("element %d lost %d packets, result %+v", i, lost, b)
		}
	}
	return nil
}

func (sim *Simulation) contains(f *analysis.LossyFlow) error {
	want := sim.routes[f.Key]
	for n, l := range f.Losses {
		lost := want.Lost[n]
		if p := lost[wire.Packets]; l.Packets.Low > p || l.Packets.High < p {
			return fmt.Errorf("flow %v lost %d packets at %d, result %+v", f.Key, p, n, l)
		}
		if l.Exact && l.Values != lost {
			return fmt.Errorf("flow %v lost %v at %d, result %v", f.Key, lost, n, l.Values)
		}
	}
	at := want.Sent
	for hop := range f.Path.Hops {
		at.Sub(&want.Lost[2*hop])
		if v, exact := f.At(hop); exact && v != at {
			return fmt.Errorf("flow %v has %v at hop %d, want %v", f.Key, v, hop, at)
		}
		at.Sub(&want.Lost[2*hop+1])
	}
	return nil
}

// Reasons returns all reasons for which parts of a result are not exact.
func Reasons(r *analysis.Result) []string {
	all := slices.Concat(r.Hosts, r.Elements, r.Contradictions)
	for _, f := range slices.Concat(r.Odd, r.Unplaced) {
		all = append(all, r.Reason(&f))
	}
	return slices.DeleteFunc(all, func(reason string) bool { return reason == "" })
}

// Losses holds the number of packets that each switch and link lost.
func (sim *Simulation) Losses() (switches, links []int64) {
	all := make([]int64, sim.Switches+len(sim.Links))
	for _, f := range sim.Flows {
		sim.elements(f.Path, func(n, element int) bool {
			all[element] += f.Lost[n][wire.Packets]
			return true
		})
	}
	return slices.Clip(all[:sim.Switches]), all[sim.Switches:]
}

// Failures returns a drop function with eight failed elements of one of the paper's four kinds:
// "congestion", "gray failure", "switch crash" and "link failure".
func Failures(tp *Topology, kind string, r *rand.Rand) func(int, *Flow, float64, *rand.Rand) bool {
	first, n := 0, tp.Switches
	if kind == "link failure" {
		first, n = tp.Switches, len(tp.Links)
	}
	failed := map[int]float64{}
	for len(failed) < 8 {
		if e := first + r.IntN(n); e < tp.Switches || tp.Links[e-tp.Switches].From != analysis.Host {
			failed[e] = r.Float64()
		}
	}
	return func(element int, f *Flow, time float64, r *rand.Rand) bool {
		since, ok := failed[element]
		if !ok {
			return false
		}
		switch kind {
		case "congestion":
			return r.Float64() < 0.01
		case "gray failure":
			return wire.Hash(&f.Key, uint64(element))%100 == 0
		default: // a crash or a link failure in the course of the epoch
			return time > since
		}
	}
}

// Complete returns the flows that arrived completely.
func Complete(r *analysis.Result) (flows []analysis.Flow) {
	var mu sync.Mutex
	r.Each(func(_ int, f *analysis.Flow) {
		mu.Lock()
		defer mu.Unlock()
		flows = append(flows, *f)
	})
	return flows
}
