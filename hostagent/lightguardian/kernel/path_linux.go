// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/netsketch/netsketch/hostagent/agent"
	"github.com/netsketch/netsketch/hostagent/epoch"
	hostkernel "github.com/netsketch/netsketch/hostagent/kernel"
	"github.com/netsketch/netsketch/hostagent/lightguardian"
	"github.com/netsketch/netsketch/hostagent/lightguardian/wire"
	"github.com/netsketch/netsketch/hostagent/role"
)

// Names of the links below Config.Pin.
const (
	pinnedReceive = "receive"
	pinnedSend    = "send"
)

// pollSketchlets is how often map sketchlets is read, which has room for 27,000 of 94 bytes.
const pollSketchlets = 10 * time.Millisecond

// Path is an agent.DataPath in the kernel. It is safe for concurrent use. Its epochs and reports
// are those of the role in Go, to which it brings what the kernel measured.
type Path struct {
	*agent.RolePath
	cfg  Config
	wake chan struct{}
	done chan struct{}
	idle sync.WaitGroup

	mu            sync.Mutex // locked after that of RolePath
	receive, send link.Link
	tables        *tables
	role          *kernelRole
	groups        [groups]group
	pending       bool // the group that is not active has counts
}

// group is what a group of maps counts.
type group struct {
	epoch uint64
	whole bool // false: the time before the first epoch that is reported
}

var _ agent.DataPath = (*Path)(nil)

// kernelRole is the role in Go, whose packets the kernel measures.
type kernelRole struct {
	*lightguardian.Role
	clock   *epoch.Clock
	path    *Path
	applied bool // settings are in force
}

// Open returns a data path. It takes over the programs and maps that an earlier process pinned if
// there are any.
func Open(cfg Config) (*Path, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	p := &Path{cfg: cfg, wake: make(chan struct{}, 1), done: make(chan struct{})}
	pinned := false
	if cfg.Pin != "" {
		var err error
		if pinned, err = p.adopt(); err != nil {
			return nil, err
		}
	}
	p.RolePath = agent.NewRolePath(func(c *epoch.Clock) role.Role {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.role, p.groups = &kernelRole{Role: lightguardian.New(c), clock: c, path: p}, [groups]group{}
		if p.tables != nil {
			atomic.StoreUint32(&p.tables.control.Limit, 0)
		}
		return p.role
	})
	if cfg.AtOnce || pinned {
		p.mu.Lock()
		err := p.start()
		p.mu.Unlock()
		if err != nil {
			return nil, errors.Join(err, p.closeLinks())
		}
	}
	p.idle.Go(p.run)
	return p, nil
}

// adopt opens the pinned links, and reports whether there is one.
func (p *Path) adopt() (found bool, err error) {
	if err := hostkernel.CheckPin(p.cfg.Pin); err != nil {
		return false, err
	}
	i, err := net.InterfaceByName(p.cfg.Interface)
	if err != nil {
		return false, fmt.Errorf("interface %s: %w", p.cfg.Interface, err)
	}
	for name, to := range map[string]*link.Link{pinnedReceive: &p.receive, pinnedSend: &p.send} {
		l, err := hostkernel.Adopt(p.cfg.Pin, name, i)
		switch {
		case err == nil:
			*to = l
			found = true
		case errors.Is(err, hostkernel.ErrGone):
			p.cfg.Logger.Warn("the interface of a pinned program is gone; it is attached again", "interface", i.Name,
				"program", name)
			found = true
		case !errors.Is(err, os.ErrNotExist):
			return false, errors.Join(fmt.Errorf("pin %s: %w", p.cfg.Pin, err), p.closeLinks())
		}
	}
	return found, nil
}

// start loads the programs and attaches them, without a gap if others are attached. p.mu is held.
func (p *Path) start() error {
	if p.tables != nil {
		return nil
	}
	t, err := load(p.cfg.Pin)
	if err != nil {
		return err
	}
	if err := p.attach(t); err != nil {
		t.close()
		return err
	}
	p.tables = t
	return nil
}

// attach makes the interface run the programs.
func (p *Path) attach(t *tables) error {
	if p.cfg.Interface == "" {
		return nil
	}
	i, err := net.InterfaceByName(p.cfg.Interface)
	if err != nil {
		return fmt.Errorf("interface %s: %w", p.cfg.Interface, err)
	}
	err = p.put(&p.receive, pinnedReceive, t.receive, func() (link.Link, error) {
		return hostkernel.AttachXDP(t.receive, i, p.cfg.Generic, p.cfg.Logger)
	})
	if err != nil {
		return fmt.Errorf("program receive on %s: %w", i.Name, err)
	}
	err = p.put(&p.send, pinnedSend, t.send, func() (link.Link, error) {
		return link.AttachTCX(link.TCXOptions{Program: t.send, Interface: i.Index, Attach: ebpf.AttachTCXEgress})
	})
	if errors.Is(err, ebpf.ErrNotSupported) {
		p.cfg.Logger.Warn("sent packets are not counted: the kernel has no TCX (Linux 6.6)", "interface", i.Name)
		return nil
	}
	if err != nil {
		return fmt.Errorf("program send on %s: %w", i.Name, err)
	}
	return nil
}

