// SPDX-License-Identifier: Apache-2.0

package lldp

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/gopacket/gopacket/layers"

	"github.com/netsketch/netsketch/p4/softswitch"
)

// Switch is the part of a switch that the agent uses; softswitch.Switch implements it.
type Switch interface {
	Ports() []softswitch.PortStatus
	WatchPorts(func(softswitch.PortStatus)) (stop func())
	Transmit(port uint32, frame []byte) error
	SetTrap(etherType uint16, f func(port uint32, frame []byte, at time.Duration))
}

// Config is the data that a switch advertises, and the interval. The zero value is usable.
type Config struct {
	// SystemName and SystemDescription are advertised to neighbors.
	SystemName, SystemDescription string
	// Chassis is the switch's Ethernet address; zero derives one from SystemName. Ports have the
	// addresses that follow it.
	Chassis [6]byte
	// Management is the switch's management address; an invalid address advertises none.
	Management netip.Addr
	// Interval is the time between frames; 0 is 30 s. A port that comes up or finds a new neighbor
	// sends Fast frames (0 is 4), FastInterval apart (0 is 1 s).
	Interval, FastInterval time.Duration
	Fast                   int
	// Hold is the time to live in intervals; 0 is 4.
	Hold int
	// MaxNeighbors bounds the neighbors of a port; 0 is 8. Frames of further systems are counted as
	// discarded.
	MaxNeighbors int
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Logger receives frames that cannot be sent, at debug level; nil disables logging.
	Logger *slog.Logger
}

// Neighbor is a system that sent frames to a port.
type Neighbor struct {
	ID   uint64 // unique during the life of the agent
	Port uint32
	Frame
	First, Last time.Time // arrival of the neighbor's first and latest frame
}

// Counters count frames of a port.
type Counters struct {
	In, Out, Errors, Discarded, Unknown, AgedOut uint64
}

// Agent runs LLDP on a switch: the transmit and receive state machines of section 9.2 on every
// port. Create it with New, drive it with Run or Tick, and Close it.
type Agent struct {
	cfg  Config
	sw   Switch
	stop func()
	wake chan struct{}

	mu       sync.Mutex
	enabled  bool
	ports    map[uint32]*port
	nextID   uint64
	watchers map[int]func()
	watchID  int
}

// port is the state of one port.
type port struct {
	status    softswitch.PortStatus
	disabled  bool // whether the configuration disables LLDP
	due       time.Time
	fast      int  // frames left to send at the fast interval
	shutdown  bool // a shutdown frame is due
	neighbors []*Neighbor
	counters  Counters
}

// New creates an agent and directs the switch's LLDP frames to it.
func New(sw Switch, c Config) *Agent {
	c.Interval = cmp.Or(c.Interval, 30*time.Second)
	c.FastInterval = cmp.Or(c.FastInterval, time.Second)
	c.Fast = cmp.Or(c.Fast, 4)
	c.Hold = cmp.Or(c.Hold, 4)
	c.MaxNeighbors = cmp.Or(c.MaxNeighbors, 8)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Chassis == ([6]byte{}) {
		c.Chassis = chassis(c.SystemName)
	}
	a := &Agent{cfg: c, sw: sw, wake: make(chan struct{}, 1), enabled: true, ports: map[uint32]*port{},
		watchers: map[int]func(){}}
	sw.SetTrap(EtherType, func(port uint32, frame []byte, _ time.Duration) { a.receive(port, frame) })
	a.stop = sw.WatchPorts(a.portChanged)
	for _, p := range sw.Ports() {
		a.portChanged(p)
	}
	return a
}

// chassis derives a locally administered Ethernet address from a name.
func chassis(name string) [6]byte {
	h := fnv.New64a()
	h.Write([]byte(name))
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], h.Sum64())
	return [6]byte{0x02, b[0] ^ b[5], b[1] ^ b[6], b[2] ^ b[7], b[3], 0}
}

// PortMAC is the source address of a port's frames.
func (a *Agent) PortMAC(id uint32) [6]byte {
	mac := a.cfg.Chassis
	n := binary.BigEndian.Uint16(mac[4:]) + uint16(id)
	binary.BigEndian.PutUint16(mac[4:], n)
	return mac
}

// Close stops receiving frames. It does not wait for Run, which ends with its context.
func (a *Agent) Close() {
	a.stop()
	a.sw.SetTrap(EtherType, nil)
}

// Run sends frames until ctx ends, and then a shutdown frame on every port.
func (a *Agent) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			a.SetEnabled(false)
			a.Tick()
			return
		case <-a.wake:
		case <-timer.C:
		}
		timer.Reset(a.Tick().Sub(a.cfg.Now()))
	}
}

