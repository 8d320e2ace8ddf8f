// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	hostkernel "github.com/netsketch/netsketch/hostagent/kernel"
	"github.com/netsketch/netsketch/hostagent/omnimon"
	"github.com/netsketch/netsketch/hostagent/omnimon/mapping"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
)

const (
	window       = 4  // the largest distance of a packet's epoch to the current one
	maxUnclaimed = 16 // most older epochs that wait for their request
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

	attachment *hostkernel.Attachment

	mu       sync.Mutex
	settings *wire.Settings
	raw      []byte
	gone     uint64 // epoch in which the interface was deleted last
	pool     *mapping.Pool
	owned    uint64
	now      uint64    // newest epoch that follow has seen
	open     []uint64  // epochs that are not sealed
	sealed   []*report // sealed reports that are not released
	waiting  []*report // reports that were sealed because of their age and not requested
	dropped  uint64    // epochs since the previous report
	restarts map[uint64]uint64
	endings  []uint32
	limbo    []uint32 // entries that left the table while they had packets in an epoch of a report
	marks    []mark   // marks by index
	cursor   uint32
	rows     []uint32
	order    []uint32
	queries  []applied // queries, the newest last
	steps    map[uint64]*omnimon.Steps
	record   ringbuf.Record // record that readCopies reads into
	owners   []owner

	leasing leasing
}

// Open returns a data path. It continues the data path that an earlier process pinned, if there is
// one.
func Open(cfg Config) (*Path, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	p := &Path{cfg: cfg, wake: make(chan struct{}, 1), done: make(chan struct{}), restarts: map[uint64]uint64{},
		steps: map[uint64]*omnimon.Steps{}}
	p.attachment = hostkernel.NewAttachment(cfg.frame(), p.changed)
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

// run does the work after the end of an epoch, so that Advance does not wait for it.
func (p *Path) run() {
	tick := time.NewTicker(pollQueries)
	defer tick.Stop()
	var poll <-chan time.Time // nil if no packets are copied
	for {
		var work func() error
		select {
		case <-p.done:
			return
		case <-p.wake:
			work = p.maintain
		case <-poll:
			work = p.readCopies
		}
		p.mu.Lock()
		var err error
		if poll = nil; p.tables != nil {
			err = work()
			if p.copies() {
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
		given := &p.tables.control.Given
		for old := atomic.LoadUint64(given); epoch > old && !atomic.CompareAndSwapUint64(given, old, epoch); {
			old = atomic.LoadUint64(given)
		}
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
	atomic.StoreUint64(&c.Slack, uint64(slack))
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
	_, share, err := omnimon.Check(s)
	if err != nil {
		return err
	}
	if err := p.openSockets(s.Hosts[s.Host]); err != nil {
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
		if !slices.Equal(s.Queries, p.settings.Queries) || s.FlowletGap != p.settings.FlowletGap ||
			s.QueryTuples != p.settings.QueryTuples {
			if err := p.setQueries(s); err != nil {
				return err
			}
			p.follow()
		}
		p.settings, p.raw = s, slices.Clone(raw)
		p.grant()
		return p.save()
	}
	again := p.settings != nil
	return p.restart(s, slices.Clone(raw), share, p.Epoch(), again)
}

// Hides implements role.Hider.
func (p *Path) Hides() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.settings != nil && omnimon.Hides(p.settings.Carrier)
}

// keeps reports whether the maps stay as they are. Unlike in package omnimon, more ingress slots or
// more hosts than the maps have room for restart the table.
func (p *Path) keeps(s *wire.Settings) bool {
	addresses := 0
	for _, list := range s.Hosts {
		addresses += len(list)
	}
	return p.tables != nil && omnimon.Keeps(p.settings, s) && p.settings.Carrier == s.Carrier &&
		p.settings.KeepMSS == s.KeepMSS && len(s.Hosts) <= p.tables.maxHosts &&
		addresses <= int(p.tables.maps[omnimonMapLeases].MaxEntries()) &&
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
	_, share, err := omnimon.Check(p.settings)
	if err != nil {
		return err
	}
	p.waiting, p.sealed, p.open, p.dropped = nil, nil, nil, 0
	return p.restart(p.settings, p.raw, share, epoch, false)
}

// restart replaces the tables by empty ones that begin in an epoch. After an error the previous
// ones stay in force.
func (p *Path) restart(s *wire.Settings, raw []byte, share *mapping.Share, epoch uint64, again bool) error {
	mtu, err := p.mtu()
	if err != nil {
		return err
	}
	if err := p.prepare(s); err != nil {
		return err
	}
	t, err := load(s, share, p.cfg.Generations)
	if err != nil {
		return err
	}
	t.synchronous = p.cfg.manual && p.cfg.Interface == ""
	t.control.Epoch, t.control.Base, t.control.Given, t.control.Mtu = epoch, epoch, epoch, uint32(mtu)
	if old := p.tables; old != nil {
		t.control.Start, t.control.Zero, t.control.Length = old.control.Start, old.control.Zero, old.control.Length
		t.control.Slack = old.control.Slack
	}
	if err := errors.Join(t.setHosts(s.Hosts), t.match(s.Match)); err != nil {
		t.close()
		return err
	}
	queries := beginQueries(t, s, epoch)
	if err := p.attach(t, s); err != nil {
		closeQueries(queries)
		t.close()
		return err
	}
	if again {
		p.dropped += uint64(len(p.open))
	}
	p.install(t, s, raw, share)
	p.now, p.open = epoch, []uint64{epoch}
	closeQueries(p.queries)
	p.queries, p.steps = queries, map[uint64]*omnimon.Steps{}
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
	p.grant()
	p.leasing.readers.Go(func() { p.readProbes(t.probes) })
}

// first is the epoch of a flow's first packet.
func (t *tables) first(index uint32) uint64 { return t.control.Base + uint64(t.entries[index].First) }

// number is the number of an epoch in slots.
func (t *tables) number(epoch uint64) uint32 { return uint32(epoch - t.control.Base + 1) }

// fresh is the count of entries that have ever been used.
func (t *tables) fresh() uint64 {
	return min(uint64(atomic.LoadUint32(&t.control.FreshIndex)), t.flows)
}

// last returns the epoch of the latest packet of a flow. For a flow without packets in the maps,
// which is older than the maps reach, it returns the flow's first epoch.
func (t *tables) last(index uint32) uint64 {
	last := t.entries[index].First
	for at := uint64(index); at < uint64(len(t.outgoing)); at += t.flows {
		last = max(last, max(atomic.LoadUint32(&t.outgoing[at].Epoch), 1)-1)
	}
	return t.control.Base + uint64(last)
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
			e = to - t.generations // the next epoch is the oldest in the maps
			continue
		}
		p.open = append(p.open, e)
	}
	p.now = to
	// After wait, no processor works in an earlier epoch any more.
	if err := errors.Join(t.wait(), p.begun(), p.collect(to), p.readCopies()); err != nil {
		return err
	}
	if err := p.refresh(); err != nil {
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
