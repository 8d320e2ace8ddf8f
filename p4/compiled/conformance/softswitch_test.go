// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"net"
	"slices"
	"testing"
	"time"

	"github.com/netsketch/netsketch/p4/compiled"
	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/p4/softswitch/p4rtserver"
	"google.golang.org/grpc"
)

// soft is the soft switch behind its P4Runtime server.
type soft struct {
	sw   *softswitch.Switch
	addr string
	out  chan frameOut
}

// compiler compiles each program once for all switches of the tests.
var compiler softswitch.Compiler

func startSoft(tb testing.TB) *soft {
	tb.Helper()
	return startConfigured(tb, softswitch.Config{CPUPort: cpuPort})
}

func startConfigured(tb testing.TB, c softswitch.Config) *soft {
	tb.Helper()
	s := &soft{sw: softswitch.New(c), out: make(chan frameOut, 1024)}
	tb.Cleanup(func() { s.sw.Close() })
	for id := range uint32(16) {
		err := s.sw.AddPort(id, softswitch.Port{Tx: func(pkt []byte, _ time.Duration) {
			s.out <- frameOut{id, slices.Clone(pkt)}
		}})
		if err != nil {
			tb.Fatal(err)
		}
	}
	server := p4rtserver.New(s.sw, p4rtserver.Options{DeviceID: deviceID, Compile: compiler.Compile})
	tb.Cleanup(func() { server.Close() })
	g := grpc.NewServer(p4rtserver.ServerOptions()...)
	server.Register(g)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	s.addr = l.Addr().String()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = g.Serve(l) // ends with Stop
	}()
	tb.Cleanup(func() { g.Stop(); <-done })
	return s
}

func (s *soft) address() string         { return s.addr }
func (s *soft) output() <-chan frameOut { return s.out }

func (s *soft) inject(port uint32, frame []byte) error {
	s.sw.Inject(port, frame, 0)
	return nil
}

func TestSoftSwitch(t *testing.T) {
	for _, name := range compiled.Names() {
		t.Run(name, func(t *testing.T) { conform(t, load(t, name), startSoft(t)) })
	}
}

func TestSoftSwitchTrace(t *testing.T) { conformTrace(t, "univmon", startSoft(t), 40_000) }

func TestSoftSwitchFlips(t *testing.T) { conformFlips(t, "univmon-300k", startSoft(t), 10_000) }
