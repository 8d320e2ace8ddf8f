// SPDX-License-Identifier: Apache-2.0

package omnimon

import (
	"cmp"
	"container/heap"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/netsketch/netsketch/hostagent/epoch"
	hostrole "github.com/netsketch/netsketch/hostagent/omnimon"
	"github.com/netsketch/netsketch/hostagent/omnimon/header"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/internal/test/omnimon/simulation"
	"github.com/netsketch/netsketch/plugins/omnimon/analysis"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/rowhash"
)

// Sizes of the network: two leaves with three hosts each, two spines. Switches 0 and 1 are leaves.
const (
	hosts, leaves, spines = 6, 2, 2
	switches              = leaves + spines
	slots, perFlow        = 256, 2
	values                = int(wire.FirstExtreme)
	modelWords            = values + 2 // of a slot of a model
	length                = 100        // ms an epoch, as all times below
	duration              = 3000
)

// layout is the header of the compiled program; withExtremes is the header of models.
var (
	layout       = header.Layout{EtherType: header.DefaultEtherType, Slots: perFlow}
	withExtremes = header.Layout{EtherType: header.DefaultEtherType, Slots: perFlow, Differences: modelWords - values}
)

// links are numbered by their ends: nodes are hosts, then switches.
var (
	links   []analysis.Link
	linkIDs = map[[2]int]int{}
)

func init() {
	node := func(n int) int32 {
		if n < hosts {
			return analysis.Host
		}
		return int32(n - hosts)
	}
	join := func(a, b int) {
		linkIDs[[2]int{a, b}] = len(links)
		links = append(links, analysis.Link{From: node(a), To: node(b)})
	}
	for h := range hosts {
		join(h, hosts+h/3)
		join(hosts+h/3, h)
	}
	for l := range leaves {
		for s := range spines {
			join(hosts+l, hosts+leaves+s)
			join(hosts+leaves+s, hosts+l)
		}
	}
}

// nodesOf returns the switches of a flow's path as nodes.
func nodesOf(from, to int, k *flow.Key) []int {
	a, b := hosts+from/3, hosts+to/3
	if a == b {
		return []int{a}
	}
	return []int{a, hosts + leaves + spineOf(k), b}
}

// spineOf is the spine that leaves choose, by ECMP with the default seed (docs/p4.md).
func spineOf(k *flow.Key) int {
	return int(rowhash.Mix(rowhash.Key(k.AppendBinary(nil)), 0x94d049bb) % spines)
}

// network is the network that counts and forwards packets.
type network interface {
	// receive takes a packet that arrives at a switch on a link. The switch loses it, or sends it
	// on the link next.
	receive(sw int, f *packet.Frame, link, next int, lose bool)
	// collect fills in what the switches counted in an epoch, and clears it.
	collect(e uint64, in *analysis.Epoch)
	// values is the count of statistics of a slot, the first of wire.Values; the maximum and minimum
	// of lengths follow if extremes is set.
	values() int
	extremes() bool
}

func route(source int, k *flow.Key) (int, *analysis.Path) {
	to := int(k.Dst[3]) - 1
	p := &analysis.Path{}
	at := source
	for _, n := range nodesOf(source, to, k) {
		p.Hops = append(p.Hops, analysis.Hop{Link: int32(linkIDs[[2]int{at, n}]), Switch: int32(n - hosts),
			Array: int32(n - hosts)})
		at = n
	}
	p.Last = int32(linkIDs[[2]int{at, to}])
	return to, p
}

// model is a switch as docs/omnimon.md describes it: four epochs of slots and of port counters.
type model struct {
	slots             [4][]int64
	arrived, departed [4][]int64 // packets by link
}

func newModel() *model {
	m := &model{}
	for i := range m.slots {
		m.slots[i] = make([]int64, slots*modelWords)
		m.arrived[i], m.departed[i] = make([]int64, len(links)), make([]int64, len(links))
	}
	return m
}

// models are the switches of a network.
type models struct {
	t        *testing.T
	switches []*model
}

func newModels(t *testing.T) *models {
	n := &models{t: t}
	for range switches {
		n.switches = append(n.switches, newModel())
	}
	return n
}

func (n *models) values() int    { return values }
func (n *models) extremes() bool { return true }

func (n *models) receive(sw int, f *packet.Frame, link, next int, lose bool) {
	m := n.switches[sw]
	if group := m.receive(n.t, f, link); !lose {
		m.departed[group][next]++
	}
}

