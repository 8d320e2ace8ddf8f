// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/netsketch/netsketch/hostagent/agent"
	"github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/role"
	"github.com/netsketch/netsketch/hostagent/univmon"
	"github.com/netsketch/netsketch/hostagent/univmon/wire"
)

// Path is an agent.DataPath in the kernel. It is safe for concurrent use. Its epochs and reports
// are those of the role in Go, to which it brings what the kernel counted.
type Path struct {
	*agent.RolePath
	cfg  Config
	wake chan struct{}
	done chan struct{}
	idle sync.WaitGroup

	mu     sync.Mutex // locked after that of RolePath
	role   *kernelRole
	tables *tables // nil without settings
}

var _ agent.DataPath = (*Path)(nil)

// kernelRole is the role in Go, whose packets the kernel counts.
type kernelRole struct {
	*univmon.Role
	clock *epoch.Clock
	path  *Path
}

// Open returns a data path. The programs are attached with the first settings.
func Open(cfg Config) (*Path, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	p := &Path{cfg: cfg, wake: make(chan struct{}, 1), done: make(chan struct{})}
	p.RolePath = agent.NewRolePath(func(c *epoch.Clock) role.Role {
		return &kernelRole{Role: univmon.New(c), clock: c, path: p}
	})
	p.idle.Go(p.run)
	return p, nil
}

// Apply implements agent.DataPath. Settings nil end the measurement.
func (p *Path) Apply(settings []byte) error {
	if err := p.RolePath.Apply(settings); err != nil || settings != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.detach()
}

// Apply implements role.Role.
func (r *kernelRole) Apply(data []byte) error {
	s, err := wire.ParseSettings(data)
	if err != nil {
		return err
	}
	p := r.path
	p.mu.Lock()
	defer p.mu.Unlock()
	t, err := load(s)
	if err != nil {
		return err
	}
	if err := errors.Join(t.attach(p.cfg.Interface), p.detach()); err != nil {
		return errors.Join(err, t.close())
	}
	if err := r.Role.Apply(data); err != nil { // ParseSettings would have failed
		return errors.Join(err, t.close())
	}
	t.epoch = r.clock.Current()
	p.role, p.tables = r, t
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

// exchange gives the programs the other group if an epoch has ended. p.mu is held.
func (p *Path) exchange() {
	t := p.tables
	if t == nil {
		return
	}
	now := p.role.clock.Current()
	if now == t.epoch {
		return
	}
	p.collect() // the epoch before, if run has not collected it yet
	atomic.StoreUint32(&t.control.Active, t.control.Active^1)
	t.ended, t.pending, t.epoch = t.epoch, true, now
	p.role.Report(now) // begins a report, also if no packet arrives
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// collect brings an epoch that has ended to the role. p.mu is held.
func (p *Path) collect() {
	t := p.tables
	if t == nil || !t.pending {
		return
	}
	t.pending = false
	err := t.barrier.Wait()
	if err = errors.Join(err, t.collect(t.control.Active^1, p.role.Report(t.ended))); err != nil {
		p.cfg.Logger.Error("an epoch cannot be read from UnivMon's maps", "interface", p.cfg.Interface,
			"epoch", t.ended, "error", err)
	}
}

// run collects epochs, so that Advance does not wait for it.
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
	p := r.path
	p.mu.Lock()
	defer p.mu.Unlock()
	p.exchange()
	p.collect()
	return r.Role.Seal(e)
}

// Close implements agent.DataPath. The programs end.
func (p *Path) Close() error {
	close(p.done)
	p.idle.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.detach()
}

// detach ends the programs and removes the maps. p.mu is held.
func (p *Path) detach() error {
	if p.tables == nil {
		return nil
	}
	err := p.tables.close()
	p.tables = nil
	return err
}
