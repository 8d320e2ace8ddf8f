// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/netsketch/netsketch/lab"
)

// topologies are the kinds of networks that are drawn.
var topologies = []string{"fat-tree", "leaf-spine", "mesh", "ring"}

// span is a part of a run with a fault of the network or a disturbance.
type span struct {
	what        string
	from, until time.Duration // counted from the first epoch
}

// trial is a drawn scenario.
type trial struct {
	*network
	algorithm *algorithm
	topology  string
	seed      uint64
	faulty    bool
	text      string // YAML of the scenario
	spans     []span
	epochs    int
}

// slowest is the lowest rate of a drawn port, in packets a second. At this rate, packets cross a
// network without queues in a few milliseconds, also if a trial plays a small share of the packets.
const slowest = 4e3

// String names a trial so that it can be drawn again.
func (t *trial) String() string {
	kinds := ""
	if t.algorithm.happenings != "" {
		kinds = fmt.Sprintf(" -kinds %q", t.algorithm.happenings)
	}
	return fmt.Sprintf("-algorithms %s -topologies %s -faults=%v%s -seed %d -seeds 1", t.algorithm.name, t.topology,
		t.faulty, kinds, t.seed)
}

// network is a drawn network, with the properties that faults need.
type network struct {
	*rand.Rand
	fabric *lab.Fabric
	yaml   string
	near   [][]int // neighbors by switch
	far    [][]int // distances between switches
	rate   float64 // packets a second of all hosts
	queue  float64 // packets a second that a port sends
	epoch  time.Duration
}

// draw draws a network, its traffic and what happens to it. Everything depends on the seed, and on
// the share of the traffic's usual packets.
func draw(a *algorithm, topology string, seed uint64, faulty bool, share float64) (*trial, error) {
	stream := uint64(slices.Index(topologies, topology)) << 1
	if faulty {
		stream++
	}
	n := &network{Rand: rand.New(rand.NewPCG(seed, stream))}
	if err := n.build(topology); err != nil {
		return nil, err
	}
	n.epoch = []time.Duration{time.Second, 2 * time.Second, 5 * time.Second}[n.IntN(3)]
	n.epoch = cmp.Or(a.epoch, n.epoch)
	packets := share * n.between(3e4, 9e4) // packets in an epoch
	n.rate = packets / n.epoch.Seconds()
	// A port sends several times the packets that its host receives in the mean, and what agents send.
	n.queue = max(n.rate/float64(len(n.fabric.Hosts))*n.between(4, 10), slowest, a.port)
	t := &trial{network: n, algorithm: a, topology: topology, seed: seed, faulty: faulty}

	var text, traffic, faults strings.Builder
	fmt.Fprintf(&traffic, "  - {name: web, rate: %.0f, flows: %.0f, zipf: %.2f, udp: %.2f, ipv6: %.2f}\n",
		n.rate*0.8, n.between(1e3, 1e5), n.uniform(0.6, 1.3), n.uniform(0, 0.5), n.uniform(0, 0.4))
	fmt.Fprintf(&traffic, "  - {name: service, rate: %.0f, flows: %.0f, zipf: %.2f, udp: %.2f}\n",
		n.rate*0.2, n.between(100, 1000), n.uniform(0, 0.6), n.uniform(0, 0.5))
	at := 5 // epochs: the first intervals have no results
	happen := a.disturbances
	if faulty {
		happen = slices.Clone(a.faults)
		n.Shuffle(len(happen), func(i, j int) { happen[i], happen[j] = happen[j], happen[i] })
	} else {
		happen = slices.Clone(happen)
		n.Shuffle(len(happen), func(i, j int) { happen[i], happen[j] = happen[j], happen[i] })
		happen = happen[:min(len(happen), 1)]
	}
	for i := 0; i < len(happen); i++ {
		both := happen[i : i+1]
		if faulty && i == len(happen)-1 && len(happen) > 1 { // the last happening runs together with another
			both = append(slices.Clone(both), happen[n.IntN(i)])
		}
		end := 0
		for _, h := range both {
			s := span{what: h.name, from: time.Duration((float64(at) + n.Float64()) * float64(n.epoch))}
			s.until = s.from + time.Duration(n.uniform(1, 2.5)*float64(n.epoch))
			f, more, ok := h.draw(n, &s)
			if !ok {
				continue
			}
			faults.WriteString(f)
			traffic.WriteString(more)
			t.spans = append(t.spans, s)
			end = max(end, int(math.Ceil(s.until.Seconds()/n.epoch.Seconds())))
		}
		if end > 0 {
			at = end + 4
		}
	}
	t.epochs = at + 1 + a.lag
	if !faulty {
		t.epochs = max(t.epochs, 14)
	}
	fmt.Fprintf(&text, "name: findings\nseed: %d\nepochs: %d\nepoch: %v\n%s\ntopology: %s\n", seed, t.epochs,
		n.epoch, a.program, n.yaml)
	if a.role != "" {
		fmt.Fprintf(&text, "agents: [%s]\n", a.role)
	}
	fmt.Fprintf(&text, "traffic:\n%s", traffic.String())
	if faults.Len() > 0 {
		fmt.Fprintf(&text, "faults:\n%s", faults.String())
	}
	config := a.config
	if topology == "mesh" || topology == "ring" {
		config = cmp.Or(a.graph, config)
	}
	fmt.Fprintf(&text, "algorithms:\n  - {plugin: %s%s}\n", a.name, config)
	t.text = strings.Replace(text.String(), "QUEUE", fmt.Sprintf("queue-rate: %.0f, queue-depth: 4096", n.queue), 1)
	return t, nil
}

