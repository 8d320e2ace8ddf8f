// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/sdktest"
	"github.com/netsketch/netsketch/sketch/flow"

	"example.com/netsketch-plugin-cocosketch/slots"
)

const (
	register = "ingress.own.slots"
	bank     = slots.Arrays * 512 * slots.Words // cells
)

// start returns a soft switch that runs the compiled program.
func start(t *testing.T) *softswitch.Switch {
	t.Helper()
	text, err := os.ReadFile("p4/cocosketch.json")
	if err != nil {
		t.Fatal(err)
	}
	program, err := softswitch.Compile(text)
	if err != nil {
		t.Fatal(err)
	}
	s := softswitch.New(softswitch.Config{Seed: 1})
	t.Cleanup(s.Close)
	if err := s.Load(program); err != nil {
		t.Fatal(err)
	}
	if err := s.AddPort(1, softswitch.Port{Tx: func([]byte, time.Duration) {}}); err != nil {
		t.Fatal(err)
	}
	return s
}

// frame returns a UDP packet of a flow, by IPv4 or IPv6.
func frame(k flow.Key) []byte {
	src, dst := k.SrcAddr(), k.DstAddr()
	p := make([]byte, 12, 80)
	if src.Is4() {
		ip := append([]byte{0x45, 0, 0, 28, 0, 0, 0, 0, 64, k.Proto, 0, 0}, append(src.AsSlice(), dst.AsSlice()...)...)
		sum := uint32(0)
		for i := 0; i < len(ip); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(ip[i:]))
		}
		sum = sum>>16 + sum&0xffff
		binary.BigEndian.PutUint16(ip[10:], ^uint16(sum+sum>>16))
		p = append(append(p, 8, 0), ip...)
	} else {
		p = append(p, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, k.Proto, 64)
		p = append(append(p, src.AsSlice()...), dst.AsSlice()...)
	}
	p = binary.BigEndian.AppendUint16(p, k.SrcPort)
	p = binary.BigEndian.AppendUint16(p, k.DstPort)
	return append(p, 0, 8, 0, 0)
}

// key returns the flow i, of IPv6 if i is odd.
func key(t testing.TB, i int) flow.Key {
	t.Helper()
	src, dst := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), netip.MustParseAddr("10.1.0.1")
	if i%2 == 1 {
		src, dst = netip.MustParseAddr(fmt.Sprintf("2001:db8::%x", i+1)), netip.MustParseAddr("2001:db8:1::1")
	}
	k, err := flow.New(src, dst, 17, uint16(1000+i), 53)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestProgram: with many flows, the counts of all flows add up to the packets that were sent, and
// large flows have about their size, by 5-tuple and by source. The switch draws random numbers from
// a fixed seed, and the order of packets is fixed.
func TestProgram(t *testing.T) {
	s := start(t)
	sent := uint64(0)
	for round := range 2000 { // large and small flows alternate
		for i := range 3000 {
			if i >= 10 && i%2000 != round { // a small flow has one packet
				continue
			}
			s.Inject(1, frame(key(t, i)), time.Duration(round)*time.Microsecond)
			sent++
		}
	}
	cells := read(t, s)
	got, err := slots.Sizes(cells, flow.FiveTuple)
	if err != nil {
		t.Fatal(err)
	}
	sum := uint64(0)
	for _, n := range got {
		sum += n
	}
	if sum != sent {
		t.Errorf("%d packets, sent %d", sum, sent)
	}
	sources, err := slots.Sizes(cells, flow.Src)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		k := key(t, i)
		if n := got[k]; n < 1900 || n > 2100 || sources[k.Project(flow.Src)] < n {
			t.Errorf("flow %v: %d packets, %d of its source; sent 2000", k, n, sources[k.Project(flow.Src)])
		}
	}
}

// The switch and package slots put flows into the same slots. Each flow has a slot of its own.
func TestSameSlots(t *testing.T) {
	s, inGo := start(t), slots.New(512, 1)
	for i := range 20 {
		k := key(t, i)
		for range i + 1 {
			s.Inject(1, frame(k), time.Microsecond)
			inGo.Count(&k)
		}
	}
	if !slices.Equal(read(t, s), inGo.Cells) {
		t.Error("the cells differ")
	}
}

// The agents of hosts count in the same slots, and the plugin adds them up for the network.
func TestHosts(t *testing.T) {
	hosts := sdk.Network{Hosts: []sdk.Host{{Name: "h1", Agent: true}, {Name: "h2", Agent: true}, {Name: "h3"}}}
	h := sdktest.Start(t, &plugin{}, sdktest.Options{Network: hosts,
		Config: `{"host-slots":64,"packets":1,"dimensions":["src"]}`})
	if p := h.Settings().Plan; p == nil || len(p.Hosts) != 2 || string(p.Hosts[0].Data) != "64" {
		t.Fatalf("plan %+v", p)
	}
	e := sdktest.Epoch(7)
	for i, name := range []string{"h1", "h2"} {
		sketch, k := slots.New(64, 1), key(t, 2*i)
		for range 3 + i {
			sketch.Count(&k)
		}
		sdktest.SetReport(e, name, role, sdk.CellsOf("", sketch.Cells).Packed)
	}
	r := h.Analyze(e)
	rows := sdktest.Rows(t, r, flows)
	sdktest.Expect(t, rows, "network src 10.0.0.0", map[string]any{"packets": 3, "quality": "ESTIMATE"})
	sdktest.Expect(t, rows, "network src 10.0.0.2", map[string]any{"packets": 4})
	sdktest.Expect(t, sdktest.Rows(t, r, summaries), "network", map[string]any{"packets": 7, "quality": "EXACT",
		"flows": 2})
}

