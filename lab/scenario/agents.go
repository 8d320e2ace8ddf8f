// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/hostagent/agent"
	hostepoch "github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/lightguardian"
	lgwire "github.com/netsketch/netsketch/hostagent/lightguardian/wire"
	"github.com/netsketch/netsketch/hostagent/omnimon"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/hostagent/role"
	"github.com/netsketch/netsketch/hostagent/role/remote"
	"github.com/netsketch/netsketch/hostagent/sketchint"
	intwire "github.com/netsketch/netsketch/hostagent/sketchint/wire"
	"github.com/netsketch/netsketch/hostagent/univmon"
	umwire "github.com/netsketch/netsketch/hostagent/univmon/wire"
	"github.com/netsketch/netsketch/lab"
)

// hostRoles creates the roles of agents, by name, with the clock of the host.
var hostRoles = map[string]func(*hostepoch.Clock, func() time.Duration) role.Role{
	wire.Role:    func(c *hostepoch.Clock, now func() time.Duration) role.Role { return omnimon.New(c, now) },
	intwire.Role: func(c *hostepoch.Clock, _ func() time.Duration) role.Role { return sketchint.New(c) },
	lgwire.Role:  func(c *hostepoch.Clock, now func() time.Duration) role.Role { return lightguardian.New(c, now) },
	umwire.Role:  func(c *hostepoch.Clock, _ func() time.Duration) role.Role { return univmon.New(c) },
}

// hostMTU is the MTU of hosts' interfaces: packets of 1,500 bytes have room for any carrier.
const hostMTU = 1600

// noLink returns the link layer of a host's frames, with zero addresses: routers set them.
func noLink(netip.Addr) []byte { return make([]byte, 12) }

// oneAddress gives each host one address of each family: an agent measures addresses, not prefixes.
func oneAddress(f *lab.Fabric) {
	for i := range f.Hosts {
		h := &f.Hosts[i]
		h.V4 = netip.PrefixFrom(h.V4.Addr().Next(), 32)
		h.V6 = netip.PrefixFrom(h.V6.Addr().Next(), 128)
	}
}

// isAgentFile reports whether a role is named by the file of an agent's program.
func isAgentFile(name string) bool { return strings.ContainsRune(name, '/') }

// agents are the agents of all hosts.
type agents struct {
	running  context.Context
	cancel   context.CancelFunc
	limit    time.Duration         // bounds each wait except the wait for settings, in real time
	patience time.Duration         // in real time: how long the agents wait until one more role has settings
	all      []*hostAgent          // agents in the order of the fabric's hosts
	names    []string              // of the roles, in the order of Scenario.Agents
	failed   atomic.Pointer[error] // why a program of agents has ended
}

func (a *agents) fail(err error) { a.failed.CompareAndSwap(nil, &err) }

