// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/netsketch/netsketch/hostagent/omnimon"
	"github.com/netsketch/netsketch/hostagent/omnimon/mapping"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/role"
	"github.com/netsketch/netsketch/sketch/flow"
)

const (
	window       = 4  // epochs that packets may belong to, as in package omnimon
	maxUnclaimed = 16 // older epochs that wait until they are requested
)

// states of an entry, as in bpf/omnimon.c.
const (
	unused uint32 = iota
	active
	ended
	reopened
	returned
)

// mark is what the agent knows of an entry.
type mark uint8

const (
	assigned mark = 1 << iota // its mapping is assigned in the pool
	ending                    // it is among the endings
	leaving                   // it left the table and is not free yet
)

// Path is an agent.DataPath in the kernel. It is safe for concurrent use.
type Path struct {
	cfg  Config
	wake chan struct{}
	done chan struct{}
	idle sync.WaitGroup

	// shared protects the memory of the tables against Advance, which must not wait for mu. Both are
	// held to replace tables.
	shared sync.RWMutex
	tables *tables // nil without settings
	epoch  uint64  // without tables

	mu       sync.Mutex
	settings *wire.Settings
	raw      []byte
	hooks    hooks
	pool     *mapping.Pool
	owned    uint64
	now      uint64    // newest epoch that follow has seen
	open     []uint64  // epochs that are not sealed
	sealed   []*report // not released
	waiting  []*report // sealed because of their age, not requested
	dropped  uint64    // epochs since the previous report
	restarts map[uint64]uint64
	endings  []uint32
	limbo    []uint32 // entries that left the table while they had packets in an epoch of a report
	marks    []mark   // by index
	cursor   uint32
	rows     []uint32
	order    []uint32
	queries  []applied // the newest last
	steps    map[uint64]*omnimon.Steps
	record   ringbuf.Record // of readEvents
	owners   []owner
}

// Open returns a data path, which is the one that an earlier process pinned if there is one.
func Open(cfg Config) (*Path, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	p := &Path{cfg: cfg, wake: make(chan struct{}, 1), done: make(chan struct{}), restarts: map[uint64]uint64{},
		steps: map[uint64]*omnimon.Steps{}}
	if cfg.Pin != "" {
		if err := p.adopt(); err != nil {
			return nil, err
		}
	}
	if !cfg.manual {
		p.idle.Go(p.run)
	}
	return p, nil
}

// run does what follows an epoch, so that Advance does not wait for it.
func (p *Path) run() {
	tick := time.NewTicker(pollEvents)
	defer tick.Stop()
	var poll <-chan time.Time // nil without queries
	for {
		var work func() error
		select {
		case <-p.done:
			return
		case <-p.wake:
			work = p.maintain
		case <-poll:
			work = p.readEvents
		}
		p.mu.Lock()
		var err error
		if poll = nil; p.tables != nil {
			err = work()
			if atomic.LoadUint32(&p.tables.control.Events) != 0 {
				poll = tick.C
			}
		}
		p.mu.Unlock()
		if err != nil {
			p.cfg.Logger.Error("OmniMon's maps cannot be maintained", "interface", p.cfg.Interface, "error", err)
		}
	}
}

// follow makes run look at the tables.
func (p *Path) follow() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Role implements agent.DataPath.
func (p *Path) Role() string { return wire.Role }

// Since implements agent.DataPath.
func (p *Path) Since() (epoch uint64, ok bool) {
	p.shared.RLock()
	defer p.shared.RUnlock()
	if p.tables == nil {
		return 0, false
	}
	return p.tables.control.Base + 1, true
}

// Epoch implements agent.DataPath.
func (p *Path) Epoch() uint64 {
	p.shared.RLock()
	defer p.shared.RUnlock()
	if p.tables == nil {
		return atomic.LoadUint64(&p.epoch)
	}
	return atomic.LoadUint64(&p.tables.control.Epoch)
}

// Advance implements agent.DataPath.
func (p *Path) Advance(epoch uint64) bool {
	p.shared.RLock()
	defer p.shared.RUnlock()
	at := &p.epoch
	if p.tables != nil {
		at = &p.tables.control.Epoch
		p.follow()
	}
	for {
		old := atomic.LoadUint64(at)
		if epoch <= old {
			return false
		}
		if atomic.CompareAndSwapUint64(at, old, epoch) {
			return true
		}
	}
}