func (n *models) collect(e uint64, in *analysis.Epoch) {
	group := e % 4
	for _, sw := range n.switches {
		in.Recorded = append(in.Recorded, slices.Clone(sw.slots[group]))
		clear(sw.slots[group])
		for i := range links {
			in.Arrived[i] += sw.arrived[group][i]
			in.Departed[i] += sw.departed[group][i]
		}
		clear(sw.arrived[group])
		clear(sw.departed[group])
	}
}

// receive counts a packet that arrives on a link and returns its epoch group.
func (m *model) receive(t *testing.T, f *packet.Frame, link int) (group int) {
	l, err := packet.ParseLink(f.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	var h header.Header
	if err := withExtremes.Peek(f.Bytes(), l, &h); err != nil {
		t.Fatal(err)
	}
	var ip packet.IP
	if err := ip.Parse(h.Next, f.Bytes()[l.TypeAt+2+withExtremes.Size():]); err != nil {
		t.Fatal(err)
	}
	group = int(h.Epoch % 4)
	m.arrived[group][link]++
	at := int(h.Slots[int(h.Hops)%perFlow]) * modelWords
	v := valuesOf(&ip)
	for i := range values {
		m.slots[group][at+i] += v[i]
	}
	for i := range modelWords - values {
		m.slots[group][at+values+i] += int64(h.Differences[i])
	}
	f.Bytes()[l.TypeAt+2+5]++ // hops
	return group
}

// valuesOf is the ground truth of what one packet adds.
func valuesOf(ip *packet.IP) (v wire.Values) {
	v[wire.Packets], v[wire.Bytes] = 1, int64(ip.Length)
	one := func(s wire.Statistic, ok bool) {
		if ok {
			v[s] = 1
		}
	}
	syn, ack, end := ip.Flags&packet.SYN != 0, ip.Flags&packet.ACK != 0, ip.Flags&(packet.FIN|packet.RST) != 0
	one(wire.SYN, syn && !ack)
	one(wire.SynAck, syn && ack)
	one(wire.Ack, ack && !syn && !end)
	one(wire.FinRst, end)
	one(wire.Bare, ip.Length == 40)
	return v
}

// raise adds what a packet adds to the maximum and minimum of a flow's lengths.
func raise(sent, v *wire.Values) {
	longest, shortest := sent[wire.FirstExtreme], sent[wire.FirstExtreme+1]
	if sent[wire.Packets] == 0 {
		shortest = v[wire.Bytes]
		v[wire.FirstExtreme+1] = shortest
	}
	v[wire.FirstExtreme] = max(v[wire.Bytes]-longest, 0)
	v[wire.FirstExtreme+1] += min(v[wire.Bytes]-shortest, 0)
}

// record is the ground truth of one flow in one epoch.
type record struct {
	sent wire.Values
	lost []wire.Values // as in analysis.LossyFlow.Losses
}

type flowEpoch struct {
	epoch uint64
	key   flow.Key
}

type event struct {
	at, order int
	do        func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(e[i].at, e[j].at), cmp.Compare(e[i].order, e[j].order)) < 0
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// world runs hosts and switches on a virtual clock.
type world struct {
	t        *testing.T
	random   *rand.Rand
	now      int
	events   events
	order    int
	clocks   []*epoch.Clock
	skew     []int
	roles    []*hostrole.Role
	net      network
	truth    map[flowEpoch]*record
	relayed  uint64
	drop     func(element int) bool
	analyzer *analysis.Analyzer
	checked  int
	lossy    int
	inexact  int
}

func (w *world) after(ms int, do func()) {
	heap.Push(&w.events, event{w.now + ms, w.order, do})
	w.order++
}

// TestExact: hosts whose clocks differ by up to a second send TCP packets through a leaf-spine
// network in which a spine and a link drop packets. Collected by epoch, every value of every flow
// at every switch and every loss equals what happened.
func TestExact(t *testing.T) {
	testExact(t, func(t *testing.T) network { return newModels(t) })
}

// TestExactOnSwitches is TestExact with the compiled program on soft switches, collected through
// P4Runtime.
func TestExactOnSwitches(t *testing.T) {
	testExact(t, func(t *testing.T) network { return newPipelines(t) })
}

func testExact(t *testing.T, newNetwork func(*testing.T) network) {
	for seed := range uint64(3) {
		w := &world{t: t, random: rand.New(rand.NewPCG(seed, 1)), relayed: 10, truth: map[flowEpoch]*record{},
			net: newNetwork(t)}
		w.drop = func(element int) bool {
			switch element {
			case leaves: // the first spine
				return w.random.IntN(30) == 0
			case switches + linkIDs[[2]int{hosts + 1, 4}]: // the link from the second leaf to host 4
				return w.random.IntN(20) == 0
			}
			return false
		}
		w.run()
		if w.checked < 2000 || w.lossy < 200 || w.inexact*20 > w.lossy {
			t.Errorf("seed %d: compared %d flows, %d of them lossy, %d with an undetermined loss", seed, w.checked, w.lossy,
				w.inexact)
		}
	}
}

func (w *world) run() {
	var err error
	var up, down []int32
	for h := range hosts {
		leaf := hosts + h/(hosts/leaves)
		up, down = append(up, int32(linkIDs[[2]int{h, leaf}])), append(down, int32(linkIDs[[2]int{leaf, h}]))
	}
	var extremes []wire.Extreme
	if w.net.extremes() {
		extremes = []wire.Extreme{{Field: wire.FieldLength}, {Field: wire.FieldLength, Min: true}}
	}
	w.analyzer, err = analysis.New(analysis.Network{Hosts: hosts, Switches: switches, Arrays: switches, Links: links,
		Uplinks: up, Downlinks: down, SwitchOf: []int32{0, 1, 2, 3}, Flows: 1024, Slots: slots,
		SlotsPerFlow: perFlow, Values: w.net.values(), Extremes: len(extremes), Bits: 32, Route: route})
	if err != nil {
		w.t.Fatal(err)
	}
	for h := range hosts {
		w.skew = append(w.skew, w.random.IntN(1000))
		c := epoch.NewClock(length*time.Millisecond, 10)
		s := wire.Settings{EtherType: layout.EtherType, Slots: slots, SlotsPerFlow: perFlow, Shares: 8, Host: h, Flows: 1024,
			IngressSlots: 1 << 16, IdleEpochs: 8, Extremes: extremes}
		for i := range byte(hosts) {
			s.Hosts = append(s.Hosts, []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, i + 1})})
		}
		data, err := s.Append(nil)
		if err != nil {
			w.t.Fatal(err)
		}
		r := hostrole.New(c, func() time.Duration { return 0 })
		if err := r.Apply(data); err != nil {
			w.t.Fatal(err)
		}
		w.clocks, w.roles = append(w.clocks, c), append(w.roles, r)
		w.after(0, func() { w.tick(h) })
		w.after(1, func() { w.send(h) })
	}
	// The first epochs begin at different times at the hosts: collect from the first common one.
	w.after(2, func() { w.collect(10) })
	for len(w.events) > 0 {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.do()
	}
}

