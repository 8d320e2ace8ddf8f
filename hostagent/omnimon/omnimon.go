// SPDX-License-Identifier: Apache-2.0

// Package omnimon is OmniMon's host role in Go (paper, sections 3.2 and 4, algorithms 1 and 2): it
// tracks every outgoing flow in a table, inserts OmniMon's header into outgoing packets and removes
// it from incoming ones, and counts both in slots of the epoch that the packet carries.
//
// docs/hostagent.md describes the role; docs/omnimon.md the algorithm.
package omnimon

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/omnimon/header"
	"github.com/netsketch/netsketch/hostagent/omnimon/mapping"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/hostagent/role"
)

const (
	// epochs is the count of epochs that packets may belong to: the current one and those before.
	epochs = 4
	// maxUnclaimed is the number of epochs that are kept until the collector requests them, in
	// addition to the epochs that packets may belong to.
	maxUnclaimed = 16
	// maxFlows is a limit of the header.
	maxFlows = header.MaxHostIndex + 1
)

// Role measures the packets of one host. Its methods are called by one goroutine at a time.
type Role struct {
	clock  *epoch.Clock
	time   func() time.Duration
	leases leases

	settings *wire.Settings // nil: packets pass unchanged
	layout   header.Layout
	match    []byte
	hosts    addresses
	limit    int // pages of incoming flows per epoch
	queries  Queries

	table   *table
	pool    *mapping.Pool
	owned   uint64 // mappings of the share
	pages   *pool
	now     uint64 // epoch of current
	base    uint64 // epoch in which the table began
	current *epochSlots
	recent  [epochs]*epochSlots // newest epochs, by epoch modulo epochs; nil: sealed
	sealed  []*epochSlots       // sealed epochs that are not yet released
	waiting []*epochSlots       // epochs that were sealed because of their age and not yet requested
	dropped uint64              // epochs since the previous report
	endings []uint32            // flows that ended and are not yet removed
	cursor  uint32              // next entry to check for idle flows
	sent    time.Duration       // time of the packets in work; set only with leases or if queries read flowlets
	work    [batch]work
	touched uint32 // written so that the compiler keeps the reads of touchOut and touchIn
}

var (
	_ role.Role   = (*Role)(nil)
	_ role.Leaser = (*Role)(nil)
)

// New returns a role without settings: packets pass unchanged until Apply. now returns the time
// since any instant, by a clock that does not jump. The role tags all packets to hosts with an
// agent, unless NeedLeases is called.
func New(clock *epoch.Clock, now func() time.Duration) *Role { return &Role{clock: clock, time: now} }

// Name implements role.Role.
func (r *Role) Name() string { return wire.Role }

// Apply implements role.Role. A change of the mapping, of the form of the header or of the size of
// the flow table, and an address that leaves or changes its host, restart the table: the flows get
// new indexes, and the current epoch is inexact.
func (r *Role) Apply(data []byte) error {
	s, err := wire.ParseSettings(data)
	if err != nil {
		return err
	}
	layout, hosts, share, err := check(s)
	if err != nil {
		return err
	}
	old := r.settings
	keep := old != nil && sameTable(old, s) && hosts.contains(&r.hosts)
	before := r.hosts
	r.settings, r.layout, r.hosts, r.match = s, layout, hosts, []byte(s.Match)
	r.limit = (s.IngressSlots + pageSlots - 1) / pageSlots
	r.readdress(&before)
	if keep {
		r.queries = ParseQueries(s, r.queries) // used from the next epoch on
		for _, g := range r.recent {
			if g != nil {
				g.ingress = append(g.ingress, make([][]*page, max(0, len(s.Hosts)-len(g.ingress)))...)
			}
		}
		return nil
	}
	r.queries = ParseQueries(s, Queries{})
	r.restart(share, old != nil)
	return nil
}

// Hides implements role.Hider: other roles read the header only if it is an option.
func (r *Role) Hides() bool { return r.settings != nil && Hides(r.settings.Carrier) }

// Hides reports whether other roles of a host cannot read the flow of a packet with a header.
func Hides(c wire.Carrier) bool { return c != wire.CarrierOption }