// between draws a number whose logarithm is uniform.
func (n *network) between(low, high float64) float64 { return low * math.Pow(high/low, n.Float64()) }

func (n *network) uniform(low, high float64) float64 { return low + (high-low)*n.Float64() }

// build draws a topology.
func (n *network) build(kind string) (err error) {
	latency := time.Duration(n.between(1, 200)) * time.Microsecond
	switch kind {
	case "fat-tree":
		k, pods, cores := 4, 2+n.IntN(3), 2+2*n.IntN(2)
		n.fabric, err = lab.FatTree(k, pods, cores, latency)
		n.yaml = fmt.Sprintf("{kind: fat-tree, k: %d, pods: %d, cores: %d, latency: %v, QUEUE}", k, pods, cores, latency)
	case "leaf-spine":
		leaves, spines, hosts := 3+n.IntN(6), 2+n.IntN(4), 1+n.IntN(3)
		n.fabric, err = lab.LeafSpine(leaves, spines, hosts, latency)
		n.yaml = fmt.Sprintf("{kind: leaf-spine, leaves: %d, spines: %d, hosts-per-leaf: %d, latency: %v, QUEUE}", leaves,
			spines, hosts, latency)
	default:
		size, hosts := 5+n.IntN(6), 1+n.IntN(2)
		var links [][2]string
		name := func(i int) string { return fmt.Sprintf("s%d", i%size+1) }
		for i := range size {
			switch {
			case kind == "ring":
				links = append(links, [2]string{name(i), name(i + 1)})
			case i > 0:
				links = append(links, [2]string{name(n.IntN(i)), name(i)})
			}
		}
		for kind == "mesh" && len(links) < size*3/2 {
			a, b := n.IntN(size), n.IntN(size)
			if l := [2]string{name(min(a, b)), name(max(a, b))}; a != b && !slices.Contains(links, l) {
				links = append(links, l)
			}
		}
		n.fabric, err = lab.Graph(links, hosts, latency)
		var texts []string
		for _, l := range links {
			texts = append(texts, l[0]+"-"+l[1])
		}
		n.yaml = fmt.Sprintf("{kind: graph, links: [%s], hosts-per-leaf: %d, latency: %v, QUEUE}",
			strings.Join(texts, ", "), hosts, latency)
	}
	if err != nil {
		return err
	}
	n.measure()
	return nil
}