// tick is a host's local clock.
func (w *world) tick(h int) {
	if e, notify := w.clocks[h].Tick(time.UnixMilli(int64(w.now + w.skew[h]))); notify {
		w.after(1+w.random.IntN(10), func() {
			if e <= w.relayed {
				return
			}
			w.relayed = e
			for _, c := range w.clocks {
				w.after(1+w.random.IntN(10), func() { c.Advance(e) })
			}
		})
	}
	if w.now < duration {
		w.after(5, func() { w.tick(h) })
	}
}

// send sends one packet of a random flow.
func (w *world) send(h int) {
	r := w.random
	to := (h + 1 + r.IntN(hosts-1)) % hosts
	flags := []byte{packet.SYN, packet.SYN | packet.ACK, packet.ACK, packet.ACK, packet.ACK,
		packet.FIN | packet.ACK}[r.IntN(6)]
	f := packet.NewFrame(tcp(h, to, uint16(r.IntN(40)), flags, r.IntN(3)*100))
	var ip packet.IP
	if err := ip.Parse(packet.EtherTypeIPv4, f.Bytes()[14:]); err != nil {
		w.t.Fatal(err)
	}
	w.roles[h].Out([]*packet.Frame{f})
	at := flowEpoch{w.clocks[h].Current(), ip.Key}
	rec := w.truth[at]
	path := nodesOf(h, to, &ip.Key)
	if rec == nil {
		rec = &record{lost: make([]wire.Values, 2*len(path)+1)}
		w.truth[at] = rec
	}
	v := valuesOf(&ip)
	if w.net.extremes() {
		raise(&rec.sent, &v)
	}
	rec.sent.Add(&v)
	w.forward(f, h, append(path, to), 0, rec, v)
	if w.now < duration {
		w.after(r.IntN(3), func() { w.send(h) })
	}
}