// Check returns the form of headers and the host's mappings, or why settings are invalid. It is the
// rule of all data paths of the role.
func Check(s *wire.Settings) (header.Layout, *mapping.Share, error) {
	layout, _, share, err := check(s)
	return layout, share, err
}

func check(s *wire.Settings) (layout header.Layout, hosts addresses, share *mapping.Share, err error) {
	layout = header.Layout{Carrier: s.Carrier, EtherType: s.EtherType, Slots: s.SlotsPerFlow, Differences: len(s.Extremes)}
	if err = layout.Check(); err != nil {
		return layout, hosts, nil, err
	}
	switch {
	case s.Flows < 1 || s.Flows > maxFlows:
		err = fmt.Errorf("flows: a table of %d flows: 1 to %d are possible", s.Flows, maxFlows)
	case s.IngressSlots < 1:
		err = fmt.Errorf("ingressSlots: %d: at least 1", s.IngressSlots)
	case s.IdleEpochs < 1:
		err = fmt.Errorf("idleEpochs: %d: at least 1", s.IdleEpochs)
	case s.Host < 0 || s.Host >= len(s.Hosts):
		err = fmt.Errorf("host: number %d of %d hosts", s.Host, len(s.Hosts))
	case s.FlowletGap < 0:
		err = fmt.Errorf("flowletGap: %v: at least 0", s.FlowletGap)
	}
	for _, e := range s.Extremes {
		if e.Field != wire.FieldLength && e.Field != wire.FieldTTL && e.Field != wire.FieldWindow {
			err = fmt.Errorf("extremes: field %q: %s, %s or %s", e.Field, wire.FieldLength, wire.FieldTTL, wire.FieldWindow)
		}
	}
	if err != nil {
		return layout, hosts, nil, err
	}
	if hosts, err = newAddresses(s.Hosts); err != nil {
		return layout, hosts, nil, fmt.Errorf("hosts: %w", err)
	}
	share, err = mapping.NewShare(s.Slots, s.SlotsPerFlow, s.Host, s.Shares, s.Seed)
	return layout, hosts, share, err
}

// Keeps reports whether flows keep their index, mapping and header when settings change, so that
// the flow table need not restart. Both settings are valid.
func Keeps(old, changed *wire.Settings) bool {
	before, err := newAddresses(old.Hosts)
	if err != nil {
		return false
	}
	after, err := newAddresses(changed.Hosts)
	return err == nil && sameTable(old, changed) && after.contains(&before)
}

// sameTable reports whether flows keep their index, mapping and header.
func sameTable(a, b *wire.Settings) bool {
	return a.Carrier == b.Carrier && a.EtherType == b.EtherType && a.Slots == b.Slots &&
		a.SlotsPerFlow == b.SlotsPerFlow && a.Seed == b.Seed && a.Host == b.Host &&
		a.Shares == b.Shares && a.Flows == b.Flows && slices.Equal(a.Extremes, b.Extremes)
}

// restart begins with an empty table. It drops the counts of the epochs that packets still belong
// to, because their indexes would be ambiguous.
func (r *Role) restart(share *mapping.Share, again bool) {
	for _, g := range r.recent {
		if g != nil {
			g.Release()
			r.dropped++
		}
	}
	r.pool, r.owned = mapping.NewPool(share, r.settings.Flows), share.Len()
	r.table = newTable(r.settings.Flows, rand.Uint64())
	r.pages = new(pool)
	r.recent, r.endings, r.cursor = [epochs]*epochSlots{}, nil, 0
	r.now = r.clock.Current()
	r.base = r.now
	r.begin(r.now)
	if again {
		r.current.Counters[wire.Restarted]++
	}
}

// begin starts the slots of an epoch.
func (r *Role) begin(e uint64) {
	r.now = e
	r.current = &epochSlots{
		Summary: wire.Summary{Host: r.settings.Host, Epoch: e, MappingsOwned: r.owned},
		pool:    r.pages, flows: r.table.entries, base: r.base, d: r.layout.Slots,
		egress:  make([]*page, (r.settings.Flows+pageSlots-1)/pageSlots),
		ingress: make([][]*page, len(r.settings.Hosts)), steps: r.queries.Start(),
	}
	r.recent[e%epochs] = r.current
}

