// SPDX-License-Identifier: Apache-2.0

// Package univmon is UnivMon's host role in Go: it counts the packets of a host in the universal
// sketches that switches with the program univmon have, cell by cell the same, so that sketches of
// hosts and switches can be added. Packets pass unchanged.
//
// docs/univmon.md describes the role.
package univmon

import (
	"errors"
	"slices"
	"sync"

	"github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/hostagent/role"
	"github.com/netsketch/netsketch/hostagent/univmon/wire"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/universal"
)

// maxUnclaimed is the count of epochs that are kept until the collector requests them.
const maxUnclaimed = 4

// Role counts the packets of one host. Its methods are called by one goroutine at a time.
type Role struct {
	clock    *epoch.Clock
	settings *wire.Settings // nil: nothing is counted
	flow     func(*flow.Key, []byte) error
	key      flow.Key // flow key of the packet

	next    uint64       // first epoch that is not reported
	current *wire.Report // nil without settings
	waiting []*wire.Report
	dropped uint64

	mu   sync.Mutex     // guards the next two fields, because sealed reports return from other goroutines
	kept *wire.Settings // settings of the reports in free
	free []*wire.Report
}

var _ role.Role = (*Role)(nil)

// New returns a role without settings.
func New(clock *epoch.Clock) *Role { return &Role{clock: clock} }

// Name implements role.Role.
func (r *Role) Name() string { return wire.Role }

// Apply implements role.Role. Other settings begin with empty sketches.
func (r *Role) Apply(data []byte) error {
	s, err := wire.ParseSettings(data)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.kept, r.free = s, nil
	r.mu.Unlock()
	now := r.clock.Current()
	r.settings, r.waiting, r.dropped, r.next = s, nil, 0, now+1
	r.flow = flows[s.Encapsulation]
	r.current = r.empty(now)
	return nil
}

// flows parse the flow of a packet.
var flows = map[wire.Encapsulation]func(*flow.Key, []byte) error{
	wire.EncapsulationSwitch:      packet.Flow,
	wire.EncapsulationOuter:       packet.OuterFlow,
	wire.EncapsulationInner:       packet.InnerFlow,
	wire.EncapsulationSwitchInner: packet.InnerSwitchFlow,
}

// Out implements role.Role.
func (r *Role) Out(frames []*packet.Frame) {
	if r.settings != nil && r.settings.Sent {
		r.count(frames, wire.Sent)
	}
}

// In implements role.Role.
func (r *Role) In(frames []*packet.Frame) {
	if r.settings != nil && r.settings.Received {
		r.count(frames, wire.Received)
	}
}

func (r *Role) count(frames []*packet.Frame, direction wire.Counter) {
	r.advance()
	c := r.current
	c.Counters[direction] += uint64(len(frames))
	for _, f := range frames {
		if err := r.flow(&r.key, f.Bytes()); err != nil {
			c.Counters[reason(err)]++
			continue
		}
		for _, s := range c.Sketches {
			s.Update(&r.key)
		}
	}
}

// reason returns the counter of packets that are in no sketch.
func reason(err error) wire.Counter {
	switch {
	case errors.Is(err, packet.ErrNotIP):
		return wire.NotIP
	case errors.Is(err, packet.ErrVersion):
		return wire.BadVersion
	case errors.Is(err, packet.ErrLength):
		return wire.BadLength
	case errors.Is(err, packet.ErrChecksum):
		return wire.BadChecksum
	case errors.Is(err, packet.ErrDepth):
		return wire.TooDeep
	}
	return wire.Truncated
}

// advance keeps the report of an epoch that is over.
func (r *Role) advance() {
	now := r.clock.Current()
	switch {
	case r.current.Epoch == now:
		return
	case r.current.Epoch < r.next: // the epoch is not measured whole
		r.release(r.current, r.settings)
	default:
		if r.waiting = append(r.waiting, r.current); len(r.waiting) > maxUnclaimed {
			r.dropped++
			r.release(r.waiting[0], r.settings)
			r.waiting = slices.Delete(r.waiting, 0, 1)
		}
	}
	r.current = r.empty(now)
}

// Report returns the counts of an epoch, or nil if the epoch was sealed, dropped or not measured
// whole. A data path outside of this process adds to it.
func (r *Role) Report(e uint64) *wire.Report {
	if r.settings == nil {
		return nil
	}
	r.advance()
	for _, x := range append(r.waiting, r.current) {
		if x.Epoch == e && e >= r.next {
			return x
		}
	}
	return nil
}

// empty returns an empty report for the settings in force.
func (r *Role) empty(e uint64) *wire.Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.free); n > 0 {
		x := r.free[n-1]
		r.free = r.free[:n-1]
		x.Epoch = e
		return x
	}
	x := &wire.Report{Epoch: e, Packets: r.settings.Packets}
	for _, l := range r.settings.Sketches {
		s, err := universal.New(l)
		if err != nil {
			panic(err) // ParseSettings has checked the layout
		}
		x.Sketches = append(x.Sketches, s)
	}
	return x
}

// release empties a report of settings for another epoch.
func (r *Role) release(x *wire.Report, of *wire.Settings) {
	x.Counters = [wire.Counters]uint64{}
	for _, s := range x.Sketches {
		s.Reset()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if of == r.kept {
		r.free = append(r.free, x)
	}
}

// Seal implements role.Role.
func (r *Role) Seal(e uint64) role.Report {
	if r.settings == nil || e >= r.clock.Current() || e < r.next {
		return nil
	}
	r.advance()
	var found *wire.Report
	r.waiting = slices.DeleteFunc(r.waiting, func(x *wire.Report) bool {
		switch {
		case x.Epoch == e:
			found = x
		case x.Epoch < e:
			r.dropped++
			r.release(x, r.settings)
		}
		return x.Epoch <= e
	})
	if found == nil { // no packet in the epoch
		found = r.empty(e)
	}
	r.next = e + 1
	found.Counters[wire.Missed], r.dropped = r.dropped, 0
	return &sealed{Report: found, role: r, settings: r.settings}
}

// sealed is the report of an epoch.
type sealed struct {
	*wire.Report
	role     *Role
	settings *wire.Settings
}

// Release implements role.Report.
func (s *sealed) Release() { s.role.release(s.Report, s.settings) }
