// SPDX-License-Identifier: Apache-2.0

// Package trace extracts flow keys from packets by the rules of the parser of p4/programs, and
// reads or generates traffic, for the tests of the packages under sketch. The lab has the ground
// truth for the whole system; this package serves tests of the data structures alone.
package trace

import (
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/gopacket/gopacket/pcapgo"

	"github.com/netsketch/netsketch/sketch/flow"
)

// Packet is a packet of a flow.
type Packet struct {
	At  time.Duration // since the first packet of the trace
	Key flow.Key      // 5-tuple of the packet
}

// Shared returns the path of the directory with traces next to the repository, seen from a package
// depth directories below the repository's root.
func Shared(depth int) string {
	p := ""
	for range depth {
		p = filepath.Join(p, "..")
	}
	return filepath.Join(p, "..", "shared", "traces", "mixed-165k.pcap.gz")
}

// Read returns the counted packets of a gzipped pcap file and the total number of packets.
func Read(name string) (counted []Packet, total int, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, 0, fmt.Errorf("trace %s: %w", name, err)
	}
	r, err := pcapgo.NewReader(z)
	if err != nil {
		return nil, 0, fmt.Errorf("trace %s: %w", name, err)
	}
	var start time.Time
	for {
		data, info, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			return counted, total, nil
		}
		if err != nil {
			return counted, total, fmt.Errorf("trace %s, packet %d: %w", name, total+1, err)
		}
		if total == 0 {
			start = info.Timestamp
		}
		total++
		if k, ok := Parse(data); ok {
			counted = append(counted, Packet{At: info.Timestamp.Sub(start), Key: k})
		}
	}
}

const (
	etherIPv4, etherIPv6           = 0x0800, 0x86dd
	etherVLAN, etherQinQ, etherOld = 0x8100, 0x88a8, 0x9100

	protoTCP, protoUDP, protoFragment = 6, 17, 44
)

// Parse returns the 5-tuple of an Ethernet frame. It returns false if the P4 parser does not count
// the frame: it is neither IPv4 nor IPv6 after at most two VLAN tags, is truncated, has a wrong
// version, or has a bad IPv4 header checksum.
func Parse(frame []byte) (flow.Key, bool) {
	if len(frame) < 14 {
		return flow.Key{}, false
	}
	ether, b := binary.BigEndian.Uint16(frame[12:]), frame[14:]
	for tags := 0; tags < 2 && (ether == etherVLAN || ether == etherQinQ || ether == etherOld); tags++ {
		if len(b) < 4 {
			return flow.Key{}, false
		}
		ether, b = binary.BigEndian.Uint16(b[2:]), b[4:]
	}
	switch ether {
	case etherIPv4:
		return parseIPv4(b)
	case etherIPv6:
		return parseIPv6(b)
	default:
		return flow.Key{}, false
	}
}

func parseIPv4(b []byte) (flow.Key, bool) {
	if len(b) < 20 || b[0]>>4 != 4 || b[0]&15 < 5 {
		return flow.Key{}, false
	}
	n := int(b[0]&15) * 4
	if len(b) < n || checksum(b[:n]) != 0xffff {
		return flow.Key{}, false
	}
	offset := binary.BigEndian.Uint16(b[6:]) & 0x1fff
	src, dst := netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
	return withPorts(src, dst, b[9], offset, b[n:])
}

func parseIPv6(b []byte) (flow.Key, bool) {
	if len(b) < 40 || b[0]>>4 != 6 {
		return flow.Key{}, false
	}
	proto, offset := b[6], uint16(0)
	src, dst := netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	b = b[40:]
	if proto == protoFragment {
		if len(b) < 8 {
			return flow.Key{}, false
		}
		proto, offset, b = b[0], binary.BigEndian.Uint16(b[2:])>>3, b[8:]
	}
	return withPorts(src, dst, proto, offset, b)
}

func withPorts(src, dst netip.Addr, proto uint8, offset uint16, b []byte) (flow.Key, bool) {
	var sport, dport uint16
	if offset == 0 && (proto == protoTCP || proto == protoUDP) {
		if len(b) < 4 {
			return flow.Key{}, false
		}
		sport, dport = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	}
	k, err := flow.New(src, dst, proto, sport, dport)
	return k, err == nil
}

// checksum returns the ones' complement sum of 16-bit words; b must have an even length.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}

// Zipf returns packets of flows whose sizes follow Zipf's law: the flow of rank r has
// a share proportional to r^-skew of the packets. Addresses and ports are random, one
// flow in five is IPv6. The same arguments give the same packets.
func Zipf(seed uint64, packets, ranks int, skew float64) []Packet {
	r := rand.New(rand.NewPCG(seed, 0x7a697066))
	keys := make([]flow.Key, ranks)
	sum := make([]float64, ranks)
	total := 0.0
	for i := range keys {
		keys[i] = randomKey(r)
		total += math.Pow(float64(i+1), -skew)
		sum[i] = total
	}
	out := make([]Packet, packets)
	for i := range out {
		u := r.Float64() * total
		lo, hi := 0, ranks-1
		for lo < hi {
			if mid := (lo + hi) / 2; sum[mid] < u {
				lo = mid + 1
			} else {
				hi = mid
			}
		}
		out[i] = Packet{At: time.Second * time.Duration(i) / time.Duration(packets), Key: keys[lo]}
	}
	return out
}

func randomKey(r *rand.Rand) flow.Key {
	addr := func() netip.Addr { return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, r.Uint32()))) }
	if r.IntN(5) == 0 {
		addr = func() netip.Addr {
			var a [16]byte
			binary.BigEndian.PutUint64(a[:], 0x2001_0db8_0000_0000|uint64(r.Uint32()))
			binary.BigEndian.PutUint64(a[8:], r.Uint64())
			return netip.AddrFrom16(a)
		}
	}
	proto := uint8(protoTCP)
	if r.IntN(3) == 0 {
		proto = protoUDP
	}
	k, err := flow.New(addr(), addr(), proto, uint16(r.Uint32()), uint16(r.Uint32()))
	if err != nil {
		panic(err) // both addresses come from the same generator
	}
	return k
}