// advance follows the clock to its current epoch.
func (r *Role) advance() {
	to := r.clock.Current()
	if to == r.now {
		return
	}
	first := r.now + 1
	if to-r.now > epochs {
		first = to - epochs + 1
	}
	if r.table.fresh == 0 {
		r.base = first // entries hold their epoch as a distance of 32 bits from base
	}
	for e := first; e <= to; e++ {
		if g := r.recent[e%epochs]; g != nil {
			r.waiting = append(r.waiting, r.seal(g))
		}
		r.begin(e)
	}
	for len(r.waiting) > maxUnclaimed {
		r.dropped += 1 + r.waiting[0].Counters[wire.Missed]
		r.waiting[0].Release()
		r.waiting = slices.Delete(r.waiting, 0, 1)
	}
	r.retire()
}

// seal ends an epoch: from now on its packets are late.
func (r *Role) seal(g *epochSlots) *epochSlots {
	r.recent[g.Epoch%epochs] = nil
	g.MappingsUsed = uint64(r.pool.Used())
	g.Counters[wire.Missed], r.dropped = r.dropped, 0
	r.sealed = append(r.sealed, g)
	return g
}

// Seal implements role.Role.
func (r *Role) Seal(e uint64) role.Report {
	if r.settings == nil {
		return nil
	}
	r.advance()
	if e >= r.now {
		return nil
	}
	if g := r.recent[e%epochs]; g != nil && g.Epoch == e {
		return r.seal(g)
	}
	for i, g := range r.waiting {
		if g.Epoch == e {
			r.waiting = slices.Delete(r.waiting, i, i+1)
			return g
		}
	}
	return nil
}

// retire removes flows that have ended or are idle. A flow stays as long as an epoch with its
// packets is not released, because the report refers to the entry.
func (r *Role) retire() {
	r.sealed = slices.DeleteFunc(r.sealed, func(g *epochSlots) bool { return g.released.Load() })
	oldest := r.now
	for _, g := range r.sealed {
		oldest = min(oldest, g.Epoch)
	}
	for _, g := range r.recent {
		if g != nil {
			oldest = min(oldest, g.Epoch)
		}
	}
	r.endings = slices.DeleteFunc(r.endings, func(index uint32) bool {
		e := &r.table.entries[index]
		if e.state == reopened {
			e.state = active
			return true
		}
		if r.base+uint64(e.last) >= oldest {
			return false
		}
		r.remove(index)
		return true
	})
	tcp, others := r.settings.IdleEpochs, cmp.Or(r.settings.UDPIdleEpochs, r.settings.IdleEpochs)
	for range uint64(len(r.table.entries))/min(tcp, others) + 1 {
		if r.cursor >= r.table.fresh {
			r.cursor = 0
			break
		}
		e := &r.table.entries[r.cursor]
		last, idle := r.base+uint64(e.last), others
		if e.key.Proto == packet.ProtocolTCP {
			idle = tcp
		}
		if e.state == active && last < oldest && last+idle < r.now {
			r.remove(r.cursor)
		}
		r.cursor++
	}
}

func (r *Role) remove(index uint32) {
	r.pool.Return(r.table.entries[index].mapping)
	r.queries.Drop(index)
	r.table.remove(index)
}

// counted is the result for a packet that is in a slot.
const counted = wire.Counters

// batch is the count of packets in work at a time. Their memory is touched in one loop before they
// are counted, so that the processor waits for many cache misses at once.
const batch = 64

// work is a packet between parsing and counting.
type work struct {
	frame  *packet.Frame
	link   packet.Link
	ip     packet.IP
	header header.Header
	hash   uint32
}

// Out implements role.Role.
func (r *Role) Out(frames []*packet.Frame) {
	if r.settings == nil {
		return
	}
	r.advance()
	if r.leases.mtu > 0 || r.current.steps.flowlets != nil {
		r.sent = r.time()
	}
	for chunk := range slices.Chunk(frames, batch) {
		n := 0
		for _, f := range chunk {
			w := &r.work[n]
			w.frame = f
			if why := w.parse(); why != counted {
				r.current.Counters[why]++
				continue
			}
			w.hash = r.table.hash(&w.ip.Key)
			n++
		}
		r.touchOut(r.work[:n])
		for i := range n {
			r.send(&r.work[i])
		}
	}
}

