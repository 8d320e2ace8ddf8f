// SPDX-License-Identifier: Apache-2.0

package chamelemon

import (
	"fmt"

	"github.com/netsketch/netsketch/lab/scenario/score"
	"github.com/netsketch/netsketch/sketch/flow"
)

// results are what is published, as read over gNMI. Rows of another epoch are left out.
type results struct {
	attention  attention
	victims    map[flow.Key]*victim
	summaries  map[string]*summary            // by device
	hitters    map[string]map[flow.Key]*sized // by device
	changes    map[string]map[flow.Key]*change
	ranges     map[string]map[uint64]*sizes // by device and smallest size
	thresholds map[string]*threshold
	parts      map[partKey]*part
}

// common is what every row has.
type common struct{ epoch uint64 }

func (c *common) number() *uint64 { return &c.epoch }

type attention struct {
	common
	state, next, problem   string
	decoded, settled       bool
	low, high              float64
	sample                 float64
	victims                *float64 // nil: not told
	edges, edgesDelivering int
}

type victim struct {
	common
	lost, packets float64
	exact, heavy  bool
	entry         string
}

type summary struct {
	common
	status, problem                                          string
	packets, flows, entropy, hitters, changes, victims, lost *float64
	packetsExact, victimsExact                               bool
}

type sized struct {
	common
	packets float64
	exact   bool
}

type change struct {
	common
	delta float64
}

type sizes struct {
	common
	to    uint64
	flows float64
}

type threshold struct {
	common
	high, nextHigh, low, nextLow float64
}

type partKey struct{ device, family, part string }

type part struct {
	common
	buckets, next float64
	flows, load   *float64
	decoded       bool
}

// read files the leaves of one epoch.
func read(leaves []score.Leaf, number uint64) (*results, error) {
	r := &results{
		victims: map[flow.Key]*victim{}, summaries: map[string]*summary{}, hitters: map[string]map[flow.Key]*sized{},
		changes: map[string]map[flow.Key]*change{}, ranges: map[string]map[uint64]*sizes{},
		thresholds: map[string]*threshold{}, parts: map[partKey]*part{},
	}
	for i := range leaves {
		if err := r.take(&leaves[i]); err != nil {
			return nil, err
		}
	}
	keep(r.victims, number)
	keep(r.summaries, number)
	keep(r.thresholds, number)
	keep(r.parts, number)
	for _, m := range r.hitters {
		keep(m, number)
	}
	for _, m := range r.changes {
		keep(m, number)
	}
	for _, m := range r.ranges {
		keep(m, number)
	}
	return r, nil
}

// keep drops the rows of other epochs.
func keep[K comparable, V interface{ number() *uint64 }](m map[K]V, number uint64) {
	for k, v := range m {
		if *v.number() != number {
			delete(m, k)
		}
	}
}

// take files one leaf: /chamelemon/attention/state/LEAF or /chamelemon/LISTS/LIST[keys]/state/LEAF.
func (r *results) take(l *score.Leaf) error {
	p := l.Path
	if len(p) == 4 && p[1].GetName() == "attention" {
		r.attention.take(p[3].GetName(), l)
		return nil
	}
	if len(p) != 5 || p[3].GetName() != "state" {
		return nil // key leaves beside the state container
	}
	keys, leaf := p[2].GetKey(), p[4].GetName()
	device := keys["device"]
	var key flow.Key
	if text, ok := keys["flow"]; ok {
		var err error
		if key, err = flow.Parse(flow.FiveTuple, text); err != nil {
			return fmt.Errorf("chamelemon: %s[flow=%s]: %w", p[2].GetName(), text, err)
		}
	}
	switch p[2].GetName() {
	case "victim":
		row(r.victims, key).take(leaf, l)
	case "summary":
		row(r.summaries, device).take(leaf, l)
	case "heavy-hitter":
		row(inner(r.hitters, device), key).take(leaf, l)
	case "heavy-change":
		row(inner(r.changes, device), key).take(leaf, l)
	case "range":
		var from uint64
		if _, err := fmt.Sscan(keys["from"], &from); err != nil {
			return fmt.Errorf("chamelemon: range[from=%s]: %w", keys["from"], err)
		}
		row(inner(r.ranges, device), from).take(leaf, l)
	case "threshold":
		row(r.thresholds, device).take(leaf, l)
	case "encoder":
		row(r.parts, partKey{device, keys["family"], keys["part"]}).take(leaf, l)
	}
	return nil
}

