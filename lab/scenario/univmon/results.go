// SPDX-License-Identifier: Apache-2.0

package univmon

import (
	"fmt"
	"time"

	"github.com/netsketch/netsketch/lab/scenario/score"
	"github.com/netsketch/netsketch/sketch/flow"
)

// View is one device's results in one dimension.
type View struct {
	Device    string `json:"device"`
	Dimension string `json:"dimension"`
}

// Summary is what a view says of an epoch as a whole.
type Summary struct {
	Epoch        uint64
	Packets      uint64
	Distinct     float64
	Entropy      float64
	SecondMoment float64
	Status       string
}

// Heavy is a heavy hitter as published.
type Heavy struct {
	Epoch   uint64
	Packets float64
}

// Change is a heavy change as published.
type Change struct {
	Epoch uint64
	Delta float64
}

// Results are UnivMon's newest results, as read over gNMI.
type Results struct {
	Summaries map[View]*Summary
	Heavy     map[View]map[flow.Key]*Heavy
	Changes   map[View]map[flow.Key]*Change
	Victims   map[string]map[string]float64 // device, destination: distinct sources
	At        map[View]time.Time            // time of each summary: the end of its epoch
}

func read(leaves []score.Leaf) (*Results, error) {
	r := &Results{
		Summaries: map[View]*Summary{}, Heavy: map[View]map[flow.Key]*Heavy{},
		Changes: map[View]map[flow.Key]*Change{}, Victims: map[string]map[string]float64{},
		At: map[View]time.Time{},
	}
	for i := range leaves {
		if err := r.take(&leaves[i]); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// take files one leaf: /univmon/LISTS/LIST[keys]/state/LEAF.
func (r *Results) take(l *score.Leaf) error {
	elems := l.Path
	if len(elems) != 5 || elems[3].GetName() != "state" {
		return nil // key leaves beside the state container
	}
	list, keys, leaf := elems[2].GetName(), elems[2].GetKey(), elems[4].GetName()
	x, text := l.Number, l.Text
	view := View{keys["device"], keys["dimension"]}
	switch list {
	case "summary":
		s := entry(r.Summaries, view)
		r.At[view] = l.At
		switch leaf {
		case "epoch":
			s.Epoch = uint64(x)
		case "packets":
			s.Packets = uint64(x)
		case "distinct-flows":
			s.Distinct = x
		case "entropy":
			s.Entropy = x
		case "second-moment":
			s.SecondMoment = x
		case "status":
			s.Status = text
		}
	case "heavy-hitter", "heavy-change":
		fields, err := flow.ParseFields(view.Dimension)
		if err != nil {
			return fmt.Errorf("univmon: %s[dimension=%s]: %w", list, view.Dimension, err)
		}
		key, err := flow.Parse(fields, keys["flow"])
		if err != nil {
			return fmt.Errorf("univmon: %s[flow=%s]: %w", list, keys["flow"], err)
		}
		if list == "heavy-hitter" {
			h := entry(inner(r.Heavy, view), key)
			switch leaf {
			case "epoch":
				h.Epoch = uint64(x)
			case "packets":
				h.Packets = x
			}
			return nil
		}
		c := entry(inner(r.Changes, view), key)
		switch leaf {
		case "epoch":
			c.Epoch = uint64(x)
		case "delta":
			c.Delta = x
		}
	case "ddos-victim":
		if leaf == "distinct-sources" {
			inner(r.Victims, keys["device"])[keys["destination"]] = x
		}
	}
	return nil
}

// entry returns m[k], made when it is not there.
func entry[K comparable, V any](m map[K]*V, k K) *V {
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

// String returns "leaf1 src".
func (v View) String() string { return v.Device + " " + v.Dimension }
