// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/netsketch/netsketch/internal/test/inbandtest"
	"github.com/netsketch/netsketch/internal/test/switchtest"
	"github.com/netsketch/netsketch/p4/p4rt/p4values"
	"github.com/netsketch/netsketch/p4/softswitch"
)

// TestModes: the same packets in the kernel, in Go and at an edge switch give equal towers. The
// switch is the last hop of each packet, with a latency of 0: hosts receive it in INT.
func TestModes(t *testing.T) {
	const flows, latencies, node = 194_560, 196_608, 77 // bytes of the towers of sketchint-edge
	s := defaults()
	s.Flows, s.Latencies = flows, latencies
	w := newTwin(t, s, false)
	sw := switchtest.New(t, "edge", "sketchint-edge")
	left := 0
	for port, tx := range map[uint32]func([]byte, time.Duration){1: func([]byte, time.Duration) {},
		2: func([]byte, time.Duration) { left++ }} {
		if err := sw.AddPort(port, softswitch.Port{Tx: tx}); err != nil {
			t.Fatal(err)
		}
	}
	call := func(action string, params ...uint64) softswitch.Action {
		a := softswitch.Action{Kind: softswitch.ActionCall, Name: action}
		for _, p := range params {
			a.Params = append(a.Params, p4values.Uint(p))
		}
		return a
	}
	insert := func(table string, a softswitch.Action, m softswitch.Match) {
		t.Helper()
		if err := sw.InsertEntry(table, softswitch.Entry{Action: a, Match: []softswitch.Match{m}}); err != nil {
			t.Fatal(err)
		}
	}
	for table, size := range map[string]int{"ipv4_lpm": 4, "ipv6_lpm": 16} {
		insert("ingress.forwarding."+table, call("ingress.forwarding.forward", 2, 1, 2),
			softswitch.Match{Kind: softswitch.MatchLPM, Value: make([]byte, size)})
	}
	insert("egress.sketchint.sink", call("egress.sketchint.remove"),
		softswitch.Match{Kind: softswitch.MatchExact, Value: []byte{2}})
	own := call("egress.sketchint.set_node", node)
	if err := sw.SetDefault("egress.sketchint.node", &own); err != nil {
		t.Fatal(err)
	}

	const packets = 1500
	r := rand.New(rand.NewPCG(13, 13))
	for p := range packets {
		n := r.IntN(200)
		if r.IntN(2) == 0 {
			n = r.IntN(3) // counters of 2 and 4 bits overflow for these flows
		}
		sent := inbandtest.Sent{Src: netip.AddrFrom4([4]byte{10, 1, 0, byte(n)}), Dst: netip.MustParseAddr("10.2.0.1"),
			Proto: 6 + uint8(n%2)*11, SrcPort: uint16(1000 + n), DstPort: 80, Payload: []byte("telemetry")}
		if n%5 == 0 {
			sent.Src, sent.Dst = netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(n)}), netip.MustParseAddr("fd00::1")
		}
		i := inbandtest.INT{Version: 2, HopWords: 2, Remaining: 7, Instructions: 0xa000}
		for h := range 1 + n%4 {
			latency := r.Uint32N(5000)
			if r.IntN(20) == 0 {
				latency = 1<<32 - 2 - latency // sums of 24 bits overflow
			}
			i.Stack = append(i.Stack, uint32(h+1), latency)
		}
		atSwitch := i.Mark(sent, dscp)
		i.Stack = append([]uint32{node, 0}, i.Stack...)
		atHost := i.Mark(sent, dscp)
		sw.Inject(1, atSwitch.Frame(), time.Duration(p)*time.Microsecond)
		w.in(atHost.Frame())
	}
	if left != packets {
		t.Fatalf("%d of %d packets left the switch", left, packets)
	}
	w.advance(11)
	report := w.seal(10) // report of the kernel, equal to the report of the Go code
	for register, words := range map[string][]uint64{"sketchint_flows": report.Flows.Words(),
		"sketchint_latencies": report.Latencies.Words()} {
		cells, err := sw.ReadRegister(register, 0, 2*len(words))
		if err != nil {
			t.Fatal(err)
		}
		differ, used := 0, 0
		for i, word := range words {
			if at := cells[2*i] | cells[2*i+1]<<32; at != word {
				if differ++; differ <= 3 {
					t.Errorf("%s, word %d: %#x at the switch, %#x at the host", register, i, at, word)
				}
			}
			if word != 0 {
				used++
			}
		}
		if differ > 0 || used < 200 {
			t.Errorf("%s: %d words differ, %d are used", register, differ, used)
		}
	}
}
