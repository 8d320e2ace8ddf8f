// SPDX-License-Identifier: Apache-2.0

package lightguardian

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/netsketch/netsketch/lab/scenario/score"
	"github.com/netsketch/netsketch/lab/truth"
	"github.com/netsketch/netsketch/plugins/lightguardian/plugin"
	"github.com/netsketch/netsketch/sketch/flow"
)

// margin divides the faults of the ground truth by how far they are from their threshold. Results
// must have a fault above margin times the threshold, and must not have a fault below the threshold
// divided by margin. In between they may have it or not, because estimates have errors.
const margin = 1.5

// exact computes the ground truth of an interval.
type exact struct {
	c      *plugin.Configuration
	t      score.Tables
	now    *score.Truth
	before *score.Truth // of the interval before; nil: not known
	normal paths

	dropped map[string]loss // random drops of flows, by switch
}

// loss is a number of packets, and how many of them were lost.
type loss struct{ packets, of uint64 }

// passed is a flow at a switch.
type passed struct {
	name string
	truth.Departures
}

// journey is what happened to a flow: the packets that entered the network, and the packets that
// left each switch, in the order of the path.
type journey struct {
	key    flow.Key
	sent   uint64
	lost   uint64
	hops   []passed
	losses map[string]uint64 // losses by the element that lost the packets
}

// journeys returns the flows of an interval.
func journeys(t *score.Truth) map[flow.Key]*journey {
	all := map[flow.Key]*journey{}
	at := func(k flow.Key) *journey {
		if all[k] == nil {
			all[k] = &journey{key: k, losses: map[string]uint64{}}
		}
		return all[k]
	}
	for name, d := range t.Devices {
		for k, n := range d.Entered {
			at(k).sent += n
		}
		for l, n := range d.Losses {
			j := at(l.Flow)
			j.lost, j.losses[l.Element] = j.lost+n, j.losses[l.Element]+n
		}
		for k, n := range d.Departed {
			at(k).hops = append(at(k).hops, passed{name, n})
		}
	}
	for _, j := range all {
		slices.SortFunc(j.hops, func(a, b passed) int {
			return cmp.Or(cmp.Compare(a.Hop, b.Hop), strings.Compare(a.name, b.name))
		})
	}
	return all
}

// paths holds the switches of each flow as no fault has changed them: those of the first interval
// that has the flow and in which no route changes as planned.
type paths map[flow.Key][]string

func (p paths) learn(t *score.Truth) {
	if t.Rerouted {
		return
	}
	for k, j := range journeys(t) {
		if p[k] != nil || len(j.hops) == 0 {
			continue
		}
		for _, h := range j.hops {
			p[k] = append(p[k], h.name)
		}
	}
}

// rows returns a table of the network.
func (x *exact) rows(list string) score.Rows { return x.t.Rows(list, network) }

func (x *exact) compute() {
	for _, kind := range kinds { // adds the list also without rows
		x.rows(faults + " " + kind)
		x.rows(alerts + " " + kind)
	}
	x.rows(summary).Add("", nil)
	for _, j := range journeys(x.now) {
		x.hops(j)
		x.latency(j)
		x.jitter(j)
		x.path(j)
		x.drops(j)
	}
	// A flow may lose many more packets by chance, so the share is the share of all flows of the
	// switch that lost packets.
	for name, n := range x.dropped {
		if share := float64(n.packets) / float64(n.of); share >= x.c.Rules.Drops/margin {
			near := share < x.c.Rules.Drops*margin
			x.add(alerts, drops+"/"+name, drops, near, near)
		}
	}
	x.switches()
}

// hops adds the rows of a flow at each switch of its path: packets, delays and gaps.
func (x *exact) hops(j *journey) {
	for _, h := range j.hops {
		x.rows(hops).Add(j.key.String()+"/"+h.name, score.Leaves{"packets": score.Number(h.Packets),
			"gap": score.Number(uint64(h.Gap))})
		counts := make([]uint64, len(x.c.Sketch.Delays)+1)
		for _, d := range h.Delays {
			counts[x.delayRange(d)]++
		}
		for i, n := range counts {
			low := uint64(0)
			if i > 0 {
				low = uint64(x.c.Sketch.Delays[i-1])
			}
			if n > 0 {
				x.rows(delays).Add(fmt.Sprintf("%v/%d/%s", j.key, low, h.name), score.Leaves{"packets": score.Number(n)})
			}
		}
	}
}

