// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/netsketch/netsketch/sketch/flow"
)

func TestSharedTrace(t *testing.T) {
	name := Shared(3)
	if _, err := os.Stat(name); err != nil {
		t.Skipf("the shared trace is not here: %v", err)
	}
	packets, total, err := Read(name)
	if err != nil {
		t.Fatal(err)
	}
	flows := make(map[flow.Key]int)
	perEpoch := make(map[time.Duration]map[flow.Key]int)
	v6, heaviest := 0, 0
	for _, p := range packets {
		flows[p.Key]++
		heaviest = max(heaviest, flows[p.Key])
		if p.Key.V6 {
			v6++
		}
		e := p.At / time.Second
		if perEpoch[e] == nil {
			perEpoch[e] = make(map[flow.Key]int)
		}
		perEpoch[e][p.Key]++
	}
	t.Logf("%d packets, %d counted, %d IPv6, %d flows, heaviest %d, %d seconds", total, len(packets), v6, len(flows),
		heaviest, len(perEpoch))
	if total != 164_600 {
		t.Errorf("%d packets, the trace's description says 164,600", total)
	}
	for e := range 14 {
		n := 0
		for _, c := range perEpoch[time.Duration(e)] {
			n += c
		}
		t.Logf("second %d: %d packets, %d flows", e, n, len(perEpoch[time.Duration(e)]))
	}
}

func TestParse(t *testing.T) {
	mac := make([]byte, 12)
	v4 := []byte{0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0x66, 0xcf, 10, 0, 0, 1, 10, 0, 0, 2}
	v4[10], v4[11] = 0, 0
	sum := ^checksum(v4)
	v4[10], v4[11] = byte(sum>>8), byte(sum)
	ports := []byte{0, 53, 1, 0, 0, 8, 0, 0}
	v6 := append([]byte{0x60, 0, 0, 0, 0, 8, 6, 64},
		append(bytes.Repeat([]byte{1}, 16), bytes.Repeat([]byte{2}, 16)...)...)
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	edit := func(b []byte, at int, v byte) []byte { c := bytes.Clone(b); c[at] = v; return c }
	tests := []struct {
		name  string
		frame []byte
		want  string // empty if the packet is not counted
	}{
		{"udp", join(mac, []byte{8, 0}, v4, ports), "10.0.0.1,10.0.0.2,udp,53,256"},
		{"two tags", join(mac, []byte{0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 8, 0}, v4, ports),
			"10.0.0.1,10.0.0.2,udp,53,256"},
		{"three tags", join(mac, []byte{0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 0x81, 0, 0, 3, 8, 0}, v4, ports), ""},
		{"bad checksum", join(mac, []byte{8, 0}, edit(v4, 8, 63), ports), ""},
		{"ports cut short", join(mac, []byte{8, 0}, v4, ports[:3]), ""},
		{"header cut short", join(mac, []byte{8, 0}, v4[:19]), ""},
		{"arp", join(mac, []byte{8, 6}, v4, ports), ""},
		{"IPv6", join(mac, []byte{0x86, 0xdd}, v6, ports),
			"101:101:101:101:101:101:101:101,202:202:202:202:202:202:202:202,tcp,53,256"},
		{"IPv6 fragment", join(mac, []byte{0x86, 0xdd}, edit(v6, 6, 44), []byte{17, 0, 0, 9, 0, 0, 0, 0}, ports),
			"101:101:101:101:101:101:101:101,202:202:202:202:202:202:202:202,udp,0,0"},
		{"IPv6 hop-by-hop", join(mac, []byte{0x86, 0xdd}, edit(v6, 6, 0), ports),
			"101:101:101:101:101:101:101:101,202:202:202:202:202:202:202:202,0,0,0"},
		{"version mismatch", join(mac, []byte{8, 0}, edit(v4, 0, 0x65), ports), ""},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			k, ok := Parse(tc.frame)
			if got := k.String(); ok != (tc.want != "") || got != tc.want {
				t.Errorf("Parse = %q, %v; want %q", got, ok, tc.want)
			}
		})
	}
}

func TestZipfIsReproducible(t *testing.T) {
	a, b := Zipf(1, 1000, 100, 1.1), Zipf(1, 1000, 100, 1.1)
	for i := range a {
		if a[i] != b[i] {
			t.Fatalf("packet %d differs", i)
		}
	}
}