// parse parses an outgoing frame, or returns why it has no flow.
func (w *work) parse() wire.Counter {
	frame := w.frame.Bytes()
	var err error
	if w.link, err = packet.ParseLink(frame); err != nil {
		return wire.Malformed
	}
	err = w.ip.Parse(w.link.Type, frame[w.link.TypeAt+2:])
	switch {
	case err == nil:
		return counted
	case errors.Is(err, packet.ErrNotIP):
		return wire.NotIP
	}
	return wire.Malformed
}

// touchOut brings the memory that send needs into the processor's caches.
func (r *Role) touchOut(ws []work) {
	t := r.table
	var cells [batch]uint64
	for i := range ws {
		cells[i] = t.cells[ws[i].hash&t.mask]
	}
	for i := range ws {
		if index := uint32(cells[i]) - 1; int(index) < len(t.entries) {
			r.touched += t.entries[index].last
		}
	}
	for i := range ws {
		if index := uint32(cells[i]) - 1; int(index) < len(t.entries) {
			if p := r.current.egress[index/pageSlots]; p != nil {
				r.touched += p[index%pageSlots].packets
			}
		}
	}
}

// send counts an outgoing packet and inserts the header.
func (r *Role) send(w *work) {
	p := &w.ip
	index, why := r.lookup(w)
	if why != counted {
		r.current.Counters[why]++
		return
	}
	to := r.hosts.find(&p.Key.Dst, p.Key.V6)
	r.clamp(p, w.frame.Bytes()[w.link.TypeAt+2:], to)
	e := &r.table.entries[index]
	e.last = uint32(r.now - r.base)
	s := r.current.egressSlot(index)
	if r.current.steps.Run() {
		r.current.steps.Add(p, index, r.sent)
	}
	if why := r.allowed(w, to); why != counted {
		r.current.Counters[why]++
		s.leave(p)
	} else {
		h := header.Header{Epoch: uint16(r.now), HostIndex: index, Slots: e.slots, Flow: flowBits(&p.Key)}
		s.follow(r.settings.Extremes, p, &h)
		s.count(p, r.match)
		r.layout.Insert(w.frame, w.link, &h)
	}
	switch {
	case p.Flags&(packet.FIN|packet.RST) != 0:
		if e.state == active {
			r.endings = append(r.endings, index)
		}
		e.state = ended
	case p.Flags&packet.SYN != 0 && e.state == ended:
		e.state = reopened
	}
}

// lookup returns the index of a packet's flow, which it adds if it is new, or why the flow is not
// tracked. A header reaches only hosts that remove it: those in the settings.
func (r *Role) lookup(w *work) (index uint32, why wire.Counter) {
	k := &w.ip.Key
	found, ok := r.table.find(k, w.hash)
	if ok {
		return found, counted
	}
	if from := r.hosts.find(&k.Src, k.V6); from == nil || int(from.host) != r.settings.Host {
		return 0, wire.Foreign
	}
	to := r.hosts.find(&k.Dst, k.V6)
	if to == nil {
		return 0, wire.Foreign
	}
	r.learn(to, w.frame.Bytes()[:w.link.TypeAt])
	if index, ok = r.table.insert(k, w.hash, found); !ok {
		return 0, wire.Untracked
	}
	e := &r.table.entries[index]
	e.first, e.state = uint32(r.now-r.base), active
	e.mapping, e.slots = r.pool.Take()
	return index, counted
}

// In implements role.Role.
func (r *Role) In(frames []*packet.Frame) {
	if r.settings == nil {
		return
	}
	r.advance()
	for chunk := range slices.Chunk(frames, batch) {
		n := 0
		for _, f := range chunk {
			w := &r.work[n]
			w.frame = f
			if r.strip(w) {
				n++
			}
		}
		r.touchIn(r.work[:n])
		for i := range n {
			if g, why := r.receive(&r.work[i]); why != counted {
				g.Counters[why]++
			}
		}
	}
}

