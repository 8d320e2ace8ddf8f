// SPDX-License-Identifier: Apache-2.0

package chamelemon

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"

	"github.com/netsketch/netsketch/lab/traffic"
	"github.com/netsketch/netsketch/sketch/flow"
)

// Traffic describes the flows of an epoch.
type Traffic struct {
	Sizes   []traffic.SizePoint // distribution of flow sizes, as traffic.Workload returns it
	Flows   int
	Victims float64 // share of the flows that lose packets, 0 to 1; exact
	// Loss is the lost share of a victim's packets, rounded up to whole packets.
	Loss float64
	IPv6 float64 // share of the flows that use IPv6, 0 to 1
}

// Flow is a flow of an epoch and what happened to it.
type Flow struct {
	Key         flow.Key
	Raw         []byte // canonical bytes
	Entry, Exit int    // indexes of the flow's edge switches
	Packets     int64
	Lost        int64
	// LostHeavy is the number of lost packets that the entry switch had classified as HL or HH,
	// LostLight as sampled LL. Record sets both.
	LostHeavy, LostLight int64

	hash     hashed
	left     int64 // packets not yet sent
	leftLost int64 // remaining packets that will be lost
	burst    int64
	in, out  [codes]int64
}

// Flows draws the flows of an epoch: UDP between two of the hosts, each flow with its own ports.
func (t *Testbed) Flows(d Traffic) []Flow {
	out := make([]Flow, d.Flows)
	victims := int(math.Round(d.Victims * float64(d.Flows)))
	salt := t.rng.Uint32()
	for i := range out {
		x := &out[i]
		from := t.rng.IntN(len(t.hosts))
		to := t.rng.IntN(len(t.hosts) - 1)
		if to >= from {
			to++
		}
		f := 0
		if t.rng.Float64() < d.IPv6 {
			f = 1
		}
		src, dst := &t.hosts[from], &t.hosts[to]
		ports := scatter(uint32(i) + salt)
		key, err := flow.New(src.addr[f], dst.addr[f], 17, uint16(ports>>16), uint16(ports))
		if err != nil {
			panic(fmt.Sprintf("addresses %s and %s of two families", src.addr[f], dst.addr[f]))
		}
		x.Key, x.Raw, x.Entry, x.Exit = key, key.AppendBinary(nil), src.edge, dst.edge
		x.Packets = int64(traffic.Size(d.Sizes, t.rng.Float64()))
		if i < victims {
			x.Lost = min(max(int64(math.Ceil(d.Loss*float64(x.Packets))), 1), x.Packets)
		}
	}
	return out
}

// scatter is a one-to-one function, so that no two flows of an epoch have the same ports (the
// finalizer of MurmurHash3).
func scatter(x uint32) uint32 {
	x ^= x >> 16
	x *= 0x85ebca6b
	x ^= x >> 13
	x *= 0xc2b2ae35
	return x ^ x>>16
}

// host is an endpoint of flows.
type host struct {
	name string
	edge int
	addr [families]netip.Addr
}

// among returns the number of lost packets in a part of all packets. The number is hypergeometric:
// drawn packet by packet if there are few, else from the normal distribution of the same mean and
// variance.
func among(r *rand.Rand, part, all, lost int64) int64 {
	if part == all || lost == 0 {
		return min(lost, part)
	}
	if min(part, lost) <= 64 {
		few, others := part, lost
		if lost < part {
			few, others = lost, part // exchanging both leaves the distribution unchanged
		}
		n := int64(0)
		for i := range few {
			if r.Int64N(all-i) < others-n {
				n++
			}
		}
		return n
	}
	p := float64(lost) / float64(all)
	mean := p * float64(part)
	deviation := math.Sqrt(mean * (1 - p) * float64(all-part) / float64(max(all-1, 1)))
	n := int64(math.Round(mean + deviation*r.NormFloat64()))
	return min(max(n, lost-(all-part), 0), lost, part)
}
