// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"compress/gzip"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/gopacket/gopacket/pcapgo"
)

// ipv4 returns an IPv4 packet with a right checksum; options have a length of 4n.
func ipv4(src, dst [4]byte, protocol, ttl byte, fragment uint16, options, payload []byte) []byte {
	h := make([]byte, 20, 20+len(options)+len(payload))
	h[0] = 0x45 + byte(len(options)/4)
	binary.BigEndian.PutUint16(h[2:], uint16(20+len(options)+len(payload)))
	binary.BigEndian.PutUint16(h[6:], fragment)
	h[8], h[9] = ttl, protocol
	copy(h[12:], src[:])
	copy(h[16:], dst[:])
	h = append(h, options...)
	binary.BigEndian.PutUint16(h[10:], checksum(h))
	return append(h, payload...)
}

// zeroSum returns an Ethernet frame with an identification by which the checksum of its IPv4 header
// is 0, and with this checksum.
func zeroSum(frame []byte, sum uint16) []byte {
	out := slices.Clone(frame)
	h := out[14:][:int(out[14]&15)*4]
	clear(h[4:6])
	clear(h[10:12])
	binary.BigEndian.PutUint16(h[4:], checksum(h))
	binary.BigEndian.PutUint16(h[10:], sum)
	return out
}

func ipv6(src, dst [16]byte, next, hops byte, payload []byte) []byte {
	h := make([]byte, 40, 40+len(payload))
	h[0] = 0x60
	binary.BigEndian.PutUint16(h[4:], uint16(len(payload)))
	h[6], h[7] = next, hops
	copy(h[8:], src[:])
	copy(h[24:], dst[:])
	return append(h, payload...)
}

func ethernet(kind uint16, tags []uint16, payload []byte) []byte {
	f := []byte{2, 0, 0, 0, 0, 0xaa, 2, 0, 0, 0, 0, 0xbb}
	for i, t := range tags {
		f = binary.BigEndian.AppendUint16(f, t)
		f = binary.BigEndian.AppendUint16(f, uint16(100+i))
	}
	f = binary.BigEndian.AppendUint16(f, kind)
	return append(f, payload...)
}

func ports(src, dst uint16) []byte {
	return append(binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, src), dst), make([]byte, 16)...)
}

func address6(b ...byte) (a [16]byte) {
	copy(a[:], []byte{0x20, 0x01, 0x0d, 0xb8})
	copy(a[4:], b)
	return a
}

