// SPDX-License-Identifier: Apache-2.0

package lightguardian

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/rowhash"
)

// The trees have two edge and two aggregation switches a pod and two hosts an edge switch. Switches
// are numbered from the edge switches to the core switches.
type tree struct{ pods, cores int }

// The paper's trees: 16 hosts and 20 switches in Mininet, 8 hosts and 10 switches in its testbed.
var (
	mininet = tree{4, 4}
	testbed = tree{2, 2}
)

const longest = 5 // switches of a path, at most

func (t tree) hosts() int    { return 4 * t.pods }
func (t tree) edges() int    { return 2 * t.pods }
func (t tree) switches() int { return 4*t.pods + t.cores }

// layer returns the layer of a switch: edge, aggregation or core.
func (t tree) layer(node int) int { return min(node/t.edges(), 2) }

var layers = [3]string{"edge", "aggregation", "core"}

// path appends the switches between two hosts. ECMP is random.
func (t tree) path(dst []int, from, to int, r *rand.Rand) []int {
	from, to = from/2, to/2
	if from == to {
		return append(dst, from)
	}
	plane := r.IntN(2)
	dst = append(dst, from, t.edges()+from/2*2+plane)
	if from/2 != to/2 {
		dst = append(dst, 4*t.pods+plane*t.cores/2+r.IntN(t.cores/2), t.edges()+to/2*2+plane)
	}
	return append(dst, to)
}

// flowState is a flow between two hosts, and its packets at the switches of its path.
type flowState struct {
	key      [flow.FiveTupleV4]byte
	from, to int
	path     []int
	loop     int    // first of two switches of the path between which packets loop; -1 if there is no loop
	slow     bool   // whether the flow takes slow links
	sent     uint32 // packets
	measured uint32 // packets in the measured interval
	arrived  uint32 // packets in the measured interval that arrived
}

// newFlow returns a flow between two random hosts.
func (t tree) newFlow(number int, r *rand.Rand) *flowState {
	f := &flowState{from: r.IntN(t.hosts()), to: r.IntN(t.hosts() - 1), loop: -1}
	if f.to >= f.from {
		f.to++
	}
	binary.BigEndian.PutUint32(f.key[:], uint32(10<<24+f.from))
	binary.BigEndian.PutUint32(f.key[4:], uint32(10<<24+f.to))
	f.key[8] = 6
	binary.BigEndian.PutUint32(f.key[9:], uint32(number))
	f.path = t.path(make([]int, 0, longest), f.from, f.to, r)
	return f
}

// selector chooses the packets and columns of one switch for sketchlets in one interval, as
// p4/programs/include/lightguardian.p4 does.
type selector struct {
	number      uint32 // number of packets
	seed        uint32
	probability uint32 // λc in parts of 65,536
	columns     uint32
	sent        [][]uint64 // columns sent at each chance, one bit a column
}

// newSelector returns the selector of a switch. Its seed follows from the number of the switch,
// node.
func newSelector(node int, probability float64, columns, chances int) *selector {
	s := &selector{seed: uint32(2*node + 1), probability: uint32(probability * (1 << 16)), columns: uint32(columns)}
	for range chances {
		s.sent = append(s.sent, make([]uint64, (columns+63)/64))
	}
	return s
}

// packet returns the column that the next packet gets; ok is false for none. carries is whether the
// packet already has a sketchlet.
func (s *selector) packet(carries bool) (col int, ok bool) {
	s.number++
	r := rowhash.Mix(s.number, s.seed)
	if carries || r&0xffff >= s.probability {
		return 0, false
	}
	for i, bits := range s.sent {
		c := rowhash.Mix(r, rowhash.OddWay[i]) % s.columns
		if bits[c/64]>>(c%64)&1 == 0 {
			bits[c/64] |= 1 << (c % 64)
			return int(c), true
		}
	}
	return int(rowhash.Mix(r, rowhash.OddLevel) % s.columns), true
}
