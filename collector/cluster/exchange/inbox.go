// SPDX-License-Identifier: Apache-2.0

package exchange

import (
	"context"
	"fmt"
	"sync"

	"github.com/netsketch/netsketch/collector/cluster"
	"github.com/netsketch/netsketch/collector/cluster/codec"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// errNoPart says that the part of a source's collector did not arrive in the epoch.
var errNoPart = fmt.Errorf("no part of the collector that owns it: %w", epoch.ErrLate)

// errDown says that no collector of the cluster owns the source.
var errDown = fmt.Errorf("no collector of the cluster owns it: %w", epoch.ErrLate)

// How many epochs the inbox keeps: parts of the newest ones may still arrive, and the clock of
// another collector may be ahead.
const (
	keepEpochs  = 4
	aheadEpochs = 2
)

// inbox holds the outcomes of sources of other collectors until the engine collects them. One
// outcome of a source and epoch counts: the first with a reading, or the reason of the owner.
type inbox struct {
	mu     sync.Mutex
	newest uint64 // number of the newest epoch that ended here
	epochs map[uint64]*arrived
	fences map[string]uint64 // newest fence of each collector
}

// arrived is an epoch.
type arrived struct {
	members map[string]bool // members whose parts have arrived
	slots   map[string]*slot
}

// slot is the outcome of one source.
type slot struct {
	ready  chan struct{} // closed when the outcome has arrived
	result epoch.Result
	err    error
	filled bool
	over   bool // the engine waits no longer
}

func (in *inbox) init() { in.epochs, in.fences = map[uint64]*arrived{}, map[string]uint64{} }

// at returns an epoch, and creates the epoch if the inbox does not have it. in.mu is held.
func (in *inbox) at(number uint64) *arrived {
	e := in.epochs[number]
	if e == nil {
		e = &arrived{members: map[string]bool{}, slots: map[string]*slot{}}
		in.epochs[number] = e
	}
	return e
}

func (e *arrived) slot(name string) *slot {
	s := e.slots[name]
	if s == nil {
		s = &slot{ready: make(chan struct{})}
		e.slots[name] = s
	}
	return s
}

// begin notes that an epoch has ended here.
func (in *inbox) begin(number uint64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if number <= in.newest {
		return
	}
	in.newest = number
	for n := range in.epochs {
		if n+keepEpochs < number {
			delete(in.epochs, n)
		}
	}
}

// measured returns the newest epoch that ended here.
func (in *inbox) measured() uint64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.newest
}

// refusal is a reason to refuse a part.
type refusal uint8

const (
	accepted refusal = iota
	repeated
	tooLate
	ahead
	unknown
	deposed
)

var refusals = [...]string{
	repeated: "a part of this epoch has arrived", tooLate: "the epoch has been delivered",
	ahead: "the epoch is in the future; are the clocks apart?", unknown: "the collector is not a member of the cluster",
	deposed: "the collector has had a newer lease since",
}

// take takes a part and passes reports on delivered epochs to late. dropped is the number of
// outcomes of the part that are not used.
func (in *inbox) take(member string, p *codec.Part, view cluster.View, late func(sdk.LateReport) bool) (why refusal,
	dropped int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	_, known := view.Member(member)
	switch {
	case !known:
		return unknown, 0
	case p.Fence < in.fences[member]:
		return deposed, 0
	case p.Epoch > in.newest+aheadEpochs:
		return ahead, 0
	case p.Epoch+keepEpochs < in.newest:
		return tooLate, 0
	}
	in.fences[member] = p.Fence
	e := in.at(p.Epoch)
	if e.members[member] {
		return repeated, 0
	}
	e.members[member] = true
	for _, r := range p.Late {
		late(r)
	}
	over := 0
	for i := range p.Sources {
		s := &p.Sources[i]
		s.Result.Warnings = append(s.Result.Warnings, p.Warnings...)
		s.Result.Flips = p.Flips
		slot := e.slot(s.Name)
		switch {
		case slot.over:
			over++
			if s.Err == nil {
				for _, r := range s.Result.Reading.Hosts {
					late(sdk.LateReport{Epoch: p.Epoch, HostReport: r})
				}
			}
		case slot.filled || s.Err != nil && owner(view, p.Epoch, s.Name, s.Host) != member:
			dropped++
		default:
			slot.result, slot.err, slot.filled = s.Result, s.Err, true
			close(slot.ready)
		}
	}
	if over > 0 && over == len(p.Sources) {
		return tooLate, 0
	}
	return accepted, dropped + over
}

func owner(view cluster.View, number uint64, name string, host bool) string {
	if host {
		return view.In(number).Host(name)
	}
	return view.Device(name)
}

// wait returns the outcome of a source.
func (in *inbox) wait(ctx context.Context, number uint64, name string) (epoch.Result, error) {
	in.mu.Lock()
	s := in.at(number).slot(name)
	in.mu.Unlock()
	select {
	case <-s.ready:
	case <-ctx.Done():
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	s.over = true
	if !s.filled {
		return epoch.Result{}, errNoPart
	}
	result := s.result
	s.result = epoch.Result{} // frees the readings, because they take much memory
	return result, s.err
}

// Source returns the source of a device or host that another collector owns. An engine can have
// only one source of each name.
func (c *Component) Source(name string, host bool) epoch.Source { return &source{c, name, host} }

// source is a device or host that another collector collects.
type source struct {
	c    *Component
	name string
	host bool
}

// Name implements epoch.Source.
func (s *source) Name() string { return s.name }

// Sealing implements epoch.Source.
func (s *source) Sealing() epoch.Sealing {
	if s.host {
		return epoch.HostElsewhere
	}
	return epoch.DeviceElsewhere
}

// Begin implements epoch.Source.
func (s *source) Begin(b epoch.Boundary) (epoch.Part, []string) {
	if !b.Opening {
		s.c.inbox.begin(b.Number)
	}
	return &awaited{s, b.Number}, nil
}

// awaited is one boundary of a source.
type awaited struct {
	*source
	number uint64
}

// Seal implements epoch.Part; it is not called.
func (a *awaited) Seal(context.Context) error { return nil }

// Collect implements epoch.Part: it waits for the part of the owner, if there is one.
func (a *awaited) Collect(ctx context.Context, _ epoch.Drained) (epoch.Result, error) {
	if view := a.c.deps.View(); owner(view, a.number, a.name, a.host) == "" {
		return epoch.Result{}, errDown
	}
	return a.c.inbox.wait(ctx, a.number, a.name)
}