// Schedule implements agent.Scheduler: the kernel advances by this clock if the agent is late or
// ends. A length of 0 ends the clock.
func (p *Path) Schedule(zero time.Time, length, slack time.Duration) {
	p.shared.RLock()
	defer p.shared.RUnlock()
	if p.tables == nil {
		return
	}
	c := p.tables.control
	atomic.StoreUint64(&c.Length, 0)
	since := time.Since(zero)
	if length <= 0 || since < 0 {
		return
	}
	atomic.StoreUint64(&c.Start, uint64(monotonic()-since%length+slack))
	atomic.StoreUint64(&c.Zero, uint64(since/length))
	atomic.StoreUint64(&c.Deadline, 0)
	atomic.StoreUint64(&c.Length, uint64(length))
}

// Apply implements agent.DataPath. Settings nil end the measurement: packets pass unchanged.
func (p *Path) Apply(raw []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if raw == nil {
		return p.remove()
	}
	if p.settings != nil && string(raw) == string(p.raw) {
		return nil
	}
	s, err := wire.ParseSettings(raw)
	if err != nil {
		return err
	}
	layout, share, err := omnimon.Check(s)
	if err != nil {
		return err
	}
	if len(s.Match) > MaxMatch {
		return fmt.Errorf("match: %d bytes; the kernel searches for at most %d", len(s.Match), MaxMatch)
	}
	if p.keeps(s) {
		if err := p.prepare(s); err != nil {
			return err
		}
		if s.Match != p.settings.Match {
			if err := p.tables.match(s.Match); err != nil {
				return err
			}
		}
		if err := p.tables.setHosts(s.Hosts); err != nil {
			return err
		}
		if !slices.Equal(s.Queries, p.settings.Queries) || s.FlowletGap != p.settings.FlowletGap {
			p.setQueries(s)
			p.follow()
		}
		p.settings, p.raw = s, slices.Clone(raw)
		return p.save()
	}
	again := p.settings != nil
	return p.restart(s, slices.Clone(raw), share, layout.Size(), p.Epoch(), again)
}

// keeps reports whether the maps stay as they are. Unlike in package omnimon, more ingress slots or
// more hosts than the maps have room for restart the table.
func (p *Path) keeps(s *wire.Settings) bool {
	addresses := 0
	for _, list := range s.Hosts {
		addresses += len(list)
	}
	return p.tables != nil && omnimon.Keeps(p.settings, s) && len(s.Hosts) <= p.tables.hosts &&
		addresses <= int(p.tables.maps[omnimonMapHosts].MaxEntries()) &&
		(s.IngressSlots+pageSlots-1)/pageSlots == int(p.tables.pages)
}

// Reset implements agent.DataPath.
func (p *Path) Reset(epoch uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tables == nil {
		atomic.StoreUint64(&p.epoch, epoch)
		return nil
	}
	layout, share, err := omnimon.Check(p.settings)
	if err != nil {
		return err
	}
	p.waiting, p.sealed, p.open, p.dropped = nil, nil, nil, 0
	return p.restart(p.settings, p.raw, share, layout.Size(), epoch, false)
}

// restart replaces the tables by empty ones that begin in an epoch. After an error the previous
// ones stay in force.
func (p *Path) restart(s *wire.Settings, raw []byte, share *mapping.Share, size int, epoch uint64, again bool) error {
	maxLength, err := p.maxLength(size)
	if err != nil {
		return err
	}
	if err := p.prepare(s); err != nil {
		return err
	}
	t, err := load(s, share, p.cfg.Generations, maxLength)
	if err != nil {
		return err
	}
	t.synchronous = p.cfg.manual && p.cfg.Interface == ""
	t.control.Epoch, t.control.Base = epoch, epoch
	if old := p.tables; old != nil {
		t.control.Start, t.control.Zero, t.control.Length = old.control.Start, old.control.Zero, old.control.Length
	}
	if err := errors.Join(t.setHosts(s.Hosts), t.match(s.Match)); err != nil {
		t.close()
		return err
	}
	queries := omnimon.ParseQueries(s, omnimon.Queries{})
	t.control.Events = needs(queries)
	if err := p.attach(t); err != nil {
		t.close()
		return err
	}
	if again {
		p.dropped += uint64(len(p.open))
	}
	p.install(t, s, raw, share)
	p.now, p.open = epoch, []uint64{epoch}
	p.queries, p.steps = []applied{{since: epoch, queries: queries}}, map[uint64]*omnimon.Steps{}
	p.follow()
	if again {
		p.restarts[epoch]++
	}
	return p.save()
}

