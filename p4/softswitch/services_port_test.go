// SPDX-License-Identifier: Apache-2.0

package softswitch_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/netsketch/netsketch/p4/softswitch"
)

// A frame of the trapped type goes to the switch's software and not to the pipeline; every other
// frame goes on. Frames of the software leave past the pipeline.
func TestTrapAndTransmit(t *testing.T) {
	sw := softswitch.New(softswitch.Config{Name: "s"})
	defer sw.Close()
	var sent [][]byte
	err := sw.AddPort(1, softswitch.Port{Name: "p1",
		Tx: func(pkt []byte, _ time.Duration) { sent = append(sent, bytes.Clone(pkt)) }})
	if err != nil {
		t.Fatal(err)
	}
	var taken []uint32
	sw.SetTrap(0x88cc, func(port uint32, _ []byte, _ time.Duration) { taken = append(taken, port) })
	lldp := append([]byte{0x01, 0x80, 0xc2, 0, 0, 0x0e, 2, 0, 0, 0, 0, 1, 0x88, 0xcc}, make([]byte, 46)...)
	other := append([]byte{255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 1, 0x08, 0x00}, make([]byte, 46)...)
	sw.Inject(1, lldp, 0)
	sw.Inject(1, other, 0)
	sw.Inject(1, lldp[:13], 0)
	if len(taken) != 1 || taken[0] != 1 {
		t.Errorf("trapped on ports %v; expected once on 1", taken)
	}
	sw.Inject(1, make([]byte, 1<<19), 0)
	if st := sw.Stats(); st.Trapped != 1 || st.TooLong != 1 || st.NoProgramDrops != 2 {
		t.Errorf("counts %+v, expected one frame trapped, one too long, and two without a pipeline", st)
	}
	if err := sw.Transmit(1, lldp); err != nil {
		t.Error(err)
	}
	if len(sent) != 1 || !bytes.Equal(sent[0], lldp) {
		t.Errorf("sent %x", sent)
	}
	st, _ := sw.PortStatus(1)
	c := st.Counters
	if c.InPackets != 3 || c.InMulticast != 2 || c.InBroadcast != 1 || c.OutPackets != 1 || c.OutMulticast != 1 ||
		c.OutOctets != 60 {
		t.Errorf("counters %+v", c)
	}
	if err := sw.Transmit(2, lldp); !errors.Is(err, softswitch.ErrNotFound) {
		t.Errorf("a port that is not there: %v", err)
	}
	sw.SetTrap(0, nil)
	sw.Inject(1, lldp, 0)
	if len(taken) != 1 {
		t.Error("the trap was removed and takes frames")
	}
}

// A port is up when it is enabled and its link is up; watchers receive both.
func TestPortEnabled(t *testing.T) {
	sw := softswitch.New(softswitch.Config{Name: "s"})
	defer sw.Close()
	if err := sw.AddPort(1, softswitch.Port{}); err != nil {
		t.Fatal(err)
	}
	type state struct{ up, disabled bool }
	var received []state
	defer sw.WatchPorts(func(p softswitch.PortStatus) { received = append(received, state{p.Up, p.Disabled}) })()
	for _, step := range []struct {
		do     func() error
		want   state
		notify bool
	}{
		{func() error { return sw.SetPortEnabled(1, true) }, state{true, false}, false},
		{func() error { return sw.SetPortEnabled(1, false) }, state{false, true}, true},
		{func() error { return sw.SetPortUp(1, false) }, state{false, true}, false},
		{func() error { return sw.SetPortEnabled(1, true) }, state{false, false}, true},
		{func() error { return sw.SetPortUp(1, true) }, state{true, false}, true},
	} {
		before := len(received)
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		st, _ := sw.PortStatus(1)
		if got := (state{st.Up, st.Disabled}); got != step.want {
			t.Errorf("got %+v, expected %+v", got, step.want)
		}
		if notified := len(received) > before; notified != step.notify {
			t.Errorf("received %v, expected %v for %+v", notified, step.notify, step.want)
		}
	}
	if err := sw.SetPortEnabled(9, true); !errors.Is(err, softswitch.ErrNotFound) {
		t.Errorf("a port that is not there: %v", err)
	}
	if err := sw.Transmit(1, make([]byte, 60)); err != nil {
		t.Errorf("transmit on a port that is up: %v", err)
	}
	_ = sw.SetPortUp(1, false)
	if err := sw.Transmit(1, make([]byte, 60)); !errors.Is(err, softswitch.ErrInvalid) {
		t.Errorf("transmit on a port that is down: %v", err)
	}
}