// measure computes the neighbors and distances of switches.
func (n *network) measure() {
	size := len(n.fabric.Switches)
	n.near, n.far = make([][]int, size), make([][]int, size)
	for _, l := range n.fabric.Links {
		n.near[l.A], n.near[l.B] = append(n.near[l.A], l.B), append(n.near[l.B], l.A)
	}
	for s := range size {
		n.far[s] = slices.Repeat([]int{-1}, size)
		n.far[s][s] = 0
		for queue := []int{s}; len(queue) > 0; queue = queue[1:] {
			for _, x := range n.near[queue[0]] {
				if n.far[s][x] < 0 {
					n.far[s][x] = n.far[s][queue[0]] + 1
					queue = append(queue, x)
				}
			}
		}
	}
}

// next returns the neighbors of a switch on the shortest paths to another switch.
func (n *network) next(from, to int) (out []int) {
	for _, x := range n.near[from] {
		if n.far[x][to] == n.far[from][to]-1 {
			out = append(out, x)
		}
	}
	return out
}

func (n *network) name(s int) string { return n.fabric.Switches[s].Name }

func (n *network) host() lab.Host { return n.fabric.Hosts[n.IntN(len(n.fabric.Hosts))] }

func (n *network) link() string {
	return n.fabric.LinkName(n.fabric.Links[n.IntN(len(n.fabric.Links))])
}

// detour draws a switch, a host and a neighbor that is not on the way, from which packets come
// back to the switch (loops) or do not.
func (n *network) detour(loops bool) (from, via string, to string, ok bool) {
	type choice struct{ from, via, host int }
	var all []choice
	for h, host := range n.fabric.Hosts {
		for s := range n.near {
			if s == host.Switch {
				continue
			}
			for _, x := range n.near[s] {
				back := n.next(x, host.Switch)
				if loops && slices.Equal(back, []int{s}) || !loops && !slices.Contains(back, s) &&
					!slices.Equal(n.next(s, host.Switch), []int{x}) {
					all = append(all, choice{s, x, h})
				}
			}
		}
	}
	if len(all) == 0 {
		return "", "", "", false
	}
	c := all[n.IntN(len(all))]
	return n.name(c.from), n.name(c.via), n.fabric.Hosts[c.host].Name, true
}

// happening is a fault or a disturbance that can be drawn. draw returns lines of the scenario:
// faults and traffic; ok is false if the network has no place for it.
type happening struct {
	name string
	draw func(n *network, s *span) (faults, traffic string, ok bool)
}

func times(s *span) string { return fmt.Sprintf("from: %v, until: %v", s.from, s.until) }

// loss draws a loss at a switch or a link. One in four is near the threshold of 5 %.
func loss(n *network, s *span) (faults, traffic string, ok bool) {
	share := n.between(0.1, 0.6)
	if n.IntN(4) == 0 {
		share = n.between(0.034, 0.075)
	}
	where := "switch: " + n.name(n.IntN(len(n.near)))
	if n.IntN(2) == 0 {
		where = "link: " + n.link()
	}
	return fmt.Sprintf("  - {%s, loss: %.3f, %s}\n", where, share, times(s)), "", true
}

func blackhole(n *network, s *span) (faults, traffic string, ok bool) {
	return fmt.Sprintf("  - {switch: %s, loss: 1, flows: %.2f, %s}\n", n.name(n.IntN(len(n.near))), n.uniform(0.3, 1),
		times(s)), "", true
}

// deadLink is a link that loses all packets while its ports are up.
func deadLink(n *network, s *span) (faults, traffic string, ok bool) {
	return fmt.Sprintf("  - {link: %s, loss: 1, %s}\n", n.link(), times(s)), "", true
}

// deadSwitch is a switch that loses all packets while its control plane works.
func deadSwitch(n *network, s *span) (faults, traffic string, ok bool) {
	return fmt.Sprintf("  - {switch: %s, loss: 1, %s}\n", n.name(n.IntN(len(n.near))), times(s)), "", true
}

