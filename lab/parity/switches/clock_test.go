// SPDX-License-Identifier: Apache-2.0

package switches

import (
	"context"
	"errors"
	"testing"
	"time"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"

	"github.com/netsketch/netsketch/internal/test/switchtest"
	"github.com/netsketch/netsketch/p4/bmv2"
	"github.com/netsketch/netsketch/p4/softswitch"
)

// Results that depend on the clock differ between two runs, even of one switch.
// TestParityOnTheClock therefore compares each switch with the rates that its meters and queues are
// set to, with tolerance for delays of a busy machine.
func TestParityOnTheClock(t *testing.T) {
	targets := map[string]func(*testing.T) *target{"soft switch": startSoft}
	if _, err := switchtest.BMv2Version(t.Context()); err == nil {
		targets["BMv2"] = startBMv2
	} else if !errors.Is(err, bmv2.ErrNotInstalled) {
		t.Fatal(err)
	} else {
		t.Logf("%v: the soft switch alone runs", err)
	}
	for name, start := range targets {
		t.Run(name+"/meter", func(t *testing.T) { onTheClock(t, start(t), meterRates) })
		t.Run(name+"/queue", func(t *testing.T) { onTheClock(t, start(t), queueRates) })
	}
}

// onTheClock runs a part of the test on a switch with testdata/externs.p4.
func onTheClock(t *testing.T, tgt *target, run func(d *driver)) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	d := &driver{t: t, ctx: ctx, tgt: tgt, prog: externs(t), barriers: map[uint64]bool{}, res: &result{}}
	defer d.connect()()
	d.install()
	defer d.open()()
	run(d)
}

// metered is a frame that testdata/externs.p4 meters in cell 15, and sends on by port 7.
func metered() []byte {
	f := barrier()
	copy(f[30:], []byte{192, 0, 0xf, 0xff}) // neither a group nor a set selects a port, so the default port; mode 15
	return f
}

// meterRates: packets that come faster than both rates have the colors that two token buckets give
// them at the times they came.
func meterRates(d *driver) {
	const cir, cburst, pir, pburst, packets = 300, 20, 700, 60, 1500
	cell := objectsOf(d.t, d.prog.Program).meter("I.by_packets", 15, 0, 0)
	cell.GetMeterEntry().Config = &p4v1.MeterConfig{Cir: cir, Cburst: cburst, Pir: pir, Pburst: pburst}
	d.write(p4v1.Update_MODIFY, cell)
	const color = 14 + 9 // in the stamp
	var got, want [3]int
	committed, peak := float64(cburst), float64(pburst)
	begin := time.Now()
	last := begin
	for n := range packets {
		sent := time.Now()
		d.inject(arrival{1, metered()}, uint64(n+1))
		p := <-d.data.Packets()
		if len(p.Frame) < 60 || p.Port != 7 || p.Frame[color] > 2 {
			d.t.Fatalf("by port %d: % x", p.Port, p.Frame)
		}
		got[p.Frame[color]]++
		now := sent.Add(time.Since(sent) / 2)
		committed, peak = min(cburst, committed+cir*now.Sub(last).Seconds()),
			min(pburst, peak+pir*now.Sub(last).Seconds())
		last = now
		switch {
		case peak < 1:
			want[2]++
		case committed < 1:
			want[1]++
			peak--
		default:
			want[0]++
			committed, peak = committed-1, peak-1
		}
		if n%2 == 1 {
			// 2,000 a second, if the machine can
			time.Sleep(time.Until(begin.Add(time.Duration(n) * time.Millisecond / 2)))
		}
	}
	d.t.Logf("%s: of %d packets in %.2f s %d were green, %d yellow, %d red; by the rates %d, %d, %d", d.tgt.name,
		packets, time.Since(begin).Seconds(),
		got[0], got[1], got[2], want[0], want[1], want[2])
	for c := range got {
		if off := max(got[c]-want[c], want[c]-got[c]); off > 5+want[c]/10 {
			d.t.Errorf("%s: %v packets were green, yellow and red, not %v", d.tgt.name, got, want)
		}
	}
}

// queueRates: a queue holds as many packets as it is deep, and sends them at its rate, never
// faster. A busy machine delays packets, so only one of several tries must reach the rate.
func queueRates(d *driver) {
	const tries = 5
	for try := 1; ; try++ {
		took, want := queueRate(d)
		switch {
		case took < want*8/10, took > want*3/2+50*time.Millisecond && try == tries:
			d.t.Errorf("%s: the queue took %v, and %v at its rate", d.tgt.name, took, want)
		case took > want*3/2+50*time.Millisecond:
			continue
		}
		return
	}
}

// queueRate fills the queue and returns the time until it is empty, and what its rate requires.
func queueRate(d *driver) (took, want time.Duration) {
	const rate, depth, packets = 100, 16, 48
	if err := d.tgt.setQueues(d.ctx, 7, rate, depth); err != nil {
		d.t.Fatal(err)
	}
	begin := time.Now()
	for n := range packets {
		d.inject(arrival{1, metered()}, uint64(n+1))
	}
	meanwhile := int(rate * time.Since(begin).Seconds()) // packets that have left and made room
	var came []time.Time
	quiet := time.NewTimer(patience)
	defer quiet.Stop()
	for done := false; !done; {
		select {
		case p := <-d.data.Packets():
			if p.Port == 7 {
				came = append(came, time.Now())
				if len(came) >= depth {
					quiet.Reset(time.Second)
				}
			}
		case <-quiet.C:
			done = true
		}
	}
	if len(came) < depth || len(came) > depth+4+meanwhile {
		d.t.Fatalf("%s: %d packets came through a queue of %d", d.tgt.name, len(came), depth)
	}
	took, want = came[len(came)-1].Sub(begin), time.Duration(len(came)-1)*time.Second/rate
	d.t.Logf("%s: %d of %d packets came through, the last %v after it was filled", d.tgt.name, len(came), packets, took)
	return took, want
}

// softQueues is target.setQueues of the soft switch: one queue, as simple_switch_grpc has.
func softQueues(sw *softswitch.Switch) func(context.Context, uint32, uint64, int) error {
	return func(_ context.Context, port uint32, rate uint64, depth int) error {
		return sw.SetQueues(port, softswitch.Port{QueueRates: []uint64{rate}, QueueDepth: depth})
	}
}
