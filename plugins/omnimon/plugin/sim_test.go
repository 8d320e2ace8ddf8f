// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/netsketch/netsketch/hostagent/omnimon/query"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/sdktest"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/rowhash"
)

const (
	simSlots = 256
	simPorts = 8
	simUnits = 3 // two units, which all packets match, and one in egress
	simWords = statistics + simUnits
)

// simLayout is the layout of a switch's register: words of a slot, first counters of ports, cells.
type simLayout struct {
	differences, words, arrived, departed, cells int
	leaves, perLeaf                              int // leaves, and hosts of each
}

func layoutOf(differences int) simLayout { return largeLayout(differences, 2, 2, simPorts) }

func largeLayout(differences, leaves, perLeaf, ports int) simLayout {
	words := simWords + differences
	arrived := simSlots * words
	return simLayout{differences, words, arrived, arrived + ports, arrived + 2*ports, leaves, perLeaf}
}

func (l simLayout) hosts() int { return l.leaves * l.perLeaf }

func simNetwork() sdk.Network { return simNetworkOf(layoutOf(0)) }

func simNetworkOf(l simLayout) sdk.Network {
	counts := sdk.Object{Name: "omnimon_counts", Cells: l.cells, Width: 32, Banks: 4,
		Annotations: sdk.Annotations{annotation: {"part": "counts", "ethertype": "0x88b5", "arrays": "1", "slots": "256",
			"slots_per_flow": "2", "differences": fmt.Sprint(l.differences), "words": fmt.Sprint(l.words), "units": "2",
			"filters": "ingress.omnimon.unit%.filter", "queue_units": "1",
			"queue_filters": "egress.omnimon.unit%.filter", "arrived": fmt.Sprint(l.arrived),
			"departed": fmt.Sprint(l.departed), "ports": fmt.Sprint(l.departed - l.arrived)}}}
	uncounted := sdk.Object{Name: "uncounted", Cells: 256, Width: 32, Banks: 4,
		Annotations: sdk.Annotations{annotation: {"part": "uncounted", "no_header": "128", "bad_slot": "129"}}}
	n := sdktest.LeafSpine("omnimon", simAddress)
	if l.hosts() > 4 {
		n = largeNetwork(l)
	}
	for i := range n.Devices {
		n.Devices[i].Objects = []sdk.Object{counts, uncounted}
		n.Devices[i].Forwarding.Seed = simSeed(i)
	}
	return n
}

// largeNetwork has the leaves and hosts of a layout, and two spines.
func largeNetwork(l simLayout) (n sdk.Network) {
	for i := range l.leaves + 2 {
		d := sdk.Device{Name: fmt.Sprintf("leaf%d", i+1), Program: "omnimon"}
		f := &sdk.Forwarding{Groups: []sdk.PortGroup{{Ports: []uint32{1, 2}}}}
		for p := range uint32(max(l.leaves, 2+l.perLeaf)) {
			d.Ports = append(d.Ports, sdk.Port{Number: p + 1})
			f.Groups = append(f.Groups, sdk.PortGroup{Ports: []uint32{p + 1}})
		}
		if i < l.leaves {
			f.Routes = append(f.Routes, sdk.Route{Prefix: "0.0.0.0/0"})
		} else {
			d.Name = fmt.Sprintf("spine%d", i-l.leaves+1)
		}
		for h := range l.hosts() {
			prefix := netip.PrefixFrom(simAddress(h), 32).String()
			if i >= l.leaves {
				f.Routes = append(f.Routes, sdk.Route{Prefix: prefix, Group: 1 + h/l.perLeaf})
			} else if i == h/l.perLeaf {
				f.Routes = append(f.Routes, sdk.Route{Prefix: prefix, Group: 3 + h%l.perLeaf})
			}
		}
		d.Forwarding = f
		n.Devices = append(n.Devices, d)
	}
	for h := range l.hosts() {
		name := fmt.Sprintf("h%d", h+1)
		n.Hosts = append(n.Hosts, sdk.Host{Name: name, Addresses: []string{simAddress(h).String()}, Agent: true})
		n.Links = append(n.Links, sdk.Link{A: sdk.Endpoint{Node: name},
			B: sdk.Endpoint{Node: fmt.Sprintf("leaf%d", h/l.perLeaf+1), Port: uint32(3 + h%l.perLeaf)}})
	}
	for i := range 2 * l.leaves {
		n.Links = append(n.Links, sdk.Link{A: sdk.Endpoint{Node: fmt.Sprintf("leaf%d", i/2+1), Port: uint32(i%2 + 1)},
			B: sdk.Endpoint{Node: fmt.Sprintf("spine%d", i%2+1), Port: uint32(i/2 + 1)}})
	}
	return n
}

