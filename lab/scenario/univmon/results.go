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
	Epoch        uint64  `leaf:"epoch"`
	Packets      uint64  `leaf:"packets"`
	Distinct     float64 `leaf:"distinct-flows"`
	Entropy      float64 `leaf:"entropy"`
	SecondMoment float64 `leaf:"second-moment"`
	Status       string  `leaf:"status"`
}

// Heavy is a heavy hitter as published.
type Heavy struct {
	Epoch   uint64  `leaf:"epoch"`
	Packets float64 `leaf:"packets"`
}

// Change is a heavy change as published.
type Change struct {
	Epoch uint64  `leaf:"epoch"`
	Delta float64 `leaf:"delta"`
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
	list, keys := elems[2].GetName(), elems[2].GetKey()
	view := View{keys["device"], keys["dimension"]}
	switch list {
	case "summary":
		r.At[view] = l.At
		l.Fill(score.Entry(r.Summaries, view))
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
			l.Fill(score.Entry(score.Inner(r.Heavy, view), key))
		} else {
			l.Fill(score.Entry(score.Inner(r.Changes, view), key))
		}
	case "ddos-victim":
		if elems[4].GetName() == "distinct-sources" {
			score.Inner(r.Victims, keys["device"])[keys["destination"]] = l.Number
		}
	}
	return nil
}

// String returns "leaf1 src".
func (v View) String() string { return v.Device + " " + v.Dimension }
