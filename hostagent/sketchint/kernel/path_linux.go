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

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/netsketch/netsketch/hostagent/agent"
	"github.com/netsketch/netsketch/hostagent/epoch"
	hostkernel "github.com/netsketch/netsketch/hostagent/kernel"
	"github.com/netsketch/netsketch/hostagent/role"
	"github.com/netsketch/netsketch/hostagent/sketchint"
	"github.com/netsketch/netsketch/hostagent/sketchint/wire"
)

// pinnedLink is the name of the link below Config.Pin.
const pinnedLink = "receive"

// Path is an agent.DataPath in the kernel. It is safe for concurrent use. Its epochs, intervals and
// reports are those of the role in Go, to which it brings what the kernel measured.
type Path struct {
	*agent.RolePath
	cfg  Config
	wake chan struct{}
	done chan struct{}
	idle sync.WaitGroup

	mu     sync.Mutex
	link   link.Link
	tables *tables // nil without settings
}

var _ agent.DataPath = (*Path)(nil)

// kernelRole is the role in Go, whose packets the kernel measures.
type kernelRole struct {
	*sketchint.Role
	clock *epoch.Clock
	path  *Path
}

// Open returns a data path. It takes over the link that an earlier process pinned if there is one.
func Open(cfg Config) (*Path, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	p := &Path{cfg: cfg, wake: make(chan struct{}, 1), done: make(chan struct{})}
	if cfg.Pin != "" {
		if err := p.adopt(); err != nil {
			return nil, err
		}
	}
	p.RolePath = agent.NewRolePath(func(c *epoch.Clock) role.Role {
		return &kernelRole{Role: sketchint.New(c), clock: c, path: p}
	})
	p.idle.Go(p.run)
	return p, nil
}

// adopt opens the pinned link.
func (p *Path) adopt() error {
	if err := hostkernel.CheckPin(p.cfg.Pin); err != nil {
		return err
	}
	i, err := net.InterfaceByName(p.cfg.Interface)
	if err != nil {
		return fmt.Errorf("interface %s: %w", p.cfg.Interface, err)
	}
	l, err := hostkernel.Adopt(p.cfg.Pin, pinnedLink, i)
	switch {
	case err == nil:
		p.link = l
		p.cfg.Logger.Info("the program in the kernel has removed INT without an agent; measurement begins again "+
			"with the next settings", "interface", i.Name)
	case errors.Is(err, hostkernel.ErrGone):
		p.cfg.Logger.Warn("the interface of the pinned program is gone; it is attached again", "interface", i.Name)
	case !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("pin %s: %w", p.cfg.Pin, err)
	}
	return nil
}

// Apply implements agent.DataPath. Settings nil end the measurement: packets pass unchanged.
func (p *Path) Apply(settings []byte) error {
	if err := p.RolePath.Apply(settings); err != nil || settings != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.detach()
}

// Apply implements role.Role. The program is replaced without a gap, and begins with empty maps.
func (r *kernelRole) Apply(data []byte) error {
	s, err := wire.ParseSettings(data)
	if err != nil {
		return err
	}
	if err := supports(s); err != nil {
		return fmt.Errorf("settings of role %s: %w", wire.Role, err)
	}
	p := r.path
	p.mu.Lock()
	defer p.mu.Unlock()
	t, err := load(s)
	if err != nil {
		return err
	}
	if err := p.attach(t.program); err != nil {
		t.close()
		return err
	}
	if err := r.Role.Apply(data); err != nil { // load would have failed
		t.close()
		return err
	}
	if p.tables != nil {
		p.tables.close()
	}
	t.role, t.interval = r, r.clock.Current()/s.Interval
	p.tables = t
	return nil
}

// attach makes the interface run a program.
func (p *Path) attach(prog *ebpf.Program) error {
	if p.cfg.Interface == "" {
		return nil
	}
	if p.link != nil {
		return p.link.Update(prog)
	}
	i, err := net.InterfaceByName(p.cfg.Interface)
	if err != nil {
		return fmt.Errorf("interface %s: %w", p.cfg.Interface, err)
	}
	l, err := hostkernel.AttachXDP(prog, i, p.cfg.Generic, p.cfg.Logger)
	if err != nil {
		return fmt.Errorf("program receive on %s: %w", i.Name, err)
	}
	if p.cfg.Pin != "" {
		if err := hostkernel.Pin(l, p.cfg.Pin, pinnedLink); err != nil {
			return errors.Join(fmt.Errorf("pin %s: %w", p.cfg.Pin, err), l.Close())
		}
	}
	p.link = l
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

// exchange gives the programs the other group if an interval has ended. p.mu is held.
func (p *Path) exchange() {
	t := p.tables
	if t == nil {
		return
	}
	now := t.role.clock.Current() / t.settings.Interval
	if now == t.interval {
		return
	}
	p.collect() // of the interval before, if run has not collected it yet
	atomic.StoreUint32(&t.control.Active, t.control.Active^1)
	t.ended, t.pending, t.interval = t.interval, true, now
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// collect brings an interval that has ended to the role. p.mu is held.
func (p *Path) collect() {
	t := p.tables
	if t == nil || !t.pending {
		return
	}
	t.pending = false
	group := t.control.Active ^ 1
	err := t.barrier.Wait()
	if err == nil && len(t.used(group)) > 0 {
		err = t.role.Keep(t.ended, func(r *wire.Report) error { return t.read(group, r) })
	}
	if err = errors.Join(err, t.clear(group)); err != nil {
		p.cfg.Logger.Error("an interval cannot be read from SketchINT's maps", "interface", p.cfg.Interface,
			"interval", t.ended, "error", err)
	}
}

// run collects intervals, so that Advance does not wait for it.
func (p *Path) run() {
	for {
		select {
		case <-p.done:
			return
		case <-p.wake:
			p.mu.Lock()
			p.collect()
			p.mu.Unlock()
		}
	}
}

// Seal implements role.Role.
func (r *kernelRole) Seal(e uint64) role.Report {
	r.path.mu.Lock()
	r.path.exchange()
	r.path.collect()
	r.path.mu.Unlock()
	return r.Role.Seal(e)
}

// Close implements agent.DataPath. A pinned program goes on.
func (p *Path) Close() error {
	close(p.done)
	p.idle.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cfg.Pin == "" {
		return p.detach()
	}
	if p.tables != nil {
		p.tables.close()
		p.tables = nil
	}
	if p.link != nil {
		return p.link.Close()
	}
	return nil
}

// detach ends the program and removes the maps. p.mu is held.
func (p *Path) detach() error {
	var errs []error
	if p.link != nil {
		if p.cfg.Pin != "" {
			errs = append(errs, p.link.Unpin(), os.RemoveAll(p.cfg.Pin))
		}
		errs = append(errs, p.link.Close())
		p.link = nil
	}
	if p.tables != nil {
		p.tables.close()
		p.tables = nil
	}
	return errors.Join(errs...)
}
