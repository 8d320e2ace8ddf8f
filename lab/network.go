// SPDX-License-Identifier: Apache-2.0

// Package lab emulates a network of P4 switches and hosts: topologies, links with
// latency and loss, traffic, faults, and the ground truth of every switch.
//
// The switches are soft switches, or some of them BMv2 processes, that run compiled P4 programs and
// are driven through P4Runtime and gNMI over TCP on loopback, so a collector cannot distinguish
// them from others. Frames move in the order of a discrete-event simulation, on the wall clock or
// on a virtual one.
//
// Concurrency: a Network's methods may be called from any goroutine, but Play only
// from one at a time.
package lab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/hostagent/omnimon/header"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/lab/traffic"
	"github.com/netsketch/netsketch/lab/truth"
	"github.com/netsketch/netsketch/p4/compiled"
	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// Config describes a lab. Fabric is required, and a program for each of its switches.
type Config struct {
	Fabric *Fabric
	// Program is the pipeline for switches that Programs does not name; it has the bank table. A
	// switch whose program has none is never flipped, and its ground truth is one epoch.
	Program  *compiled.Program
	Programs map[string]*compiled.Program // programs by a switch's name, or else by its role
	// BMv2 names the switches, by name or role, that run BMv2's simple_switch_grpc instead of soft
	// switches. It must be on the PATH. The lab forwards copies of a packet if they are clones.
	// Programs there must read packets of the CPU port as this repository's programs do, because the
	// lab sends frames behind the clones. LinkState.Down takes no ports of a BMv2 switch down.
	BMv2 map[string]bool
	// Unconfigured names the soft switches that start without a P4Runtime device id and without
	// numbers of ports, until these are set over gNMI.
	Unconfigured []string
	Clock        Clock        // nil: a wall clock that starts now
	Seed         uint64       // seed of losses and of the switches' random()
	Keep         int          // number of sealed ground-truth segments kept for each switch; 0 means 16
	Logger       *slog.Logger // nil: discards
	// Compiler compiles the programs of soft switches; nil for one of the network's own.
	Compiler *softswitch.Compiler
	// Header is the header that hosts insert (SetHostPath); nil if they insert none.
	Header *header.Layout
	// Rule defines the flows of packets for ground truth; nil is the rule of programs without
	// settings, and truth.Parse at hosts.
	Rule truth.Rule
	// Track keeps the ground truth of how long packets stayed at switches (Network.Stays).
	Track bool
}

// Network is a running lab.
type Network struct {
	cfg   Config
	clock Clock
	log   *slog.Logger
	nodes []*node
	hosts []host
	wires map[string][2]*wire // wires by link name: from A to B, from B to A
	loads sync.Pool
	wake  chan struct{}

	journal truth.Journal
	stays   truth.Stays
	altered altered

	probesMu   sync.Mutex
	probesLost map[string]uint64 // lost probes by switch or link

	agents  sync.WaitGroup // LLDP
	silence context.CancelFunc

	carrierMu sync.Mutex
	holding   sync.Mutex // held while a late switch plays packets

	queueMu sync.Mutex
	queue   eventQueue
	seq     uint64

	// The packet that Play took from a source and has not played yet. Only Play uses held.
	held     traffic.Packet
	heldMore bool
	heldFrom traffic.Source
	direct   load // the packet that Play hands to a switch without queueing it; only Play uses it
}

