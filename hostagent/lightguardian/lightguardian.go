// SPDX-License-Identifier: Apache-2.0

// Package lightguardian is LightGuardian's host role in Go (paper, sections 6.1 and 7.2): it
// removes sketchlets from packets that arrive and reports them to the collector.
//
// docs/lightguardian.md describes the role.
package lightguardian

import (
	"bytes"
	"errors"
	"slices"

	"github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/lightguardian/wire"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/hostagent/role"
)

// maxUnclaimed is the count of epochs that are kept until the collector requests them.
const maxUnclaimed = 4

// Role removes and keeps the sketchlets of one host. Its methods are called by one goroutine at a
// time.
type Role struct {
	clock    *epoch.Clock
	settings *wire.Settings // nil: sketchlets are removed and not kept
	devices  map[uint16]wire.Device

	next    uint64 // first epoch that is not reported
	current *batch
	waiting []*batch // epochs that are over, in their order
	dropped uint64
}

// batch has the sketchlets of an epoch.
type batch struct {
	wire.Report
	at map[uint64]int // offset of a sketchlet, by device, column and interval
}

var _ role.Role = (*Role)(nil)

// New returns a role without settings: sketchlets are removed from packets and not kept.
func New(clock *epoch.Clock) *Role {
	r := &Role{clock: clock}
	r.current = empty(clock.Current())
	return r
}

// Name implements role.Role.
func (r *Role) Name() string { return wire.Role }

// Apply implements role.Role. Other settings begin without sketchlets.
func (r *Role) Apply(data []byte) error {
	s, err := wire.ParseSettings(data)
	if err != nil {
		return err
	}
	r.settings, r.devices = s, map[uint16]wire.Device{}
	for _, d := range s.Devices {
		r.devices[d.ID] = d
	}
	now := r.clock.Current()
	r.waiting, r.dropped, r.next = nil, 0, now+1
	r.current = empty(now)
	return nil
}

// Out implements role.Role: hosts insert no sketchlets.
func (r *Role) Out([]*packet.Frame) {}

// In implements role.Role.
func (r *Role) In(frames []*packet.Frame) {
	r.advance()
	b := r.current
	var p place
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
		if !p.locate(link.Type, frame[start:]) {
			continue
		}
		s, err := wire.Find(frame[start+p.payload : start+p.end])
		switch {
		case err == nil:
			b.Counters[wire.Sketchlets]++
			b.Counters[wire.InBandBytes] += uint64(len(s))
			r.keep(b, s)
			p.strip(f, start, len(s))
		case errors.Is(err, wire.ErrShort):
			b.Counters[wire.Short]++
		default:
			b.Counters[wire.BadCheck]++
		}
	}
}

// keep adds a sketchlet to the report. One that differs from an earlier one of the same column
// replaces it: a packet that waited in a queue while its interval ended was counted in between.
func (r *Role) keep(b *batch, s wire.Sketchlet) {
	if r.settings == nil {
		return
	}
	d, known := r.devices[s.Device()]
	switch {
	case !known:
		b.Counters[wire.UnknownDevice]++
		return
	case int(s.Column()) >= d.Columns:
		b.Counters[wire.UnknownColumn]++
		return
	case s.Words() != d.Words:
		b.Counters[wire.WrongWords]++
		return
	}
	key := uint64(s.Device())<<24 | uint64(s.Column())<<8 | uint64(s.Interval())
	at, seen := b.at[key]
	switch {
	case seen && bytes.Equal(b.Report.Sketchlets[at:at+len(s)], s):
		b.Counters[wire.Duplicates]++
	case seen:
		b.Counters[wire.Disagreeing]++
		copy(b.Report.Sketchlets[at:], s)
	case len(b.Report.Sketchlets)+len(s) > r.settings.Kept:
		b.Counters[wire.Full]++
	default:
		b.at[key] = len(b.Report.Sketchlets)
		b.Report.Sketchlets = append(b.Report.Sketchlets, s...)
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
		return
	}
	if r.waiting = append(r.waiting, r.current); len(r.waiting) > maxUnclaimed {
		r.dropped++
		r.waiting = slices.Delete(r.waiting, 0, 1)
	}
	r.current = empty(now)
}

// empty returns an empty batch.
func empty(e uint64) *batch {
	return &batch{Report: wire.Report{Epoch: e}, at: map[uint64]int{}}
}

// Seal implements role.Role. Sketchlets belong to the epoch in which they arrive.
func (r *Role) Seal(e uint64) role.Report {
	r.advance()
	if r.settings == nil || e >= r.clock.Current() || e < r.next {
		return nil
	}
	var found *batch
	r.waiting = slices.DeleteFunc(r.waiting, func(b *batch) bool {
		switch {
		case b.Epoch == e:
			found = b
		case b.Epoch < e:
			r.dropped++
		}
		return b.Epoch <= e
	})
	if found == nil { // no packet in the epoch
		found = empty(e)
	}
	r.next = e + 1
	found.Counters[wire.Dropped], r.dropped = r.dropped, 0
	return &report{Report: found.Report}
}

// report is a sealed epoch.
type report struct{ wire.Report }

// Append implements role.Report.
func (r *report) Append(b []byte) []byte { return r.Report.Append(b) }

// Release implements role.Report.
func (r *report) Release() {}