// put replaces the program of a link, or makes and pins the link.
func (p *Path) put(l *link.Link, name string, prog *ebpf.Program, attach func() (link.Link, error)) error {
	if *l != nil {
		return (*l).Update(prog)
	}
	made, err := attach()
	if err != nil {
		return err
	}
	if p.cfg.Pin != "" {
		if err := hostkernel.Pin(made, p.cfg.Pin, name); err != nil {
			return errors.Join(fmt.Errorf("pin %s: %w", p.cfg.Pin, err), made.Close())
		}
	}
	*l = made
	return nil
}

// Apply implements role.Role. The first settings of a path that was adopted find in the maps what
// arrived without an agent.
func (r *kernelRole) Apply(data []byte) error {
	s, err := wire.ParseSettings(data)
	if err != nil {
		return err
	}
	p := r.path
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.start(); err != nil {
		return err
	}
	if r.applied { // what the settings before measured is dropped with their batches
		p.flip(group{})
		p.collect()
	}
	if err := r.Role.Apply(data); err != nil { // ParseSettings would have failed
		return err
	}
	r.applied, p.groups, p.pending = true, [groups]group{}, true
	p.collect()
	atomic.StoreUint32(&p.tables.control.Limit, uint32(min(s.Flows, maxFlows)))
	return nil
}

// Advance implements agent.DataPath.
func (p *Path) Advance(epoch uint64) bool {
	advanced := p.RolePath.Advance(epoch)
	if advanced {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.exchange()
	}
	return advanced
}

func (p *Path) active() uint32 { return p.tables.control.Active & (groups - 1) }

// exchange gives the programs the other group if an epoch has ended. p.mu is held.
func (p *Path) exchange() {
	if !p.role.applied {
		return
	}
	next := group{epoch: p.role.clock.Current(), whole: true}
	if p.groups[p.active()] == next {
		return
	}
	p.collect() // the epoch before, if run has not collected it yet
	p.flip(next)
	p.role.Batch(next.epoch) // begins a batch, also if no packet arrives
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// flip gives the programs the other group. p.mu is held.
func (p *Path) flip(next group) {
	to := p.active() ^ 1
	p.groups[to], p.pending = next, true
	atomic.StoreUint32(&p.tables.control.Active, to)
}

// batches returns the batches of the groups, nil for an epoch that was dropped.
func (p *Path) batches() (b [groups]*lightguardian.Batch, whole [groups]bool) {
	for i, g := range p.groups {
		e := g.epoch
		if !g.whole {
			e = p.role.clock.Current()
		}
		b[i], whole[i] = p.role.Batch(e), g.whole
	}
	return b, whole
}

// drain brings the sketchlets that have arrived to the role. p.mu is held.
func (p *Path) drain() {
	if p.tables == nil || !p.role.applied {
		return
	}
	if err := p.tables.drain(p.batches()); err != nil {
		p.cfg.Logger.Error("sketchlets cannot be read", "interface", p.cfg.Interface, "error", err)
	}
}

// collect brings what the group that is not active has counted to the role. p.mu is held.
func (p *Path) collect() {
	if !p.pending {
		return
	}
	p.pending = false
	err := p.tables.barrier.Wait()
	p.drain()
	b, whole := p.batches()
	ended := p.active() ^ 1
	if err = errors.Join(err, p.tables.collect(ended, b[ended], whole[ended])); err != nil {
		p.cfg.Logger.Error("the counts of an epoch cannot be read", "interface", p.cfg.Interface, "error", err)
	}
}

// run reads sketchlets, and collects epochs, so that Advance does not wait for it.
func (p *Path) run() {
	poll := time.NewTicker(pollSketchlets)
	defer poll.Stop()
	for {
		select {
		case <-p.done:
			return
		case <-p.wake:
			p.mu.Lock()
			p.collect()
			p.mu.Unlock()
		case <-poll.C:
			p.mu.Lock()
			p.drain()
			p.mu.Unlock()
		}
	}
}

// Seal implements role.Role.
func (r *kernelRole) Seal(e uint64) role.Report {
	p := r.path
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.applied {
		p.exchange()
		p.collect()
	}
	return r.Role.Seal(e)
}

// Part implements role.Streamer.
func (r *kernelRole) Part(full bool) (e uint64, part role.Report) {
	p := r.path
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drain()
	return r.Role.Part(full)
}

// Latest returns what the role in Go returns.
func (r *kernelRole) Latest() (s wire.Settings, report wire.Report, ok bool) {
	r.path.mu.Lock()
	defer r.path.mu.Unlock()
	return r.Role.Latest()
}

// Close implements agent.DataPath. Pinned programs go on.
func (p *Path) Close() error {
	close(p.done)
	p.idle.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.closeLinks()
	if p.tables != nil {
		p.tables.close()
		p.tables = nil
	}
	return err
}

// closeLinks ends the use of the links. Those that are not pinned end.
func (p *Path) closeLinks() error {
	var errs []error
	for _, l := range []link.Link{p.receive, p.send} {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	return errors.Join(errs...)
}
