// SPDX-License-Identifier: Apache-2.0

package sketchint

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/netsketch/netsketch/internal/test/inbandtest"
	"github.com/netsketch/netsketch/lab/traffic"
	"github.com/netsketch/netsketch/sketch/flow"
)

// The paper's testbed (section VII-A): a fat tree of 10 switches and 8 hosts, and the packets of
// one interval (section VII-C).
const (
	hosts = 8
	// Switches 1 to 4 are edge switches, two in each pod; as many aggregation switches and 2 cores
	// follow.
	edges    = 4
	hops     = 5 // the most switches of a path
	interval = 5 * time.Second
	paper    = 16_000_000 // packets
	flowsOf  = 73_000

	heavy     = 1500 // packets of a heavy hitter
	change    = 750  // packets that a heavy change exceeds
	inflation = 5
	dscp      = 0x17
)

// Parameters of the emulation. A packet of 1,500 bytes takes 300 ns on a link of 40 Gbit/s.
const (
	service  = 300 // ns
	pipeline = 500 // ns that a packet is in a switch besides its queue
	train    = 32  // packets of a flow that leave its host in a row
)

// flowState is a flow in one interval: its packets and their exact latencies, in ns, by hop.
type flowState struct {
	key      flow.Key
	host     int // receiving host
	path     []uint32
	frame    []byte // with room for the latencies
	at       []int  // offsets of the latencies in the frame, by hop
	packets  uint32
	sum      [hops]uint64
	worst    [hops]uint32
	planned  uint32
	upstream int // edge switch of the flow's sender
}

// testbed generates the packets of consecutive intervals. All is the same for the same seed.
type testbed struct {
	r     *rand.Rand
	sizes []traffic.SizePoint
	scale float64
	lasts uint64 // length of an interval, in ns
	flows []*flowState
	next  uint32
	// time in ns at which the link between two nodes is free; hosts have the numbers from 100 on
	free map[[2]uint32]uint64
}

// newTestbed returns a testbed with a share of the paper's flows and of the time, so that the load
// is the same.
func newTestbed(share float64, seed uint64) (*testbed, error) {
	sizes, err := traffic.Workload("DCTCP")
	if err != nil {
		return nil, err
	}
	b := &testbed{r: rand.New(rand.NewPCG(seed, 7)), sizes: sizes, free: map[[2]uint32]uint64{},
		lasts: uint64(share * float64(interval))}
	const samples = 1_000_000
	for range samples {
		b.scale += b.size(1)
	}
	b.scale = paper / flowsOf / (b.scale / samples) // the workload's flows are longer than an interval
	for range int(flowsOf * share) {
		b.flows = append(b.flows, b.newFlow())
	}
	return b, nil
}

// size draws the packets of a flow, times a scale.
func (b *testbed) size(scale float64) float64 {
	x, low, from := b.r.Float64(), 0.0, 0.0
	for _, p := range b.sizes {
		if x <= p.Share {
			return scale * (from + (p.Packets-from)*(x-low)/(p.Share-low))
		}
		low, from = p.Share, p.Packets
	}
	return scale * from
}

func (b *testbed) newFlow() *flowState {
	b.next++
	from, to := b.r.IntN(hosts), b.r.IntN(hosts-1)
	if to >= from {
		to++
	}
	f := &flowState{host: to, upstream: from / 2}
	f.path = b.path(from/2, to/2)
	sent := inbandtest.Sent{Src: netip.AddrFrom4([4]byte{10, byte(from), byte(b.next >> 16), byte(b.next >> 8)}),
		Dst: netip.AddrFrom4([4]byte{10, byte(to), 0, 1}), Proto: 17, SrcPort: uint16(b.next), DstPort: 80,
		Payload: []byte("data"), NoChecksum: true}
	var err error
	if f.key, err = flow.New(sent.Src, sent.Dst, sent.Proto, sent.SrcPort, sent.DstPort); err != nil {
		panic(err) // both addresses are IPv4
	}
	i := inbandtest.INT{Version: 2, HopWords: 2, Remaining: 11, Instructions: 0xa000}
	for _, node := range slices.Backward(f.path) {
		i.Stack = append(i.Stack, node, 0)
	}
	marked := i.Mark(sent, dscp)
	f.frame = marked.Frame()
	stack := len(f.frame) - len(sent.Payload) - 8*len(f.path)
	for h := range f.path {
		f.at = append(f.at, stack+8*(len(f.path)-1-h)+4)
	}
	f.planned = uint32(math.Ceil(b.size(b.scale)))
	return f
}

// path returns the switches between two edge switches.
func (b *testbed) path(from, to int) []uint32 {
	if from == to {
		return []uint32{uint32(from + 1)}
	}
	plane := b.r.Uint32N(2)
	agg := func(edge int) uint32 { return uint32(edges+1+edge/2*2) + plane }
	if from/2 == to/2 {
		return []uint32{uint32(from + 1), agg(from), uint32(to + 1)}
	}
	return []uint32{uint32(from + 1), agg(from), 2*edges + 1 + plane, agg(to), uint32(to + 1)}
}

// burst is consecutive packets of a flow.
type burst struct {
	at      uint64 // ns
	flow    *flowState
	packets uint32
}

// play sends the packets of the next interval and calls f with each that arrives, and its latencies
// by hop.
func (b *testbed) play(f func(s *flowState, latencies []uint32)) {
	var bursts []burst
	for _, s := range b.flows {
		s.packets, s.sum, s.worst = 0, [hops]uint64{}, [hops]uint32{}
		for left := s.planned; left > 0; {
			n := min(left, 1+b.r.Uint32N(2*train))
			bursts = append(bursts, burst{b.r.Uint64N(b.lasts), s, n})
			left -= n
		}
	}
	slices.SortFunc(bursts, func(x, y burst) int {
		switch {
		case x.at != y.at:
			return int(int64(x.at - y.at))
		}
		return x.flow.key.Compare(y.flow.key)
	})
	clear(b.free)
	var latencies [hops]uint32
	for i := range bursts {
		x := &bursts[i]
		for k := range x.packets {
			at := x.at + uint64(k)*service
			for h, node := range x.flow.path {
				to := uint32(100 + x.flow.host)
				if h+1 < len(x.flow.path) {
					to = x.flow.path[h+1]
				}
				port := [2]uint32{node, to}
				left := max(b.free[port], at+pipeline) + service
				b.free[port] = left
				latencies[h] = uint32(left - at)
				at = left
			}
			f(x.flow, latencies[:len(x.flow.path)])
		}
	}
}

// follow replaces a part of the flows by others and changes the sizes of the remaining flows.
func (b *testbed) follow(share float64) {
	for i := range b.flows {
		if b.r.Float64() < share {
			b.flows[i] = b.newFlow()
		}
	}
}

// record adds a packet to the exact numbers and writes its latencies to the flow's frame.
func (s *flowState) record(latencies []uint32) {
	s.packets++
	for h, l := range latencies {
		s.sum[h] += uint64(l)
		s.worst[h] = max(s.worst[h], l)
		binary.BigEndian.PutUint32(s.frame[s.at[h]:], l)
	}
}

// name identifies a flow at a switch or, without a switch, the flow.
func (s *flowState) name(node uint32) string { return fmt.Sprintf("%v/%d", s.key, node) }
