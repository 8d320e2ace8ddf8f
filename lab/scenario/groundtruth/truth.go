// SPDX-License-Identifier: Apache-2.0

package groundtruth

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/netsketch/netsketch/lab/scenario/score"
	"github.com/netsketch/netsketch/lab/truth"
	"github.com/netsketch/netsketch/sketch/flow"
)

// Named are numbers by flow that plugins' results can be compared with, by name.
var Named = map[string]func(*Truth, flow.Fields) truth.Counts{
	"flow-sizes":  func(t *Truth, fields flow.Fields) truth.Counts { return t.All.Project(fields) },
	"flow-losses": func(t *Truth, fields flow.Fields) truth.Counts { return t.Lost.Project(fields) },
	Latencies:     (*Truth).latencies,

	"flow-sources":           distinct(flow.Src),
	"flow-destinations":      distinct(flow.Dst),
	"flow-destination-ports": distinct(flow.DstPort),
}

const (
	Latencies = "flow-latencies"
	Paths     = "flow-paths"
)

// Truth is what is known about the packets of a switch, or of the network.
type Truth struct {
	*score.Device
	Name string // name of the switch, or score.Network
	// Through are the switches that each flow left, by the place on the path.
	Through map[flow.Key][]Passage
}

// Passage is a flow at a switch: its place on the path, and the time that its packets were there.
type Passage struct {
	Switch  string
	Hop     int // from 0
	Packets uint64
	Delay   time.Duration // sum over the packets
}

// Passages returns the switches that each flow left; if only hosts measure, those of the packets
// that arrived.
func Passages(t *score.Truth) map[flow.Key][]Passage {
	through := map[flow.Key][]Passage{}
	for _, name := range slices.Sorted(maps.Keys(t.Devices)) {
		for k, d := range t.Devices[name].Departed {
			p := Passage{name, int(d.Hop), uint64(len(d.Delays)), 0}
			for _, delay := range d.Delays {
				p.Delay += delay
			}
			through[k] = append(through[k], p)
		}
	}
	if OnlyHosts(t) {
		for k, path := range t.Stays.Paths {
			for i, name := range path.Switches {
				d := t.Stays.Delays[truth.FlowAt{Flow: k, Switch: name}]
				through[k] = append(through[k], Passage{name, i, d.Packets, d.Sum})
			}
		}
	}
	for _, path := range through {
		slices.SortStableFunc(path, func(a, b Passage) int { return cmp.Compare(a.Hop, b.Hop) })
	}
	return through
}

// OnlyHosts reports whether no switch measures, but hosts do.
func OnlyHosts(t *score.Truth) bool { return len(t.Devices) == 0 && t.Stays != nil }

// distinct returns the numbers of different values that fields have among the packets of each flow.
func distinct(of flow.Fields) func(*Truth, flow.Fields) truth.Counts {
	return func(t *Truth, fields flow.Fields) truth.Counts {
		type pair struct{ key, value flow.Key }
		seen, out := map[pair]bool{}, truth.Counts{}
		for k, packets := range t.All {
			p := pair{k.Project(fields), k.Project(of)}
			if packets > 0 && !seen[p] {
				seen[p] = true
				out[p.key]++
			}
		}
		return out
	}
}

// latencies returns the mean time in nanoseconds that the packets of each flow were in the switch;
// for the network, the sum over the switches of the path.
func (t *Truth) latencies(fields flow.Fields) truth.Counts {
	at := map[flow.Key]map[string]Passage{}
	for k, path := range t.Through {
		for _, p := range path {
			if t.Name != score.Network && t.Name != p.Switch || p.Packets == 0 {
				continue
			}
			projected := k.Project(fields)
			if at[projected] == nil {
				at[projected] = map[string]Passage{}
			}
			sum := at[projected][p.Switch]
			sum.Delay, sum.Packets = sum.Delay+p.Delay, sum.Packets+p.Packets
			at[projected][p.Switch] = sum
		}
	}
	out := truth.Counts{}
	for k, devices := range at {
		for _, d := range devices {
			out[k] += uint64(d.Delay) / d.Packets
		}
	}
	return out
}

// Path returns the names of the switches that a flow passed, in order; empty if it left none.
func (t *Truth) Path(k flow.Key) string {
	var names []string
	for _, p := range t.Through[k] {
		names = append(names, p.Switch)
	}
	return strings.Join(names, " ")
}
