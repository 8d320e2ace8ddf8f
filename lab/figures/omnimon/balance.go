// SPDX-License-Identifier: Apache-2.0

package omnimon

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/internal/test/omnimon/simulation"
	"github.com/netsketch/netsketch/lab/figures/baseline"
	"github.com/netsketch/netsketch/lab/figures/suite"
	"github.com/netsketch/netsketch/lab/figures/trace"
	"github.com/netsketch/netsketch/plugins/omnimon/analysis"
	"github.com/netsketch/netsketch/sketch/family"
	"github.com/netsketch/netsketch/sketch/flow"
)

// Sizes of Exp#11: the 8-ary fat tree, shares of flows within an edge switch and within a pod,
// slots of a switch, and a pause after which a flow begins a flowlet.
const (
	treeArity    = 8
	edgeLocal    = 0.15
	podLocal     = 0.70
	treeSlots    = 8192
	flowletPause = 300 // µs; packets of all hosts are 10 µs apart
	ports        = 8   // ports of a flow, from which a flowlet chooses
	heavyShare   = 0.10
	pipeMemory   = 6 * 8 * (4 + 4) // bytes of HashPipe at a link: six stages of eight flows
)

// thresholds are the shares of all traffic from which a link is heavy, in percent.
var thresholds = []int{1, 2, 3, 4, 5}

// schemes are the load balancers.
var schemes = []string{"ECMP", "flowlets"}

// balancer sends the packets of a trace through a fat tree.
type balancer struct {
	sim      *simulation.Simulation
	flowlets bool
	random   *rand.Rand
	load     []int64 // bytes by link
	current  map[string]*lane
	links    [][]uint32 // numbers of the packets' flows by link, in order
	numbers  map[flow.Key]uint32
	total    int64
}

// lane is a flow with its current flowlet.
type lane struct {
	from, to int
	number   uint32
	last     uint32                  // arrival of the previous packet
	flow     *simulation.Flow        // flow of the flowlet
	byPort   [ports]*simulation.Flow // flow of each port; nil: not used yet
}

func newBalancer(t *trace.Trace, flowlets bool, seed uint64) *balancer {
	b := &balancer{flowlets: flowlets, random: rand.New(rand.NewPCG(seed, 17)), current: map[string]*lane{},
		numbers: map[flow.Key]uint32{}}
	b.sim = simulation.New(simulation.FatTree(treeArity),
		simulation.Settings{Flows: t.Len(), Slots: treeSlots, Counters: true})
	b.load, b.links = make([]int64, len(b.sim.Links)), make([][]uint32, len(b.sim.Links))
	for _, f := range t.Flows() { // each flow has the same ends in both schemes
		l := &lane{number: uint32(len(b.current))}
		l.from, l.to = b.ends()
		b.current[f.Key] = l
	}
	sizes := rand.New(rand.NewPCG(seed, 18))
	for i := range t.Len() {
		b.send(b.current[string(t.Key(i))], t.At(i), 40+sizes.Int64N(1460))
	}
	b.sim.Count()
	return b
}

// ends draws the hosts of a flow.
func (b *balancer) ends() (from, to int) {
	edge := b.sim.HostsPerEdge
	pod := edge * treeArity / 2
	from = b.random.IntN(b.sim.Hosts)
	share := b.random.Float64()
	for {
		switch {
		case share < edgeLocal:
			to = from/edge*edge + b.random.IntN(edge)
		case share < edgeLocal+podLocal:
			to = from/pod*pod + b.random.IntN(pod)
		default:
			to = b.random.IntN(b.sim.Hosts)
		}
		if to != from {
			return from, to
		}
	}
}

// send sends a packet.
func (b *balancer) send(l *lane, at uint32, bytes int64) {
	if l.flow == nil || b.flowlets && at-l.last > flowletPause {
		port := 0
		if b.flowlets {
			port = b.choose(l)
		}
		if l.byPort[port] == nil {
			l.byPort[port] = b.sim.Add(l.from, l.to, l.key(port))
			b.numbers[l.byPort[port].Key] = l.number
		}
		l.flow = l.byPort[port]
	}
	l.last = at
	v := wire.Values{1, bytes}
	l.flow.Sent.Add(&v)
	l.flow.Received.Add(&v)
	b.total += bytes
	for _, h := range l.flow.Path.Hops {
		b.pass(h.Link, l, bytes)
	}
	b.pass(l.flow.Path.Last, l, bytes)
}

func (b *balancer) pass(link int32, l *lane, bytes int64) {
	b.load[link] += bytes
	b.links[link] = append(b.links[link], l.number)
}

