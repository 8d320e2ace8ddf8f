// SPDX-License-Identifier: Apache-2.0

package sketchint

import (
	"cmp"
	"net/netip"

	"github.com/netsketch/netsketch/hostagent/inband"
	"github.com/netsketch/netsketch/hostagent/sketchint/wire"
)

// maxSources bounds the senders of telemetry reports.
const maxSources = 1 << 16

// window is the distance of sequence numbers beyond which a lower number is a restart.
const window = 1 << 12

// sender identifies a numbered stream of telemetry reports.
type sender struct {
	address  netip.Addr
	node     uint32
	hardware uint8
}

// stream counts the datagrams of one sender. Each datagram from the first number to the highest one
// arrived or is lost.
type stream struct {
	wire.Source
	highest uint32
}

// sources are the senders since the agent started.
type sources struct {
	streams map[sender]*stream
}

// count counts a datagram. It returns false without room for its sender.
func (s *sources) count(from netip.Addr, r *inband.Report) bool {
	id := sender{from, r.Node, r.Hardware}
	st := s.streams[id]
	if st == nil {
		if len(s.streams) >= maxSources {
			return false
		}
		if s.streams == nil {
			s.streams = map[sender]*stream{}
		}
		s.streams[id] = &stream{highest: r.Sequence, Source: wire.Source{Address: from, Node: r.Node,
			Hardware: r.Hardware, Received: 1}}
		return true
	}
	st.Received++
	shift := 32 - r.SequenceBits()
	// The difference of two numbers modulo their size, as a signed number.
	switch ahead := int32((r.Sequence-st.highest)<<shift) >> shift; {
	case ahead > 0:
		st.Lost += uint64(ahead - 1)
		st.highest = r.Sequence
	case ahead > -window:
		st.Late++
		if st.Lost > 0 {
			st.Lost-- // the datagram was counted as lost
		}
	default:
		st.Restarts++
		st.highest = r.Sequence
	}
	return true
}

func (s *sources) rows() []wire.Source {
	var out []wire.Source
	for _, st := range sorted(s.streams, func(a, b stream) int {
		return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Hardware, b.Hardware))
	}) {
		out = append(out, st.Source)
	}
	return out
}
