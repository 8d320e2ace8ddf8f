// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/netsketch/netsketch/hostagent/omnimon/header"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/lab/truth"
	"github.com/netsketch/netsketch/sketch/flow"
)

// HostPath processes the packets of a host and may change them: the data path of an agent, such as
// an agent.RolePath. The lab calls Out in one goroutine at a time, and In as well.
type HostPath interface {
	// Out receives packets that the host sends.
	Out(frames []*packet.Frame)
	// In receives packets that arrived at the host.
	In(frames []*packet.Frame)
	// Epoch is the epoch in which packets are measured that arrive now.
	Epoch() uint64
}

// host is one end of the network.
type host struct {
	name           string
	up             *wire
	sent, received atomic.Uint64

	path HostPath // nil: packets are not changed
	out  packet.Frame

	arriving sync.Mutex // orders arriving packets
	in       packet.Frame
}

// SetHostPath passes the packets of host i of the fabric through a data path. Call it before Play.
func (n *Network) SetHostPath(i int, path HostPath) { n.hosts[i].path = path }

// Journal is the ground truth of packets with the header of Config.Header. Names of links are as in
// results: "leaf1/3~spine1/1", "h1~leaf1/1".
func (n *Network) Journal() *truth.Journal { return &n.journal }

// Stays is the ground truth of how long packets stayed at switches, by the epoch in which they
// arrived at a host with a data path; empty without Config.Track. BMv2's stays are not known.
func (n *Network) Stays() *truth.Stays { return &n.stays }

// hostRule returns the flow of a frame at a host.
func (n *Network) hostRule(frame []byte) (flow.Key, bool) {
	if n.cfg.Rule != nil {
		return n.cfg.Rule(frame)
	}
	return truth.Parse(frame)
}

// send takes a frame that a host sends and returns what leaves it, which is valid until the next
// call.
func (n *Network) send(h *host, frame []byte, p *passage) []byte {
	h.sent.Add(1)
	p.sent = bytes.Clone(frame)
	if n.cfg.Track {
		p.key, p.tracked = n.hostRule(frame)
	}
	if h.path == nil {
		return frame
	}
	h.out.Set(frame)
	h.path.Out([]*packet.Frame{&h.out})
	out := h.out.Bytes()
	var header header.Header
	if n.cfg.Header == nil || !peek(out, n.cfg.Header, &header) { // without a lease the packet has no header
		return out
	}
	if p.key, p.journaled = truth.Parse(frame); p.journaled {
		p.epoch, p.bytes = header.Epoch, truth.Length(frame)
		n.journal.Send(p.epoch, p.key, p.bytes)
	}
	return out
}

// enter records that a packet has entered the pipeline of a switch.
func (n *Network) enter(p *passage, name string) {
	if p.journaled {
		n.journal.Enter(p.epoch, truth.Hop{Flow: p.key, Number: p.hops, Switch: name}, p.bytes)
	}
	p.hops++
}

// lose records that a switch or link has lost a packet.
func (n *Network) lose(p *passage, element string) {
	if p.probe {
		n.probesMu.Lock()
		n.probesLost[element]++
		n.probesMu.Unlock()
	}
	if p.journaled {
		n.journal.Lose(p.epoch, truth.Loss{Flow: p.key, Element: element}, p.bytes)
	}
	if p.tracked {
		p.entry.Lost(element)
	}
}

// LostProbes returns the probes that each switch or link has lost, which Stats leave out and their
// own counters do not.
func (n *Network) LostProbes() map[string]uint64 {
	n.probesMu.Lock()
	defer n.probesMu.Unlock()
	return maps.Clone(n.probesLost)
}

// arrive delivers a frame to a host.
func (n *Network) arrive(h *host, frame []byte, p *passage) {
	if !p.probe {
		h.received.Add(1)
	}
	p.entry.Left()
	if p.journaled {
		n.journal.Receive(p.epoch, p.key, p.bytes)
	}
	h.arriving.Lock()
	defer h.arriving.Unlock()
	if h.path == nil {
		if !p.probe {
			n.altered.compare(h.name, p.sent, frame)
		}
		return
	}
	if key, ok := n.hostRule(frame); p.tracked && ok && key == p.key { // excludes telemetry reports about the packet
		n.stays.Arrive(h.path.Epoch(), h.name, p.key, p.stays)
	}
	h.in.Set(frame)
	h.path.In([]*packet.Frame{&h.in})
	if !p.probe {
		n.altered.compare(h.name, p.sent, h.in.Bytes())
	}
}

// payload returns a frame without OmniMon's header, which ground truth does not cover. If there is
// one, scratch holds the result.
func payload(frame []byte, layout *header.Layout, scratch *packet.Frame) []byte {
	if layout == nil {
		return frame
	}
	var h header.Header
	if !peek(frame, layout, &h) {
		return frame
	}
	link, _ := packet.ParseLink(frame) // peek parsed the link layer
	scratch.Set(frame)
	layout.Strip(scratch, link, &h)
	return scratch.Bytes()
}

// peek reads the header of a frame, and reports whether it has one.
func peek(frame []byte, layout *header.Layout, h *header.Header) bool {
	link, err := packet.ParseLink(frame)
	return err == nil && layout.Peek(frame, link, h) == nil
}