// key is the key of a flow with one of its ports. There are fewer than 65,536 flows.
func (l *lane) key(port int) flow.Key {
	return flow.Key{Proto: 17, SrcPort: uint16(l.number), DstPort: uint16(port)}
}

// choose returns the port whose path has the least loaded link.
func (b *balancer) choose(l *lane) (best int) {
	least := int64(-1)
	for port := range ports {
		most := int64(0)
		for _, h := range b.sim.Path(l.from, l.to, l.key(port)).Hops[1:] { // excludes the link of the host
			most = max(most, b.load[h.Link])
		}
		if least < 0 || most < least {
			best, least = port, most
		}
	}
	return best
}

// shown returns, for each link, the packets of each flow as the analysis reports them.
func (b *balancer) shown(r *analysis.Result) []map[uint32]int64 {
	out := make([]map[uint32]int64, len(b.links))
	for i := range out {
		out[i] = map[uint32]int64{}
	}
	var mu sync.Mutex
	r.Each(func(_ int, f *analysis.Flow) {
		mu.Lock()
		defer mu.Unlock()
		for _, h := range f.Path.Hops {
			out[h.Link][b.numbers[f.Key]] += f.Sent[wire.Packets]
		}
		out[f.Path.Last][b.numbers[f.Key]] += f.Sent[wire.Packets]
	})
	return out
}

// detection compares the heavy hitters found at links with the true ones.
type detection struct {
	right, missed, wrong int
	err                  float64 // sum of relative errors of the flows that were right
}

func (d *detection) add(got, want map[uint32]int64, packets int64) {
	least := heavyShare * float64(packets)
	for k, n := range want {
		if float64(n) < least {
			continue
		}
		if found := got[k]; float64(found) < least {
			d.missed++
		} else {
			d.right++
			d.err += max(float64(n-found), float64(found-n)) / float64(n)
		}
	}
	for k, n := range got {
		if float64(n) >= least && float64(want[k]) < least {
			d.wrong++
		}
	}
}

// balance measures Exp#11.
func balance(t *trace.Trace, seed uint64) (rows []suite.Row, err error) {
	row := func(structure, variant, task, metric string, v float64) {
		rows = append(rows, suite.Row{Structure: structure, Variant: variant, Task: task, Metric: metric, Value: v})
	}
	for _, scheme := range schemes {
		b := newBalancer(t, scheme == "flowlets", seed)
		result, err := checked(b.sim)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", scheme, err)
		}
		shown := b.shown(result)
		row(scheme, "", "links", "flows", float64(len(b.sim.Flows)))
		for _, percent := range thresholds {
			n := 0
			for link, bytes := range b.load {
				if l := b.sim.Links[link]; l.From == analysis.Host || l.To == analysis.Host {
					continue
				}
				if float64(bytes) > float64(percent)/100*float64(b.total) {
					n++
				}
			}
			row(scheme, fmt.Sprintf("threshold (%%) %d", percent), "links", "heavy links", float64(n))
		}
		var ours, pipe detection
		for link, packets := range b.links {
			if len(packets) == 0 {
				continue
			}
			want := map[uint32]int64{}
			p, err := baseline.NewHashPipe[family.Fast](pipeMemory, 4, 6, seed+uint64(link))
			if err != nil {
				return nil, err
			}
			var key [4]byte
			for _, number := range packets {
				want[number]++
				binary.LittleEndian.PutUint32(key[:], number)
				if err := p.Insert(key[:]); err != nil {
					return nil, err
				}
			}
			piped := map[uint32]int64{}
			for _, f := range p.Heavy() {
				piped[binary.LittleEndian.Uint32(f.Key)] = f.Count
			}
			ours.add(shown[link], want, int64(len(packets)))
			pipe.add(piped, want, int64(len(packets)))
		}
		for _, d := range []struct {
			name string
			detection
		}{{"OmniMon", ours}, {"HashPipe", pipe}} {
			row(d.name, scheme, "heavy hitters of links", "heavy hitters", float64(d.right+d.missed))
			row(d.name, scheme, "heavy hitters of links", "FNR", float64(d.missed)/float64(d.right+d.missed))
			row(d.name, scheme, "heavy hitters of links", "FPR", float64(d.wrong)/float64(max(1, d.right+d.wrong)))
			row(d.name, scheme, "heavy hitters of links", "RE", d.err/float64(max(1, d.right)))
		}
	}
	return rows, nil
}

func balanceFigure() suite.Suite {
	return suite.New(suite.Suite{
		Name: "omnimon-17",
		Measure: func(_ context.Context, _ *trace.Trace, o suite.Options) ([]suite.Row, error) {
			t, err := trace.Load("zipf:1.1", 500_000, o.Seed)
			if err != nil {
				return nil, err
			}
			return balance(t, o.Seed)
		},
	})
}
