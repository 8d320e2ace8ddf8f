// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"testing"
	"time"

	"github.com/netsketch/netsketch/p4/softswitch"
)

// delayed is a soft switch with a virtual clock, whose packets leave one by one, 10 µs apart.
type delayed struct {
	*soft
	at time.Duration
}

const service = 10 * time.Microsecond

func startDelayed(t *testing.T) *delayed {
	t.Helper()
	// On the wall clock a timer would serve the queues.
	d := &delayed{soft: startConfigured(t, softswitch.Config{CPUPort: cpuPort,
		Clock: func() time.Duration { return 0 }})}
	for port := range uint32(16) {
		if err := d.sw.SetQueues(port, softswitch.Port{QueueRate: uint64(time.Second / service)}); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func (d *delayed) inject(port uint32, frame []byte) error {
	d.at += time.Millisecond
	d.sw.Inject(port, frame, d.at)
	d.sw.Advance(d.at + 2*service) // a report waits as well
	return nil
}

// TestINTQueue: a queue that builds up is in occupancy, latency and egress timestamp of each
// packet.
func TestINTQueue(t *testing.T) {
	d := startDelayed(t)
	i := startINT(t, d, "sketchint")
	i.configureINT(0x3c00, 4) // latency, queue, timestamps
	f := plainFrames([4]byte{10, 0, 0, 2}, toSwitch6, sourcePort)[0]
	for range 5 {
		d.sw.Inject(1, f, d.at)
	}
	d.sw.Advance(d.at + time.Second)
	for n := range 5 {
		wait := time.Duration(n+1) * service
		want := hopValues{latency: uint32(wait), occupancy: uint32(n), ingress: uint64(d.at),
			egress: uint64(d.at + wait)}
		if got := measured(i.output("burst").frame, 0x3c00); got != want {
			t.Errorf("packet %d of a burst: %+v, want %+v", n, got, want)
		}
	}
}