// go test -bench . -benchmem
func BenchmarkAnalyze(b *testing.B) {
	network := sdk.Network{Devices: []sdk.Device{{Name: "leaf1", Objects: []sdk.Object{{Name: register, Cells: bank,
		Width: 32, Banks: 2, Annotations: sdk.Annotations{annotation: {"arrays": "2", "slots": "512", "words": "12"}}}}}}}
	h := sdktest.Start(b, &plugin{}, sdktest.Options{Network: network})
	sketch := slots.New(512, 1)
	for i := range 1000 {
		k := key(b, i)
		sketch.Count(&k)
	}
	e := sdktest.Epoch(7)
	e.Put("leaf1", sdk.CellsOf(register, sketch.Cells))
	for b.Loop() {
		h.Analyze(e)
	}
}

// read returns the cells of bank 0.
func read(t *testing.T, s *softswitch.Switch) []uint32 {
	t.Helper()
	values, err := s.ReadRegister(register, 0, bank)
	if err != nil {
		t.Fatal(err)
	}
	cells := make([]uint32, len(values))
	for i, v := range values {
		cells[i] = uint32(v)
	}
	return cells
}

// The plugin publishes what the switch counted.
func TestPlugin(t *testing.T) {
	s := start(t)
	for range 150 {
		s.Inject(1, frame(key(t, 4)), time.Microsecond)
	}
	s.Inject(1, frame(key(t, 5)), time.Microsecond)
	network := sdk.Network{Devices: []sdk.Device{{Name: "leaf1", Objects: []sdk.Object{{Name: register, Cells: bank,
		Width: 32, Banks: 2, Annotations: sdk.Annotations{annotation: {"arrays": "2", "slots": "512", "words": "12"}}}}}}}
	h := sdktest.Start(t, &plugin{}, sdktest.Options{Network: network, Config: `{"dimensions":["src+dst-port"]}`})
	e := sdktest.Epoch(7)
	e.Put("leaf1", sdk.CellsOf(register, read(t, s)))
	r := h.Analyze(e)
	rows := sdktest.Rows(t, r, flows)
	if len(rows) != 1 {
		t.Errorf("%d rows: %v", len(rows), rows)
	}
	sdktest.Expect(t, rows, "leaf1 src+dst-port 10.0.0.4,53", map[string]any{"packets": 150})
	sdktest.Expect(t, sdktest.Rows(t, r, summaries), "leaf1", map[string]any{"packets": 151, "flows": 2})
	other := sdk.Network{Devices: []sdk.Device{{Name: "leaf1", Objects: []sdk.Object{{Name: register, Cells: bank,
		Width: 32, Banks: 2, Annotations: sdk.Annotations{annotation: {"arrays": "3", "slots": "512", "words": "12"}}}}}}}
	if s, err := h.Configure(`{}`, other, 0); err != nil || len(s.Bindings) != 0 || len(s.Missing) != 1 {
		t.Errorf("a register of another layout: %+v, %v", s, err)
	}
	if _, err := h.Configure(`{"dimensions":["source"]}`, network, 0); err == nil {
		t.Error("an unknown dimension is accepted")
	}
}

// The schema of the configuration is generated from the tags and comments of its struct.
func TestConfigSchema(t *testing.T) {
	sdktest.ConfigSchema(t, "config.schema.json", "cocosketch", configuration{})
}

// The compiled files fit the sources: make p4 writes a list of digests for each program.
func TestCompiledIsCurrent(t *testing.T) {
	lists, err := filepath.Glob("p4/*.sha256")
	if err != nil || len(lists) == 0 {
		t.Fatalf("no lists of digests: %v", err)
	}
	for _, list := range lists {
		digests, err := os.ReadFile(list)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(digests)) {
			fields := strings.Fields(line)
			text, err := os.ReadFile("p4/" + fields[1])
			if err != nil {
				t.Fatal(err)
			}
			if fmt.Sprintf("%x", sha256.Sum256(text)) != fields[0] {
				t.Errorf("p4/%s is not that of %s: run make p4 OUT=%s, with the same P4FLAGS as before", fields[1], list,
					strings.TrimSuffix(filepath.Base(list), ".sha256"))
			}
		}
		if !bytes.Contains(digests, []byte("own.p4")) {
			t.Errorf("%s does not name own.p4", list)
		}
	}
}