// install makes t the tables in force, without flows.
func (p *Path) install(t *tables, s *wire.Settings, raw []byte, share *mapping.Share) {
	p.shared.Lock()
	if p.tables != nil {
		p.tables.close()
	}
	p.tables = t
	p.shared.Unlock()
	p.settings, p.raw = s, raw
	p.pool, p.owned = mapping.NewPool(share, s.Flows), share.Len()
	p.open, p.endings, p.limbo, p.cursor = nil, nil, nil, 0
	p.marks = make([]mark, s.Flows)
}

// fresh is the count of entries that have ever been used.
func (t *tables) fresh() uint64 {
	return min(uint64(atomic.LoadUint32(&t.control.FreshIndex)), t.flows)
}

// last is the epoch of the latest packet of a flow. A flow of which the maps hold no packet is
// older than they reach, and its first epoch suffices.
func (t *tables) last(index uint32) uint64 {
	last := t.entries[index].First
	for at := uint64(index); at < uint64(len(t.outgoing)); at += t.flows {
		last = max(last, atomic.LoadUint64(&t.outgoing[at].Epoch))
	}
	return last
}

// maintain follows the epoch: it seals old epochs and ends flows. p.mu is held, as in all functions
// below.
func (p *Path) maintain() error {
	t := p.tables
	if t == nil {
		return nil
	}
	to := atomic.LoadUint64(&t.control.Epoch)
	if to == p.now {
		return nil
	}
	for e := p.now + 1; e <= to; e++ {
		if to-e >= t.generations {
			p.dropped += to - t.generations - e + 1
			e = to - t.generations // the next is the oldest that the maps hold
			continue
		}
		p.open = append(p.open, e)
	}
	p.now = to
	// All processors have left the epochs before.
	if err := errors.Join(t.wait(), p.begun(), p.readEvents()); err != nil {
		return err
	}
	for len(p.open) > 0 && p.open[0]+window <= to {
		g, err := p.encode(p.open[0])
		p.open = p.open[1:]
		if err != nil {
			return err
		}
		if g != nil {
			p.waiting = append(p.waiting, g)
		}
	}
	for len(p.waiting) > maxUnclaimed {
		p.dropped += 1 + p.waiting[0].dropped
		p.waiting[0].Release()
		p.waiting = slices.Delete(p.waiting, 0, 1)
	}
	p.retireQueries()
	return p.retire()
}

// Seal implements agent.DataPath.
func (p *Path) Seal(epoch uint64) (role.Report, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tables == nil {
		return nil, nil
	}
	if err := p.maintain(); err != nil {
		return nil, err
	}
	if epoch >= p.now {
		return nil, nil
	}
	if i := slices.Index(p.open, epoch); i >= 0 {
		t := p.tables
		atomic.StoreUint64(&t.control.Sealed[epoch%t.generations], epoch+1)
		if err := errors.Join(t.wait(), p.begun(), p.readEvents()); err != nil {
			return nil, err
		}
		p.open = slices.Delete(p.open, i, i+1)
		g, err := p.encode(epoch)
		if g == nil || err != nil {
			return nil, err
		}
		return g, nil
	}
	for i, g := range p.waiting {
		if g.epoch == epoch {
			p.waiting = slices.Delete(p.waiting, i, i+1)
			return g, nil
		}
	}
	return nil, nil
}

// report is an encoded report. Its flows keep their entries until it is released.
type report struct {
	epoch, dropped uint64
	data           []byte
	released       atomic.Bool
}

// Append implements role.Report.
func (g *report) Append(b []byte) []byte { return append(b, g.data...) }

// Release implements role.Report.
func (g *report) Release() { g.released.Store(true) }

// owner is the place of a page of incoming flows.
type owner struct {
	cell uint64
	page int
}

