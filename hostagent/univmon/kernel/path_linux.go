// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"github.com/netsketch/netsketch/hostagent/epoch"
	hostkernel "github.com/netsketch/netsketch/hostagent/kernel"
	"github.com/netsketch/netsketch/hostagent/role"
	"github.com/netsketch/netsketch/hostagent/univmon"
	"github.com/netsketch/netsketch/hostagent/univmon/wire"
)

// Config configures a data path. Pin is not used: the programs change no packet, and end with the
// agent.
type Config = hostkernel.Config

// Path is the data path of the role.
type Path = hostkernel.Path[*tables]

// Open returns a data path. The programs are attached with the first settings.
func Open(cfg Config) (*Path, error) {
	cfg.Role, cfg.Pin = wire.Role, ""
	return hostkernel.Open(cfg, hostkernel.Spec[*tables]{
		New: func(c *epoch.Clock, p *Path, _ *tables) hostkernel.Counter[*tables] {
			return &kernelRole{univmon.New(c), p}
		}})
}

// Check returns what would make the data path fail on this host, and warnings. Nothing remains.
func Check(cfg Config) (warnings []string, err error) {
	cfg.Pin = ""
	return cfg.Check(hostkernel.Requirements{Spec: loadUnivmon, Load: func() error {
		t, err := load(&wire.Settings{Packets: wire.Packets{Sent: true, Received: true}, Sketches: wire.Sketches()})
		if err != nil {
			return err
		}
		return t.Close()
	}})
}

// kernelRole is the role in Go, whose packets the kernel counts.
type kernelRole struct {
	*univmon.Role
	path *Path
}

// Apply implements role.Role.
func (r *kernelRole) Apply(settings []byte) error { return r.path.Switch(settings) }

// Seal implements role.Role.
func (r *kernelRole) Seal(e uint64) (report role.Report) {
	r.path.Finish(func() { report = r.Role.Seal(e) })
	return report
}

// Load implements hostkernel.Counter.
func (*kernelRole) Load(settings []byte, _ *tables) (*tables, error) {
	s, err := wire.ParseSettings(settings)
	if err != nil {
		return nil, err
	}
	return load(s)
}

// Measure implements hostkernel.Counter.
func (r *kernelRole) Measure(settings []byte) error { return r.Role.Apply(settings) }

// Period implements hostkernel.Counter.
func (*kernelRole) Period(epoch uint64) uint64 { return epoch }

// Begin implements hostkernel.Counter.
func (r *kernelRole) Begin(epoch uint64) { r.Report(epoch) }

// Collect implements hostkernel.Counter.
func (r *kernelRole) Collect(t *tables, group uint32, epochs [2]uint64) error {
	return t.collect(group, r.Report(epochs[group]))
}
