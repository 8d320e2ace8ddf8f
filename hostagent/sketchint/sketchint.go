// SPDX-License-Identifier: Apache-2.0

// Package sketchint is SketchINT's host role in Go (paper, sections III and V): it reads the INT of
// packets that arrive, removes it, and compresses it into towers keyed by flow and by flow and
// switch. It also measures telemetry reports.
//
// Packets of a cached flow are added up before they enter the towers (cache.go). Inflated latencies
// are judged at the end of an interval (judge.go). docs/sketchint.md describes the role.
package sketchint

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/inband"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/hostagent/role"
	"github.com/netsketch/netsketch/hostagent/sketchint/wire"
)

// maxUnclaimed is the count of intervals that are kept until the collector requests them.
const maxUnclaimed = 4

// Role measures the packets of one host. Its methods are called by one goroutine at a time; other
// goroutines may each use a Lane.
type Role struct {
	clock    *epoch.Clock
	settings atomic.Pointer[wire.Settings] // nil: packets pass unchanged
	own      *Lane
	lanes    []*Lane

	since   uint64 // first epoch that is measured whole
	next    uint64 // first interval that is not collected
	waiting []*group
	dropped uint64
	sources sources
	earlier atomic.Pointer[earlier]
	hidden  bool // whether another role hides the flows of packets
	doubted int  // intervals to report as hidden: the current one and the one before, when hidden was last set

	mu   sync.Mutex // guards the intervals of lanes and empty groups; not taken for packets
	done []*group   // groups of ended intervals
	free []*group
}

var (
	_ role.Role     = (*Role)(nil)
	_ role.Receiver = (*Role)(nil)
	_ role.Parallel = (*Role)(nil)

	_ role.Blindable = (*Role)(nil)
)

// Lane measures packets in one goroutine without locks: the groups of all lanes are merged when
// their interval is over. All packets of a flow belong to the same lane.
type Lane struct {
	role *Role
	busy atomic.Bool
	// group has the lane's measurements. The goroutine that takes it out owns it.
	group atomic.Pointer[group]
	_     [64]byte // two lanes share no cache line
}

// New returns a role without settings: packets pass unchanged until Apply.
func New(clock *epoch.Clock) *Role {
	r := &Role{clock: clock}
	r.own = r.Lane()
	return r
}

// Lane returns a new lane, to be used by one goroutine at a time.
func (r *Role) Lane() *Lane {
	l := &Lane{role: r}
	r.lanes = append(r.lanes, l)
	return l
}

// NewLane implements role.Parallel.
func (r *Role) NewLane() role.Lane { return r.Lane() }

// Name implements role.Role.
func (r *Role) Name() string { return wire.Role }

// Apply implements role.Role. Other settings begin with empty groups.
func (r *Role) Apply(data []byte) error {
	s, err := wire.ParseSettings(data)
	if err != nil {
		return err
	}
	g, err := newGroup(s)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.done, r.free = nil, []*group{g}
	r.mu.Unlock()
	r.settings.Store(s)
	r.since = r.clock.Current() + 1
	r.next, r.waiting = r.since/s.Interval, nil
	return nil
}

// SetHidden implements role.Blindable.
func (r *Role) SetHidden(hidden bool) { r.hidden, r.doubted = hidden, 2 }

// Out implements role.Role: INT is measured where it ends.
func (r *Role) Out([]*packet.Frame) {}

// In implements role.Role.
func (r *Role) In(frames []*packet.Frame) { r.own.In(frames) }

// In measures packets that arrived at the host, in their order, and removes their INT.
func (l *Lane) In(frames []*packet.Frame) {
	g := l.take()
	if g == nil {
		return
	}
	g.receive(frames)
	l.give(g)
}

// Receive implements role.Receiver.
func (r *Role) Receive(datagrams []role.Datagram) {
	g := r.own.take()
	if g == nil {
		return
	}
	for _, d := range datagrams {
		version, problem := g.reader.Begin(d.Payload)
		if problem != inband.None {
			g.Problems[problem]++
			g.fault(d.From, problem)
			if problem == inband.UnknownVersion {
				g.Versions[version]++
			}
			continue
		}
		if !r.sources.count(d.From, g.reader.Group()) {
			g.Counters[wire.SourcesFull]++
		}
		g.datagram(d.From)
	}
	r.own.give(g)
}

// take returns the group of the current interval, or nil without settings.
func (l *Lane) take() *group {
	r := l.role
	s := r.settings.Load()
	if s == nil {
		return nil
	}
	l.busy.Store(true)
	g := l.group.Swap(nil)
	now := r.clock.Current() // read last: if stop took the group of an ended interval, no other is begun for it
	if g != nil && g.settings == s && g.interval == now/s.Interval {
		return g
	}
	if g != nil {
		r.finish(g, nil)
	}
	if g = r.empty(s); g == nil {
		l.busy.Store(false)
		return nil
	}
	g.interval = now / s.Interval
	return g
}

