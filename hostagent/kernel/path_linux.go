// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/netsketch/netsketch/hostagent/agent"
	"github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/role"
)

// maxGaps bounds the gaps that a path remembers. A report is requested soon after its epoch.
const maxGaps = 64

// Tables are programs with their maps, in two groups. The programs count in one of the groups.
type Tables interface {
	comparable
	// Hooks are the programs and where they run.
	Hooks() []Hook
	// Active is the number of the group in which the programs count, in the memory of a map.
	Active() *uint32
	// Close ends the use of programs and maps.
	Close() error
}

// Counter is a role in Go whose packets programs count. Path calls the methods with its lock held,
// except the methods of role.Role. Apply calls Path.Switch, and Seal calls Path.Finish.
type Counter[T Tables] interface {
	role.Role
	// Load returns the tables for settings: new ones, or those in force.
	Load(settings []byte, inForce T) (T, error)
	// Measure applies settings to the role in Go.
	Measure(settings []byte) error
	// Period returns the number of the period in which an epoch is. The programs count each period
	// in one group.
	Period(epoch uint64) uint64
	// Begin begins a period, also if no packet arrives in it.
	Begin(period uint64)
	// Collect passes the counts of a group to the role, and clears the group, which no program uses
	// any more. periods are the periods of the groups.
	Collect(t T, group uint32, periods [2]uint64) error
}

// Poller is a Counter that reads maps in the middle of a period.
type Poller[T Tables] interface {
	Counter[T]
	// Poll reads the maps. periods are the periods of the groups.
	Poll(t T, periods [2]uint64) error
}

// Spec describes the data path of a role.
type Spec[T Tables] struct {
	// New returns the role, without settings. inForce are tables that stay without settings; zero:
	// none.
	New func(c *epoch.Clock, p *Path[T], inForce T) Counter[T]
	// Strip returns the tables that are in force before the first settings and after the last ones;
	// nil: then packets pass unchanged.
	Strip func() (T, error)
	// Every is the time between calls of Poll; 0: the role is no Poller.
	Every time.Duration
}

// Path is an agent.DataPath in the kernel. It is safe for concurrent use. Its epochs and reports
// come from the role in Go, to which it passes the counts of the programs.
type Path[T Tables] struct {
	*agent.RolePath
	cfg        Config
	spec       Spec[T]
	attachment *Attachment
	barrier    *Barrier
	wake       chan struct{}
	done       chan struct{}
	idle       sync.WaitGroup

	mu      sync.Mutex // locked after the lock of RolePath
	role    Counter[T]
	clock   *epoch.Clock
	tables  T         // nil while no programs are loaded
	applied bool      // settings are in force
	periods [2]uint64 // period of each group
	pending bool      // whether the inactive group has counts
	gaps    []gap
}

// gap is a time in which the interface had no programs, because it was deleted and created again.
type gap struct {
	from, to uint64 // epochs
	open     bool   // set while the programs are not attached yet
}

// Open returns a data path. It takes over the programs that an earlier process pinned if there are
// any.
func Open[T Tables](cfg Config, spec Spec[T]) (*Path[T], error) {
	if cfg.Interface != "" {
		if _, err := net.InterfaceByName(cfg.Interface); err != nil {
			return nil, fmt.Errorf("interface %q: %w", cfg.Interface, err)
		}
	}
	pinned := false
	if cfg.Pin != "" {
		if err := CheckPin(cfg.Pin); err != nil {
			return nil, err
		}
		pinned = hasPins(cfg.Pin)
	}
	cfg.Logger = cfg.log()
	p := &Path[T]{cfg: cfg, spec: spec, wake: make(chan struct{}, 1), done: make(chan struct{})}
	p.attachment = NewAttachment(cfg, p.changed)
	var err error
	if p.barrier, err = NewBarrier(); err != nil {
		return nil, err
	}
	p.RolePath = agent.NewRolePath(func(c *epoch.Clock) role.Role {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.role, p.clock, p.applied = spec.New(c, p, p.tables), c, false
		return p.role
	})
	if spec.Strip != nil && (cfg.AtOnce || pinned) {
		if err := p.strip(); err != nil {
			return nil, errors.Join(err, p.attachment.Close(), p.barrier.Close())
		}
	}
	p.idle.Go(p.run)
	return p, nil
}

// strip attaches the programs without settings.
func (p *Path[T]) strip() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	t, err := p.spec.Strip()
	if err != nil {
		return err
	}
	if err := p.attachment.Set(nil, t.Hooks()...); err != nil {
		return errors.Join(err, t.Close())
	}
	p.tables = t
	return nil
}

// Tables returns the tables in force; zero without any.
func (p *Path[T]) Tables() T {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tables
}

// Apply implements agent.DataPath. Settings nil end the measurement.
func (p *Path[T]) Apply(settings []byte) error {
	if err := p.RolePath.Apply(settings); err != nil || settings != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.spec.Strip != nil {
		return nil
	}
	p.cfg.Keep(nil)
	return errors.Join(p.attachment.Leave(), p.closeTables())
}

