// SPDX-License-Identifier: Apache-2.0

// Package host serves the agents of hosts: one gRPC stream for each agent, with mutual TLS. Each
// configured host is a source of the epoch engine that seals its epochs itself and reports.
//
//	agent <-- epochs, settings, requests -- session <-- Component <-- intent: settings in force
//	      ---- epochs, reports ----------->         --> agent (Source) --> epoch engine
//
// At a boundary the component sends the number of the new epoch to all agents. It requests the
// reports of the epoch that has ended when the network has drained, at the latest at the deadline.
// An agent without a report at the deadline makes the epoch partial; its report is delivered later
// (epoch.Engine.Late). An epoch that an agent's clock began is relayed to all agents (OmniMon,
// algorithm 1).
//
// # Concurrency
//
// Methods of Component may be called from any goroutine. Every goroutine has ended when Stop
// returns.
package host

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip" // agents may compress
	"google.golang.org/grpc/keepalive"

	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/collector/intent"
	"github.com/netsketch/netsketch/hostagent/hostv1"
	"github.com/netsketch/netsketch/plugins/sdk"
)

const (
	// maxAhead bounds, in epochs, how far an epoch that another collector's host has begun, or a
	// part of a report, may be ahead of this collector.
	maxAhead = 4
	// helloTimeout bounds the wait for the first message of an agent.
	helloTimeout = 10 * time.Second
	// maxMessage is the largest message of an agent in bytes.
	maxMessage = 1<<20 + 64<<10
	// window is the flow-control window of a session in bytes. Because it is fixed, gRPC does not
	// send a ping with each message to estimate the bandwidth, which would double the work of an
	// epoch.
	window = 512 << 10
	// relays is the largest number of goroutines that send an epoch over UDP.
	relays = 4
)

// Config configures a Component.
type Config struct {
	// Address is where agents connect; nothing is served if empty.
	Address string
	// TLS is the server's configuration; nil means plaintext, in which case agents state the names of
	// their hosts.
	TLS *tls.Config
	// Timeout is the time after which an agent that does not reply is disconnected.
	Timeout time.Duration
	// MaxReport is the largest report of a role in bytes.
	MaxReport uint64
	// MaxEpoch bounds the reports of all hosts in one epoch, in bytes.
	MaxEpoch uint64
	// UDP permits agents to send and receive epochs over UDP, on the port of Address.
	UDP bool
	// Hosts are the names of the hosts with agents.
	Hosts []string
	// Shared makes this collector serve no host before Assign.
	Shared bool
}

// Dependencies are what New needs from its caller. All but Logger and OnEpoch are required.
type Dependencies struct {
	Logger *slog.Logger // nil disables logging
	Epochs Epochs
	// Now returns the time on the epochs' clock; nil is the wall clock.
	Now func() time.Time
	// Settings returns the settings of a host that are in force. It is called without locks held.
	Settings func(host string) []intent.HostSetting
	// Applied receives the outcome of a setting; refusal is empty if the setting is in force.
	Applied func(host, role string, generation uint64, refusal string)
	// OnChange is called when the result of Hosts may have changed. It must not block.
	OnChange func()
	// HostOf, if set, returns the name of the host that has an address; empty if no host has it.
	HostOf func(netip.Addr) string
	// OnEpoch, if set, is called when the clock of a host of this collector begins an epoch before
	// all other known hosts. It must not block.
	OnEpoch func(number uint64)
}

// Epochs are the methods of the epoch engine that this package needs.
type Epochs interface {
	Add(epoch.Source)
	Remove(name string)
	// Late keeps a report on an epoch that was delivered without it, for the next epoch. It returns
	// false if the report is dropped.
	Late(sdk.LateReport) bool
	// Numbering returns the length of an epoch, the start of epoch 0, and the number of the open
	// epoch; 0 if no epoch is open.
	Numbering() (length time.Duration, zero time.Time, number uint64)
}

// Component serves the agents of hosts.
type Component struct {
	cfg      Config
	deps     Dependencies
	log      *slog.Logger
	instance string
	newest   atomic.Uint64 // the newest epoch of the network

	connections connections
	volume      volume

	ctx    context.Context // context of sessions; ends with Stop
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu     sync.Mutex
	agents map[string]*agent
	// elsewhere holds, by host, the address of the collector that serves the host; "" if the address
	// is not known.
	elsewhere map[string]string
	sessions  map[*session]struct{}
	refused   Refusals
	listener  net.Listener
	rpc       *grpc.Server
	udp       *datagrams
}

