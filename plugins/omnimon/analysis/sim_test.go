// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/sketch/flow"
)

// topology is a network of switches, and the path of each pair of hosts and hash.
type topology struct {
	hosts, switches int
	links           []Link
	ids             map[[2]int32]int32 // of links, by nodes: switches, and hosts as -1-number
	path            func(from, to int, hash uint32) []int32
}

func (tp *topology) join(a, b int32) {
	for _, ends := range [][2]int32{{a, b}, {b, a}} {
		if tp.ids == nil {
			tp.ids = map[[2]int32]int32{}
		}
		tp.ids[ends] = int32(len(tp.links))
		tp.links = append(tp.links, Link{max(ends[0], Host), max(ends[1], Host)})
	}
}

func node(host int) int32 { return int32(-1 - host) }

// testbed is the paper's: two edge switches with four hosts each, and one core switch.
func testbed() *topology {
	tp := &topology{hosts: 8, switches: 3}
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

// fatTree is a k-ary fat tree, with ECMP by the hash.
func fatTree(k int) *topology {
	half := k / 2
	tp := &topology{hosts: k * half * half, switches: 5 * half * half}
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

// simulation sends packets through a network whose switches and hosts count them, and records what
// each switch and link lost of each flow.
type simulation struct {
	*topology
	net    Network
	random *rand.Rand
	flows  []*simulated
	routes map[flow.Key]*simulated
	epoch  Epoch
}

type simulated struct {
	key            flow.Key
	from, to       int
	index          uint32
	slots          [4]uint16
	path           *Path
	sent, received wire.Values
	lost           []wire.Values // as in LossyFlow.Losses
}

// settings of a simulation.
type settings struct {
	flows, slots int
	local        float64 // share of flows within one edge switch
	mean         float64 // packets per flow
	perPort      bool
	counters     bool // ports count packets
	seed         uint64
	// mapping returns the slots of flow number n; nil: a new pair for each flow of all hosts.
	mapping func(r *rand.Rand, n int) [4]uint16
	// drop reports whether an element drops a packet of a flow at a time from 0 to 1. Elements are
	// switches, then links.
	drop func(element int, f *simulated, time float64, r *rand.Rand) bool
}

func simulate(tp *topology, s settings) *simulation {
	sim := &simulation{topology: tp, random: rand.New(rand.NewPCG(s.seed, 11)), routes: map[flow.Key]*simulated{}}
	arrays := tp.switches
	if s.perPort {
		arrays = len(tp.links)
	}
	sim.net = Network{Hosts: tp.hosts, Switches: tp.switches, Arrays: arrays, Links: tp.links, Flows: s.flows,
		Slots: s.slots, SlotsPerFlow: 2, Values: int(wire.FirstExtreme), Bits: 32, Route: sim.route}
	sim.epoch = Epoch{Number: 5, Recorded: make([][]int64, arrays), Reports: make([][]byte, tp.hosts)}
	for i := range sim.epoch.Recorded {
		sim.epoch.Recorded[i] = make([]int64, s.slots*sim.net.Values)
	}
	if s.counters {
		sim.epoch.Arrived, sim.epoch.Departed = make([]int64, len(tp.links)), make([]int64, len(tp.links))
	}
	indexes := make([]uint32, tp.hosts)
	for n := range s.flows {
		f := sim.flow(n, &s)
		f.index = indexes[f.from]
		indexes[f.from]++
		packets := 1 + int(sim.random.ExpFloat64()*(s.mean-1)*math.Exp(sim.random.NormFloat64()-0.5))
		for i := range packets {
			sim.send(f, (float64(i)+sim.random.Float64())/float64(packets), &s)
		}
	}
	for h := range tp.hosts {
		sim.epoch.Reports[h] = sim.report(h)
	}
	return sim
}

func (sim *simulation) flow(n int, s *settings) *simulated {
	r := sim.random
	f := &simulated{from: r.IntN(sim.hosts)}
	perEdge := 0
	for _, l := range sim.links {
		if l.From == Host && l.To == 0 {
			perEdge++
		}
	}
	for f.to = f.from; f.to == f.from; {
		if r.Float64() < s.local {
			f.to = f.from/perEdge*perEdge + r.IntN(perEdge)
		} else {
			f.to = r.IntN(sim.hosts)
		}
	}
	f.key = flow.Key{Mask: flow.FiveTuple, Proto: 6, SrcPort: uint16(n), DstPort: uint16(n >> 16)}
	binary.BigEndian.PutUint16(f.key.Src[2:], uint16(f.from))
	binary.BigEndian.PutUint16(f.key.Dst[2:], uint16(f.to))
	if s.mapping != nil {
		f.slots = s.mapping(r, n)
	} else {
		pairs := s.slots * (s.slots - 1) / 2 // pair number n in a pseudo-random order
		f.slots = pair(int(uint64(n) * 0x9e3779b1 % uint64(pairs)))
	}
	f.path = &Path{}
	at := node(f.from)
	for _, sw := range sim.path(f.from, f.to, uint32(wire.Hash(&f.key, 1))) {
		h := Hop{Link: sim.ids[[2]int32{at, sw}], Switch: sw, Array: sw}
		if s.perPort {
			h.Array = h.Link
		}
		f.path.Hops = append(f.path.Hops, h)
		at = sw
	}
	f.path.Last = sim.ids[[2]int32{at, node(f.to)}]
	f.lost = make([]wire.Values, 2*len(f.path.Hops)+1)
	sim.flows = append(sim.flows, f)
	sim.routes[f.key] = f
	return f
}

// pair is pair number n of all pairs of slots.
func pair(n int) [4]uint16 {
	high := int((1 + math.Sqrt(float64(1+8*n))) / 2)
	for high*(high-1)/2 > n {
		high--
	}
	return [4]uint16{uint16(n - high*(high-1)/2), uint16(high)}
}

func (sim *simulation) send(f *simulated, time float64, s *settings) {
	v := wire.Values{1, 40 + sim.random.Int64N(1460)}
	v[wire.SYN+wire.Statistic(sim.random.IntN(4))] = 1
	f.sent.Add(&v)
	lose := func(n, element int) bool {
		if s.drop == nil || !s.drop(element, f, time, sim.random) {
			return false
		}
		f.lost[n].Add(&v)
		return true
	}
	for i, h := range f.path.Hops {
		if i > 0 && sim.epoch.Departed != nil {
			sim.epoch.Departed[h.Link]++
		}
		if lose(2*i, sim.switches+int(h.Link)) {
			return
		}
		if sim.epoch.Arrived != nil {
			sim.epoch.Arrived[h.Link]++
		}
		at := int(f.slots[i%2]) * sim.net.Values
		for j := range sim.net.Values {
			sim.epoch.Recorded[h.Array][at+j] += v[j]
		}
		if lose(2*i+1, int(h.Switch)) {
			return
		}
	}
	if sim.epoch.Departed != nil {
		sim.epoch.Departed[f.path.Last]++
	}
	if !lose(2*len(f.path.Hops), sim.switches+int(f.path.Last)) {
		f.received.Add(&v)
	}
}

func (sim *simulation) route(_ int, k *flow.Key) (destination int, path *Path) {
	f, ok := sim.routes[*k]
	if !ok {
		return 0, nil
	}
	return f.to, f.path
}

func (sim *simulation) report(host int) []byte {
	var b wire.Builder
	var out []*simulated
	in := map[int][]*simulated{}
	for _, f := range sim.flows {
		if f.from == host {
			out = append(out, f)
		}
		if f.to == host && f.received[wire.Packets] > 0 {
			in[f.from] = append(in[f.from], f)
		}
	}
	b.Begin(&wire.Summary{Host: host, Epoch: sim.epoch.Number}, 2, len(out))
	for _, f := range out {
		b.Egress(&wire.EgressRow{Index: f.index, Key: f.key, Slots: f.slots}, &f.sent)
	}
	b.BeginIngress(len(in))
	for source := range sim.hosts {
		if rows := in[source]; len(rows) > 0 {
			b.BeginHost(source, len(rows))
			for _, f := range rows {
				b.Ingress(f.index, wire.Check(&f.key), &f.received)
			}
		}
	}
	return b.Data
}

func (sim *simulation) analyze(t testing.TB) *Result {
	t.Helper()
	a, err := New(sim.net)
	if err != nil {
		t.Fatal(err)
	}
	return a.Analyze(&sim.epoch)
}

// compare fails if the result differs from what happened: any value of any flow at any switch, any
// bound that does not contain the truth, any exact loss that differs.
func (sim *simulation) compare(t testing.TB, r *Result) {
	t.Helper()
	lossy := 0
	for _, f := range sim.flows {
		if f.sent != f.received {
			lossy++
		}
	}
	if r.Flows != len(sim.flows) || len(r.Lossy) != lossy {
		t.Fatalf("%d flows, %d lossy; want %d, %d; %v", r.Flows, len(r.Lossy), len(sim.flows), lossy, r.Warnings)
	}
	seen := 0
	for _, f := range flowsOf(r) {
		want := sim.routes[f.Key]
		seen++
		if f.Sent != want.sent || f.Source != want.from || f.Destination != want.to || f.Path != want.path {
			t.Fatalf("flow %v: %v from %d to %d, want %v", f.Key, f.Sent, f.Source, f.Destination, want)
		}
	}
	if seen != len(sim.flows)-lossy {
		t.Fatalf("%d complete flows, want %d", seen, len(sim.flows)-lossy)
	}
	for i := range r.Lossy {
		f := &r.Lossy[i]
		want := sim.routes[f.Key]
		for n, l := range f.Losses {
			truth := want.lost[n]
			if p := truth[wire.Packets]; l.Packets.Low > p || l.Packets.High < p {
				t.Fatalf("flow %v lost %d packets at %d, result %+v", f.Key, p, n, l)
			}
			if l.Exact && l.Values != truth {
				t.Fatalf("flow %v lost %v at %d, result %v", f.Key, truth, n, l.Values)
			}
		}
		at := want.sent
		for hop := range f.Path.Hops {
			at.Sub(&want.lost[2*hop])
			if v, exact := f.At(hop); exact && v != at {
				t.Fatalf("flow %v has %v at hop %d, want %v", f.Key, v, hop, at)
			}
			at.Sub(&want.lost[2*hop+1])
		}
	}
}

// lossesBy is what each switch and link lost.
func (sim *simulation) lossesBy() (switches, links []int64) {
	switches, links = make([]int64, sim.switches), make([]int64, len(sim.links))
	for _, f := range sim.flows {
		for i, h := range f.path.Hops {
			links[h.Link] += f.lost[2*i][wire.Packets]
			switches[h.Switch] += f.lost[2*i+1][wire.Packets]
		}
		links[f.path.Last] += f.lost[len(f.lost)-1][wire.Packets]
	}
	return switches, links
}

// failures returns a drop function with eight failed elements of one of the paper's four kinds.
func failures(tp *topology, kind string, r *rand.Rand) func(int, *simulated, float64, *rand.Rand) bool {
	first, n := 0, tp.switches
	if kind == "link failure" {
		first, n = tp.switches, len(tp.links)
	}
	failed := map[int]float64{}
	for len(failed) < 8 {
		if e := first + r.IntN(n); e < tp.switches || tp.links[e-tp.switches].From != Host {
			failed[e] = r.Float64()
		}
	}
	return func(element int, f *simulated, time float64, r *rand.Rand) bool {
		since, ok := failed[element]
		if !ok {
			return false
		}
		switch kind {
		case "congestion":
			return r.Float64() < 0.01
		case "gray failure":
			return wire.Hash(&f.key, uint64(element))%100 == 0
		default: // a crash or a link failure in the course of the epoch
			return time > since
		}
	}
}

// flowsOf returns the flows that arrived completely.
func flowsOf(r *Result) (flows []Flow) {
	var mu sync.Mutex
	r.Each(func(_ int, f *Flow) {
		mu.Lock()
		defer mu.Unlock()
		flows = append(flows, *f)
	})
	return flows
}