// attack sends from many addresses to one. One in four is near the threshold of 1,000 sources, and
// one in four has few sources of many flows each: a host has 255 addresses of IPv4.
func attack(n *network, s *span) (faults, traffic string, ok bool) {
	sources := n.between(2000, 10000)
	if n.IntN(4) == 0 {
		sources = n.between(700, 1500)
	}
	target := n.host().V6
	if n.IntN(4) == 0 {
		target = n.host().V4
	}
	return "", fmt.Sprintf("  - {name: attack, rate: %.0f, flows: %.0f, target: '%s', %s}\n",
		3*sources/n.epoch.Seconds(), sources, target.Addr().Next(), times(s)), true
}

func misroute(loops bool) func(n *network, s *span) (faults, traffic string, ok bool) {
	return func(n *network, s *span) (faults, traffic string, ok bool) {
		from, via, to, ok := n.detour(loops)
		return fmt.Sprintf("  - {switch: %s, to: %s, via: %s, %s}\n", from, to, via, times(s)), "", ok
	}
}

// stall holds the packets of a link, within one epoch.
func stall(n *network, s *span) (faults, traffic string, ok bool) {
	s.from = s.from.Truncate(n.epoch) + time.Duration(n.uniform(0.1, 0.4)*float64(n.epoch))
	s.until = s.from + time.Duration(n.uniform(0.1, 0.5)*float64(n.epoch))
	return fmt.Sprintf("  - {link: %s, stall: true, %s}\n", n.link(), times(s)), "", true
}

// incast is more traffic to a host than its port sends: its queue grows to seconds.
func incast(n *network, s *span) (faults, traffic string, ok bool) {
	return "", fmt.Sprintf("  - {name: incast, rate: %.0f, flows: %d, receivers: [%s], %s}\n", n.queue*n.uniform(0.8, 1.3),
		10+n.IntN(50), n.host().Name, times(s)), true
}

// avoid takes a link out of service as planned: the collector's configuration no longer has it.
func avoid(n *network, s *span) (faults, traffic string, ok bool) {
	for range 20 {
		i := n.IntN(len(n.fabric.Links))
		l := n.fabric.Links[i]
		if len(n.near[l.A]) > 1 && len(n.near[l.B]) > 1 {
			return fmt.Sprintf("  - {link: %s, avoid: true, %s}\n", n.fabric.LinkName(l), times(s)), "", true
		}
	}
	return "", "", false
}

// halfDead kills half of the agents for the rest of the run.
func halfDead(n *network, s *span) (faults, traffic string, ok bool) {
	s.until = s.from + 8*n.epoch
	var b strings.Builder
	for _, i := range n.Perm(len(n.fabric.Hosts))[:len(n.fabric.Hosts)/2] {
		fmt.Fprintf(&b, "  - {host: %s, kill: true, from: %v}\n", n.fabric.Hosts[i].Name, s.from)
	}
	return b.String(), "", b.Len() > 0
}

// burst is an incast across the end of an epoch.
func burst(n *network, s *span) (faults, traffic string, ok bool) {
	end := s.from.Truncate(n.epoch) + n.epoch
	s.from = end - time.Duration(n.uniform(0.02, 0.5)*float64(n.epoch))
	s.until = end + time.Duration(n.uniform(0.02, 1.5)*float64(n.epoch))
	return "", fmt.Sprintf("  - {name: burst, rate: %.0f, flows: %d, receivers: [%s], %s}\n", n.queue*n.uniform(0.9, 1.1),
		10+n.IntN(50), n.host().Name, times(s)), true
}

// during returns what happens in the epochs from first to last of the run, "" for nothing.
func (t *trial) during(first, last int) string {
	var names []string
	for _, s := range t.spans {
		if s.until > time.Duration(first)*t.epoch && s.from < time.Duration(last+1)*t.epoch {
			names = append(names, s.what)
		}
	}
	slices.SortFunc(names, cmp.Compare[string])
	return strings.Join(slices.Compact(names), " and ")
}
