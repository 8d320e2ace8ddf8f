// SPDX-License-Identifier: Apache-2.0

package truth

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/netsketch/netsketch/sketch/flow"
)

// Counts holds the exact number of packets of each flow of one dimension.
type Counts map[flow.Key]uint64

// Flow is one flow and its packets.
type Flow struct {
	Key     flow.Key
	Packets uint64
}

// Project returns the counts by the fields f alone.
func (c Counts) Project(f flow.Fields) Counts {
	if f == flow.FiveTuple {
		return c
	}
	out := make(Counts)
	for k, n := range c {
		out[k.Project(f)] += n
	}
	return out
}

// Packets returns the sum of all flows.
func (c Counts) Packets() uint64 {
	var sum uint64
	for _, n := range c {
		sum += n
	}
	return sum
}

// Entropy returns the empirical entropy of the packets over the flows, in bits.
func (c Counts) Entropy() float64 {
	// Sum flows of one size together, in the order of sizes, because a sum of floats depends on the
	// order.
	sizes := map[uint64]int{}
	for _, n := range c {
		sizes[n]++
	}
	total := float64(c.Packets())
	h := 0.0
	for _, n := range slices.Sorted(maps.Keys(sizes)) {
		p := float64(n) / total
		h -= float64(sizes[n]) * p * math.Log2(p)
	}
	return h
}

// SecondMoment returns the sum of the squares of the flows' packets (F2).
func (c Counts) SecondMoment() float64 {
	sum := 0.0
	for _, n := range c {
		sum += float64(n) * float64(n)
	}
	return sum
}

// Top returns the n flows with the most packets, most first; equal ones in the order of keys.
// A negative n means all.
func (c Counts) Top(n int) []Flow {
	return top(c.list(func(uint64) bool { return true }), n)
}

// AtLeast returns the flows with at least limit packets, most first.
func (c Counts) AtLeast(limit float64) []Flow {
	return top(c.list(func(n uint64) bool { return float64(n) >= limit }), -1)
}

// Add adds the counts of o.
func (c Counts) Add(o Counts) {
	for k, n := range o {
		c[k] += n
	}
}

// Changes returns every flow whose packets differ between two counts, the largest
// difference first. Flow.Packets is the absolute difference.
func Changes(before, after Counts) []Flow {
	var out []Flow
	add := func(k flow.Key) {
		a, b := before[k], after[k]
		if d := max(a, b) - min(a, b); d > 0 {
			out = append(out, Flow{k, d})
		}
	}
	for k := range after {
		add(k)
	}
	for k := range before {
		if _, both := after[k]; !both {
			add(k)
		}
	}
	return top(out, -1)
}

func (c Counts) list(keep func(uint64) bool) []Flow {
	var out []Flow
	for k, n := range c {
		if keep(n) {
			out = append(out, Flow{k, n})
		}
	}
	return out
}

func top(flows []Flow, n int) []Flow {
	slices.SortFunc(flows, func(a, b Flow) int {
		if a.Packets != b.Packets {
			return cmp.Compare(b.Packets, a.Packets)
		}
		return a.Key.Compare(b.Key)
	})
	if n >= 0 && n < len(flows) {
		flows = flows[:n]
	}
	return flows
}

// Segment holds the packets of one switch between two flips of its bank.
type Segment struct {
	Opened, Sealed time.Duration // on the lab's clock
	Bank           uint32        // bank that was written
	All            Counts        // 5-tuples of every packet that arrived
	Entered        Counts        // 5-tuples of packets that arrived from a host, so that they entered the network
	Other          uint64        // frames that belong to no flow

	left Counts // packets of Entered that have left the network; guarded by the recorder's lock

	// Departed and lost packets of tracked flows, by flow. The recorder's lock guards them.
	departed map[flow.Key]*Departures
	losses   map[Loss]uint64
}

// Departures are the packets of a flow that arrived at a switch in a segment and left it.
type Departures struct {
	Packets uint64
	Hop     uint8 // least number of switches that the packets entered before this one
	// Delays are the times from arrival at a port to departure.
	Delays []time.Duration
	// Gap is the longest time between the arrivals of two packets that left one after the other.
	Gap  time.Duration
	last time.Duration
}

// Entry is a packet that entered the network: its flow and the epoch of the switch where it
// entered, which may differ from the epoch of later switches. The zero Entry is no packet.
type Entry struct {
	Key flow.Key
	at  *Recorder
	in  *Segment
}

// Known reports whether the packet is part of a flow.
func (e *Entry) Known() bool { return e.at != nil }