// oddFrames are the cases of docs/p4.md's section on packets.
func oddFrames() [][]byte {
	v4 := func(protocol, ttl byte, fragment uint16, options, payload []byte) []byte {
		return ethernet(0x0800, nil, ipv4([4]byte{10, 9, 0, 1}, [4]byte{10, 0, 0, 2}, protocol, ttl, fragment, options,
			payload))
	}
	v6 := func(next byte, payload []byte) []byte {
		return ethernet(0x86dd, nil, ipv6(address6(9), address6(0, 0, 2), next, 64, payload))
	}
	withTos := func(f []byte, tos byte) []byte {
		f = slices.Clone(f)
		setTos(f[14:], f[12] == 0x86, tos)
		return f
	}
	tcp := v4(6, 64, 0, nil, ports(1234, 80))
	tcp6 := v6(6, ports(1234, 80))
	highest := ethernet(0x0800, nil, ipv4([4]byte{255, 255, 255, 255}, [4]byte{255, 255, 255, 251}, 255, 64, 0, nil,
		nil))
	highest6 := ethernet(0x86dd, nil, ipv6(address6(255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255),
		address6(0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 253), 17, 64, ports(65535, 65535)))
	inner := ipv4([4]byte{10, 9, 0, 3}, [4]byte{10, 0, 0, 4}, 17, 64, 0, nil, ports(5, 6))
	return [][]byte{
		tcp, tcp6,
		v4(17, 64, 0, nil, ports(53, 53)),
		v4(1, 64, 0, nil, ports(8, 0)),
		v4(132, 64, 0, nil, ports(9, 9)),
		v4(6, 64, 0, []byte{1, 1, 1, 0}, ports(1234, 81)),
		v4(6, 64, 0, slices.Repeat([]byte{1}, 40), ports(1234, 82)),
		v4(17, 64, 0x2000, nil, ports(1000, 2000)), // first fragment
		v4(17, 64, 0x2005, nil, ports(1000, 2000)), // later fragment
		v4(17, 64, 0x4000, nil, ports(1000, 2001)), // don't fragment
		v4(6, 2, 0, nil, ports(1, 2)),
		v4(6, 1, 0, nil, ports(1, 3)),
		v4(6, 0, 0, nil, ports(1, 4)),
		v4(59, 64, 0, nil, nil),               // nothing after the header
		v4(6, 64, 0, nil, []byte{1, 2}),       // ports cut short
		v4(6, 64, 0x1fff, nil, []byte{1, 2}),  // no ports there
		change(tcp, 14+10, tcp[14+10]^1),      // checksum
		zeroSum(tcp, 0), zeroSum(tcp, 0xffff), // zero, and ones, which are another zero
		change(tcp, 14, 0x44), // IHL
		change(tcp, 14, 0x65), // version
		tcp[:30],              // cut short
		change(v4(6, 64, 0, nil, nil), 14, 0x4f)[:40], // options cut short
		v6(17, ports(53, 53)),
		v6(58, ports(8, 0)),
		v6(0, slices.Concat([]byte{6, 0, 1, 4, 0, 0, 0, 0}, ports(1, 2))),  // hop-by-hop
		v6(44, slices.Concat([]byte{6, 0, 0, 1, 0, 0, 0, 1}, ports(7, 8))), // first fragment
		v6(44, slices.Concat([]byte{6, 0, 0, 8, 0, 0, 0, 1}, ports(7, 8))), // later fragment
		v6(44, []byte{6, 0, 0, 1}),                                         // fragment header cut short
		change(tcp6, 14, 0x40),                                             // version
		change(tcp6, 14+7, 1),                                              // hop limit
		tcp6[:50],                                                          // cut short
		ethernet(0x0800, []uint16{0x8100}, inner),
		ethernet(0x0800, []uint16{0x88a8, 0x8100}, inner),
		ethernet(0x0800, []uint16{0x9100, 0x8100}, inner),
		ethernet(0x86dd, []uint16{0x8100}, ipv6(address6(9), address6(0, 0, 3), 17, 64, ports(1, 1))),
		ethernet(0x0800, []uint16{0x88a8, 0x88a8, 0x8100}, inner), // three tags
		ethernet(0x0806, nil, make([]byte, 28)),
		ethernet(0x8847, nil, make([]byte, 40)),
		{2, 0, 0, 0, 0, 0xaa, 2, 0},
		withTos(tcp, 46<<2|1), withTos(tcp, 10<<2|2), withTos(tcp, 48<<2), withTos(tcp, 255), withTos(tcp, 28),
		withTos(tcp, 3),
		withTos(tcp6, 46<<2|1), withTos(tcp6, 10<<2|2), withTos(tcp6, 48<<2), withTos(tcp6, 255), withTos(tcp6, 28),
		withTos(tcp6, 3),
		highest, highest, highest6, highest6,
	}
}

