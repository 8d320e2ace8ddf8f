// SPDX-License-Identifier: Apache-2.0

package scenario_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/lab/scenario"
	"github.com/netsketch/netsketch/lab/scenario/score"
)

// small is a scenario of four switches on short epochs.
func small(t *testing.T, more string) *scenario.Scenario {
	t.Helper()
	s, err := scenario.Parse("small.yaml", []byte(`
name: small
epoch: 500ms
epochs: 7
program: univmon-300k
topology: {kind: leaf-spine, leaves: 2, spines: 2, hosts-per-leaf: 2}
traffic:
  - {name: all, rate: 4000, flows: 500, zipf: 1.1}
algorithms:
  - {plugin: univmon}
`+more))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// leaf reads one leaf as any gNMI client does.
func leaf(t *testing.T, addr string, p *gnmi.Path) *gnmi.TypedValue {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	resp, err := gnmi.NewGNMIClient(conn).Get(t.Context(),
		&gnmi.GetRequest{Path: []*gnmi.Path{p}, Encoding: gnmi.Encoding_PROTO})
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetNotification()[0].GetUpdate()[0].GetVal()
}

func pluginPath(name, leaf string) *gnmi.Path {
	return &gnmi.Path{Elem: []*gnmi.PathElem{
		{Name: "collector"}, {Name: "plugins"}, {Name: "plugin", Key: map[string]string{"name": name}}, {Name: "state"},
		{Name: leaf},
	}}
}

// A plugin process that is killed loses at most the epoch that it analyzes: two epochs later there
// are results again.
func TestKilledPluginIsBackWithinTwoEpochs(t *testing.T) {
	s := small(t, "")
	epochs, killedAt := 0, 0
	var run *scenario.Run
	o := scenario.Options{Compiler: &compiler, PluginDir: plugins, Listen: "127.0.0.1:0", Virtual: true}
	o.OnEpoch = func(*scenario.Run) error {
		if epochs++; epochs == 3 {
			pid := leaf(t, run.Address(), pluginPath("univmon", "pid")).GetUintVal()
			killedAt = epochs
			return testkit.Signal(int(pid), syscall.SIGKILL)
		}
		return nil
	}
	run, err := scenario.Open(t.Context(), s, o)
	if err != nil {
		t.Fatal(err)
	}
	r, err := run.Play(t.Context())
	if err != nil {
		t.Error(err)
	}
	restarts := leaf(t, run.Address(), pluginPath("univmon", "restarts")).GetUintVal()
	if err := run.Close(); err != nil {
		t.Error(err)
	}
	if killedAt == 0 || restarts != 1 {
		t.Errorf("killed after epoch %d of the run, %d restarts; want one", killedAt, restarts)
	}
	const views = 10 // four switches and the network, by source and by 5-tuple
	for i, e := range r.Epochs {
		if i >= killedAt+2 && len(of(e).Views) != views {
			t.Errorf("%d epochs after the kill %d of %d views have results", i-killedAt+1, len(of(e).Views), views)
		}
	}
	if len(r.Epochs) != s.Epochs {
		t.Errorf("%d epochs, want %d", len(r.Epochs), s.Epochs)
	}
}

// A switch that dies takes its own results away; epochs become partial and the other
// switches' results stay as good as they were.
func TestDeadSwitchMakesEpochsPartial(t *testing.T) {
	s := small(t, `
faults:
  - {switch: spine2, from: 1250ms}
`)
	s.Epochs = 6
	r := play(t, s)
	if len(r.Epochs) != 6 {
		t.Fatalf("%d epochs, want 6: %s", len(r.Epochs), r.Error)
	}
	for i, e := range r.Epochs {
		want := "COMPLETE"
		if i >= 2 {
			want = "PARTIAL"
		}
		if e.Status != want {
			t.Errorf("epoch %d of the run is %s, want %s", i+1, e.Status, want)
		}
		seen := map[string]bool{}
		for _, v := range of(e).Views {
			seen[v.Device] = true
			if v.Device == "network" {
				continue
			}
			if v.Packets.Measured != v.Packets.True {
				t.Errorf("epoch %d of the run, %v: %v packets counted, %v true", i+1, v.View, v.Packets.Measured,
					v.Packets.True)
			}
			if f := v.Hitters; f.FalseNegative+f.FalsePositive > 1 {
				t.Errorf("epoch %d of the run, %v: heavy hitters %+v", i+1, v.View, f)
			}
		}
		if dead := (score.View{Device: "spine2", Dimension: "5-tuple"}); (i >= 2) != slices.Contains(of(e).Absent,
			dead) {
			t.Errorf("epoch %d of the run: missing are %v", i+1, of(e).Absent)
		}
		if i >= 2 && seen["spine2"] {
			t.Errorf("epoch %d of the run has results of the dead switch", i+1)
		}
		for _, name := range []string{"leaf1", "leaf2", "spine1"} {
			if !seen[name] {
				t.Errorf("epoch %d of the run has no results of %s", i+1, name)
			}
		}
	}
}

func TestTakenAddressIsNamed(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	run, err := scenario.Open(t.Context(), small(t, ""),
		scenario.Options{Compiler: &compiler, PluginDir: plugins, Listen: lis.Addr().String()})
	if run != nil {
		defer run.Close()
	}
	if err == nil || !strings.Contains(err.Error(), lis.Addr().String()) || !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("error %v does not name the address that is taken", err)
	}
}

// A trace that ends within a packet is an error that names the file and the packet.
func TestCutTraceIsNamed(t *testing.T) {
	frames := [][]byte{}
	for i := range 20 {
		frames = append(frames, frame("10.1.0.1", "10.2.0.1", uint16(i)))
	}
	path := capture(t, frames)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data[:len(data)/3], 0o600); err != nil {
		t.Fatal(err)
	}
	s := small(t, "")
	s.UseTrace(path)
	run, err := scenario.Open(t.Context(), s, scenario.Options{Compiler: &compiler, PluginDir: plugins,
		Listen: "127.0.0.1:0", Virtual: true})
	if run != nil {
		defer run.Close()
	}
	if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "after packet") ||
		!errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("error %v does not name the file and the packet", err)
	}
}

// Ctrl-C, or SIGTERM, ends a run in order: no error, and nothing left behind (TestMain
// looks for goroutines).
func TestInterruptEndsInOrder(t *testing.T) {
	s := small(t, "")
	s.Epochs = 0
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	run, err := scenario.Open(ctx, s, scenario.Options{
		Compiler: &compiler, PluginDir: plugins, Listen: "127.0.0.1:0",
		OnEpoch: func(r *scenario.Run) error {
			if len(r.Report().Epochs) == 2 {
				cancel()
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	r, err := run.Play(ctx)
	if err != nil {
		t.Errorf("playing: %v", err)
	}
	if err := run.Close(); err != nil {
		t.Errorf("closing: %v", err)
	}
	if len(r.Epochs) < 2 || r.Error != "" {
		t.Errorf("%d epochs, error %q", len(r.Epochs), r.Error)
	}
	if d := time.Since(begin); d > time.Minute {
		t.Errorf("it took %v to end", d)
	}
}