// Refusals counts sessions that belong to no configured host.
type Refusals struct {
	Sessions  uint64
	LastError string
}

// New returns a component that does not listen yet.
func New(cfg Config, deps Dependencies) *Component {
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	c := &Component{cfg: cfg, deps: deps, log: deps.Logger, instance: hex.EncodeToString(id), agents: map[string]*agent{},
		sessions: map[*session]struct{}{}}
	c.connections.c, c.connections.after, c.volume.limit = c, gatherTime, cfg.MaxEpoch
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Start listens, and adds the configured hosts to the epochs. It does nothing if no address is
// configured.
func (c *Component) Start() error {
	if c.cfg.Address == "" {
		return nil
	}
	listener, err := net.Listen("tcp", c.cfg.Address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("agents.address %s is in use by another program; stop it, or set another address: %w",
			c.cfg.Address, err)
	}
	if err != nil {
		return fmt.Errorf("cannot listen on agents.address %s: %w", c.cfg.Address, err)
	}
	if c.cfg.UDP {
		if c.udp, err = c.listenUDP(listener.Addr()); err != nil {
			_ = listener.Close()
			return err
		}
	}
	secured := insecure.NewCredentials()
	if c.cfg.TLS != nil {
		secured = credentials.NewTLS(c.cfg.TLS)
	}
	half := max(c.cfg.Timeout/2, time.Second)
	c.mu.Lock()
	c.listener = listener
	c.rpc = grpc.NewServer(grpc.Creds(secured), grpc.MaxRecvMsgSize(maxMessage),
		grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(window),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: half, Timeout: half}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.MaxConcurrentStreams(4), grpc.ConnectionTimeout(helloTimeout))
	hostv1.RegisterHostSessionsServer(c.rpc, service{c: c})
	c.mu.Unlock()
	c.work.Go(func() {
		if err := c.rpc.Serve(listener); err != nil {
			c.log.Error("agents are not served any more", "address", listener.Addr(), "error", err)
		}
	})
	if c.udp != nil {
		c.work.Go(c.udp.receive)
	}
	c.log.Info("serving host agents", "address", listener.Addr(), "tls", c.cfg.TLS != nil, "udp", c.cfg.UDP)
	if c.cfg.Shared {
		elsewhere := map[string]string{}
		for _, name := range c.cfg.Hosts {
			elsewhere[name] = ""
		}
		c.Assign(nil, elsewhere)
		return nil
	}
	c.SetHosts(c.cfg.Hosts)
	return nil
}

// Stop ends all sessions.
func (c *Component) Stop() {
	c.cancel()
	c.mu.Lock()
	rpc, udp := c.rpc, c.udp
	c.mu.Unlock()
	if rpc != nil {
		rpc.Stop()
	}
	if udp != nil {
		udp.close()
	}
	c.work.Wait()
	c.connections.flush()
}

// Address returns the address on which agents are served; empty before Start or without one.
func (c *Component) Address() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.listener == nil {
		return ""
	}
	return c.listener.Addr().String()
}

// SetHosts replaces the hosts with agents, and ends the sessions of removed hosts.
func (c *Component) SetHosts(names []string) { c.Assign(names, nil) }

// Assign sets the hosts of this collector in a cluster. Agents of the hosts in elsewhere are
// redirected to the address of their collector.
func (c *Component) Assign(names []string, elsewhere map[string]string) {
	if c.cfg.Address == "" {
		return
	}
	c.mu.Lock()
	c.elsewhere = elsewhere
	var added, removed []*agent
	for _, name := range names {
		if c.agents[name] == nil {
			a := newAgent(c, name)
			c.agents[name] = a
			added = append(added, a)
		}
	}
	for name, a := range c.agents {
		if !slices.Contains(names, name) {
			delete(c.agents, name)
			removed = append(removed, a)
		}
	}
	c.mu.Unlock()
	for _, a := range removed {
		c.deps.Epochs.Remove(a.name)
		reason := errors.New("the host is no longer configured with an agent")
		if _, ok := elsewhere[a.name]; ok {
			reason = errors.New("another collector of the cluster serves the host")
		}
		a.end(reason)
	}
	for _, a := range added {
		c.deps.Epochs.Add(a)
	}
	c.deps.OnChange()
}

