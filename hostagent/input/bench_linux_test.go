// SPDX-License-Identifier: Apache-2.0

package input

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netsketch/netsketch/hostagent/agent"
	"github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/role"
	"github.com/netsketch/netsketch/hostagent/sketchint"
	"github.com/netsketch/netsketch/hostagent/sketchint/wire"
	"github.com/netsketch/netsketch/internal/test/inbandtest"
	"github.com/netsketch/netsketch/internal/test/testkit"
)

// BenchmarkBridge sends packets with INT of 5 hops, of 64 flows, over veth as fast as one thread
// can: to a host without an agent, and to one behind a bridge with SketchINT's role. The sender
// takes one of the processors that the bridge could use.
func BenchmarkBridge(b *testing.B) {
	if !testkit.Isolated(b, "-test.benchtime=2s") {
		return
	}
	addLinks(b)
	b.Run("no agent", func(b *testing.B) { benchmarkBridge(b, 0) })
	b.Run("sockets=1", func(b *testing.B) { benchmarkBridge(b, 1) })
	b.Run("sockets=2", func(b *testing.B) { benchmarkBridge(b, 2) })
}

func benchmarkBridge(b *testing.B, sockets int) {
	from, err := openEndpoint("net")
	if err != nil {
		b.Fatal(err)
	}
	defer from.close()
	at := "outside"
	if sockets > 0 {
		at = "host"
		stop := startBridge(b, sockets)
		defer stop()
	}
	i := inbandtest.INT{Version: 2, HopWords: 2, Remaining: 3, Instructions: 0xa000, Stack: inbandtest.Hops(5, 1, 1000)}
	var frames [64][]byte
	for n := range frames {
		s := i.Mark(inbandtest.Sent{Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.9.9.9"), Proto: 6,
			SrcPort: uint16(n), DstPort: 80, Payload: make([]byte, 100)}, 0x17)
		frames[n] = s.Frame()
	}
	before := received(b, at)
	for n := 0; b.Loop(); n++ {
		if err := send(from.tx, frames[n%len(frames)]); err != nil && !errors.Is(err, unix.ENOBUFS) {
			b.Fatal(err)
		}
	}
	end := b.Elapsed()
	arrived := received(b, at) - before
	b.ReportMetric(float64(b.N)/end.Seconds(), "sent/s")
	b.ReportMetric(float64(arrived)/end.Seconds(), "packets/s")
}

// startBridge runs a bridge with SketchINT's role between outside and inside.
func startBridge(b *testing.B, sockets int) (stop func()) {
	clock := epoch.NewClock(0, 1)
	path := agent.NewRolePath(func(*epoch.Clock) role.Role { return sketchint.New(clock) })
	s := &wire.Settings{Interval: 1, Flows: 1 << 20, Latencies: 3 << 20, Heavy: 1500, HeavyFlows: 1024, Inflation: 5,
		InflatedFlows: 1024}
	s.Marks.DSCP, s.Marks.DSCPMask = 0x17, 0x3f
	settings, err := s.Append(nil)
	if err == nil {
		err = path.Apply(settings)
	}
	if err != nil {
		b.Fatal(err)
	}
	clock.Advance(2)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		_, err := Bridge{Inside: "inside", Outside: "outside", Sockets: sockets}.Run(ctx, path)
		ended <- err
	}()
	time.Sleep(100 * time.Millisecond) // until its sockets are open
	return func() {
		cancel()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	}
}

// received returns how many packets an interface has received.
func received(b *testing.B, name string) int {
	text, err := os.ReadFile("/proc/self/net/dev")
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if fields[0] != name+":" {
			continue
		}
		n, err := strconv.Atoi(fields[2]) // behind the bytes
		if err != nil {
			b.Fatal(err)
		}
		return n
	}
	b.Fatalf("no interface %s in\n%s", name, text)
	return 0
}
