// SPDX-License-Identifier: Apache-2.0

// Package lightguardian is LightGuardian's host role in Go (paper, sections 6.1 and 7.2): it
// removes sketchlets from packets that arrive, and reports them and the flows of the host to the
// collector.
//
// docs/lightguardian.md describes the role.
package lightguardian

import (
	"errors"
	"slices"
	"time"

	"github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/lightguardian/wire"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/hostagent/role"
	"github.com/netsketch/netsketch/sketch/flow"
)

// message is the count of sketchlets of a message, as in the paper.
const message = 350

// maxUnclaimed is the count of epochs that are kept until the collector requests them.
const maxUnclaimed = 4

// Role removes and keeps the sketchlets of one host. Its methods are called by one goroutine at a
// time.
type Role struct {
	clock    *epoch.Clock
	now      func() time.Duration
	settings *applied // nil: sketchlets are removed and not kept

	next    uint64 // first epoch that is not reported
	current *Batch
	waiting []*Batch // ended epochs that wait for their request, in order
	recent  []*Batch // the newest ended epochs of the interval, at most
	dropped uint64
	onFull  func()
	hidden  bool // whether another role hides the flows of packets
	doubted int  // epochs to report as hidden: the current one and the one before, when hidden was last set
}

// applied are the settings of a role, with their devices by ID.
type applied struct {
	wire.Settings
	devices map[uint16]wire.Device
}

var (
	_ role.Role     = (*Role)(nil)
	_ role.Streamer = (*Role)(nil)

	_ role.Blindable = (*Role)(nil)
)

// New returns a role without settings: sketchlets are removed from packets and not kept. now is the
// clock by which the times between packets are measured.
func New(clock *epoch.Clock, now func() time.Duration) *Role {
	r := &Role{clock: clock, now: now, onFull: func() {}}
	r.current = r.empty(clock.Current())
	return r
}

// Name implements role.Role.
func (r *Role) Name() string { return wire.Role }

// Apply implements role.Role. With changed settings, the role begins without sketchlets.
func (r *Role) Apply(data []byte) error {
	s, err := wire.ParseSettings(data)
	if err != nil {
		return err
	}
	r.settings = &applied{*s, map[uint16]wire.Device{}}
	for _, d := range s.Devices {
		r.settings.devices[d.ID] = d
	}
	now := r.clock.Current()
	r.waiting, r.recent, r.dropped, r.next = nil, nil, 0, now+1
	r.current = r.empty(now)
	return nil
}

// SetHidden implements role.Blindable.
func (r *Role) SetHidden(hidden bool) { r.hidden, r.doubted = hidden, 2 }

// Out implements role.Role: hosts insert no sketchlets.
func (r *Role) Out(frames []*packet.Frame) {
	r.advance()
	b, flows, now := r.current, r.flows(), max(r.now(), 1)
	var ip packet.IP
	for _, f := range frames {
		frame := f.Bytes()
		link, err := packet.ParseLink(frame)
		if err != nil || link.Type != packet.EtherTypeIPv4 && link.Type != packet.EtherTypeIPv6 {
			continue
		}
		b.Counters[wire.Sent]++
		switch {
		case !flows:
		case ip.Parse(link.Type, frame[link.TypeAt+2:]) == nil:
			packet.SkipMark(&ip.Key, frame[link.TypeAt+2:])
			b.packet(&ip.Key, false, now)
		default:
			b.Counters[wire.NoFlow]++
		}
	}
}

// flows reports whether the settings ask for flows.
func (r *Role) flows() bool { return r.settings != nil && r.settings.Flows > 0 }

// In implements role.Role.
func (r *Role) In(frames []*packet.Frame) {
	r.advance()
	b, flows, now := r.current, r.flows(), max(r.now(), 1)
	var p place
	var ip packet.IP
	for _, f := range frames {
		frame := f.Bytes()
		link, err := packet.ParseLink(frame)
		if err != nil {
			continue
		}
		if link.Type != packet.EtherTypeIPv4 && link.Type != packet.EtherTypeIPv6 {
			continue
		}
		b.Counters[wire.Packets]++
		start := link.TypeAt + 2
		var key *flow.Key
		if flows {
			if ip.Parse(link.Type, frame[start:]) == nil {
				key = &ip.Key
				packet.SkipMark(key, frame[start:])
				b.packet(key, true, now)
			} else {
				b.Counters[wire.NoFlow]++
			}
		}
		if !p.locate(link.Type, frame[start:]) {
			continue
		}
		s, err := wire.Find(frame[start+p.payload : start+p.end])
		switch {
		case err == nil:
			b.Counters[wire.Sketchlets]++
			b.Counters[wire.InBandBytes] += uint64(len(s))
			b.Keep(s, key)
			p.strip(f, start, len(s))
		case errors.Is(err, wire.ErrShort):
			b.Counters[wire.Short]++
		default:
			b.Counters[wire.BadCheck]++
		}
	}
}