// Switch puts settings in force, and replaces the programs without a gap. The role calls it in
// Apply.
func (p *Path[T]) Switch(settings []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	t, err := p.role.Load(settings, p.tables)
	if err != nil {
		return err
	}
	kept := t == p.tables
	if !kept {
		if err := p.attachment.Set(nil, t.Hooks()...); err != nil {
			return errors.Join(err, t.Close())
		}
	} else if p.applied { // counts of the earlier settings are dropped
		p.flip(p.period())
		p.collect()
	}
	if err := p.role.Measure(settings); err != nil { // Load would have failed
		return err
	}
	if !kept {
		err = p.closeTables()
	}
	p.tables, p.applied, p.pending = t, true, kept
	p.periods = [2]uint64{p.period(), p.period()}
	p.collect()
	p.cfg.Keep(settings)
	return err
}

func (p *Path[T]) period() uint64 { return p.role.Period(p.clock.Current()) }

func (p *Path[T]) active() uint32 { return atomic.LoadUint32(p.tables.Active()) & 1 }

// Advance implements agent.DataPath.
func (p *Path[T]) Advance(epoch uint64) bool {
	advanced := p.RolePath.Advance(epoch)
	if advanced {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.exchange()
	}
	return advanced
}

// exchange gives the programs the other group if a period has ended. p.mu is held.
func (p *Path[T]) exchange() {
	if !p.applied {
		return
	}
	now := p.period()
	if p.periods[p.active()] == now {
		return
	}
	p.collect() // the period before, if run has not collected it yet
	p.flip(now)
	p.role.Begin(now)
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// flip makes the programs count in the other group. p.mu is held.
func (p *Path[T]) flip(period uint64) {
	to := p.active() ^ 1
	p.periods[to], p.pending = period, true
	atomic.StoreUint32(p.tables.Active(), to)
}

// collect passes the counts of the inactive group to the role. The caller holds p.mu.
func (p *Path[T]) collect() {
	if !p.pending {
		return
	}
	p.pending = false
	group := p.active() ^ 1
	err := p.barrier.Wait()
	if err = errors.Join(err, p.role.Collect(p.tables, group, p.periods)); err != nil {
		p.cfg.Logger.Error("what was counted cannot be read from the maps", "role", p.cfg.Role, "interface",
			p.cfg.Interface, "period", p.periods[group], "error", err)
	}
}

// poll reads maps in the middle of a period. p.mu is held.
func (p *Path[T]) poll() {
	var none T
	poller, ok := p.role.(Poller[T])
	if !ok || p.tables == none || !p.applied {
		return
	}
	if err := poller.Poll(p.tables, p.periods); err != nil {
		p.cfg.Logger.Error("the maps cannot be read", "role", p.cfg.Role, "interface", p.cfg.Interface, "error", err)
	}
}

// run collects periods, so that Advance does not wait for it, and polls.
func (p *Path[T]) run() {
	var poll <-chan time.Time
	if p.spec.Every > 0 {
		t := time.NewTicker(p.spec.Every)
		defer t.Stop()
		poll = t.C
	}
	for {
		select {
		case <-p.done:
			return
		case <-p.wake:
			p.mu.Lock()
			p.collect()
			p.mu.Unlock()
		case <-poll:
			p.mu.Lock()
			p.poll()
			p.mu.Unlock()
		}
	}
}

// Finish passes all counts until now to the role: the periods that have ended, and polled counts.
// It calls f before the role changes again.
func (p *Path[T]) Finish(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.exchange()
	p.collect()
	p.poll()
	f()
}

// changed is called when the interface has gone, and when it is there again.
func (p *Path[T]) changed(attached bool) {
	now := p.Epoch()
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.gaps) - 1
	if attached && last >= 0 {
		p.gaps[last].to, p.gaps[last].open = now, false
	} else if !attached {
		p.gaps = append(p.gaps, gap{from: now, open: true})
		p.gaps = p.gaps[max(0, len(p.gaps)-maxGaps):]
	}
}

// Seal implements agent.DataPath. An epoch in which the interface had no programs for a time has no
// report.
func (p *Path[T]) Seal(e uint64) (role.Report, error) {
	r, err := p.RolePath.Seal(e)
	if err != nil || r == nil {
		return r, err
	}
	p.mu.Lock()
	gaps := slices.Clone(p.gaps)
	p.mu.Unlock()
	for _, g := range gaps {
		if e >= g.from && (g.open || e <= g.to) {
			r.Release()
			return nil, fmt.Errorf("interface %s was deleted in epoch %d: packets passed without being counted",
				p.cfg.Interface, g.from)
		}
	}
	return r, nil
}

// Close implements agent.DataPath. Pinned programs go on.
func (p *Path[T]) Close() error {
	close(p.done)
	p.idle.Wait()
	err := p.attachment.Close() // without p.mu, because changed takes it
	p.mu.Lock()
	defer p.mu.Unlock()
	return errors.Join(err, p.closeTables(), p.barrier.Close())
}

// closeTables ends the use of the tables. p.mu is held.
func (p *Path[T]) closeTables() error {
	var none T
	p.applied, p.pending = false, false
	if p.tables == none {
		return nil
	}
	err := p.tables.Close()
	p.tables = none
	return err
}