// Has reports whether the host is configured with an agent. It may be called before Start, because
// plugins send settings earlier.
func (c *Component) Has(host string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rpc == nil && c.cfg.Address != "" {
		return slices.Contains(c.cfg.Hosts, host)
	}
	_, elsewhere := c.elsewhere[host]
	return c.agents[host] != nil || elsewhere
}

// redirect returns the address of the collector that serves a host; ok is false if no other
// collector does.
func (c *Component) redirect(host string) (address string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	address, ok = c.elsewhere[host]
	return address, ok
}

func (c *Component) agent(name string) *agent {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.agents[name]
}

// SettingsChanged sends changed settings to agents.
func (c *Component) SettingsChanged() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.sessions {
		s.changed()
	}
}

// Hosts returns the state of all hosts with agents, sorted by name.
func (c *Component) Hosts() []Status {
	c.mu.Lock()
	agents := make([]*agent, 0, len(c.agents))
	for _, a := range c.agents {
		agents = append(agents, a)
	}
	c.mu.Unlock()
	out := make([]Status, len(agents))
	for i, a := range agents {
		out[i] = a.status()
	}
	slices.SortFunc(out, func(a, b Status) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Refusals returns counts of refused sessions that belong to no configured host.
func (c *Component) Refusals() Refusals {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused
}

// enter adds a session to the sessions that receive epochs.
func (c *Component) enter(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sessions[s] = struct{}{}
}

func (c *Component) leave(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sessions, s)
}

// begin makes every session send an epoch that the collector's clock began.
func (c *Component) begin(number uint64) {
	c.judge(number)
	if !c.advance(number) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.sessions {
		s.changed()
	}
}

// advance makes an epoch the newest one. It returns false if the epoch is not newer.
func (c *Component) advance(number uint64) bool {
	for {
		old := c.newest.Load()
		if number <= old {
			return false
		}
		if c.newest.CompareAndSwap(old, number) {
			return true
		}
	}
}

// relay handles an epoch that the clock of an agent's host began. If the epoch is at most one ahead
// of the collector's, relay sends it to all agents. The sender receives it too, because a host that
// is set aside does not begin the epoch itself. relay ignores an epoch that is further ahead,
// whatever the other clocks say, because switches can count only a few epochs beyond the
// collector's.
func (c *Component) relay(from *session, number uint64) {
	_, _, open := c.deps.Epochs.Numbering()
	c.mu.Lock()
	from.claimed = number
	c.mu.Unlock()
	if number > open+1 {
		from.agent.refusedEpoch()
		from.setAside(number - open)
		return
	}
	if !c.advance(number) {
		return
	}
	if c.deps.OnEpoch != nil {
		c.deps.OnEpoch(number)
	}
	c.spread(number)
}

// judge is called when the collector's clock begins an epoch. It sets aside the hosts whose clocks
// are further ahead than relay accepts.
func (c *Component) judge(number uint64) {
	ahead := map[*session]uint64{} // number of epochs by which each session's host is ahead
	var level []*session
	c.mu.Lock()
	newest := max(number, c.newest.Load())
	for s := range c.sessions {
		if s.claimed > newest {
			ahead[s] = s.claimed - number
		} else {
			level = append(level, s)
		}
	}
	c.mu.Unlock()
	for s, by := range ahead {
		s.setAside(by)
	}
	for _, s := range level {
		s.agent.levelled()
	}
}

// Relay sends an epoch that the clock of another collector's host began to all agents. It returns
// an error if the epoch is not accepted.
func (c *Component) Relay(number uint64) error {
	_, _, open := c.deps.Epochs.Numbering()
	if number > open+maxAhead {
		return fmt.Errorf("epoch %d of a host is %d ahead of this collector's, more than %d; synchronize the clocks",
			number, number-open, maxAhead)
	}
	if c.advance(number) {
		c.spread(number)
	}
	return nil
}

// spread sends an epoch to all agents.
func (c *Component) spread(number uint64) {
	c.mu.Lock()
	all := slices.Collect(maps.Keys(c.sessions))
	c.mu.Unlock()
	if c.udp == nil {
		for _, s := range all {
			s.offer()
		}
		return
	}
	var work sync.WaitGroup
	defer work.Wait()
	for n := min(relays, runtime.GOMAXPROCS(0)); n > 0; n-- {
		share := all[:len(all)/n]
		all = all[len(share):]
		work.Go(func() {
			for _, s := range share {
				if !c.udp.send(s, number) {
					s.offer()
				}
			}
		})
	}
}
