// SPDX-License-Identifier: Apache-2.0

package inband

import (
	"encoding/binary"

	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/sketch/flow"
)

const (
	ipv4Header = 20
	// metadata2 is the size of a shim header and the metadata header of version 2.
	metadata2 = shimHeader + 12
)

// Take reads the flow and the path of a packet and removes its INT, as Decode, Path and Strip do,
// in less time. It takes what nearly all packets are: INT-MD of version 2 without flags and
// domain-specific instructions, over TCP or UDP in IPv4 without options, marked by a DSCP, each hop
// with a node id and a latency but no queue. Of others it returns false, and leaves the frame
// unchanged. path has room for MaxHops, and the latest hop becomes the first one. size is that of
// INT in bytes.
func (d *Decoder) Take(f *packet.Frame, link packet.Link, k *flow.Key, path []Step) (hops, size int, ok bool) {
	m, ip := &d.marks, f.Bytes()[link.TypeAt+2:]
	if link.Type != packet.EtherTypeIPv4 || len(ip) < ipv4Header+udpHeader+metadata2 {
		return 0, 0, false
	}
	// Fields that follow each other are read as one word.
	h := (*[ipv4Header + udpHeader + metadata2]byte)(ip)
	head, ports := binary.BigEndian.Uint64(h[:]), binary.BigEndian.Uint64(h[ipv4Header:])
	length, at, end, port := int(head>>32&0xffff), 0, 0, uint16(ports>>32)
	if head>>56 != 0x45 || head&0x3fff != 0 || length > len(ip) ||
		m.DSCPMask == 0 || uint8(head>>50)&m.DSCPMask != m.DSCP {
		return 0, 0, false
	}
	switch h[9] {
	case packet.ProtocolUDP:
		at, end = ipv4Header+udpHeader, ipv4Header+int(ports>>16&0xffff)
		if port == 0 || port == m.UDPPort || port == m.VXLAN || port == m.Geneve {
			return 0, 0, false
		}
	case packet.ProtocolTCP:
		at, end = ipv4Header+tcpHeader, length
		if !m.BeforeOptions {
			at = ipv4Header + max(int(h[ipv4Header+12]>>4)*4, tcpHeader)
		}
	}
	if end > length || end < at+metadata2 {
		return 0, 0, false
	}
	binary.LittleEndian.PutUint64(k.Src[:], uint64(binary.LittleEndian.Uint32(h[12:])))
	binary.LittleEndian.PutUint64(k.Src[8:], 0)
	binary.LittleEndian.PutUint64(k.Dst[:], uint64(binary.LittleEndian.Uint32(h[16:])))
	binary.LittleEndian.PutUint64(k.Dst[8:], 0)
	k.SrcPort, k.DstPort, k.Proto, k.Mask, k.V6 = uint16(ports>>48), port, h[9], flow.FiveTuple, false

	b := ip[at:end]
	first, second := binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
	size = shimHeader + int(first>>48&0xff)*4
	// INT-MD, version 2 without flags, a remaining hop count, no domain-specific instructions.
	if first>>60 != uint64(MD) || first>>25&0x7f != 2<<3 || first&0xff == 0 || second>>16&0xffff != 0 ||
		m.Probe != 0 && first == m.Probe || size <= metadata2 || size > len(b) {
		return 0, 0, false
	}
	l, hop, sum := d.layout(2, uint16(second>>48)), int(first>>8&0x1f)*4, uint64(0)
	if !l.timed || hop < l.words*4 {
		return 0, 0, false
	}
	if hop == pair {
		hops, sum = pairs(b[metadata2:size], path)
		sum += first>>32 + first&0xffffffff + second>>32 + second&0xffffffff
	} else {
		hops, sum = l.steps(b[metadata2:size], hop, path), packet.Sum(b[:size])
	}
	if hops == 0 {
		return 0, 0, false
	}
	f.Remove(link.TypeAt+2+at, size)
	restore(ip[size:], head, ports, uint32(first>>32)&0xfc, uint32(size), sum)
	return hops, size, true
}

// pair is the size of a hop with a node id and a latency alone.
const pair = 8

// pairs reads the hops of a stack of pairs, and returns the sum of its words. It returns 0 hops if
// a latency is missing, or if they are not a whole number, or too many.
func pairs(stack []byte, path []Step) (hops int, sum uint64) {
	hops = len(stack) / pair
	if len(stack)%pair != 0 || hops > len(path) {
		return 0, 0
	}
	path = path[:hops]
	missing := false
	for i := range path {
		v := binary.BigEndian.Uint64(stack[i*pair : i*pair+pair : i*pair+pair])
		path[i] = Step{uint32(v >> 32), uint32(v)}
		missing = missing || uint32(v) == NoLatency
		sum += v>>32 + v&0xffffffff
	}
	if missing {
		return 0, 0
	}
	return hops, sum
}

// steps is pairs for longer hops, without the sum.
func (l *layout) steps(stack []byte, hop int, path []Step) (hops int) {
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
func restore(ip []byte, head, ports uint64, dscp, size uint32, sum uint64) {
	h := (*[ipv4Header + udpHeader]byte)(ip)
	old := uint32(head >> 32) // version, DSCP, ECN, length
	now := old&^0xfc0000 | dscp<<16 - size
	binary.BigEndian.PutUint32(h[:], now)
	packet.AddChecksum(h[10:], uint64(old>>16+old&0xffff+^now>>16+^now&0xffff), 0xffff)
	sum += uint64(size) // the length in the pseudo header
	if h[9] == packet.ProtocolTCP {
		packet.AddChecksum(ip[ipv4Header+16:], sum, 0xffff)
		return
	}
	binary.BigEndian.PutUint16(h[ipv4Header+4:], uint16(ports>>16)-uint16(size))
	if ports&0xffff != 0 { // zero: the packet has no checksum
		packet.AddChecksum(h[ipv4Header+6:], sum+uint64(size), 0)
	}
}
