// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"errors"
	"fmt"
	"slices"

	"github.com/netsketch/netsketch/hostagent/epoch"
	hostkernel "github.com/netsketch/netsketch/hostagent/kernel"
	"github.com/netsketch/netsketch/hostagent/role"
	"github.com/netsketch/netsketch/hostagent/sketchint"
	"github.com/netsketch/netsketch/hostagent/sketchint/wire"
)

// Config configures a data path.
type Config = hostkernel.Config

// Path is the data path of the role. New settings replace the program without a gap, and begin with
// empty maps.
type Path = hostkernel.Path[*tables]

// Open returns a data path. It takes over the program that an earlier process pinned if there is
// one.
func Open(cfg Config) (*Path, error) {
	cfg.Role = wire.Role
	return hostkernel.Open(cfg, hostkernel.Spec[*tables]{
		New: func(c *epoch.Clock, p *Path, _ *tables) hostkernel.Counter[*tables] {
			return &kernelRole{Role: sketchint.New(c), path: p, cfg: cfg}
		}})
}

// Check returns what would make the data path fail on this host, and warnings. Nothing remains.
func Check(cfg Config) (warnings []string, err error) {
	return cfg.Check(hostkernel.Requirements{Spec: loadSketchint, Load: func() error {
		s := &wire.Settings{Interval: 1, Flows: 1 << 10, Latencies: 1 << 10, Heavy: 1, Inflation: 1}
		t, err := load(s, comesFirst(cfg, s))
		if err != nil {
			return err
		}
		return t.Close()
	}})
}

// comesFirst reports whether the program must see packets before the kernel does, at XDP. At TC,
// the kernel may have merged UDP packets that each have INT, for a socket that requests merging;
// and only XDP can replace the Ethernet header of a packet, as INT in GRE may need. A tap device
// brings super-packets of a virtual machine, which XDP cannot count.
func comesFirst(cfg Config, s *wire.Settings) bool {
	features, err := hostkernel.Features(cfg.Interface)
	merges := err == nil && hostkernel.Driver(cfg.Interface) != "tun" &&
		slices.ContainsFunc(features, func(name string) bool { return name == "rx-gro" || name == "rx-lro" })
	return cfg.Generic || s.Marks.GRE != 0 || merges
}

// Strip attaches the program, which removes INT, and leaves it to the agent that starts later.
// Without settings, nothing states how INT is marked, and nothing is attached.
func Strip(cfg Config, settings []byte) error {
	if settings == nil {
		return nil
	}
	s, err := wire.ParseSettings(settings)
	if err != nil {
		return err
	}
	s.Flows, s.Latencies = 1<<10, 1<<10
	t, err := load(s, comesFirst(cfg, s))
	if err != nil {
		return err
	}
	return errors.Join(hostkernel.Strip(cfg, t.Hooks()...), t.Close())
}

// kernelRole is the role in Go, whose packets the kernel measures.
type kernelRole struct {
	*sketchint.Role
	path     *Path
	cfg      Config
	interval uint64 // epochs of an interval
}

// Apply implements role.Role.
func (r *kernelRole) Apply(settings []byte) error { return r.path.Switch(settings) }

// Seal implements role.Role.
func (r *kernelRole) Seal(e uint64) (report role.Report) {
	r.path.Finish(func() { report = r.Role.Seal(e) })
	return report
}

// Load implements hostkernel.Counter.
func (r *kernelRole) Load(settings []byte, _ *tables) (*tables, error) {
	s, err := wire.ParseSettings(settings)
	if err != nil {
		return nil, err
	}
	if err := supports(s); err != nil {
		return nil, fmt.Errorf("settings of role %s: %w", wire.Role, err)
	}
	return load(s, comesFirst(r.cfg, s))
}

// Measure implements hostkernel.Counter.
func (r *kernelRole) Measure(settings []byte) error {
	s, err := wire.ParseSettings(settings)
	if err == nil {
		r.interval = s.Interval
		err = r.Role.Apply(settings)
	}
	return err
}

// Period implements hostkernel.Counter: a period is an interval.
func (r *kernelRole) Period(epoch uint64) uint64 { return epoch / r.interval }

// Begin implements hostkernel.Counter. An interval without packets has no report.
func (*kernelRole) Begin(uint64) {}

// Collect implements hostkernel.Counter.
func (r *kernelRole) Collect(t *tables, group uint32, intervals [2]uint64) (err error) {
	if len(t.used(group)) > 0 {
		err = r.Keep(intervals[group], func(report *wire.Report) ([]sketchint.Cached, error) {
			return t.read(group, report)
		})
	}
	return errors.Join(err, t.clear(group))
}

// maxSourceOnly is the count of rows of Marks.SourceOnly that the program has room for.
const maxSourceOnly = 8

// supports returns why the program cannot apply settings.
func supports(s *wire.Settings) error {
	var errs []error
	if s.Conservative {
		errs = append(errs, errors.New("conservative: the kernel has CM insertion only; "+
			"set it to false, or use packets.source: bridge"))
	}
	if n := len(s.Marks.SourceOnly); n > maxSourceOnly {
		errs = append(errs, fmt.Errorf("sourceOnly: %d rows; the kernel has room for %d", n, maxSourceOnly))
	}
	return errors.Join(errs...)
}
