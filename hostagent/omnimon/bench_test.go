// SPDX-License-Identifier: Apache-2.0

package omnimon

import (
	"encoding/binary"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/omnimon/wire"
	"github.com/netsketch/netsketch/hostagent/packet"
)

// benchmarkPackets returns frames of the given count of flows between two hosts, in random order.
func benchmarkPackets(flows, packets int) [][]byte {
	r := rand.New(rand.NewPCG(1, 1))
	frames := make([][]byte, packets)
	for i := range frames {
		n := uint32(i)
		if i >= flows {
			n = r.Uint32N(uint32(flows))
		}
		f := tcpFrame("10.0.0.1", "10.0.0.2", 0, 0, packet.ACK, nil)
		binary.BigEndian.PutUint16(f[34:], uint16(n))
		binary.BigEndian.PutUint16(f[36:], uint16(n>>16))
		frames[i] = f
	}
	return frames
}

func benchmarkSettings(host, flows int) *wire.Settings {
	s := defaults(host)
	s.Slots, s.Flows, s.IngressSlots = 3072, flows, flows
	return s
}

// BenchmarkOut and BenchmarkIn measure one core with 1,000,000 flows whose packets come in random
// order, so that each lookup misses the caches.
func BenchmarkOut(b *testing.B) { benchmark(b, false) }

// BenchmarkIn includes the removal of the header.
func BenchmarkIn(b *testing.B) { benchmark(b, true) }

func benchmark(b *testing.B, in bool) {
	const flows, packets = 1_000_000, 1_500_000
	clock := epoch.NewClock(1e9, 5)
	source, destination := New(clock, since), New(clock, since)
	apply(b, source, benchmarkSettings(0, flows))
	apply(b, destination, benchmarkSettings(1, flows))
	data := benchmarkPackets(flows, packets)
	frames := make([]*packet.Frame, 256)
	for i := range frames {
		frames[i] = new(packet.Frame)
	}
	for i, d := range data { // all flows exist, and for In all frames have their header
		f := frames[0]
		f.Set(d)
		source.Out(frames[:1])
		if i >= flows && !in {
			break
		}
		if in {
			data[i] = append([]byte(nil), f.Bytes()...)
		}
	}
	at := 0
	b.ResetTimer()
	start := cpu(b)
	for done := 0; done < b.N; done += len(frames) {
		for i := range frames {
			frames[i].Set(data[at])
			if at++; at == len(data) {
				at = 0
			}
		}
		if in {
			destination.In(frames)
		} else {
			source.Out(frames)
		}
	}
	b.ReportMetric(float64(b.N)/1e6/(cpu(b)-start).Seconds(), "Mpackets/cpu-s")
	if n := source.table.used(); n != flows {
		b.Fatalf("%d flows", n)
	}
}

// BenchmarkReport measures the report of an epoch with 1,000,000 flows.
func BenchmarkReport(b *testing.B) {
	const flows = 1_000_000
	clock := epoch.NewClock(1e9, 5)
	r := New(clock, since)
	apply(b, r, benchmarkSettings(0, flows))
	for _, d := range benchmarkPackets(flows, flows) {
		r.Out([]*packet.Frame{packet.NewFrame(d)})
	}
	clock.Advance(6)
	g := r.Seal(5)
	var data []byte
	for b.Loop() {
		data = g.Append(data[:0])
	}
	b.ReportMetric(float64(len(data))/flows, "bytes/flow")
}

// cpu returns the processor time of this process: on a machine with other work, the elapsed time
// measures that work as well.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

var start = time.Now()

func since() time.Duration { return time.Since(start) }