// advance keeps the batch of an epoch that is over.
func (r *Role) advance() {
	now := r.clock.Current()
	if r.current.Epoch == now {
		return
	}
	if r.settings == nil || r.current.Epoch < r.next {
		r.current.Epoch = now // the first report has the sketchlets that arrived before its epoch
		r.current.forgetFlows()
		return
	}
	r.remember(r.current)
	if r.waiting = append(r.waiting, r.current); len(r.waiting) > maxUnclaimed {
		r.dropped++
		r.waiting = slices.Delete(r.waiting, 0, 1)
	}
	r.current = r.empty(now)
}

// remember keeps the epochs that Latest returns: the newest epoch, and before it as many epochs of
// the same interval length as have at most settings.Kept bytes of sketchlets in total.
func (r *Role) remember(b *Batch) {
	r.recent = append(r.recent, b)
	bytes := 0
	for _, b := range r.recent {
		bytes += len(b.Sketchlets)
	}
	epochs := uint64(max(r.settings.Interval, 1))
	for len(r.recent) > 1 && (r.recent[0].Epoch+epochs <= b.Epoch || bytes > r.settings.Kept) {
		bytes -= len(r.recent[0].Sketchlets)
		r.recent = slices.Delete(r.recent, 0, 1)
	}
}

// Batch returns the results of an epoch, or nil if the epoch was sealed or dropped. A data path in
// the kernel adds to the batch.
func (r *Role) Batch(e uint64) *Batch {
	r.advance()
	for _, b := range append(r.waiting, r.current) {
		if b.Epoch == e {
			return b
		}
	}
	return nil
}

// Latest returns the settings, and the results of one interval: of the newest ended epoch with
// packets, and of the epochs before it. ok is false if no epoch had packets. The report is a copy.
func (r *Role) Latest() (s wire.Settings, report wire.Report, ok bool) {
	r.advance()
	if len(r.recent) == 0 {
		return wire.Settings{}, wire.Report{}, false
	}
	sum := r.empty(0)
	for _, b := range r.recent {
		sum.Epoch, sum.Counters = b.Epoch, b.Counters
		sum.Sketchlets = append(sum.Sketchlets, b.Sketchlets...)
		for i := range b.Flows {
			f := &b.Flows[i]
			sum.Count(f)
			for _, device := range f.Devices {
				sum.passed(&f.Key, device)
			}
		}
	}
	return r.settings.Settings, sum.Report, true
}

// Seal implements role.Role. Sketchlets belong to the epoch in which they arrive.
func (r *Role) Seal(e uint64) role.Report {
	r.advance()
	if r.settings == nil || e >= r.clock.Current() || e < r.next {
		return nil
	}
	var found *Batch
	r.waiting = slices.DeleteFunc(r.waiting, func(b *Batch) bool {
		switch {
		case b.Epoch == e:
			found = b
		case b.Epoch < e:
			r.dropped++
		}
		return b.Epoch <= e
	})
	if found == nil { // no packet in the epoch
		found = r.empty(e)
	}
	r.next = e + 1
	found.Counters[wire.Missed], r.dropped = r.dropped, 0
	if r.hidden || r.doubted > 0 {
		found.Counters[wire.Hidden], r.doubted = 1, max(r.doubted-1, 0)
	}
	return &report{*found.rest()}
}

// OnFull implements role.Streamer.
func (r *Role) OnFull(f func()) { r.onFull = f }

// Part implements role.Streamer. Local analysis has the sketchlets as well.
func (r *Role) Part(full bool) (e uint64, part role.Report) {
	r.advance()
	if r.settings == nil || r.current.Epoch < r.next {
		return 0, nil
	}
	least := 1
	if full {
		least = message
	}
	p := r.current.part(least)
	if p == nil {
		return 0, nil
	}
	return p.Epoch, &report{*p}
}

// report is a sealed epoch.
type report struct{ wire.Report }

// Append implements role.Report.
func (r *report) Append(b []byte) []byte {
	r.Flows = slices.Clone(r.Flows) // the role may still read its own slice
	r.Sort()
	return r.Report.Append(b)
}

// Release implements role.Report.
func (r *report) Release() {}
