// SPDX-License-Identifier: Apache-2.0

package inband

import (
	"encoding/binary"

	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/sketch/flow"
)

// Offsets in a frame that Take reads.
const (
	network   = 14
	transport = network + 20
	// metadata2 is the size of a shim header and the metadata header of version 2.
	metadata2 = shimHeader + 12
)

// Take reads the flow and the path of a packet and removes its INT, as Decode, Path and Strip do,
// in less time. It handles the packets that nearly all traffic consists of: Ethernet without tags,
// IPv4 without options, and TCP or UDP with INT-MD of version 2, marked by a DSCP, without flags
// and domain-specific instructions, each hop with a node id and a latency but no queue. For other
// packets it returns false, and leaves the frame unchanged. path has room for MaxHops; the latest
// hop comes first. size is the length of INT in bytes.
func (d *Decoder) Take(f *packet.Frame, k *flow.Key, path []Step) (hops, size int, ok bool) {
	m, frame := &d.marks, f.Bytes()
	if len(frame) < transport+udpHeader+metadata2 {
		return 0, 0, false
	}
	// Fields that follow each other are read as one word.
	h := (*[transport + udpHeader + metadata2]byte)(frame)
	head, ports := binary.BigEndian.Uint64(h[network:]), binary.BigEndian.Uint64(h[transport:])
	length, at, end, port := network+int(head>>32&0xffff), 0, 0, uint16(ports>>32)
	if binary.BigEndian.Uint16(h[network-2:]) != packet.EtherTypeIPv4 || head>>56 != 0x45 || head&0x3fff != 0 ||
		length > len(frame) || m.DSCPMask == 0 || uint8(head>>50)&m.DSCPMask != m.DSCP {
		return 0, 0, false
	}
	protocol := h[network+9]
	switch protocol {
	case packet.ProtocolUDP:
		at, end = transport+udpHeader, transport+int(ports>>16&0xffff)
		if port == 0 || port == m.UDPPort || port == m.VXLAN || port == m.Geneve {
			return 0, 0, false
		}
	case packet.ProtocolTCP:
		at, end = transport+tcpHeader, length
		if !m.BeforeOptions {
			at = transport + max(int(h[transport+12]>>4)*4, tcpHeader)
		}
	}
	if end > length || end < at+metadata2 {
		return 0, 0, false
	}
	k.SetIPv4(binary.LittleEndian.Uint64(h[network+12:]))
	k.SrcPort, k.DstPort, k.Proto, k.Mask, k.V6 = uint16(ports>>48), port, protocol, flow.FiveTuple, false

	b := frame[at:end]
	first, second := binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:metadata2])
	size = shimHeader + int(first>>48&0xff)*4
	// INT-MD, version 2 without flags, a remaining hop count, no domain-specific instructions.
	if first>>60 != uint64(MD) || first>>25&0x7f != 2<<3 || first&0xff == 0 || second>>16&0xffff != 0 ||
		m.Probe != 0 && first == m.Probe || size <= metadata2 || size > len(b) {
		return 0, 0, false
	}
	sum := uint64(0)
	if first>>8&0x1f == pair/4 && second>>48 == pairBitmap {
		hops, sum = pairs(b[metadata2:size], path)
		sum += first>>32 + first&0xffffffff + second>>32 + second&0xffffffff
	} else {
		hops = d.layout(2, uint16(second>>48)).steps(b[metadata2:size], int(first>>8&0x1f)*4, path)
		sum = packet.Sum(b[:size])
	}
	if hops == 0 {
		return 0, 0, false
	}
	f.Remove(at, size)
	restore(frame[size:], head, ports, uint32(first>>32)&0xfc, uint32(size), sum)
	return hops, size, true
}

// pair is the size of a hop with a node id and a latency alone, which pairBitmap requests.
const (
	pair       = 8
	pairBitmap = 1<<(15-NodeID) | 1<<(15-Latency)
)

// pairs reads the hops of a stack of pairs, and returns the sum of its words. It returns 0 hops if
// a latency is missing, or if the stack is not a whole number of hops, or has too many.
func pairs(stack []byte, path []Step) (hops int, sum uint64) {
	hops = len(stack) / pair
	if len(stack)%pair != 0 || hops > len(path) {
		return 0, 0
	}
	path = path[:hops]
	for i := range path {
		v := binary.BigEndian.Uint64(stack[i*pair : i*pair+pair : i*pair+pair])
		path[i] = Step{uint32(v >> 32), uint32(v)}
		if uint32(v) == NoLatency {
			return 0, 0
		}
		sum += v>>32 + v&0xffffffff
	}
	return hops, sum
}

// steps reads the hops of a stack as pairs does, for hops of another size. It adds nothing up.
func (l *layout) steps(stack []byte, hop int, path []Step) (hops int) {
	if !l.timed || hop < l.words*4 {
		return 0
	}
	for ; len(stack) >= hop && hops < len(path); stack = stack[hop:] {
		s := Step{binary.BigEndian.Uint32(stack), binary.BigEndian.Uint32(stack[l.at[Latency]:])}
		if s.Latency == NoLatency {
			return 0
		}
		path[hops] = s
		hops++
	}
	if len(stack) > 0 {
		return 0
	}
	return hops
}

// restore restores the headers of IPv4 and TCP or UDP behind which INT of the given size and sum
// was. head and ports are their first words, dscp is the DSCP of the shim header in its place.
func restore(frame []byte, head, ports uint64, dscp, size uint32, sum uint64) {
	h := (*[transport + udpHeader]byte)(frame)
	old := uint32(head >> 32) // version, DSCP, ECN, length
	now := old&^0xfc0000 | dscp<<16 - size
	binary.BigEndian.PutUint32(h[network:], now)
	packet.AddChecksum(h[network+10:network+12], uint64(old>>16+old&0xffff+^now>>16+^now&0xffff), 0xffff)
	sum += uint64(size) // the length in the pseudo header
	if h[network+9] == packet.ProtocolTCP {
		packet.AddChecksum(frame[transport+16:], sum, 0xffff)
		return
	}
	binary.BigEndian.PutUint16(h[transport+4:], uint16(ports>>16)-uint16(size))
	if ports&0xffff != 0 { // zero: the packet has no checksum
		packet.AddChecksum(h[transport+6:], sum+uint64(size), 0)
	}
}
