// SPDX-License-Identifier: Apache-2.0

// Package analysis locates faults of flows from the sketches of the devices on their paths
// (LightGuardian, section 6.2). It has no state.
package analysis

// Fault describes a fault of a flow at a device.
type Fault uint8

// The faults that sketches locate.
const (
	InflatedLatency Fault = iota
	RandomDrops
	Loop
	Blackhole
	AbnormalJitter
)

var faultNames = [...]string{"LATENCY_INFLATED", "PACKETS_LOST", "LOOP", "BLACKHOLE", "ABNORMAL_JITTER"}

// String returns the name of a fault, such as "PACKETS_LOST".
func (f Fault) String() string { return faultNames[f] }

// Hop holds the data of one device on a flow's path about the flow in an interval.
type Hop struct {
	Valid    bool     // the sketch has received a row of the flow; without it the hop is not judged
	Packets  uint32   // packets that left the device
	Shared   bool     // all buckets have packets of other flows: Packets is too high
	Delays   []uint32 // packets by delay range, each at least the flow's; nil: not measured
	Interval uint32   // maximum inter-arrival time, in any unit; 0: not measured, or one packet
	// Mixed reports that packets of other flows may have changed Interval; Interval is then neither
	// judged nor compared with. Seen is the probability that Interval would nevertheless show a gap
	// that the receiver saw; 0 if it is not known.
	Mixed bool
	Seen  float64
	// Chance is the probability that Interval is a gap of other flows although Mixed is not set.
	Chance float64
	// Counted reports that hosts counted the flow: at least Least packets left the device.
	Counted bool
	Least   uint32
	// Excess returns the probability that other flows alone add at least n to Packets. It is nil at
	// hosts, where no other flow adds any.
	Excess func(n uint32) float64
}

// Rules are the thresholds of the faults. A fault whose threshold is 0 is not searched for.
type Rules struct {
	// A latency is inflated if at least SlowShare (0 to 1) of the flow's packets had a delay in
	// range SlowRange or above.
	SlowShare float64
	SlowRange int
	// A hop with random drops lacks at least Drops (0 to 1) of the packets of the hops before it,
	// and at least DropPackets packets.
	Drops       float64
	DropPackets uint32
	// A blackhole has at most Blackhole (0 to 1) of the packets of the hops before it.
	Blackhole float64
	// A hop in a loop has at least Loop times the packets of the hops before it; above 1.
	Loop float64
	// A hop with abnormal jitter has a maximum inter-arrival time of at least Jitter times that of
	// the hops before it (above 1), and of at least JitterLeast, in the unit of Interval.
	Jitter      float64
	JitterLeast uint32
}

// Finding is a fault at a hop.
type Finding struct {
	Fault Fault
	Hop   int // index in the path
	// Value is the number to compare with the threshold: the share of slow packets, the share of
	// lacking packets, or the ratio to the hops before.
	Value float64
}

// Locate appends the faults of a flow whose path is known to dst, hop by hop. The sender may be the
// first hop of the path: faults at the first hop are found only in comparison with it, but for
// inflated latencies.
//
// The size of a flow before a hop is the smallest of the hops before it: sizes fall along the path,
// and a sketch never underestimates. For the same reason the inter-arrival time before a hop is the
// largest, because flows that share a bucket shorten it. A fall is attributed to the first hop with
// the smaller size, a loop to each of its hops. Behind a loop or a blackhole sizes are not judged.
//
// If hosts counted the flow, a latency is inflated only if the packets that are not in the lower
// ranges are enough: those ranges have at least the flow's packets, so other flows cannot cause it.
func (r *Rules) Locate(dst []Finding, path []Hop) []Finding {
	var packets, interval uint32 // packets and interval of the hops before
	first, looped, ended := true, false, false
	for i := range path {
		h := &path[i]
		if !h.Valid {
			continue
		}
		if share, slow := r.slow(h); slow {
			dst = append(dst, Finding{InflatedLatency, i, share})
		}
		if !h.Mixed {
			if ratio := float64(h.Interval) / float64(interval); r.Jitter > 0 && interval > 0 &&
				h.Interval >= r.JitterLeast && ratio >= r.Jitter {
				dst = append(dst, Finding{AbnormalJitter, i, ratio})
			}
			interval = max(interval, h.Interval)
		}
		if first {
			packets, first = h.Packets, false
			ended = packets == 0
			continue
		}
		if ended {
			continue
		}
		ratio := float64(h.Packets) / float64(packets)
		lacking := packets - min(packets, h.Packets)
		switch {
		case r.Loop > 0 && ratio >= r.Loop:
			dst = append(dst, Finding{Loop, i, ratio})
			looped = true
			continue
		case looped:
			ended = true
		case r.Blackhole > 0 && ratio <= r.Blackhole:
			dst = append(dst, Finding{Blackhole, i, ratio})
			ended = true
		case r.Drops > 0 && 1-ratio >= r.Drops && lacking >= r.DropPackets:
			dst = append(dst, Finding{RandomDrops, i, 1 - ratio})
		}
		packets = min(packets, h.Packets)
		ended = ended || packets == 0
	}
	return dst
}

// slow returns the share of slow packets, and whether the latency is inflated.
func (r *Rules) slow(h *Hop) (share float64, inflated bool) {
	total, slow := uint64(0), uint64(0)
	for i, n := range h.Delays {
		total += uint64(n)
		if i >= r.SlowRange {
			slow += uint64(n)
		}
	}
	if h.Counted {
		fast := total - slow
		total = uint64(h.Least)
		slow = min(slow, total-min(total, fast)) // 0 if the flow took another path
	}
	if r.SlowShare <= 0 || slow == 0 {
		return 0, false
	}
	share = float64(slow) / float64(total)
	return share, share >= r.SlowShare
}

// undecided is the doubt about the place of a fault if two places are equally likely.
const undecided = 0.5

// Doubt returns the probability that other flows' packets cause a finding, or hide that it is at a
// hop before; 1 if the hop before was not measured. Of inflated latencies the finding itself is the
// bound.
func (r *Rules) Doubt(path []Hop, f Finding) float64 {
	h := &path[f.Hop]
	switch f.Fault {
	case InflatedLatency:
		return 0
	case Loop:
		least := h.Packets
		for i := range path[:f.Hop] {
			if path[i].Valid {
				least = min(least, path[i].Packets)
			}
		}
		return h.excess(h.Packets - least)
	}
	if f.Hop == 0 {
		return 1
	}
	before := &path[f.Hop-1]
	switch {
	case !before.Valid:
		return 1
	case f.Fault == AbnormalJitter && before.Mixed:
		return min(1, 1-before.Seen+h.Chance)
	case f.Fault == AbnormalJitter:
		return h.Chance
	case before.Excess == nil:
		return 0
	case r.Open(f.Fault, path, f.Hop-1): // a part is known to be lost before, or other flows add packets there
		return undecided
	}
	// The packets were lost at an earlier hop, where other flows' packets hide the loss by chance.
	lost := before.Packets - min(before.Packets, h.Packets)
	return max(0, before.excess(lost-min(lost, r.DropPackets))-before.excess(lost+r.DropPackets+1))
}

func (h *Hop) excess(n uint32) float64 {
	if h.Excess == nil {
		return 0
	}
	return h.Excess(n)
}