// simSeed is the seed of a switch's choice between paths.
func simSeed(device int) uint32 { return uint32(2*device + 12345) }

func simAddress(h int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 0, byte((h + 1) >> 8), byte(h + 1)})
}

// sim is one epoch of traffic.
type sim struct {
	t      *testing.T
	random *rand.Rand
	number uint64
	layout simLayout
	cells  map[string][]uint32
	flows  []*simFlow
	drop   func(element string) bool
	// queries run on one packet of each flow.
	queries  []wire.Query
	copied   string                // why hosts copy packets for the queries
	lost     map[string]int64      // by element
	waits    *rand.Rand            // draws the packets that wait in a queue, which the unit in egress counts
	counters [wire.Counters]uint64 // counters of the hosts in counting; nil: of every host
	counting []int
	late     []wire.LateEpoch
}

type simFlow struct {
	key            flow.Key
	from, to       int
	index          uint32
	slots          [4]uint16
	sent, received wire.Values
	lost           map[string]int64
	elements       []string // link, switch, link, …
	at             []wire.Values
	longest        []int64 // length of a packet that arrived, by switch on the path
	waited         int64   // packets, at all switches
	untagged       wire.Untagged
	age            uint64
}

func newSim(t *testing.T, number uint64, flows int, drop func(element string) bool) *sim {
	return newSimOf(t, layoutOf(0), number, flows, drop)
}

// newSimOf returns traffic whose packets carry the difference of the maximum of lengths, if the
// layout has one.
func newSimOf(t *testing.T, l simLayout, number uint64, flows int, drop func(element string) bool) *sim {
	s := &sim{t: t, layout: l, random: rand.New(rand.NewPCG(number, 3)), number: number, cells: map[string][]uint32{},
		drop: drop, lost: map[string]int64{}, waits: rand.New(rand.NewPCG(number, 4))}
	for i := range l.leaves {
		s.cells[fmt.Sprintf("leaf%d", i+1)] = make([]uint32, l.cells)
	}
	for i := range 2 {
		s.cells[fmt.Sprintf("spine%d", i+1)] = make([]uint32, l.cells)
	}
	indexes := make([]uint32, l.hosts())
	for range flows {
		s.add(indexes)
	}
	return s
}