// Tick sends the frames that are due, removes expired neighbors, and returns the time of the next
// call.
func (a *Agent) Tick() time.Time {
	now := a.cfg.Now()
	next := now.Add(a.cfg.Interval)
	type outgoing struct {
		port  uint32
		frame []byte
	}
	var out []outgoing
	a.mu.Lock()
	changed := false
	for id, p := range a.ports {
		if a.expire(p, now) {
			changed = true
		}
		for _, n := range p.neighbors {
			next = earlier(next, n.expires())
		}
		if p.shutdown {
			p.shutdown = false
			out = append(out, outgoing{id, a.frame(p, 0)})
		}
		if !a.active(p) {
			continue
		}
		if !p.due.After(now) {
			out = append(out, outgoing{id, a.frame(p, a.ttl())})
			p.due = now.Add(a.cfg.Interval)
			if p.fast > 0 {
				p.fast--
				p.due = now.Add(a.cfg.FastInterval)
			}
		}
		next = earlier(next, p.due)
	}
	a.mu.Unlock()
	slices.SortFunc(out, func(x, y outgoing) int { return cmp.Compare(x.port, y.port) })
	for _, o := range out {
		if o.frame == nil {
			continue
		}
		if err := a.sw.Transmit(o.port, o.frame); err != nil {
			a.cfg.Logger.Debug("LLDP frame not sent", "port", o.port, "error", err)
			continue
		}
		a.mu.Lock()
		if p := a.ports[o.port]; p != nil {
			p.counters.Out++
		}
		a.mu.Unlock()
	}
	if changed {
		a.notify()
	}
	return next
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func (a *Agent) ttl() uint16 {
	return uint16(min(65535, int64((a.cfg.Interval*time.Duration(a.cfg.Hold)+time.Second-1)/time.Second)))
}

func (a *Agent) active(p *port) bool { return a.enabled && !p.disabled && p.status.Up }

// expire removes neighbors whose time to live is over. The caller holds a.mu.
func (a *Agent) expire(p *port, now time.Time) bool {
	before := len(p.neighbors)
	p.neighbors = slices.DeleteFunc(p.neighbors, func(n *Neighbor) bool { return !n.expires().After(now) })
	p.counters.AgedOut += uint64(before - len(p.neighbors))
	return len(p.neighbors) < before
}

func (n *Neighbor) expires() time.Time { return n.Last.Add(time.Duration(n.TTL) * time.Second) }

// frame encodes a port's frame; nil if that fails. The caller holds a.mu.
func (a *Agent) frame(p *port, ttl uint16) []byte {
	f := &Frame{
		Source: a.PortMAC(p.status.ID), ChassisKind: layers.LLDPChassisIDSubTypeMACAddr, ChassisID: a.cfg.Chassis[:],
		PortKind: layers.LLDPPortIDSubtypeIfaceName, PortID: []byte(PortName(p.status)), TTL: ttl,
	}
	if ttl > 0 { // a shutdown frame has the mandatory TLVs only
		f.SystemName, f.SystemDescription, f.PortDescription = cut(a.cfg.SystemName), cut(a.cfg.SystemDescription),
			cut(PortName(p.status))
		f.Capabilities, f.Enabled = CapabilityBridge|CapabilityRouter, CapabilityRouter
		f.Management = a.cfg.Management
	}
	b, err := f.Marshal()
	if err != nil {
		a.cfg.Logger.Debug("LLDP frame cannot be made", "port", p.status.ID, "error", err)
		return nil
	}
	return b
}

// PortName is the name of a port in frames and leaves.
func PortName(p softswitch.PortStatus) string {
	return cmp.Or(p.Name, fmt.Sprintf("port%d", p.ID))
}

// portChanged handles a port that is added, removed, comes up or goes down.
func (a *Agent) portChanged(st softswitch.PortStatus) {
	a.mu.Lock()
	p := a.ports[st.ID]
	lost := p != nil && !st.Up && len(p.neighbors) > 0
	switch {
	case st.Removed:
		delete(a.ports, st.ID)
	case p == nil:
		p = &port{status: st}
		a.ports[st.ID] = p
		a.sendFast(p)
	default:
		came := st.Up && !p.status.Up
		p.status = st
		if came {
			a.sendFast(p)
		}
	}
	if p != nil && !st.Up {
		p.neighbors = nil // section 9.2.9
	}
	a.mu.Unlock()
	a.Wake()
	if lost {
		a.notify()
	}
}

// sendFast makes a port send now and then at the fast interval. The caller holds a.mu.
func (a *Agent) sendFast(p *port) {
	p.due, p.fast = time.Time{}, a.cfg.Fast-1
}

// Wake makes Run call Tick now.
func (a *Agent) Wake() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// receive handles a frame that arrived on a port.
func (a *Agent) receive(id uint32, frame []byte) {
	f, err := Parse(frame)
	now := a.cfg.Now()
	a.mu.Lock()
	p := a.ports[id]
	if p == nil || !a.active(p) {
		a.mu.Unlock()
		return
	}
	p.counters.In++
	if err != nil {
		p.counters.Discarded++
		if errors.Is(err, ErrMalformed) {
			p.counters.Errors++
		}
		a.mu.Unlock()
		return
	}
	p.counters.Unknown += uint64(f.Unknown)
	changed, fresh := a.learn(p, f, now)
	if fresh {
		a.sendFast(p)
	}
	a.mu.Unlock()
	if fresh {
		a.Wake()
	}
	if changed {
		a.notify()
	}
}

// learn updates the neighbors of a port; it returns whether a value changed and whether the
// neighbor is new. The caller holds a.mu.
func (a *Agent) learn(p *port, f *Frame, now time.Time) (changed, fresh bool) {
	i := slices.IndexFunc(p.neighbors, func(n *Neighbor) bool {
		return n.ChassisKind == f.ChassisKind && n.PortKind == f.PortKind &&
			slices.Equal(n.ChassisID, f.ChassisID) && slices.Equal(n.PortID, f.PortID)
	})
	switch {
	case f.TTL == 0:
		if i >= 0 {
			p.neighbors = slices.Delete(p.neighbors, i, i+1)
		}
		return i >= 0, false
	case i >= 0:
		n := p.neighbors[i]
		changed = n.SystemName != f.SystemName || n.SystemDescription != f.SystemDescription ||
			n.PortDescription != f.PortDescription || n.Management != f.Management || n.TTL != f.TTL
		p.neighbors[i] = &Neighbor{ID: n.ID, Port: n.Port, Frame: *f, First: n.First, Last: now}
		return changed, false
	case len(p.neighbors) >= a.cfg.MaxNeighbors:
		p.counters.Discarded++
		return false, false
	}
	a.nextID++
	p.neighbors = append(p.neighbors, &Neighbor{ID: a.nextID, Port: p.status.ID, Frame: *f, First: now, Last: now})
	return true, true
}

// Neighbors returns the neighbors of all ports, by port and then by the time of their first frame.
func (a *Agent) Neighbors() []Neighbor {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.cfg.Now()
	var out []Neighbor
	for _, p := range a.ports {
		for _, n := range p.neighbors {
			if n.expires().After(now) {
				out = append(out, *n)
			}
		}
	}
	slices.SortFunc(out, func(x, y Neighbor) int {
		return cmp.Or(cmp.Compare(x.Port, y.Port),
			cmp.Compare(x.ID, y.ID))
	})
	return out
}

// Watch calls f after each change of the neighbors or the configuration, in the goroutine that made
// it, until stop is called. f must not call the agent.
func (a *Agent) Watch(f func()) (stop func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watchID++
	id := a.watchID
	a.watchers[id] = f
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.watchers, id)
	}
}

