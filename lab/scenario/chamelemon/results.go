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
	changes    map[string]map[flow.Key]*common
	watched    map[string]map[flow.Key]*sized
	ranges     map[string]map[uint64]*sizes // by device and smallest size
	thresholds map[string]*threshold
	parts      map[partKey]*part
}

// common is what every row has.
type common struct {
	Epoch uint64 `leaf:"epoch"`
}

func (c *common) number() uint64 { return c.Epoch }

// The rows of the lists, and of the container attention. Pointers are nil where a leaf is not told.

type attention struct {
	common
	State   string   `leaf:"network-state"`
	Next    string   `leaf:"next-state"`
	Problem string   `leaf:"problem"`
	Decoded bool     `leaf:"decoded"`
	Settled bool     `leaf:"settled"`
	Low     float64  `leaf:"low-threshold"`
	High    float64  `leaf:"highest-threshold"`
	Sample  float64  `leaf:"sample-rate"`
	Victims *float64 `leaf:"victims"`
}

type victim struct {
	common
	Lost    float64 `leaf:"lost-packets"`
	Packets float64 `leaf:"packets"`
	Exact   bool    `leaf:"exact"`
	Kind    string  `leaf:"kind"`
	Entry   string  `leaf:"entry"`
	Exit    string  `leaf:"exit"`
}

func (v *victim) heavy() bool { return v.Kind == "heavy" }

type summary struct {
	common
	Status       string   `leaf:"status"`
	Packets      *float64 `leaf:"packets"`
	PacketsExact bool     `leaf:"packets-exact"`
	Flows        *float64 `leaf:"distinct-flows"`
	FlowsExact   bool     `leaf:"flows-exact"`
	Entropy      *float64 `leaf:"entropy"`
	Hitters      *float64 `leaf:"heavy-hitters"`
	Changes      *float64 `leaf:"changes"`
	Victims      *float64 `leaf:"victims"`
	VictimsExact bool     `leaf:"victims-exact"`
}

type sized struct {
	common
	Packets float64 `leaf:"packets"`
	Exact   bool    `leaf:"exact"`
}

type sizes struct {
	common
	To    uint64  `leaf:"to"`
	Flows float64 `leaf:"flows"`
}

type threshold struct {
	common
	High     float64 `leaf:"high-threshold"`
	NextHigh float64 `leaf:"next-high-threshold"`
	Low      float64 `leaf:"low-threshold"`
	NextLow  float64 `leaf:"next-low-threshold"`
}

type part struct {
	common
	Buckets float64  `leaf:"buckets"`
	Next    float64  `leaf:"next-buckets"`
	Flows   *float64 `leaf:"flows"`
	Load    *float64 `leaf:"load-factor"`
	Decoded bool     `leaf:"decoded"`
}

type partKey struct{ device, family, part string }

// read files the leaves of one epoch.
func read(leaves []score.Leaf, number uint64) (*results, error) {
	r := &results{
		victims: map[flow.Key]*victim{}, summaries: map[string]*summary{}, hitters: map[string]map[flow.Key]*sized{},
		changes: map[string]map[flow.Key]*common{}, watched: map[string]map[flow.Key]*sized{}, ranges: map[string]map[uint64]*sizes{},
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
	for _, m := range r.watched {
		keep(m, number)
	}
	for _, m := range r.ranges {
		keep(m, number)
	}
	return r, nil
}

// keep drops the rows of other epochs.
func keep[K comparable, V interface{ number() uint64 }](m map[K]V, number uint64) {
	for k, v := range m {
		if v.number() != number {
			delete(m, k)
		}
	}
}

// take files one leaf: /chamelemon/attention/state/LEAF or /chamelemon/LISTS/LIST[keys]/state/LEAF.
func (r *results) take(l *score.Leaf) error {
	p := l.Path
	if len(p) == 4 && p[1].GetName() == "attention" {
		l.Fill(&r.attention)
		return nil
	}
	if len(p) != 5 || p[3].GetName() != "state" {
		return nil // key leaves beside the state container
	}
	keys := p[2].GetKey()
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
		l.Fill(score.Entry(r.victims, key))
	case "summary":
		l.Fill(score.Entry(r.summaries, device))
	case "heavy-hitter":
		l.Fill(score.Entry(score.Inner(r.hitters, device), key))
	case "heavy-change":
		l.Fill(score.Entry(score.Inner(r.changes, device), key))
	case "flow":
		l.Fill(score.Entry(score.Inner(r.watched, device), key))
	case "range":
		var from uint64
		if _, err := fmt.Sscan(keys["from"], &from); err != nil {
			return fmt.Errorf("chamelemon: range[from=%s]: %w", keys["from"], err)
		}
		l.Fill(score.Entry(score.Inner(r.ranges, device), from))
	case "threshold":
		l.Fill(score.Entry(r.thresholds, device))
	case "encoder":
		l.Fill(score.Entry(r.parts, partKey{device, keys["family"], keys["part"]}))
	}
	return nil
}