// add sends the packets of a new flow.
func (s *sim) add(indexes []uint32) {
	r := s.random
	hosts, each := s.layout.hosts(), s.layout.perLeaf
	f := &simFlow{from: r.IntN(hosts), lost: map[string]int64{}}
	f.to = (f.from + 1 + r.IntN(hosts-1)) % hosts
	var err error
	f.key, err = flow.New(simAddress(f.from), simAddress(f.to), 6, uint16(10_000+len(s.flows)%50_000), 80)
	if err != nil {
		s.t.Fatal(err)
	}
	f.index = indexes[f.from]
	indexes[f.from]++
	f.slots[0] = uint16(r.IntN(simSlots - 1))
	f.slots[1] = f.slots[0] + 1 + uint16(r.IntN(simSlots-1-int(f.slots[0])))
	leaf := func(h int) string { return fmt.Sprintf("leaf%d", h/each+1) }
	type hop struct {
		name    string
		in, out uint32
	}
	path := []hop{{leaf(f.from), uint32(3 + f.from%each), uint32(3 + f.to%each)}}
	if leaf(f.from) != leaf(f.to) {
		up := rowhash.Mix(rowhash.Key(f.key.AppendBinary(nil)), simSeed(f.from/each))%2 + 1
		path[0].out = up
		path = append(path, hop{fmt.Sprintf("spine%d", up), uint32(f.from/each + 1), uint32(f.to/each + 1)},
			hop{leaf(f.to), up, uint32(3 + f.to%each)})
	}
	previous := fmt.Sprintf("h%d", f.from+1)
	for _, h := range path {
		f.elements = append(f.elements, fmt.Sprintf("%s~%s/%d", previous, h.name, h.in), h.name)
		previous = fmt.Sprintf("%s/%d", h.name, h.out)
	}
	f.elements = append(f.elements, fmt.Sprintf("%s~h%d", previous, f.to+1))
	f.at, f.longest = make([]wire.Values, len(path)), make([]int64, len(path))
packets:
	for range 1 + r.IntN(30) {
		v := wire.Values{wire.Packets: 1, wire.Bytes: int64(40 + r.IntN(1400)), wire.Ack: 1}
		if s.layout.differences > 0 {
			v[wire.FirstExtreme] = max(v[wire.Bytes]-f.sent[wire.FirstExtreme], 0)
		}
		f.sent.Add(&v)
		for i, e := range f.elements {
			if i%2 == 1 {
				h := path[i/2]
				cells := s.cells[h.name]
				cells[s.layout.arrived+int(h.in)]++
				slot := cells[int(f.slots[i/2%2])*s.layout.words:]
				for j := range statistics {
					slot[j] += uint32(v[j])
				}
				slot = slot[statistics:]
				if s.layout.differences > 0 {
					slot[0] += uint32(v[wire.FirstExtreme])
				}
				slot[s.layout.differences]++
				slot[s.layout.differences+1]++
				f.at[i/2].Add(&v)
				f.longest[i/2] = max(f.longest[i/2], v[wire.Bytes])
			}
			if s.drop(e) {
				f.lost[e]++
				s.lost[e]++
				continue packets
			}
			if i%2 == 1 {
				cells := s.cells[path[i/2].name]
				cells[s.layout.departed+int(path[i/2].out)]++
				if s.waits.IntN(4) == 0 {
					cells[(int(f.slots[i/2%2])+1)*s.layout.words-1]++
					f.waited++
				}
			}
		}
		f.received.Add(&v)
	}
	s.flows = append(s.flows, f)
}

// report is the report of a host that has this number.
func (s *sim) report(host, number int, numbers []int) []byte {
	var b wire.Builder
	var out []*simFlow
	in := map[int][]*simFlow{}
	for _, f := range s.flows {
		if f.from == host {
			out = append(out, f)
		}
		if f.to == host && f.received[wire.Packets] > 0 {
			in[numbers[f.from]] = append(in[numbers[f.from]], f)
		}
	}
	summary := wire.Summary{Host: number, Epoch: s.number, MappingsUsed: uint64(len(out)), MappingsOwned: 2040}
	if s.counting == nil || slices.Contains(s.counting, host) {
		summary.Counters, summary.Late = s.counters, s.late
	}
	b.Begin(&summary, 2, len(out))
	for _, f := range out {
		b.Egress(&wire.EgressRow{Index: f.index, Key: f.key, Age: f.age, Slots: f.slots, Untagged: f.untagged}, &f.sent)
	}
	b.BeginIngress(len(in))
	for _, from := range slices.Sorted(maps.Keys(in)) {
		b.BeginHost(from, len(in[from]))
		for _, f := range in[from] {
			b.Ingress(f.index, wire.Check(&f.key), &f.received)
		}
	}
	var answers []wire.QueryRow
	for _, q := range s.queries {
		parsed, err := query.Parse("query", q.Text)
		if err != nil {
			s.t.Fatal(err)
		}
		for i, step := range parsed.Place().Steps {
			if step.Source != "packets" {
				continue
			}
			l := step.Start(1000)
			for _, f := range out {
				l.Add(packetOf(f))
			}
			tuples, _, _ := l.Result()
			answers = append(answers, wire.QueryRow{ID: q.ID, Step: i, Copied: s.copied,
				Tuples: query.AppendTuples(nil, tuples)})
		}
	}
	b.Queries(answers)
	return b.Data
}