// strip removes the header of an incoming frame and parses the packet. It returns false if there is
// nothing to count in a slot.
func (r *Role) strip(w *work) bool {
	frame := w.frame.Bytes()
	var err error
	if w.link, err = packet.ParseLink(frame); err != nil {
		r.current.Counters[wire.Malformed]++
		return false
	}
	err = r.layout.Peek(frame, w.link, &w.header)
	switch {
	case errors.Is(err, header.ErrNoHeader):
		r.plain(w)
		return false
	case err != nil:
		r.current.Counters[wire.Malformed]++
		return false
	}
	if w.ip.Parse(r.layout.Strip(w.frame, w.link, &w.header), w.frame.Bytes()[w.link.TypeAt+2:]) != nil {
		r.current.Counters[wire.Malformed]++
		return false
	}
	if w.header.Hops&header.Probe != 0 { // probes are not counted
		r.takeProbe(w, true)
		return false
	}
	r.clamp(&w.ip, w.frame.Bytes()[w.link.TypeAt+2:], r.hosts.find(&w.ip.Key.Src, w.ip.Key.V6))
	return true
}

// plain takes an incoming packet without a header.
func (r *Role) plain(w *work) {
	if w.link.Type != packet.EtherTypeIPv4 && w.link.Type != packet.EtherTypeIPv6 {
		return
	}
	b := w.frame.Bytes()[w.link.TypeAt+2:]
	if w.ip.Parse(w.link.Type, b) == nil {
		if r.takeProbe(w, false) {
			return
		}
		r.clamp(&w.ip, b, r.hosts.find(&w.ip.Key.Src, w.ip.Key.V6))
	}
	r.current.Counters[wire.NoHeader]++
}

// unclaimed returns the slots of an epoch that are not recent and whose report has not been
// claimed, or nil. The clock of another host moved the epoch by several at once.
func (r *Role) unclaimed(epoch uint64) *epochSlots {
	for _, g := range r.waiting {
		if g.Epoch == epoch {
			return g
		}
	}
	return nil
}

// touchIn brings the memory that receive needs into the processor's caches.
func (r *Role) touchIn(ws []work) {
	for i := range ws {
		h := &ws[i].header
		g := r.recent[h.Epoch%epochs]
		from := r.hosts.find(&ws[i].ip.Key.Src, ws[i].ip.Key.V6)
		if g == nil || from == nil || int(from.host) >= len(g.ingress) {
			continue
		}
		if pages, n := g.ingress[from.host], int(h.HostIndex/pageSlots); n < len(pages) && pages[n] != nil {
			r.touched += pages[n][h.HostIndex%pageSlots].packets
		}
	}
}

// receive counts an incoming packet without its header, or returns why it does not, and the epoch
// to which that belongs.
func (r *Role) receive(w *work) (*epochSlots, wire.Counter) {
	p, h := &w.ip, &w.header
	from := r.hosts.find(&p.Key.Src, p.Key.V6)
	if from == nil {
		return r.current, wire.UnknownHost
	}
	number := r.now + uint64(int64(int16(h.Epoch-uint16(r.now))))
	switch {
	case int64(number) < 0:
		return r.current, wire.UnknownEpoch
	case number > r.now && !r.clock.Follow(number):
		return r.current, wire.UnknownEpoch
	case number > r.now:
		r.advance()
	}
	g := r.recent[h.Epoch%epochs]
	if g == nil || g.Epoch != number {
		if g = r.unclaimed(number); g == nil || number+epochs < r.now {
			r.current.late(number)
			return r.current, wire.Late
		}
	}
	switch {
	case int(from.host) >= len(g.ingress):
		return g, wire.UnknownHost
	case int(h.HostIndex) >= r.settings.Flows:
		return g, wire.BadIndex
	}
	s := g.ingressSlot(from.host, h.HostIndex, r.limit)
	if s == nil {
		return g, wire.IngressFull
	}
	check := wire.Check(&p.Key)
	if s.packets == 0 {
		s.check = check
	} else if s.check != check {
		return g, wire.Forged
	}
	s.receive(h, len(r.settings.Extremes))
	s.count(p, r.match)
	return g, counted
}
