// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"bytes"
	"encoding/binary"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestParityUnivMon runs real packets through BMv2 and the engine, reads both out by packet, and
// compares all cells.
func TestParityUnivMon(t *testing.T) {
	if _, err := exec.LookPath("simple_switch"); err != nil {
		t.Skip("BMv2 is not here: simple_switch is not on the PATH")
	}
	const name, packets = "univmon-300k", 3000
	p := compiled(t, name)
	traffic := sharedTrace(t, packets)
	var asks [][]byte
	for _, obj := range []struct {
		register string
		number   byte
	}{
		{"ingress.univmon_src.counters", 1}, {"ingress.univmon_src.heavy", 2}, {"ingress.univmon_5t.counters", 5},
		{"ingress.univmon_5t.heavy", 6},
	} {
		for _, r := range p.Info.Registers {
			if r.Name != obj.register {
				continue
			}
			for cell := 0; cell < r.Size/2; cell += 256 {
				ask := []byte{1, 0, 0, obj.number, 0}
				ask = binary.BigEndian.AppendUint32(ask, uint32(cell))
				ask = binary.BigEndian.AppendUint32(ask, uint32(len(asks)))
				asks = append(asks, append(ask, make([]byte, 1024)...))
			}
		}
	}
	if len(asks) < 100 {
		t.Fatalf("only %d requests", len(asks))
	}
	js, err := filepath.Abs(filepath.Join("..", "compiled", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	want := bmv2Ports(t, js, map[uint32][][]byte{0: traffic, 255: asks}, 255, len(asks))
	s := New(Config{})
	defer s.Close()
	if err := s.Load(p); err != nil {
		t.Fatal(err)
	}
	_ = s.AddPort(0, Port{})
	var got [][]byte
	s.SetPacketIn(func(pkt []byte) { got = append(got, bytes.Clone(pkt)) })
	for i, pkt := range traffic {
		s.Inject(0, pkt, time.Duration(i))
	}
	for _, a := range asks {
		if err := s.PacketOut(a); err != nil {
			t.Fatal(err)
		}
	}
	if len(got) != len(asks) {
		t.Fatalf("%d requests, %d answers", len(asks), len(got))
	}
	// BMv2's egress queue holds 64 packets and drops in silence: its answers are known by their
	// sequence numbers.
	cells, filled := 0, 0
	for _, w := range want {
		g := got[binary.BigEndian.Uint32(w[len(w)-1028:])]
		if !bytes.Equal(g, w) {
			t.Fatalf("answers differ:\n got %x\nwant %x", g, w)
		}
		for c := g[len(g)-1024:]; len(c) > 0; c = c[4:] {
			cells++
			if binary.BigEndian.Uint32(c) != 0 {
				filled++
			}
		}
	}
	t.Logf("%s: %d packets, %d cells alike, %d of them not zero", name, len(traffic), cells, filled)
	if filled < 1000 {
		t.Error("hardly any cell was counted in")
	}
}