// lateCounts is the report of a host to which late packets came.
func (s *sim) lateCounts(host int, numbers []int) []byte {
	s.counters[wire.Late] = 1
	return s.report(host, numbers[host], numbers)
}

// packetOf is a packet of a flow for queries.
func packetOf(f *simFlow) query.Tuple {
	t := make(query.Tuple, len(query.PacketFields()))
	for i, field := range query.PacketFields() {
		t[i].Type = field.Type
	}
	t[0].Address, t[1].Address = f.key.SrcAddr(), f.key.DstAddr()
	t[2].Int, t[3].Int, t[4].Int = 6, int64(f.key.SrcPort), int64(f.key.DstPort)
	return t
}

// epoch is what the collector delivers.
func (s *sim) epoch(numbers []int) *sdk.Epoch {
	start := time.Unix(1_700_000_000, 0).Add(time.Duration(s.number) * time.Second)
	e := &sdk.Epoch{Number: s.number, Start: start, End: start.Add(time.Second), Status: sdk.StatusComplete}
	for name, cells := range s.cells {
		e.Expected = append(e.Expected, name)
		e.Put(name, sdk.CellsOf("omnimon_counts", cells))
		e.Put(name, sdk.CellsOf("uncounted", make([]uint32, 256)))
	}
	slices.Sort(e.Expected)
	flows := s.flows
	by := map[int][]*simFlow{} // flows of each host
	for _, f := range flows {
		by[f.from], by[f.to] = append(by[f.from], f), append(by[f.to], f)
	}
	defer func() { s.flows = flows }()
	for h := range s.layout.hosts() {
		s.flows = by[h]
		e.ExpectedHosts = append(e.ExpectedHosts, fmt.Sprintf("h%d", h+1))
		e.Hosts = append(e.Hosts, sdk.HostReport{Host: e.ExpectedHosts[h], Role: wire.Role,
			Data: s.report(h, numbers[h], numbers)})
	}
	return e
}

// numbersOf reads the numbers of hosts from their settings.
func numbersOf(t *testing.T, s sdk.Settings) []int {
	t.Helper()
	numbers := make([]int, len(s.Plan.Hosts))
	for n, h := range s.Plan.Hosts {
		var settings wire.Settings
		if _, err := fmt.Sscanf(string(h.Data), `{"host":%d`, &settings.Host); err != nil {
			t.Fatal(err)
		}
		if n < 4 { // parses the settings of four hosts; the other settings must have the same tail
			whole, err := wire.ParseSettings(h.Whole())
			if err != nil || whole.Host != settings.Host {
				t.Fatalf("%v, host %d, want %d", err, whole.Host, settings.Host)
			}
		} else if !sdk.SameTail(h.Tail, s.Plan.Hosts[n-1].Tail) {
			t.Fatalf("the settings of %s have an end of their own", h.Host)
		}
		var i int
		if _, err := fmt.Sscanf(h.Host, "h%d", &i); err != nil {
			t.Fatal(err)
		}
		numbers[i-1] = settings.Host
	}
	return numbers
}

// allRows publishes the hops of all flows of a simulated network, and ten flows of each of its 16
// links.
const allRows = `{"limits": {"flows": 1000, "hops": 1000, "link-flows": 160}}`

func start(t *testing.T, config string) *sdktest.Harness {
	t.Helper()
	if config == "" {
		config = allRows
	}
	return sdktest.Start(t, New(), sdktest.Options{Config: config, Network: simNetwork()})
}

func never(string) bool { return false }