// forward takes a packet from a node to the hop of that number on its path.
func (w *world) forward(f *packet.Frame, from int, path []int, hop int, rec *record, v wire.Values) {
	link := linkIDs[[2]int{from, path[hop]}]
	if w.drop(switches + link) {
		rec.lost[2*hop].Add(&v)
		return
	}
	delay := w.random.IntN(3)
	if w.random.IntN(8) == 0 {
		delay = w.random.IntN(60)
	}
	w.after(delay, func() {
		if hop == len(path)-1 {
			w.roles[path[hop]].In([]*packet.Frame{f})
			return
		}
		lose := w.drop(path[hop] - hosts)
		w.net.receive(path[hop]-hosts, f, link, linkIDs[[2]int{path[hop], path[hop+1]}], lose)
		if lose {
			rec.lost[2*hop+1].Add(&v)
			return
		}
		w.forward(f, path[hop], path, hop+1, rec, v)
	})
}

func tcp(from, to int, port uint16, flags byte, payload int) []byte {
	b := []byte{2, 0, 0, 0, 0, byte(to), 2, 0, 0, 0, 0, byte(from), 8, 0, 0x45, 0}
	b = binary.BigEndian.AppendUint16(b, uint16(40+payload))
	b = append(b, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, byte(from+1), 10, 0, 0, byte(to+1))
	sumIPv4(b[14:34])
	b = binary.BigEndian.AppendUint16(b, port)
	b = append(b, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0)
	return append(b, make([]byte, payload)...)
}

// collect reads an epoch when all hosts are three epochs further, and analyzes it.
func (w *world) collect(e uint64) {
	for _, c := range w.clocks {
		if c.Current() < e+3 {
			if w.now < duration+1000 {
				w.after(5, func() { w.collect(e) })
			}
			return
		}
	}
	in := analysis.Epoch{Number: e, Arrived: make([]int64, len(links)), Departed: make([]int64, len(links))}
	complete := true
	for _, r := range w.roles {
		g := r.Seal(e)
		if g == nil {
			complete = false
			in.Reports = append(in.Reports, nil)
			continue
		}
		in.Reports = append(in.Reports, g.Append(nil))
		g.Release()
	}
	w.net.collect(e, &in)
	if complete {
		w.compare(w.analyzer.Analyze(&in))
	}
	w.after(0, func() { w.collect(e + 1) })
}

// compare fails if a value differs from the ground truth.
func (w *world) compare(r *analysis.Result) {
	if len(simulation.Reasons(r)) > 0 {
		w.t.Fatalf("epoch %d: %v", r.Epoch, simulation.Reasons(r))
	}
	var mu sync.Mutex
	r.Each(func(_ int, f *analysis.Flow) {
		mu.Lock()
		defer mu.Unlock()
		want := w.truth[flowEpoch{r.Epoch, f.Key}]
		if want == nil || f.Sent != want.sent || slices.ContainsFunc(want.lost, func(v wire.Values) bool {
			return v[0] != 0
		}) {
			w.t.Errorf("epoch %d: flow %v sent %v, want %+v", r.Epoch, f.Key, f.Sent, want)
		}
		delete(w.truth, flowEpoch{r.Epoch, f.Key})
		w.checked++
	})
	for i := range r.Lossy {
		f := &r.Lossy[i]
		want := w.truth[flowEpoch{r.Epoch, f.Key}]
		if want == nil || f.Sent != want.sent {
			w.t.Fatalf("epoch %d: lossy flow %v sent %v, want %+v", r.Epoch, f.Key, f.Sent, want)
		}
		exact := true
		for n, l := range f.Losses {
			if p := want.lost[n][wire.Packets]; p < l.Packets.Low || p > l.Packets.High || l.Exact && l.Values != want.lost[n] {
				w.t.Fatalf("epoch %d: flow %v lost %v at %d, result %+v", r.Epoch, f.Key, want.lost[n], n, l)
			}
			exact = exact && l.Exact
		}
		if !exact {
			w.inexact++
		}
		delete(w.truth, flowEpoch{r.Epoch, f.Key})
		w.checked++
		w.lossy++
	}
	for at := range w.truth {
		if at.epoch == r.Epoch {
			w.t.Fatalf("epoch %d: flow %v is missing", r.Epoch, at.key)
		}
	}
}