// encode returns the report of an epoch whose packets are all counted, or nil if the kernel has
// used its slots again; that is counted as dropped.
func (p *Path) encode(epoch uint64) (*report, error) {
	t := p.tables
	at := epoch % t.generations
	s := wire.Summary{Host: p.settings.Host, Epoch: epoch, MappingsUsed: uint64(p.pool.Used()), MappingsOwned: p.owned}
	var counts []omnimonCounts
	if err := t.maps[omnimonMapCounters].Lookup(uint32(at), &counts); err != nil {
		return nil, fmt.Errorf("map counters: %w", err)
	}
	unread := uint64(0) // packets that queries did not see
	for _, c := range counts {
		if c.Epoch == epoch {
			for i := range s.Counters {
				s.Counters[i] += c.N[i]
			}
			unread += c.N[wire.Counters]
		}
	}
	s.Counters[wire.Dropped], p.dropped = p.dropped, 0
	s.Counters[wire.Restarted] = p.restarts[epoch]
	delete(p.restarts, epoch)

	b := wire.Builder{}
	out := t.outgoing[at*t.flows : (at+1)*t.flows]
	p.rows = p.rows[:0]
	for i := range out[:t.fresh()] {
		if out[i].Epoch == epoch && out[i].Packets != 0 {
			p.rows = append(p.rows, uint32(i))
		}
	}
	b.Begin(&s, p.settings.SlotsPerFlow, len(p.rows))
	for _, i := range p.rows {
		e := &t.entries[i]
		row := wire.EgressRow{Index: i, Key: key(&e.Key), Age: epoch - e.First, Slots: e.Slots}
		v := values(&out[i])
		b.Egress(&row, &v)
	}
	p.encodeIngress(&b, epoch)
	b.Queries(p.stepsOf(epoch).Rows(unread))
	delete(p.steps, epoch)
	g := &report{epoch: epoch, dropped: s.Counters[wire.Dropped], data: b.Data}
	if atomic.LoadUint64(&t.control.Epoch) >= epoch+t.generations {
		p.dropped += 1 + g.dropped
		return nil, nil
	}
	p.sealed = append(p.sealed, g)
	return g, nil
}

func (p *Path) encodeIngress(b *wire.Builder, epoch uint64) {
	t := p.tables
	at := epoch % t.generations
	used := uint64(0)
	if n := atomic.LoadUint64(&t.control.Pages[at]); uint32(n>>32) == uint32(epoch) {
		used = uint64(uint32(n))
	}
	p.owners = p.owners[:0]
	for i, cell := range t.owners[at*t.pages:][:used] {
		p.owners = append(p.owners, owner{cell, i})
	}
	slices.SortFunc(p.owners, func(a, b owner) int { return cmp.Compare(a.cell, b.cell) })
	slots := t.incoming[at*t.pages*pageSlots:]
	each := func(pages []owner, f func(index uint32, s *omnimonFlowSlot)) {
		for _, o := range pages {
			for i := range slots[o.page*pageSlots:][:pageSlots] {
				if s := &slots[o.page*pageSlots+i]; s.Epoch == epoch && s.Packets != 0 {
					f(uint32(o.cell%uint64(t.cells))*pageSlots+uint32(i), s)
				}
			}
		}
	}
	type host struct {
		number, rows int
		pages        []owner
	}
	var hosts []host
	for rest := p.owners; len(rest) > 0; {
		h := host{number: int(rest[0].cell / uint64(t.cells))}
		n := 1
		for n < len(rest) && int(rest[n].cell/uint64(t.cells)) == h.number {
			n++
		}
		h.pages, rest = rest[:n], rest[n:]
		each(h.pages, func(uint32, *omnimonFlowSlot) { h.rows++ })
		if h.rows > 0 {
			hosts = append(hosts, h)
		}
	}
	b.BeginIngress(len(hosts))
	for _, h := range hosts {
		b.BeginHost(h.number, h.rows)
		each(h.pages, func(index uint32, s *omnimonFlowSlot) {
			v := values(s)
			b.Ingress(index, s.Check, &v)
		})
	}
}

func key(k *omnimonFlowKey) flow.Key {
	return flow.Key{Src: k.Src, Dst: k.Dst, Proto: k.Proto, SrcPort: uint16(k.Ports), DstPort: uint16(k.Ports >> 16),
		Mask: flow.FiveTuple, V6: k.V6 != 0}
}

func values(s *omnimonFlowSlot) (v wire.Values) {
	v[wire.Packets], v[wire.Bytes] = int64(s.Packets), int64(s.Bytes)
	v[wire.SYN], v[wire.FinRst], v[wire.SynAck], v[wire.Ack] = int64(s.Syn), int64(s.FinRst), int64(s.SynAck), int64(s.Ack)
	v[wire.Bare], v[wire.Matched] = int64(s.Bare), int64(s.Matched)
	for i, x := range s.Extremes {
		v[wire.FirstExtreme+wire.Statistic(i)] = int64(x)
	}
	return v
}

// begun records the mappings of flows that are new since the last call.
func (p *Path) begun() error {
	t := p.tables
	var b omnimonBegan
	for {
		err := t.maps[omnimonMapBegun].LookupAndDelete(nil, &b)
		switch {
		case errors.Is(err, ebpf.ErrKeyNotExist):
			return nil
		case err != nil:
			return fmt.Errorf("map begun: %w", err)
		}
		p.assign(b.Index, b.Mapping)
		if atomic.LoadUint32(&t.entries[b.Index].State) == returned {
			if err := p.free(b.Index); err != nil {
				return err
			}
		}
	}
}