// node is one switch with its servers and its ground truth.
type node struct {
	spec     Switch
	deviceID uint64
	sw       backend
	rpc      *grpc.Server
	addr     string
	gnmi     bool   // whether gNMI is served, too
	bankID   uint32 // P4Info id of the bank table
	served   chan error
	serving  bool
	stopped  atomic.Bool
	dead     atomic.Int64 // the lab's time at which the switch stopped
	index    int
	depth    int               // depth of the ports' queues
	out      map[uint32]*wire  // wires that leave, by port
	in       map[uint32]string // links that end at a port, by port
	fromHost map[uint32]bool
	record   *truth.Recorder
	// readsHeader: the program reads Config.Header.
	readsHeader bool
	net         *Network
	skew        atomic.Int64 // delay of flips, in nanoseconds
	refusing    atomic.Bool  // whether the switch refuses calls of its controllers
	flipped     atomic.Bool  // whether the bank has been flipped, so that the switch is measured

	// inside is the packet that the pipeline processes. It is nil for packets that the switch or a
	// controller sends.
	inside atomic.Pointer[passage]

	// mu orders packets with bank flips, so that ground truth and switch agree on the
	// epoch of every packet.
	mu      sync.Mutex
	scratch packet.Frame      // guarded by mu
	dropped map[string]uint64 // packets, by reason; guarded by mu
	copied  uint64            // guarded by mu
	filter  func([]byte) bool // guarded by mu
	chance  chance            // guarded by mu
	toward  uint32            // port of the packet inside; guarded by mu
	faulty  bool              // a fault of the switch lost the packet; guarded by mu
	joined  uint64            // number of queues that copies of the packet have joined; guarded by mu

	gone []gone // packets that are not yet accounted for; guarded by mu

	leaving passage       // the packet inside that leaves a queue; guarded by mu
	planned time.Duration // the event of the next departure; 0: no departure is planned; guarded by mu

	lineMu sync.Mutex
	lines  map[uint32]*line // queues by port, nil without queues; the lines are guarded by lineMu

	left            atomic.Uint64 // number of copies of the packet inside that have left
	fromControllers atomic.Uint64 // packets of controllers that left
}

