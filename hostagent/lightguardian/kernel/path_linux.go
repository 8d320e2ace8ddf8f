// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/netsketch/netsketch/hostagent/epoch"
	hostkernel "github.com/netsketch/netsketch/hostagent/kernel"
	"github.com/netsketch/netsketch/hostagent/lightguardian"
	"github.com/netsketch/netsketch/hostagent/lightguardian/wire"
	"github.com/netsketch/netsketch/hostagent/role"
)

// pollSketchlets is how often map sketchlets is read, which has room for 27,000 of 94 bytes.
const pollSketchlets = 10 * time.Millisecond

// Config configures a data path.
type Config = hostkernel.Config

// Path is the data path of the role. Its programs remove sketchlets also without settings, once
// they are attached.
type Path = hostkernel.Path[*tables]

// Open returns a data path. It takes over the programs and maps that an earlier process pinned if
// there are any.
func Open(cfg Config) (*Path, error) {
	cfg.Role = wire.Role
	return hostkernel.Open(cfg, hostkernel.Spec[*tables]{
		New: func(c *epoch.Clock, p *Path, inForce *tables) hostkernel.Counter[*tables] {
			if inForce != nil {
				atomic.StoreUint32(&inForce.control.Limit, 0)
			}
			return &kernelRole{Role: lightguardian.New(c, monotonic), clock: c, path: p, pin: cfg.Pin}
		},
		Strip: func() (*tables, error) { return load(cfg.Pin) },
		Every: pollSketchlets,
	})
}

// Check returns what would make the data path fail on this host, and warnings. Nothing remains.
func Check(cfg Config) (warnings []string, err error) {
	return cfg.Check(hostkernel.Requirements{Spec: loadLightguardian, Load: func() error {
		t, err := load("")
		if err != nil {
			return err
		}
		return t.Close()
	}})
}

// Strip attaches the programs, which remove sketchlets, and leaves them to the agent that starts
// later. It needs no settings.
func Strip(cfg Config, _ []byte) error {
	t, err := load(cfg.Pin)
	if err != nil {
		return err
	}
	return errors.Join(hostkernel.Strip(cfg, t.Hooks()...), t.Close())
}

// kernelRole is the role in Go, whose packets the kernel measures.
type kernelRole struct {
	*lightguardian.Role
	clock *epoch.Clock
	path  *Path
	pin   string
	since uint64 // first epoch that is measured whole
}

// Apply implements role.Role.
func (r *kernelRole) Apply(settings []byte) error { return r.path.Switch(settings) }

// Seal implements role.Role.
func (r *kernelRole) Seal(e uint64) (report role.Report) {
	r.path.Finish(func() { report = r.Role.Seal(e) })
	return report
}

// Part implements role.Streamer.
func (r *kernelRole) Part(full bool) (e uint64, part role.Report) {
	r.path.Finish(func() { e, part = r.Role.Part(full) })
	return e, part
}

// Latest returns the results of the role in Go.
func (r *kernelRole) Latest() (s wire.Settings, report wire.Report, ok bool) {
	r.path.Finish(func() { s, report, ok = r.Role.Latest() })
	return s, report, ok
}

// Load implements hostkernel.Counter. The maps stay: with the first settings, they have the
// sketchlets that arrived without an agent.
func (r *kernelRole) Load(settings []byte, inForce *tables) (*tables, error) {
	s, err := wire.ParseSettings(settings)
	if err != nil {
		return nil, err
	}
	r.since = r.clock.Current() + 1
	t := inForce
	if t == nil {
		if t, err = load(r.pin); err != nil {
			return nil, err
		}
	}
	atomic.StoreUint32(&t.control.Limit, uint32(min(s.Flows, maxFlows)))
	return t, nil
}

// Measure implements hostkernel.Counter.
func (r *kernelRole) Measure(settings []byte) error { return r.Role.Apply(settings) }

// Period implements hostkernel.Counter.
func (*kernelRole) Period(epoch uint64) uint64 { return epoch }

// Begin implements hostkernel.Counter.
func (r *kernelRole) Begin(epoch uint64) { r.Batch(epoch) }

// batch returns the batch of an epoch, nil for an epoch that was dropped. Sketchlets of the time
// before the first whole epoch belong to the current one; whole states whether flows count.
func (r *kernelRole) batch(epoch uint64) (b *lightguardian.Batch, whole bool) {
	if whole = epoch >= r.since; !whole {
		epoch = r.clock.Current()
	}
	return r.Batch(epoch), whole
}

// Poll implements hostkernel.Poller: it passes arrived sketchlets to the role.
func (r *kernelRole) Poll(t *tables, epochs [2]uint64) error {
	var batches [groups]*lightguardian.Batch
	var whole [groups]bool
	for i, e := range epochs {
		batches[i], whole[i] = r.batch(e)
	}
	return t.drain(batches, whole)
}

// Collect implements hostkernel.Counter.
func (r *kernelRole) Collect(t *tables, group uint32, epochs [2]uint64) error {
	err := r.Poll(t, epochs)
	b, whole := r.batch(epochs[group])
	return errors.Join(err, t.collect(group, b, whole))
}