// failure returns why a program of agents has ended, or nil.
func (a *agents) failure() error {
	if err := a.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// hostAgent is the agent of one host.
type hostAgent struct {
	*agent.Agent
	clock *hostClock
	stop  context.CancelFunc
	// Whether the agent gets no settings, because another host receives the reports of its packets.
	idle  bool
	roles map[string]chan struct{} // closed when the role has settings
	ended chan struct{}            // closed when the agent has ended
}

// hostClock is the clock of a host, which may be wrong.
type hostClock struct {
	agent.Clock
	offset atomic.Int64 // nanoseconds by which the host's clock is ahead
}

// Now implements agent.Clock.
func (c *hostClock) Now() time.Time { return c.Clock.Now().Add(time.Duration(c.offset.Load())) }

// measured is the data path of a host, which signals when it has settings.
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

// chain has the data paths of a host's roles, beginning with the path next to the network.
type chain []lab.HostPath

// In implements lab.HostPath.
func (c chain) In(frames []*packet.Frame) {
	for _, p := range c {
		p.In(frames)
	}
}

// Out implements lab.HostPath.
func (c chain) Out(frames []*packet.Frame) {
	for _, p := range slices.Backward(c) {
		p.Out(frames)
	}
}

// Epoch implements lab.HostPath.
func (c chain) Epoch() uint64 { return c[len(c)-1].Epoch() }

// receiver is the data path of a host that receives telemetry reports.
type receiver struct {
	lab.HostPath
	path *agent.RolePath
}

// In implements lab.HostPath: the agent receives reports and no packets.
func (r *receiver) In(frames []*packet.Frame) {
	for _, f := range frames {
		link, err := packet.ParseLink(f.Bytes())
		if err != nil {
			continue
		}
		var ip packet.IP
		if ip.Parse(link.Type, f.Bytes()[link.TypeAt+2:]) == nil && ip.Key.Proto == packet.ProtocolUDP &&
			ip.Key.DstPort == reportPort {
			r.path.Receive([]role.Datagram{{From: ip.Key.SrcAddr(), Payload: ip.Payload}})
		}
	}
}

// reportPort is the UDP port of telemetry reports.
const reportPort = 32766

// startAgents starts an agent on each host.
func (r *Run) startAgents(ctx context.Context) error {
	if len(r.s.Agents) == 0 {
		return nil
	}
	a := &r.agents
	a.limit, a.patience = r.readyLimit(), 30*time.Second
	a.running, a.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for i := range r.net.Fabric().Hosts {
		var base agent.Clock = epoch.Wall{}
		if r.virtual != nil {
			base = r.virtual
		}
		idle := r.s.Receiver != "" && r.net.Fabric().Hosts[i].Name != r.s.Receiver
		a.all = append(a.all, &hostAgent{clock: &hostClock{Clock: base}, idle: idle})
		if err := r.startAgent(i); err != nil {
			return err
		}
	}
	return r.s.checkRoles(r.agents.names, r.col.HostRoles())
}

// checkRoles returns which of the agents' roles no plugin has settings for. names are the roles'
// names in the order of Agents.
func (s *Scenario) checkRoles(names, set []string) error {
	var errs []error
	for i, name := range names {
		if !slices.Contains(set, name) {
			errs = append(errs, s.section.Problem(fmt.Sprintf("agents[%d]", i), fmt.Sprintf("no plugin has settings for the "+
				"role %q of %s, so that it would measure nothing; plugins have settings for %s. A plugin sends them with "+
				"the plan that Configure returns (Settings.Plan.Hosts)", name, s.Agents[i],
				cmp.Or(strings.Join(set, ", "), "no role"))))
		}
	}
	return errors.Join(errs...)
}

// startAgent starts the agent of host i.
func (r *Run) startAgent(i int) error {
	a, h := r.agents.all[i], r.net.Fabric().Hosts[i]
	cfg := agent.Config{Address: r.col.AgentsAddress(), Host: h.Name, Version: r.o.Version, BootID: h.Name}
	var paths []lab.HostPath
	a.roles = map[string]chan struct{}{}
	for _, name := range r.s.Agents {
		applied := func() {}
		if !a.idle {
			settled := make(chan struct{})
			a.roles[name], applied = settled, sync.OnceFunc(func() { close(settled) })
		}
		end := func() {} // ends the program before, when the role starts anew
		create := func(c *hostepoch.Clock) role.Role {
			if isAgentFile(name) {
				end()
				var ctx context.Context
				ctx, end = context.WithCancel(r.agents.running)
				return remote.Start(ctx, r.s.at(name), c, r.agents.fail)
			}
			x := hostRoles[name](c, r.monotonic)
			if l, ok := x.(role.Leaser); ok {
				l.NeedLeases(hostMTU, noLink)
			}
			return x
		}
		m := &measured{agent.NewRolePath(create), applied}
		if len(r.agents.names) < len(r.s.Agents) {
			r.agents.names = append(r.agents.names, m.Role())
		}
		m.OnTransmit(func(frame []byte) { r.net.Transmit(i, frame) })
		cfg.DataPaths, paths = append(cfg.DataPaths, m), append(paths, m)
	}
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], r.s.Seed)
	binary.LittleEndian.PutUint64(seed[8:], uint64(i))
	cfg.Leases.Random = rand.NewChaCha8(seed)
	x, err := agent.New(cfg, agent.Dependencies{Logger: r.o.Logger.With("host", h.Name), Clock: a.clock,
		After: r.net.After})
	if err != nil {
		return fmt.Errorf("scenario: host %s: %w", h.Name, err)
	}
	if h.Name == r.s.Receiver {
		paths[0] = &receiver{paths[0], paths[0].(*measured).RolePath}
	}
	r.net.SetHostPath(i, chain(paths))
	if err := r.agents.failure(); err != nil {
		return fmt.Errorf("scenario: host %s: %w", h.Name, err)
	}
	var ctx context.Context
	ctx, a.stop = context.WithCancel(r.agents.running)
	ended := make(chan struct{})
	a.Agent, a.ended = x, ended
	go func() {
		defer close(ended)
		_ = x.Run(ctx) // Run returns nil when it is stopped
		x.Close()
	}()
	return nil
}

// monotonic is the time since the start of the run.
func (r *Run) monotonic() time.Duration { return r.net.Clock().Now() }

// decided reports whether there is a decision on each lease of all hosts.
func (a *agents) decided() bool {
	return !slices.ContainsFunc(a.all, func(x *hostAgent) bool { return x.alive() && !x.idle && !x.Settled() })
}