// In reports whether the packet entered in this segment.
func (e *Entry) In(s *Segment) bool { return e.in == s }

// Lost records that a switch or link has lost the packet.
func (e *Entry) Lost(element string) {
	if e.at == nil {
		return
	}
	e.at.mu.Lock()
	defer e.at.mu.Unlock()
	if e.in.losses == nil {
		e.in.losses = map[Loss]uint64{}
	}
	e.in.losses[Loss{e.Key, element}]++
}

// Left records that the packet has left the network.
func (e *Entry) Left() {
	if e.at == nil {
		return
	}
	e.at.mu.Lock()
	defer e.at.mu.Unlock()
	e.in.left[e.Key]++
}

// Recorder keeps the segments of one switch. All methods may be called from any
// goroutine; to be exact, Record and Seal must be ordered with the packets and flips
// of the switch by the caller.
type Recorder struct {
	keep int
	rule Rule

	mu     sync.Mutex
	open   *Segment
	sealed []*Segment
}

// NewRecorder returns a recorder that keeps the newest keep sealed segments. It parses packets by
// the switch's rule: Parse, or another function if the switch's program parses encapsulations.
func NewRecorder(keep int, rule Rule) *Recorder {
	return &Recorder{keep: keep, rule: rule, open: newSegment(0, 0)}
}

func newSegment(at time.Duration, bank uint32) *Segment {
	return &Segment{Opened: at, Bank: bank, All: make(Counts), Entered: make(Counts), left: make(Counts)}
}

// Record counts a frame that arrives; entering is set if it comes from a host. The entry is zero
// unless the packet enters and is part of a flow.
func (r *Recorder) Record(frame []byte, entering bool) Entry {
	k, ok := r.rule(frame)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !ok {
		r.open.Other++
		return Entry{}
	}
	r.open.All[k]++
	if !entering {
		return Entry{}
	}
	r.open.Entered[k]++
	return Entry{Key: k, at: r, in: r.open}
}

// Open returns the segment of packets that arrive now.
func (r *Recorder) Open() *Segment {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open
}

// Depart records that a packet of a flow leaves the switch. The packet arrived in the segment s.
func (r *Recorder) Depart(s *Segment, k flow.Key, hop uint8, arrived, left time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.departed == nil {
		s.departed = map[flow.Key]*Departures{}
	}
	d := s.departed[k]
	if d == nil {
		d = &Departures{Hop: hop, last: arrived}
		s.departed[k] = d
	}
	d.Packets++
	d.Hop = min(d.Hop, hop)
	d.Delays = append(d.Delays, left-arrived)
	d.Gap = max(d.Gap, arrived-d.last)
	d.last = max(d.last, arrived)
}

// Departed returns, by flow, the packets that arrived in the segment and have left the switch.
func (r *Recorder) Departed(s *Segment) map[flow.Key]Departures {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[flow.Key]Departures, len(s.departed))
	for k, d := range s.departed {
		out[k] = *d
	}
	return out
}

// Losses returns the packets that entered the network in the segment and were lost, by flow and by
// the switch or link that lost them.
func (r *Recorder) Losses(s *Segment) map[Loss]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(s.losses)
}

// Lost returns the number of packets, by flow, that entered in the segment and have not left the
// network. It is final once no packet of the segment is in the network.
func (r *Recorder) Lost(s *Segment) Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(Counts)
	for k, n := range s.Entered {
		if left := s.left[k]; left < n {
			out[k] = n - left
		}
	}
	return out
}

// Seal closes the open segment at a flip to bank and opens the next. A flip to the bank of the open
// segment has no effect.
func (r *Recorder) Seal(at time.Duration, bank uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if bank == r.open.Bank {
		return
	}
	r.open.Sealed = at
	r.sealed = append(r.sealed, r.open)
	if n := len(r.sealed) - r.keep; n > 0 {
		r.sealed = slices.Delete(r.sealed, 0, n)
	}
	r.open = newSegment(at, bank)
}

// Bank is the bank of the open segment.
func (r *Recorder) Bank() uint32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.open.Bank
}

// Reset empties the open segment, as a new pipeline does on a switch: it starts with bank 0 and
// cells of zero.
func (r *Recorder) Reset(at time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = newSegment(at, 0)
}

// SealedIn returns the segment that was sealed at or after from and before until,
// and false if the switch was not flipped then or the segment was dropped.
func (r *Recorder) SealedIn(from, until time.Duration) (*Segment, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range slices.Backward(r.sealed) {
		if s.Sealed >= from && s.Sealed < until {
			return s, true
		}
	}
	return nil, false
}