// row returns m[k], made when it is not there.
func row[K comparable, V any](m map[K]*V, k K) *V {
	v := m[k]
	if v == nil {
		v = new(V)
		m[k] = v
	}
	return v
}

func inner[A, B comparable, V any](m map[A]map[B]V, a A) map[B]V {
	v := m[a]
	if v == nil {
		v = map[B]V{}
		m[a] = v
	}
	return v
}

func (c *common) take(leaf string, l *score.Leaf) {
	if leaf == "epoch" {
		c.epoch = uint64(l.Number)
	}
}

func (a *attention) take(leaf string, l *score.Leaf) {
	switch leaf {
	case "network-state":
		a.state = l.Text
	case "next-state":
		a.next = l.Text
	case "problem":
		a.problem = l.Text
	case "decoded":
		a.decoded = l.Number == 1
	case "settled":
		a.settled = l.Number == 1
	case "low-threshold":
		a.low = l.Number
	case "highest-threshold":
		a.high = l.Number
	case "sample-rate":
		a.sample = l.Number
	case "victims":
		a.victims = &l.Number
	case "edge-switches":
		a.edges = int(l.Number)
	case "edge-switches-delivered":
		a.edgesDelivering = int(l.Number)
	default:
		a.common.take(leaf, l)
	}
}

func (v *victim) take(leaf string, l *score.Leaf) {
	switch leaf {
	case "lost-packets":
		v.lost = l.Number
	case "packets":
		v.packets = l.Number
	case "exact":
		v.exact = l.Number == 1
	case "kind":
		v.heavy = l.Text == "heavy"
	case "entry":
		v.entry = l.Text
	default:
		v.common.take(leaf, l)
	}
}

func (s *summary) take(leaf string, l *score.Leaf) {
	switch leaf {
	case "status":
		s.status = l.Text
	case "problem":
		s.problem = l.Text
	case "packets":
		s.packets = &l.Number
	case "packets-exact":
		s.packetsExact = l.Number == 1
	case "distinct-flows":
		s.flows = &l.Number
	case "entropy":
		s.entropy = &l.Number
	case "heavy-hitters":
		s.hitters = &l.Number
	case "changes":
		s.changes = &l.Number
	case "victims":
		s.victims = &l.Number
	case "victims-exact":
		s.victimsExact = l.Number == 1
	case "lost-packets":
		s.lost = &l.Number
	default:
		s.common.take(leaf, l)
	}
}

func (s *sized) take(leaf string, l *score.Leaf) {
	switch leaf {
	case "packets":
		s.packets = l.Number
	case "exact":
		s.exact = l.Number == 1
	default:
		s.common.take(leaf, l)
	}
}

func (c *change) take(leaf string, l *score.Leaf) {
	if leaf == "delta" {
		c.delta = l.Number
		return
	}
	c.common.take(leaf, l)
}

func (s *sizes) take(leaf string, l *score.Leaf) {
	switch leaf {
	case "to":
		s.to = uint64(l.Number)
	case "flows":
		s.flows = l.Number
	default:
		s.common.take(leaf, l)
	}
}

func (t *threshold) take(leaf string, l *score.Leaf) {
	switch leaf {
	case "high-threshold":
		t.high = l.Number
	case "next-high-threshold":
		t.nextHigh = l.Number
	case "low-threshold":
		t.low = l.Number
	case "next-low-threshold":
		t.nextLow = l.Number
	default:
		t.common.take(leaf, l)
	}
}

func (p *part) take(leaf string, l *score.Leaf) {
	switch leaf {
	case "buckets":
		p.buckets = l.Number
	case "next-buckets":
		p.next = l.Number
	case "flows":
		p.flows = &l.Number
	case "load-factor":
		p.load = &l.Number
	case "decoded":
		p.decoded = l.Number == 1
	default:
		p.common.take(leaf, l)
	}
}
