// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"slices"
	"testing"
	"time"

	"github.com/netsketch/netsketch/hostagent/omnimon/header"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/packet"
)

// carrying returns a packet from a host to host 0 with a header of an epoch.
func carrying(s *wire.Settings, from byte, epoch uint16) []byte {
	l := header.Layout{Carrier: s.Carrier, EtherType: s.EtherType, Slots: s.SlotsPerFlow}
	f := packet.NewFrame(ipFrame(address(from, false), address(0, false), packet.ProtocolUDP, uint16(from), 9, 0, 0, nil))
	l.Insert(f, packet.Link{TypeAt: 12, Type: packet.EtherTypeIPv4}, &header.Header{Epoch: epoch})
	return f.Bytes()
}

// TestForgedEpochs: packets from an address of no host change no epoch. Packets of a host advance
// the epoch at most to a bound, which packets cannot move. The kernel and Go agree.
func TestForgedEpochs(t *testing.T) {
	needBPF(t)
	s := defaults(0)
	w := newTwin(t, s)
	at := func(want uint64, what string) {
		t.Helper()
		if k, g := w.kernel.Epoch(), w.clock.Current(); k != want || g != want {
			t.Fatalf("%s: epoch %d in the kernel, %d in Go, want %d", what, k, g, want)
		}
	}
	for i := range uint16(25) {
		w.in(carrying(s, 9, 101+4*i))
	}
	at(100, "packets from an unknown address")
	for i := range uint16(25) {
		w.in(carrying(s, 1, 101+i))
	}
	at(104, "packets of a host")
	w.advance(105)
	w.in(carrying(s, 1, 109))
	w.in(carrying(s, 1, 110))
	at(109, "packets of a host after the agent stated an epoch")
	for _, late := range []uint16{9, 100, 100, 103, 164, (109 + 1<<15 + 1) & 0xffff} {
		w.in(carrying(s, 1, late))
	}
	w.advance(110)
	w.seal(108)
	r, err := wire.Open(w.seal(109))
	if err != nil {
		t.Fatal(err)
	}
	want := []wire.LateEpoch{{Epoch: 9, Packets: 1}, {Epoch: 100, Packets: 2}, {Epoch: 103, Packets: 1}}
	if !slices.Equal(r.Late, want) {
		t.Errorf("late packets %v, want %v; counters %v", r.Late, want, r.Counters)
	}
	if r.Counters[wire.Late] != 4 || r.Counters[wire.UnknownEpoch] != 3 {
		t.Errorf("%d late packets, want 4; %d of unknown epochs, want 3: one of before epoch 0, two too far ahead",
			r.Counters[wire.Late], r.Counters[wire.UnknownEpoch])
	}
}

// TestForgedEpochsWithClock: with a clock of its own, a host is one epoch ahead of it at most.
func TestForgedEpochsWithClock(t *testing.T) {
	needBPF(t)
	s := defaults(0)
	p := newPath(t, Config{}, s)
	const length = 24 * time.Hour
	p.Schedule(time.Now().Add(-200*length-length/2), length, time.Second) // epoch 200
	for i := range uint16(10) {
		run(t, p.tables.ingress, carrying(s, 1, 198+i), tcNext)
	}
	if e := p.Epoch(); e != 201 {
		t.Errorf("epoch %d, want 201", e)
	}
}

// TestIdleFlows: flows of UDP leave the table after a time of their own, and flows of TCP stay.
func TestIdleFlows(t *testing.T) {
	needBPF(t)
	s := defaults(0)
	s.Flows, s.UDPIdleEpochs = 64, 2
	w := newTwin(t, s)
	for port := range uint16(40) {
		w.out(ipFrame(address(0, false), address(1, false), packet.ProtocolUDP, port, 9, 0, 0, nil))
	}
	for port := range uint16(20) {
		w.out(ipFrame(address(0, false), address(1, false), packet.ProtocolTCP, port, 9, packet.ACK, 0, nil))
	}
	for e := uint64(100); e < 110; e++ {
		w.advance(e + 1)
		w.seal(e)
	}
	for port := range uint16(70) { // 44 places are free
		w.out(ipFrame(address(0, false), address(2, false), packet.ProtocolUDP, port, 9, 0, 0, nil))
	}
	w.advance(111)
	r, err := wire.Open(w.seal(110))
	if err != nil {
		t.Fatal(err)
	}
	if r.EgressRows != 44 || r.Counters[wire.Untracked] != 70-44 {
		t.Errorf("%d flows and %d untracked packets, want 44 and 26", r.EgressRows, r.Counters[wire.Untracked])
	}
}