// delayRange returns the range of a delay.
func (x *exact) delayRange(d time.Duration) (i int) {
	for _, limit := range x.c.Sketch.Delays {
		if d < limit {
			break
		}
		i++
	}
	return i
}

// fault adds a fault of a flow at a switch. Its value and threshold decide whether results must
// have the fault, may have it (near the threshold), or must not have it.
func (x *exact) fault(j *journey, kind, name string, value, threshold float64) {
	least := float64(x.c.Rules.Packets)
	if value < threshold/margin || float64(j.sent) < least/margin {
		return
	}
	near := value < threshold*margin || float64(j.sent) < least*margin
	x.add(faults, j.key.String()+"/"+kind+"/"+name, kind, near, near)
	if kind != drops {
		x.add(alerts, kind+"/"+name, kind, near, near)
	}
}

// possible adds a fault that results may have or not.
func (x *exact) possible(j *journey, kind, name string) {
	if float64(j.sent) < float64(x.c.Rules.Packets)/margin {
		return
	}
	x.add(faults, j.key.String()+"/"+kind+"/"+name, kind, true, false)
	x.add(alerts, kind+"/"+name, kind, true, false)
}

// add adds a row of the ground truth. A row that is added for several reasons is required if one of
// them requires it.
func (x *exact) add(list, key, kind string, optional, near bool) {
	rows := x.rows(list + " " + kind)
	if rows[key] == nil {
		rows.Add(key, nil).Optional = true
	}
	row := rows[key]
	row.Optional, row.Near = row.Optional && optional, row.Near || near
}

// latency adds the switches with an inflated latency of a flow. A switch reads a clock of whole
// units when a packet arrives and when it leaves. So a delay less than a unit from the threshold
// may be on either side: with these packets the fault is near its threshold.
func (x *exact) latency(j *journey) {
	for _, h := range j.hops {
		sure, all := 0, 0
		for _, d := range h.Delays {
			if d > x.c.Rules.Slow-x.c.TimeUnit {
				all++
			}
			if d >= x.c.Rules.Slow+x.c.TimeUnit {
				sure++
			}
		}
		share := func(n int) float64 { return float64(n) / float64(h.Packets) }
		x.fault(j, slow, h.name, share(sure), x.c.Rules.SlowShare)
		if share(sure) < x.c.Rules.SlowShare*margin {
			x.fault(j, slow, h.name, min(share(all), x.c.Rules.SlowShare), x.c.Rules.SlowShare)
		}
	}
}

func (x *exact) jitter(j *journey) {
	longest := time.Duration(0)
	for _, h := range j.hops {
		if longest > 0 {
			ratio := min(float64(h.Gap)/float64(longest)/x.c.Rules.Jitter, float64(h.Gap)/float64(x.c.Rules.JitterTime))
			x.fault(j, jitter, h.name, ratio*x.c.Rules.Jitter, x.c.Rules.Jitter)
		}
		longest = max(longest, h.Gap)
	}
}

// path adds the switches that a flow does not pass without a fault. Where routes change as planned,
// no path is a fault, so that an alert is wrong.
func (x *exact) path(j *journey) {
	if x.now.Rerouted {
		return
	}
	normal, first := x.normal[j.key], true
	for _, h := range j.hops {
		if normal == nil || slices.Contains(normal, h.name) {
			continue
		}
		// A sketchlet of the switch may have come with the packets of a flow of any size.
		x.add(faults, j.key.String()+"/"+path+"/"+h.name, path, true, false)
		x.add(alerts, path+"/"+h.name, path, true, false)
		share := float64(h.Packets) / float64(max(j.sent, 1))
		// a larger share means that the flow is in a loop
		if first && share >= 0.75 && share < x.c.Rules.Loop/margin {
			x.fault(j, path, h.name, share, x.c.Rules.Path)
		}
		first = false
	}
}