// stop takes the group out of a lane, between two batches of packets. If it returns nil, the lane
// has kept all groups of earlier intervals.
func (l *Lane) stop() *group {
	for {
		before := l.busy.Load()
		g := l.group.Swap(nil)
		if g != nil || !before && !l.busy.Load() {
			return g
		}
		runtime.Gosched()
	}
}

// give puts a group back into the lane after its use. If collect has put another group there
// meanwhile, that group is kept as a finished one, so that neither is lost.
func (l *Lane) give(g *group) {
	if other := l.group.Swap(g); other != nil {
		l.role.finish(other, nil)
	}
	l.busy.Store(false)
}

// finish keeps the group of an interval that is over. cached are flows in the cache of another data
// path.
func (r *Role) finish(g *group, cached []Cached) {
	g.finish(r.earlier.Load(), cached)
	r.mu.Lock()
	defer r.mu.Unlock()
	if g.settings == r.settings.Load() {
		r.done = append(r.done, g)
	}
}

// Keep adds the measurements of a data path outside of this process in an ended interval. fill
// writes them into an empty report, and returns the flows in the cache of the data path. Keep may
// be called from any goroutine.
func (r *Role) Keep(interval uint64, fill func(*wire.Report) ([]Cached, error)) error {
	s := r.settings.Load()
	if s == nil {
		return nil
	}
	g := r.empty(s)
	if g == nil {
		return nil
	}
	g.interval = interval
	cached, err := fill(&g.Report)
	if err != nil {
		r.release(g)
		return err
	}
	g.adopt()
	r.finish(g, cached)
	return nil
}

// empty returns an empty group.
func (r *Role) empty(s *wire.Settings) *group {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.free); n > 0 && r.free[n-1].settings == s {
		g := r.free[n-1]
		r.free = r.free[:n-1]
		return g
	}
	g, err := newGroup(s)
	if err != nil {
		return nil // Apply has created a group
	}
	return g
}

// collect takes the groups of all intervals before the current one from the lanes, and merges the
// groups of each interval. It waits for a lane that is in the middle of a batch.
func (r *Role) collect(current uint64) {
	for _, l := range r.lanes {
		g := l.stop()
		if g != nil && (g.interval < current || !l.group.CompareAndSwap(nil, g)) {
			r.finish(g, nil)
		}
	}
	r.mu.Lock()
	over := r.done
	r.done = nil
	r.mu.Unlock()
	for _, g := range over {
		at := slices.IndexFunc(r.waiting, func(w *group) bool { return w.interval == g.interval })
		if at < 0 {
			r.waiting = append(r.waiting, g)
			continue
		}
		_ = r.waiting[at].merge(g) // groups of the same settings match
		r.release(g)
	}
}

// release empties a group for another interval.
func (r *Role) release(g *group) {
	g.reset()
	r.mu.Lock()
	defer r.mu.Unlock()
	if g.settings == r.settings.Load() {
		r.free = append(r.free, g)
	}
}

// Seal implements role.Role. The report of an epoch within an interval is empty; the report of the
// interval's last epoch has the group.
func (r *Role) Seal(e uint64) role.Report {
	s := r.settings.Load()
	now := r.clock.Current()
	if s == nil || e >= now {
		return nil
	}
	interval := e / s.Interval
	if interval < r.next {
		return nil
	}
	if (e+1)%s.Interval != 0 {
		return &report{Report: wire.Report{First: e}}
	}
	r.collect(now / s.Interval)
	var g *group
	r.waiting = slices.DeleteFunc(r.waiting, func(w *group) bool {
		if w.interval == interval {
			g = w
			return true
		}
		if w.interval < interval {
			if w.interval >= r.next { // not of the epoch in which settings came into force
				r.dropped++
			}
			r.release(w)
		}
		return w.interval < interval
	})
	for len(r.waiting) > maxUnclaimed {
		r.dropped++
		r.release(r.waiting[0])
		r.waiting = slices.Delete(r.waiting, 0, 1)
	}
	r.next = interval + 1
	if g == nil { // no packet in the interval
		if g = r.empty(s); g == nil {
			return nil
		}
	}
	g.First, g.Last = max(interval*s.Interval, r.since), e
	g.Counters[wire.Missed], r.dropped = r.dropped, 0
	if r.hidden || r.doubted > 0 {
		g.Counters[wire.Hidden], r.doubted = 1, max(r.doubted-1, 0)
	}
	g.Sources = r.sources.rows()
	g.rows()
	if g.Counters[wire.Hops] > 0 {
		r.earlier.Store(&earlier{s, interval, g.Latencies.Clone()})
	}
	return &report{Report: g.Report, role: r, group: g}
}

// report is a sealed interval, or an epoch within one.
type report struct {
	wire.Report
	role  *Role
	group *group
}

// Append implements role.Report.
func (r *report) Append(b []byte) []byte {
	out, err := r.Report.Append(b)
	if err != nil {
		panic(err) // a tower in memory can be serialized
	}
	return out
}

// Release implements role.Report.
func (r *report) Release() {
	if r.group != nil {
		r.role.release(r.group)
		r.group = nil
	}
}