// encapsulatedFrames are the further cases of programs that parse encapsulations.
func encapsulatedFrames() [][]byte {
	v6 := func(next byte, payload []byte) []byte {
		return ethernet(0x86dd, nil, ipv6(address6(9), address6(0, 0, 2), next, 64, payload))
	}
	inner := ipv4([4]byte{10, 9, 0, 3}, [4]byte{10, 0, 0, 4}, 17, 64, 0, nil, ports(5, 6))
	inner6 := ipv6(address6(9), address6(0, 0, 4), 6, 64, ports(1, 5))
	label, bottom := []byte{0, 17, 0, 64}, []byte{0, 16, 1, 64}
	return [][]byte{
		ethernet(0x0800, []uint16{0x88a8, 0x88a8, 0x8100, 0x8100}, inner),
		ethernet(0x0800, slices.Repeat([]uint16{0x8100}, 5), inner),
		ethernet(0x8847, []uint16{0x8100}, slices.Concat(label, bottom, inner)),
		ethernet(0x8848, []uint16{0x8100, 0x8100, 0x8100}, slices.Concat(bottom, inner6)),
		ethernet(0x8847, nil, slices.Concat(slices.Repeat(label, 5), bottom, inner)),
		ethernet(0x8847, nil, slices.Concat(slices.Repeat(label, 6), bottom, inner)),
		ethernet(0x8847, nil, bottom),
		ethernet(0x8864, nil, slices.Concat([]byte{0x11, 0, 0, 1, 0, 0, 0, 0x21}, inner)),
		ethernet(0x8864, []uint16{0x8100}, slices.Concat([]byte{0x11, 0, 0, 1, 0, 0, 0, 0x57}, inner6)),
		ethernet(0x8864, nil, slices.Concat([]byte{0x11, 0, 0, 1, 0, 0, 0xc0, 0x21}, inner)),
		ethernet(0x8864, nil, []byte{0x11, 0, 0}),
		v6(0, slices.Concat([]byte{60, 1}, make([]byte, 14), []byte{51, 0, 0, 0, 0, 0, 0, 0, 43, 1}, make([]byte, 10),
			[]byte{17, 0, 0, 0, 0, 0, 0, 0}, ports(1, 6))), // four
		v6(0, slices.Concat([]byte{60, 1}, make([]byte, 14), []byte{51, 5}, make([]byte, 46), []byte{17, 10},
			make([]byte, 46), ports(1, 7))), // three, of 16, 48 and 48 bytes
		v6(0, slices.Concat([]byte{17, 6}, make([]byte, 54), ports(1, 8))),                                 // 56 bytes
		v6(44, []byte{0, 0, 0, 1, 0, 0, 0, 1, 17, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 9}),                        // first fragment
		v6(60, []byte{44, 0, 0, 0, 0, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 10}),                      // first fragment
		v6(60, []byte{44, 0, 0, 0, 0, 0, 0, 0, 17, 0, 0, 8, 0, 0, 0, 1, 0, 1, 0, 11}),                      // later fragment
		v6(60, []byte{44, 0, 0, 0, 0, 0, 0, 0, 17, 0, 0}),                                                  // cut short
		v6(135, []byte{139, 0, 0, 0, 0, 0, 0, 0, 140, 0, 0, 0, 0, 0, 0, 0, 50, 0, 0, 0, 0, 0, 0, 0, 1, 2}), // ESP
	}
}

// flowFrames returns n packets of flows, IPv4 and IPv6, some flows heavier than
// others, to the destinations that the test has routes for. The same seed gives the
// same frames.
func flowFrames(seed uint64, n, flows int) [][]byte {
	r := rand.New(rand.NewPCG(seed, 1))
	templates := make([][]byte, flows)
	for i := range templates {
		protocol, payload := byte(6), ports(uint16(r.Uint32()), uint16(r.IntN(1024)))
		if r.IntN(3) == 0 {
			protocol = 17
		}
		if r.IntN(4) == 0 {
			templates[i] = ethernet(0x86dd, nil, ipv6(address6(9, byte(r.IntN(40))),
				address6(0, byte(r.IntN(3)), byte(r.IntN(256))), protocol, 64, payload))
			continue
		}
		src, dst := [4]byte{10, 9, byte(r.IntN(4)), byte(r.IntN(256))},
			[4]byte{10, byte(r.IntN(4)), byte(r.IntN(256)), 1}
		templates[i] = ethernet(0x0800, nil, ipv4(src, dst, protocol, 64, 0, nil, payload))
	}
	out := make([][]byte, n)
	for i := range out {
		f := r.Float64()
		out[i] = templates[int(f*f*f*float64(flows))]
	}
	return out
}

// realFrames returns n packets of the shared trace, evenly taken from all of it. It skips the test
// where the trace is not there.
func realFrames(t *testing.T, n int) [][]byte {
	t.Helper()
	const name, total = "../../../../shared/traces/mixed-165k.pcap.gz", 164_600
	file, err := os.Open(name)
	if err != nil {
		t.Skipf("the shared trace is not here: %v", err)
	}
	defer file.Close()
	z, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := pcapgo.NewReader(z)
	if err != nil {
		t.Fatal(err)
	}
	var out [][]byte
	for i := 0; len(out) < n; i++ {
		f, _, err := r.ReadPacketData()
		if err != nil {
			t.Fatalf("%s, packet %d: %v", name, i+1, err)
		}
		if i*n/total >= len(out) {
			out = append(out, f)
		}
	}
	return out
}