func (p *Path) assign(index, number uint32) {
	if p.marks[index]&assigned == 0 {
		p.marks[index] |= assigned
		p.pool.Assign(number)
	}
}

// retire removes flows that have ended or are idle, as package omnimon does. A flow stays as long
// as an epoch with its packets is not released.
func (p *Path) retire() error {
	t := p.tables
	oldest := p.now
	p.sealed = slices.DeleteFunc(p.sealed, func(g *report) bool {
		if !g.released.Load() {
			oldest = min(oldest, g.epoch)
			return false
		}
		atomic.StoreUint64(&t.control.Released[g.epoch%t.generations], g.epoch+1)
		return true
	})
	for _, e := range p.open {
		oldest = min(oldest, e)
	}
	var index uint32
	for {
		err := t.maps[omnimonMapEndings].LookupAndDelete(nil, &index)
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			break
		}
		if err != nil {
			return fmt.Errorf("map endings: %w", err)
		}
		p.end(index)
	}
	var gone []uint32
	p.endings = slices.DeleteFunc(p.endings, func(index uint32) bool {
		e := &t.entries[index]
		switch {
		case atomic.CompareAndSwapUint32(&e.State, reopened, active):
			p.marks[index] &^= ending
			return true
		case t.last(index) >= oldest:
			return false
		}
		p.marks[index] = p.marks[index]&^ending | leaving
		gone = append(gone, index)
		return true
	})
	for range t.flows/p.settings.IdleEpochs + 1 {
		if uint64(p.cursor) >= t.fresh() {
			p.cursor = 0
			break
		}
		e := &t.entries[p.cursor]
		state := atomic.LoadUint32(&e.State)
		// An ended flow is idle and not among the endings if it ended while it was reopened.
		if state != unused && state != returned && p.marks[p.cursor]&(ending|leaving) == 0 {
			if last := t.last(p.cursor); last < oldest && last+p.settings.IdleEpochs < p.now {
				p.marks[p.cursor] |= leaving
				gone = append(gone, p.cursor)
			}
		}
		p.cursor++
	}
	return p.leave(gone, oldest)
}

func (p *Path) end(index uint32) {
	if p.marks[index]&ending == 0 {
		p.marks[index] |= ending
		p.endings = append(p.endings, index)
	}
}

// leave removes flows from the table. Their entries become free when no processor can count a
// packet of theirs any more and no report needs them.
func (p *Path) leave(gone []uint32, oldest uint64) error {
	t := p.tables
	for _, index := range gone {
		if err := t.maps[omnimonMapFlows].Delete(&t.entries[index].Key); err != nil {
			return fmt.Errorf("map flows: %w", err)
		}
	}
	if len(gone) > 0 {
		if err := t.wait(); err != nil {
			return err
		}
	}
	gone = append(p.limbo, gone...)
	p.limbo = nil
	for _, index := range gone {
		if t.last(index) >= oldest {
			p.limbo = append(p.limbo, index)
			continue
		}
		if err := p.free(index); err != nil {
			return err
		}
	}
	p.cycle()
	return nil
}

// free gives an entry and its mapping back.
func (p *Path) free(index uint32) error {
	t := p.tables
	number := t.entries[index].Mapping
	p.marks[index] = 0
	for _, a := range p.queries {
		a.queries.Drop(index)
	}
	atomic.StoreUint32(&t.entries[index].State, unused)
	p.pool.Return(number)
	if !p.pool.InUse(number) {
		if err := t.maps[omnimonMapFreeMappings].Put(nil, number); err != nil {
			return fmt.Errorf("map free_mappings: %w", err)
		}
	}
	if err := t.maps[omnimonMapFreeIndexes].Put(nil, index); err != nil {
		return fmt.Errorf("map free_indexes: %w", err)
	}
	return nil
}

// cycle gives the kernel the mappings to share when all are in use.
func (p *Path) cycle() {
	t := p.tables
	n := len(t.mappings)
	if n >= int(t.flows) {
		return // never all
	}
	half := 1 - int(atomic.LoadUint64(&t.control.Shared)>>63)
	p.order = p.pool.Cycle(p.order[:0])
	for i, number := range p.order {
		t.shared[half*n+i] = uint64(number)
	}
	atomic.StoreUint64(&t.control.Shared, uint64(half)<<63)
}