// New builds the network and starts a P4Runtime and gNMI server for each switch on a
// free port of the loopback address.
func New(cfg Config) (*Network, error) {
	if cfg.Clock == nil {
		cfg.Clock = WallClock(time.Now())
	}
	if cfg.Keep == 0 {
		cfg.Keep = 16
	}
	if cfg.Compiler == nil {
		cfg.Compiler = &softswitch.Compiler{}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	n := &Network{
		cfg: cfg, clock: cfg.Clock, log: cfg.Logger,
		wires: map[string][2]*wire{}, probesLost: map[string]uint64{},
		hosts: make([]host, len(cfg.Fabric.Hosts)),
		loads: sync.Pool{New: func() any { return &load{frame: make([]byte, 0, 256)} }},
		wake:  make(chan struct{}, 1),
	}
	for i, s := range cfg.Fabric.Switches {
		program := cfg.program(s)
		if program == nil {
			return nil, fmt.Errorf("lab: switch %s: no program is given for it or its role, %s", s.Name, s.Role)
		}
		n.nodes = append(n.nodes, &node{
			spec: s, deviceID: uint64(i + 1), bankID: bankTable(program), net: n, index: i,
			depth: cfg.Fabric.Queue.depth(),
			out:   map[uint32]*wire{}, in: map[uint32]string{}, fromHost: map[uint32]bool{},
			chance:      newChance(cfg.Seed, s.Name),
			record:      truth.NewRecorder(cfg.Keep, cfg.ruleOf(program)),
			readsHeader: readsHeader(program),
			served:      make(chan error, 1), dropped: map[string]uint64{},
		})
	}
	n.cable()
	for i, nd := range n.nodes {
		if err := n.startNode(nd, cfg.Seed+uint64(i)); err != nil {
			return nil, errors.Join(fmt.Errorf("lab: switch %s: %w", nd.spec.Name, err), n.Close())
		}
	}
	n.speak()
	return n, nil
}

// program returns the program of a switch, nil if none is configured.
func (c *Config) program(s Switch) *compiled.Program {
	for _, name := range []string{s.Name, string(s.Role)} {
		if p := c.Programs[name]; p != nil {
			return p
		}
	}
	return c.Program
}

// bankTable finds the table by which a program's bank is flipped; 0 for a program without banks.
func bankTable(p *compiled.Program) uint32 {
	for _, t := range p.P4Info.GetTables() {
		for _, a := range t.GetPreamble().GetStructuredAnnotations() {
			if a.GetName() == "netsketch_bank" {
				return t.GetPreamble().GetId()
			}
		}
	}
	return 0
}

// readsHeader reports whether a program has a register of OmniMon.
func readsHeader(p *compiled.Program) bool {
	return slices.ContainsFunc(p.P4Info.GetRegisters(), func(r *configv1.Register) bool {
		return slices.ContainsFunc(r.GetPreamble().GetStructuredAnnotations(),
			func(a *configv1.StructuredAnnotation) bool { return a.GetName() == "netsketch_omnimon" })
	})
}

// ruleOf returns the rule for the flows at a switch. A program that counts packets whose
// encapsulations it cannot parse parses all other encapsulations.
func (c *Config) ruleOf(p *compiled.Program) truth.Rule {
	encapsulated := slices.ContainsFunc(p.P4Info.GetRegisters(), func(r *configv1.Register) bool {
		return r.GetPreamble().GetName() == "ingress.unparsed"
	})
	switch {
	case c.Rule != nil:
		return c.Rule
	case encapsulated:
		return truth.ParseEncapsulated
	}
	return truth.Parse
}

// cable makes the wires of the fabric.
func (n *Network) cable() {
	wireTo := func(name, link string, to endpoint, latency time.Duration, loss float64) *wire {
		w := &wire{link: link, to: to, latency: latency, chance: newChance(n.cfg.Seed, name)}
		w.chance.loss = loss
		return w
	}
	for _, l := range n.cfg.Fabric.Links {
		a, b := n.nodes[l.A], n.nodes[l.B]
		endA, endB := sdk.Endpoint{Node: a.spec.Name, Port: l.PortA}, sdk.Endpoint{Node: b.spec.Name, Port: l.PortB}
		ab := wireTo(a.spec.Name+">"+b.spec.Name, sdk.LinkName(endA, endB), endpoint{node: l.B, port: l.PortB},
			l.Latency, l.Loss)
		ba := wireTo(b.spec.Name+">"+a.spec.Name, sdk.LinkName(endB, endA), endpoint{node: l.A, port: l.PortA},
			l.Latency, l.Loss)
		ab.inner, ba.inner = true, true
		a.out[l.PortA], b.out[l.PortB] = ab, ba
		a.in[l.PortA], b.in[l.PortB] = ba.link, ab.link
		n.wires[n.cfg.Fabric.LinkName(l)] = [2]*wire{ab, ba}
	}
	for i, h := range n.cfg.Fabric.Hosts {
		nd := n.nodes[h.Switch]
		nd.fromHost[h.Port] = true
		port, end := sdk.Endpoint{Node: nd.spec.Name, Port: h.Port}, sdk.Endpoint{Node: h.Name}
		nd.out[h.Port] = wireTo(nd.spec.Name+">"+h.Name, sdk.LinkName(port, end), endpoint{host: true, node: i}, 0, 0)
		n.hosts[i].name = h.Name
		n.hosts[i].up = wireTo(h.Name+">"+nd.spec.Name, sdk.LinkName(end, port), endpoint{node: h.Switch, port: h.Port}, 0, 0)
		nd.in[h.Port] = n.hosts[i].up.link
	}
}

// startNode starts the switch and serves it.
func (n *Network) startNode(nd *node, seed uint64) error {
	if n.cfg.BMv2[nd.spec.Name] || n.cfg.BMv2[string(nd.spec.Role)] {
		sw, err := n.newExternal(nd)
		if err != nil {
			return err
		}
		nd.sw = sw
	} else {
		sw, err := n.newSoft(nd, seed)
		if err != nil {
			return err
		}
		nd.sw = sw
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	nd.addr = lis.Addr().String()
	// A call may compile a program, so Stop waits for running calls before the switch is closed.
	nd.rpc = grpc.NewServer(append(nd.sw.serverOptions(), grpc.UnaryInterceptor(nd.orderFlips),
		grpc.WaitForHandlers(true))...)
	if nd.gnmi, err = nd.sw.services(nd.rpc); err != nil {
		return errors.Join(err, lis.Close())
	}
	nd.serving = true
	go func() { nd.served <- nd.rpc.Serve(lis) }()
	return nil
}

// leave takes a packet that leaves a switch along a wire.
func (n *Network) leave(nd *node, w *wire, pkt []byte, at time.Duration) {
	if isLLDP(pkt) {
		n.neighbor(w, pkt, at)
		return
	}
	var p passage
	if inside := nd.inside.Load(); inside != nil {
		p = *inside
		nd.left.Add(1)
		if p.tracked {
			p.stays = append(p.stays[:len(p.stays):len(p.stays)],
				truth.Stay{Switch: nd.spec.Name, Delay: at - p.entered})
			nd.record.Depart(p.segment, p.key, p.hops-1, p.entered, at)
		}
	} else {
		nd.fromControllers.Add(1)
	}
	switch latency, ok := w.carry(&p, at); {
	case !ok:
		n.lose(&p, w.link)
	case w.to.host && latency == 0:
		n.arrive(&n.hosts[w.to.node], pkt, &p)
	default:
		n.schedule(at+latency, w.to, pkt, &p)
	}
}

// receive takes a frame that arrives at a port.
func (nd *node) receive(port uint32, l *load, at time.Duration) {
	nd.mu.Lock()
	defer nd.mu.Unlock()
	nd.advance(at)
	if nd.filter != nil && nd.filter(l.frame) {
		if !l.probe {
			nd.dropped[dropFault]++
		}
		nd.net.lose(&l.passage, nd.spec.Name)
		return
	}
	if frame := nd.recorded(l); frame != nil {
		if e := nd.record.Record(frame, nd.fromHost[port]); e.Known() {
			l.entry = e
		}
	}
	before, up := nd.sw.drops(), nd.sw.portUp(port)
	down := port // where the packet is lost
	if up {
		down = 0
		nd.net.enter(&l.passage, nd.spec.Name)
		l.entered, l.segment = at, nd.record.Open()
	}
	nd.toward, nd.faulty = 0, false
	nd.inside.Store(&l.passage)
	nd.sw.inject(port, l.frame, at) // returns when all copies are out or wait
	nd.account(&before, down)
	nd.plan()
}

// recorded returns the frame that the switch's ground truth counts; nil if the switch does not
// count the packet, as a probe with OmniMon's header where the program reads that header.
func (nd *node) recorded(l *load) []byte {
	switch {
	case !l.probe:
		return payload(l.frame, nd.net.cfg.Header, &nd.scratch)
	case nd.readsHeader && len(payload(l.frame, nd.net.cfg.Header, &nd.scratch)) != len(l.frame):
		return nil
	}
	return l.frame
}

// drop draws whether a fault of the switch loses the packet inside. Packets of controllers are not
// lost. nd.mu is held.
func (nd *node) drop(from, to uint32) bool {
	p := nd.inside.Load()
	if p == nil || nd.in[from] == "" || nd.out[to] == nil {
		return false
	}
	nd.toward = to
	lost := nd.chance.loses(p)
	nd.faulty = nd.faulty || lost
	return lost
}

// queue is called with the ports of each packet and copy between ingress and egress, and reports
// whether a fault of the switch loses it. nd.mu is held unless a controller sent the packet.
func (nd *node) queue(from, to uint32) bool {
	if nd.drop(from, to) {
		return true
	}
	if nd.lines[to] != nil {
		traffic := from != softswitch.DefaultCPUPort
		if traffic {
			nd.toward = to
		}
		nd.wait(to, traffic)
	}
	return false
}

// orderFlips keeps packets out of the switch while its bank is flipped or its pipeline is replaced,
// and records flips in the ground truth.
func (nd *node) orderFlips(ctx context.Context, req any, _ *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler,
) (any, error) {
	if nd.refusing.Load() {
		return nil, status.Error(codes.Unavailable, "the lab makes the switch refuse calls of its controllers")
	}
	switch r := req.(type) {
	case *p4v1.WriteRequest:
		bank, flips := nd.flip(r)
		if !flips {
			return handler(ctx, req)
		}
		if skew := time.Duration(nd.skew.Load()); skew > 0 {
			if err := nd.net.hold(ctx, nd, bank, skew); err != nil {
				return nil, status.FromContextError(err).Err()
			}
		}
		return nd.turn(ctx, req, handler, bank)
	case *p4v1.SetForwardingPipelineConfigRequest:
		nd.mu.Lock()
		defer nd.mu.Unlock()
		resp, err := handler(ctx, req)
		if err == nil {
			nd.flush()
			nd.record.Reset(nd.net.clock.Now())
		}
		return resp, err
	}
	return handler(ctx, req)
}

// turn flips the bank between two packets.
func (nd *node) turn(ctx context.Context, req any, handler grpc.UnaryHandler, bank uint32) (any, error) {
	nd.mu.Lock()
	defer nd.mu.Unlock()
	resp, err := handler(ctx, req)
	if err == nil {
		nd.flipped.Store(true)
		nd.record.Seal(nd.net.clock.Now(), bank)
	}
	return resp, err
}

// flip returns the bank that the request sets, and false when it sets none.
func (nd *node) flip(r *p4v1.WriteRequest) (uint32, bool) {
	if nd.bankID == 0 {
		return 0, false
	}
	for _, u := range r.GetUpdates() {
		e := u.GetEntity().GetTableEntry()
		if e.GetTableId() != nd.bankID || !e.GetIsDefaultAction() {
			continue
		}
		var bank uint32
		for _, p := range e.GetAction().GetAction().GetParams() {
			for _, b := range p.GetValue() {
				bank = bank<<8 | uint32(b)
			}
		}
		return bank, true
	}
	return 0, false
}

// Device returns the addresses of the switch's servers.
type Device struct {
	Name     string
	Role     Role
	DeviceID uint64
	Address  string // P4Runtime and gNMI, plaintext, loopback
	GNMI     bool   // false: the switch has no gNMI
}

// Devices lists the switches in the fabric's order.
func (n *Network) Devices() []Device {
	out := make([]Device, len(n.nodes))
	for i, nd := range n.nodes {
		out[i] = Device{nd.spec.Name, nd.spec.Role, nd.deviceID, nd.addr, nd.gnmi}
	}
	return out
}

// Fabric returns the fabric that the network was built from.
func (n *Network) Fabric() *Fabric { return n.cfg.Fabric }

// Clock returns the lab's clock.
func (n *Network) Clock() Clock { return n.clock }

// Truth returns the recorder of switch i of the fabric.
func (n *Network) Truth(i int) *truth.Recorder { return n.nodes[i].record }

// Banked reports whether the program of switch i has banks, so that its epochs are separate.
func (n *Network) Banked(i int) bool { return n.nodes[i].bankID != 0 }

// Switch returns switch i of the fabric; nil when it is no soft switch.
func (n *Network) Switch(i int) *softswitch.Switch {
	if s, ok := n.nodes[i].sw.(*soft); ok {
		return s.sw
	}
	return nil
}

// OnTheWay returns the packets that entered in a segment and are between two switches or in a
// queue: neither lost nor out of the network.
func (n *Network) OnTheWay(s *truth.Segment) truth.Counts {
	out := truth.Counts{}
	for _, nd := range n.nodes {
		nd.waitingPackets(func(p *passage) {
			if p.entry.In(s) {
				out[p.entry.Key]++
			}
		})
	}
	n.queueMu.Lock()
	defer n.queueMu.Unlock()
	for i := range n.queue {
		if l := n.queue[i].load; l != nil && l.entry.In(s) {
			out[l.entry.Key]++
		}
	}
	return out
}

// ErrNoLink is wrapped when a link is named that the fabric does not have.
var ErrNoLink = errors.New("no such link")

// LinkState is the state of a link.
type LinkState struct {
	// Loss is the share of packets that are lost, independently in each direction, 0 to 1.
	Loss float64
	// Flows is the share of flows that Loss affects, chosen by a hash of the flow that differs from
	// link to link: a grey failure. 0 or 1 means all packets.
	Flows float64
	// Down loses everything and sets the ports at both ends down.
	Down bool
	// Held is the lab's time until which packets wait on the link; then all of them arrive.
	Held time.Duration
}

// SetLink changes a link, both directions.
func (n *Network) SetLink(name string, s LinkState) error {
	pair, ok := n.wires[name]
	if !ok {
		return fmt.Errorf("lab: link %q: %w", name, ErrNoLink)
	}
	for _, w := range pair {
		w.mu.Lock()
		w.down, w.held, w.chance.loss, w.chance.flows = s.Down, s.Held, s.Loss, s.Flows
		w.mu.Unlock()
	}
	return n.carrier(name)
}

// SetLoss makes switch i lose a share of the packets that it has received and counted, in all flows
// or in a share of them as in LinkState. A share of 1 is a switch whose forwarding has failed while
// its control plane works. BMv2 switches lose none.
func (n *Network) SetLoss(i int, loss, flows float64) {
	nd := n.nodes[i]
	nd.mu.Lock()
	defer nd.mu.Unlock()
	nd.chance.loss, nd.chance.flows = loss, flows
}

// SetFilter makes switch i lose the frames for which drop returns true before it counts them, as a
// router that passes no IP options. nil removes the filter.
func (n *Network) SetFilter(i int, drop func(frame []byte) bool) {
	nd := n.nodes[i]
	nd.mu.Lock()
	defer nd.mu.Unlock()
	nd.filter = drop
}

// SetSkew makes switch i late by d: it carries out flips of its bank, and acknowledges them, d
// after the other switches.
func (n *Network) SetSkew(i int, d time.Duration) { n.nodes[i].skew.Store(int64(d)) }

// patience bounds, in real time, how long a late switch waits for the others to flip.
const patience = 2 * time.Second

// hold lets the lab's time pass until a late switch flips to bank: d after all others have. On a
// virtual clock it plays the packets of that time, because the clock's owner waits for the flip.
func (n *Network) hold(ctx context.Context, late *node, bank uint32, d time.Duration) error {
	limit, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for _, nd := range n.nodes {
		for nd != late && nd.flipped.Load() && nd.skew.Load() == 0 && !nd.refusing.Load() && !nd.stopped.Load() &&
			nd.record.Bank() != bank && limit.Err() == nil {
			select {
			case <-again.C:
			case <-limit.Done():
			}
		}
	}
	if _, virtual := n.clock.(*virtualClock); virtual {
		n.holding.Lock()
		defer n.holding.Unlock()
		return n.Play(ctx, n.heldFrom, n.clock.Now()+d)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// SetRefusing makes switch i refuse all P4Runtime calls, or accept them again. It forwards packets
// in both cases.
func (n *Network) SetRefusing(i int, refuse bool) { n.nodes[i].refusing.Store(refuse) }

// StopSwitch ends the servers of switch i, drops what arrives at it from then on, and takes the
// ports of its neighbors down, as a loss of power does.
func (n *Network) StopSwitch(i int) {
	nd := n.nodes[i]
	nd.dead.Store(int64(n.clock.Now()))
	nd.stopped.Store(true)
	nd.rpc.Stop()
	for port, w := range nd.out {
		_ = nd.sw.setPortUp(port, false) // the port exists: cable made it
		if !w.to.host {
			_ = n.nodes[w.to.node].sw.setPortUp(w.to.port, false)
		}
	}
}

// StoppedBefore reports whether switch i stopped at or before the lab's time at.
func (n *Network) StoppedBefore(i int, at time.Duration) bool {
	nd := n.nodes[i]
	return nd.stopped.Load() && time.Duration(nd.dead.Load()) <= at
}

// Close stops all servers and switches.
func (n *Network) Close() error {
	var errs []error
	if n.silence != nil {
		n.silence()
		n.agents.Wait()
	}
	for _, nd := range n.nodes {
		errs = append(errs, nd.close())
	}
	return errors.Join(errs...)
}

// close ends a switch that may have been started in part only.
func (nd *node) close() error {
	var errs []error
	if nd.serving {
		nd.rpc.Stop()
		if err := <-nd.served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			errs = append(errs, fmt.Errorf("lab: switch %s: %w", nd.spec.Name, err))
		}
	}
	if nd.sw != nil {
		if err := nd.sw.close(); err != nil {
			errs = append(errs, fmt.Errorf("lab: switch %s: %w", nd.spec.Name, err))
		}
	}
	return errors.Join(errs...)
}