func (a *Agent) notify() {
	a.mu.Lock()
	fs := make([]func(), 0, len(a.watchers))
	for _, f := range a.watchers {
		fs = append(fs, f)
	}
	a.mu.Unlock()
	for _, f := range fs {
		f()
	}
}

// State is the configuration in force.
type State struct {
	Enabled                       bool
	SystemName, SystemDescription string
	Chassis                       [6]byte
	Interval                      time.Duration
}

// State returns the configuration in force.
func (a *Agent) State() State {
	a.mu.Lock()
	defer a.mu.Unlock()
	return State{a.enabled, a.cfg.SystemName, a.cfg.SystemDescription, a.cfg.Chassis, a.cfg.Interval}
}

// PortState returns whether LLDP is enabled on a port, and its counters; ok is false if the port
// does not exist.
func (a *Agent) PortState(id uint32) (enabled bool, c Counters, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.ports[id]
	if p == nil {
		return false, Counters{}, false
	}
	return !p.disabled, p.counters, true
}

// SetEnabled turns LLDP on or off. Turning it off sends shutdown frames and removes all neighbors.
func (a *Agent) SetEnabled(on bool) {
	a.mu.Lock()
	changed := a.enabled != on
	if changed {
		for _, p := range a.ports {
			a.toggle(p, on && !p.disabled)
		}
		a.enabled = on
	}
	a.mu.Unlock()
	a.after(changed)
}

// SetPortEnabled turns LLDP on or off on one port.
func (a *Agent) SetPortEnabled(id uint32, on bool) {
	a.mu.Lock()
	p := a.ports[id]
	changed := p != nil && p.disabled == on
	if changed {
		a.toggle(p, on && a.enabled)
		p.disabled = !on
	}
	a.mu.Unlock()
	a.after(changed)
}

// SetSystemName changes the advertised name, and advertises it.
func (a *Agent) SetSystemName(name string) {
	a.mu.Lock()
	changed := a.cfg.SystemName != name
	a.cfg.SystemName = name
	if changed {
		for _, p := range a.ports {
			p.due = time.Time{}
		}
	}
	a.mu.Unlock()
	a.after(changed)
}

// toggle starts or stops LLDP on a port. The caller holds a.mu.
func (a *Agent) toggle(p *port, on bool) {
	if on {
		a.sendFast(p)
		p.shutdown = false
		return
	}
	p.shutdown = a.active(p)
	p.neighbors = nil
}

func (a *Agent) after(changed bool) {
	if changed {
		a.Wake()
		a.notify()
	}
}
