// SPDX-License-Identifier: Apache-2.0

package lightguardian

import (
	"bytes"
	"slices"
	"time"

	"github.com/netsketch/netsketch/hostagent/lightguardian/wire"
	"github.com/netsketch/netsketch/sketch/flow"
)

// Batch has the sketchlets and flows of an epoch.
type Batch struct {
	wire.Report
	settings *applied           // nil: nothing is kept
	at       map[uint64]int     // offset of a sketchlet, by device, column and interval
	flows    map[flow.Key]int   // index of a flow in the report
	last     [][2]time.Duration // time of a flow's newest sent and received packet, above 0
	sent     int                // bytes of the sketchlets that are in parts of the report
	unsent   int                // number of sketchlets that were not sent
	full     func()             // called when the sketchlets fill a message
}

// empty returns an empty batch.
func (r *Role) empty(e uint64) *Batch {
	return &Batch{Report: wire.Report{Epoch: e}, settings: r.settings, at: map[uint64]int{}, flows: map[flow.Key]int{},
		full: func() { r.onFull() }}
}

// forgetFlows removes the flows, which were counted in a part of an epoch.
func (b *Batch) forgetFlows() {
	b.Flows, b.last = nil, nil
	clear(b.flows)
	for _, c := range []wire.Counter{wire.NoFlow, wire.FlowsFull, wire.DevicesFull} {
		b.Counters[c] = 0
	}
}

// Count adds packets of a flow that the host sent and received, and the longest times between two
// of them. Packets of flows beyond the settings' limit are counted.
func (b *Batch) Count(f *wire.Flow) {
	i := b.flow(&f.Key)
	if i < 0 {
		b.Counters[wire.FlowsFull] += f.Sent + f.Received
		return
	}
	sum := &b.Flows[i]
	sum.Sent, sum.Received = sum.Sent+f.Sent, sum.Received+f.Received
	sum.SentGap, sum.ReceivedGap = max(sum.SentGap, f.SentGap), max(sum.ReceivedGap, f.ReceivedGap)
}

// flow returns the index of a flow in the report, -1 without room.
func (b *Batch) flow(key *flow.Key) int {
	i, known := b.flows[*key]
	if !known {
		if b.settings == nil || len(b.Flows) >= b.settings.Flows {
			return -1
		}
		i = len(b.Flows)
		b.Flows = append(b.Flows, wire.Flow{Key: *key})
		b.last = append(b.last, [2]time.Duration{})
		b.flows[*key] = i
	}
	return i
}

// packet counts one packet of a flow, which passes the host at a time above 0.
func (b *Batch) packet(key *flow.Key, received bool, now time.Duration) {
	i := b.flow(key)
	if i < 0 {
		b.Counters[wire.FlowsFull]++
		return
	}
	f, last := &b.Flows[i], &b.last[i][0]
	count, longest := &f.Sent, &f.SentGap
	if received {
		count, longest, last = &f.Received, &f.ReceivedGap, &b.last[i][1]
	}
	if *count++; *last > 0 {
		*longest = max(*longest, uint64((now - *last).Microseconds()))
	}
	*last = now
}

// Keep adds a sketchlet that arrived in a packet of a flow; key is nil if the flow is not known. A
// sketchlet that differs from an earlier one of the same column replaces it: between the two, the
// switch counted a packet that had waited in a queue while its interval ended.
func (b *Batch) Keep(s wire.Sketchlet, key *flow.Key) {
	if b.settings == nil {
		return
	}
	d, known := b.settings.devices[s.Device()]
	switch {
	case !known:
		b.Counters[wire.UnknownDevice]++
		return
	case int(s.Column()) >= d.Columns:
		b.Counters[wire.UnknownColumn]++
		return
	case s.Words() != d.Words:
		b.Counters[wire.WrongWords]++
		return
	}
	if key != nil {
		b.passed(key, d.ID)
	}
	id := uint64(s.Device())<<24 | uint64(s.Column())<<8 | uint64(s.Interval())
	at, seen := b.at[id]
	switch {
	case seen && bytes.Equal(b.Sketchlets[at:at+len(s)], s):
		b.Counters[wire.Duplicates]++
	case seen && at >= b.sent:
		b.Counters[wire.Disagreeing]++
		copy(b.Sketchlets[at:], s)
	case len(b.Sketchlets)+len(s) > b.settings.Kept:
		b.Counters[wire.Full]++
	default:
		if seen { // the first sketchlet is in an earlier part of the report
			b.Counters[wire.Disagreeing]++
		}
		b.at[id] = len(b.Sketchlets)
		b.Sketchlets = append(b.Sketchlets, s...)
		if b.unsent++; b.unsent == message {
			b.full()
		}
	}
}

// part returns up to a message of sketchlets that are in no part of the report yet; nil if there
// are fewer than least. They do not change any more.
func (b *Batch) part(least int) *wire.Report {
	if b.unsent < least {
		return nil
	}
	from, n := b.sent, 0
	for s := range (&wire.Report{Sketchlets: b.Sketchlets[from:]}).All {
		b.sent += len(s)
		if n++; n == message {
			break
		}
	}
	b.unsent -= n
	b.Parts++
	return &wire.Report{Epoch: b.Epoch, Part: b.Parts, Sketchlets: b.Sketchlets[from:b.sent:b.sent]}
}

// rest returns the report without the sketchlets of earlier parts.
func (b *Batch) rest() *wire.Report {
	r := b.Report
	r.Sketchlets = r.Sketchlets[b.sent:]
	return &r
}

// passed adds a device to the devices of a flow.
func (b *Batch) passed(key *flow.Key, device uint16) {
	i, known := b.flows[*key]
	if !known {
		return // the packet is counted as one of a flow too many
	}
	f := &b.Flows[i]
	at, there := slices.BinarySearch(f.Devices, device)
	switch {
	case there:
	case len(f.Devices) == wire.MaxDevices:
		b.Counters[wire.DevicesFull]++
	default:
		f.Devices = slices.Insert(f.Devices, at, device)
	}
}