// drops adds the loop of a flow, or else the places where it lost packets.
func (x *exact) drops(j *journey) {
	looped := false
	for _, h := range j.hops {
		switch ratio := float64(h.Packets) / float64(max(j.sent, 1)); {
		case ratio >= x.c.Rules.Loop/margin && j.lost > 0:
			x.fault(j, loop, h.name, ratio, x.c.Rules.Loop)
			looped = true
		case ratio >= x.c.Rules.Loop && float64(h.Packets) >= x.c.Rules.Loop*float64(j.sent+x.earlier(j.key)):
			x.possible(j, loop, h.name) // no packet has expired yet, and late packets alone would be fewer
		}
	}
	for _, element := range slices.Sorted(maps.Keys(j.losses)) {
		n := j.losses[element]
		name, before := x.culprit(j, element, n)
		share := float64(n) / float64(max(before, 1))
		switch enough := n >= 2*uint64(x.c.Rules.DropPackets); {
		case looped: // at the switch where packets expire
			x.possible(j, drops, name)
			x.possible(j, blackhole, name)
		case share >= 0.99 && enough:
			x.fault(j, blackhole, name, 1, 0.1)
			x.possible(j, path, name)
		case share > 0.8 || !enough:
			x.possible(j, drops, name)
			x.possible(j, blackhole, name)
		default:
			x.fault(j, drops, name, share, x.c.Rules.Drops)
			if float64(j.sent) >= float64(x.c.Rules.Packets) {
				x.dropped[name] = loss{x.dropped[name].packets + n, x.dropped[name].of + before}
			}
		}
	}
}

// earlier returns the packets that a flow sent in the interval before.
func (x *exact) earlier(k flow.Key) (n uint64) {
	if x.before != nil {
		for _, d := range x.before.Devices {
			n += d.Entered[k]
		}
	}
	return n
}

// culprit returns where a loss is seen first, and how many packets arrived there: at the switch
// that lost packets before it counted them, or behind a link at its far end.
func (x *exact) culprit(j *journey, element string, n uint64) (name string, before uint64) {
	before = j.sent
	for _, h := range j.hops {
		missing := before - min(before, h.Packets)
		if h.name == element || strings.HasPrefix(element, h.name+"/") && 2*missing >= n {
			return h.name, before
		}
		before = h.Packets
		if rest, ok := strings.CutPrefix(element, h.name+"/"); ok { // a loss of the link behind the switch
			_, far, _ := strings.Cut(rest, "~")
			far, _, _ = strings.Cut(far, "/")
			return far, before
		}
	}
	name, _, _ = strings.Cut(element, "/") // nothing left the switch
	return name, before
}

// unlocated allows published faults that do not claim to be located, of flows that have the fault.
func (x *exact) unlocated(published score.Rows) {
	for key, row := range published {
		parts := strings.Split(key, "/") // flow, kind, switch
		if row.Is("located") || len(parts) != 3 {
			continue
		}
		rows := x.rows(faults + " " + parts[1])
		for other, actual := range rows {
			if actual != nil && strings.HasPrefix(other, parts[0]+"/") && rows[key] == nil {
				rows.Add(key, nil).Optional = true
				break
			}
		}
	}
}

// switches adds the flows, packets, entropy and sizes of switches.
func (x *exact) switches() {
	for name, d := range x.now.Devices {
		counts, sizes := truth.Counts{}, map[int]int{}
		for k, n := range d.Departed {
			counts[k] = n.Packets
			sizes[1<<(bits.Len64(n.Packets)-1)]++
		}
		x.rows(switches).Add(name, score.Leaves{"distinct-flows": score.Number(len(counts)),
			"packets": score.Number(counts.Packets()), "entropy": score.Number(counts.Entropy())})
		for first, n := range sizes {
			x.rows(ranges).Add(fmt.Sprintf("%d/%s", first, name), score.Leaves{"flows": score.Number(n)})
		}
	}
}
