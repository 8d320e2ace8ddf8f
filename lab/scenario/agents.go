// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/netsketch/netsketch/hostagent/agent"
	"github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/omnimon"
	"github.com/netsketch/netsketch/hostagent/omnimon/header"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/role"
	"github.com/netsketch/netsketch/lab"
)

// hostRoles creates the roles of agents, by name.
var hostRoles = map[string]func(*epoch.Clock) role.Role{
	wire.Role: func(c *epoch.Clock) role.Role { return omnimon.New(c) },
}

// header is the header that hosts insert, that of the program omnimon; nil: none.
func (s *Scenario) header() *header.Layout {
	if !slices.Contains(s.Agents, wire.Role) {
		return nil
	}
	return &header.Layout{EtherType: header.DefaultEtherType, Slots: 2}
}

// oneAddress gives each host one address of each family: an agent measures addresses, not prefixes.
func oneAddress(f *lab.Fabric) {
	for i := range f.Hosts {
		h := &f.Hosts[i]
		h.V4 = netip.PrefixFrom(h.V4.Addr().Next(), 32)
		h.V6 = netip.PrefixFrom(h.V6.Addr().Next(), 128)
	}
}

// agents are the agents of all hosts.
type agents struct {
	all    []*agent.Agent
	cancel context.CancelFunc
	work   sync.WaitGroup
	// settled is closed when all roles have settings.
	settled chan struct{}
}

// measured is the data path of a host, which states when it has settings.
type measured struct {
	*agent.RolePath
	applied func()
}

// Apply implements agent.DataPath.
func (m *measured) Apply(settings []byte) error {
	err := m.RolePath.Apply(settings)
	if err == nil {
		m.applied()
	}
	return err
}

// startAgents starts an agent on each host.
func (r *Run) startAgents(ctx context.Context) error {
	if len(r.s.Agents) == 0 {
		return nil
	}
	var running context.Context
	running, r.agents.cancel = context.WithCancel(context.WithoutCancel(ctx))
	var settled sync.WaitGroup
	for i, h := range r.net.Fabric().Hosts {
		cfg := agent.Config{Address: r.col.AgentsAddress(), Host: h.Name, Version: r.o.Version, BootID: h.Name}
		var paths []lab.HostPath
		for _, name := range r.s.Agents {
			settled.Add(1)
			m := &measured{agent.NewRolePath(hostRoles[name]), sync.OnceFunc(settled.Done)}
			cfg.DataPaths, paths = append(cfg.DataPaths, m), append(paths, m)
		}
		deps := agent.Dependencies{Logger: r.o.Logger.With("host", h.Name)}
		if r.virtual != nil {
			deps.Clock = r.virtual
		}
		a, err := agent.New(cfg, deps)
		if err != nil {
			return fmt.Errorf("scenario: host %s: %w", h.Name, err)
		}
		r.net.SetHostPath(i, paths[0])
		r.agents.all = append(r.agents.all, a)
		r.agents.work.Go(func() { _ = a.Run(running) }) // returns nil when it is stopped
	}
	r.agents.settled = make(chan struct{})
	go func() { settled.Wait(); close(r.agents.settled) }()
	return nil
}

// wait waits until all roles have settings, which agents receive when epochs have begun.
func (a *agents) wait(ctx context.Context) error {
	if a.cancel == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	select {
	case <-a.settled:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("scenario: not all agents have settings after %v: %v", readyLimit, a.errors())
	}
}

// errors lists the last errors of agents.
func (a *agents) errors() (out []string) {
	for _, x := range a.all {
		if e := x.Status().LastError; e != "" && !slices.Contains(out, e) {
			out = append(out, e)
		}
	}
	return out
}

// tick advances the epochs of all hosts by their clocks, after a virtual clock has moved, and waits
// until all are in an epoch.
func (a *agents) tick(ctx context.Context, number uint64) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	for _, x := range a.all {
		for x.Tick(); x.Status().Epoch < number; x.Tick() { // the first one comes from the collector
			select {
			case <-ctx.Done():
				return fmt.Errorf("scenario: an agent is in epoch %d instead of %d after %v: %v", x.Status().Epoch, number,
					readyLimit, a.errors())
			case <-time.After(time.Millisecond):
			}
		}
	}
	return nil
}

func (a *agents) stop() {
	if a.cancel != nil {
		a.cancel()
		a.work.Wait()
	}
}