// killAgent ends the agent of host i with its data path, so that packets pass the host as without
// an agent.
func (r *Run) killAgent(i int) {
	r.net.SetHostPath(i, nil)
	a := r.agents.all[i]
	a.stop()
	<-a.ended
}

// restartAgent starts the agent of host i again, and waits until it has settings.
func (r *Run) restartAgent(ctx context.Context, i int) error {
	if err := r.startAgent(i); err != nil {
		return err
	}
	return r.agents.wait(ctx, r.net.Fabric())
}

// wait waits until all roles have settings, which agents receive when epochs have begun. A role
// whose plugin does not measure never has any.
func (a *agents) wait(ctx context.Context, fabric *lab.Fabric) error {
	for i, x := range a.all {
		for _, name := range slices.Sorted(maps.Keys(x.roles)) {
			select {
			case <-x.roles[name]:
			case <-time.After(a.patience):
				return fmt.Errorf("scenario: the role %s of %s has no settings in force after %v: a plugin has settings for "+
					"this role, but not for this host, or the role refused them%s", name, fabric.Hosts[i].Name, a.patience,
					strings.Join(append([]string{""}, a.errors()...), "; "))
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return nil
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

// stragglers reports whether the clock of a host is wrong.
func (a *agents) stragglers() bool {
	return slices.ContainsFunc(a.all, func(x *hostAgent) bool { return x.clock.offset.Load() != 0 })
}

// tick advances the epochs of all hosts by their clocks, after a virtual clock has moved.
func (a *agents) tick() {
	for _, x := range a.all {
		x.Tick()
	}
}

// follow waits until all hosts have begun the given epoch, if a host has begun it. It then gives
// the collector time to relay a newer epoch that a host's clock has begun. The collector does not
// relay an epoch that is too far ahead.
func (a *agents) follow(ctx context.Context, number uint64) error {
	newest := uint64(0)
	for _, x := range a.all {
		newest = max(newest, x.Status().Epoch)
	}
	if newest < number {
		return nil
	}
	if err := a.reach(ctx, number); err != nil {
		return err
	}
	current, given := func(s agent.Status) uint64 { return s.Epoch }, func(s agent.Status) uint64 { return s.Given }
	// A packet may have moved a host to the epoch. The host refuses packets of the next epoch until
	// its clock or the collector has advanced it to this one.
	brought, cancel := context.WithTimeout(ctx, 5*relayLimit)
	defer cancel()
	for _, x := range a.all {
		_ = x.reach(brought, number, given)
	}
	relay, cancel := context.WithTimeout(ctx, relayLimit)
	defer cancel()
	for _, x := range a.all {
		_ = x.reach(relay, newest, current)
	}
	return ctx.Err()
}

// reach waits until all hosts are at least in the given epoch.
func (a *agents) reach(ctx context.Context, number uint64) error {
	ready, cancel := context.WithTimeout(ctx, a.limit)
	defer cancel()
	for _, x := range a.all {
		if err := x.reach(ready, number, func(s agent.Status) uint64 { return s.Epoch }); err != nil {
			return fmt.Errorf("%w: %v", err, a.errors())
		}
	}
	return nil
}

// relayLimit is the real time in which the collector relays an epoch.
const relayLimit = 200 * time.Millisecond

// reach waits until an epoch in the agent's status is at least number, or the agent was killed.
func (x *hostAgent) reach(ctx context.Context, number uint64, epoch func(agent.Status) uint64) error {
	for ; x.alive() && epoch(x.Status()) < number; x.Tick() { // the first epoch comes from the collector
		select {
		case <-ctx.Done():
			return fmt.Errorf("scenario: an agent is in epoch %d instead of %d", epoch(x.Status()), number)
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

// alive reports whether the agent has not been killed.
func (x *hostAgent) alive() bool {
	select {
	case <-x.ended:
		return false
	default:
		return true
	}
}

// next returns the first boundary after a time by the clock of a host with a wrong clock; limit if
// no boundary comes before limit.
func (a *agents) next(after, limit time.Time, interval time.Duration) time.Time {
	for _, x := range a.all {
		if offset := time.Duration(x.clock.offset.Load()); offset != 0 {
			at := after.Add(offset).Truncate(interval).Add(interval - offset)
			if at.Before(limit) {
				limit = at
			}
		}
	}
	return limit
}

func (a *agents) stop() {
	if a.cancel == nil {
		return
	}
	a.cancel()
	for _, x := range a.all {
		if x.ended != nil {
			<-x.ended
		}
	}
}
