// SPDX-License-Identifier: Apache-2.0

package parity_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/lightguardian"
	"github.com/netsketch/netsketch/hostagent/lightguardian/wire"
	"github.com/netsketch/netsketch/hostagent/packet"
)

// TestSketchletsMatchRole: LightGuardian's host role removes what the switch inserts, and leaves of
// each packet what it is without a sketchlet.
func TestSketchletsMatchRole(t *testing.T) {
	t.Run("generated", func(t *testing.T) { compareSketchlets(t, generated(t)[:2000]) })
	t.Run("real", func(t *testing.T) { compareSketchlets(t, real(t)) })
}

func compareSketchlets(t *testing.T, sent [][]byte) {
	inserting, plain := newLine(t, "lightguardian", 1), newLine(t, "lightguardian", 2)
	set := func(l *line, table string, a string, params ...uint64) {
		t.Helper()
		action := call(a, params...)
		if err := l.SetDefault(table, &action); err != nil {
			t.Fatal(err)
		}
	}
	set(inserting, "ingress.lightguardian.carry", "ingress.lightguardian.set_carry", 7, 1<<16, 4, 0x2c9277b5)
	set(inserting, "egress.lightguardian.mtu", "egress.lightguardian.set_mtu", 9000)
	clock := epoch.NewClock(0, 1)
	role := lightguardian.New(clock, func() time.Duration { return 1 })
	settings := wire.Settings{Kept: 1 << 20, Devices: []wire.Device{{ID: 7, Columns: 4096, Words: 21}}}
	data, err := settings.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := role.Apply(data); err != nil {
		t.Fatal(err)
	}
	clock.Advance(2)
	inserted := uint64(0)
	for i, f := range sent {
		if i%(len(sent)/4+1) == 0 {
			for _, l := range []*line{inserting, plain} {
				set(l, "ingress.bank.bank", "ingress.bank.set_bank", uint64(1+4*i/len(sent)))
			}
		}
		at := time.Duration(i) * time.Microsecond
		want, got := plain.pass(f, at), inserting.pass(f, at)
		if len(got) != len(want) {
			inserted++
		}
		if got == nil {
			continue
		}
		frame := packet.NewFrame(got)
		role.In([]*packet.Frame{frame})
		if !bytes.Equal(frame.Bytes(), want) {
			t.Fatalf("packet %d left as % x, and the role leaves\n% x, want\n% x", i, got, frame.Bytes(), want)
		}
	}
	clock.Advance(3)
	report, err := wire.ParseReport(role.Seal(2).Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	c := &report.Counters
	if c[wire.Sketchlets] != inserted || inserted < uint64(len(sent))/8 ||
		c[wire.UnknownDevice]+c[wire.UnknownColumn]+c[wire.WrongWords]+c[wire.BadCheck]+c[wire.Full] > 0 {
		t.Errorf("%d of %d packets had a sketchlet; the role counts %v", inserted, len(sent), c)
	}
	sum := uint32(0)
	for s := range report.All {
		sum += s.Cells(nil)[0]
	}
	if sum == 0 {
		t.Error("no sketchlet has a flow")
	}
}
