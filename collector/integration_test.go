// SPDX-License-Identifier: Apache-2.0

package collector_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/collector"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/internal/test/fakeswitch"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/outputs/gnmi/server"
	"github.com/netsketch/netsketch/p4/compiled"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/p4/softswitch"
	"github.com/netsketch/netsketch/p4/softswitch/p4rtserver"
)

// scratch is where plugins are built; TestMain removes it.
var scratch string

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/golang/glog.(*fileSink).flushDaemon"),
		// The NATS client leaves this goroutine behind if a publisher ends right after its first
		// message.
		goleak.IgnoreTopFunction("github.com/nats-io/nats.go/jetstream.(*jetStream).resetPendingAcksOnReconnect"),
		// A NATS server has left this goroutine behind on a busy machine.
		goleak.IgnoreTopFunction("github.com/nats-io/nats-server/v2/server/ats.Register.func1"),
		goleak.Cleanup(func(code int) {
			if scratch != "" {
				os.RemoveAll(scratch)
			}
			os.Exit(code)
		}))
}

// pluginFolder builds the plugins once.
var pluginFolder = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "netsketch-collector-test-")
	if err != nil {
		return "", err
	}
	scratch = dir
	return dir, testkit.BuildPlugins(dir, "univmon", "chamelemon")
})

func plugins(tb testing.TB) string {
	tb.Helper()
	if testing.Short() {
		tb.Skip("builds a plugin")
	}
	dir, err := pluginFolder()
	if err != nil {
		tb.Fatal(err)
	}
	return dir
}

func programs(name string) (*p4rt.Program, error) {
	p, err := compiled.Load(name)
	if err != nil {
		return nil, err
	}
	return &p4rt.Program{Name: p.Name, DeviceConfig: p.JSON, P4Info: p.P4Info}, nil
}

// realSwitch is a soft switch with its P4Runtime server, which can be restarted on the same
// address.
type realSwitch struct {
	tb      testing.TB
	address string
	sw      *softswitch.Switch
	p4rt    *p4rtserver.Server
	rpc     *grpc.Server
	done    chan struct{}
	out     map[uint32]int // packets by port
	mu      sync.Mutex
	tx      func(port uint32, frame []byte) // called for each packet that is sent, if set
}

// compiler compiles each program once for all switches of the tests.
var compiler softswitch.Compiler

func startSwitch(tb testing.TB, address string) *realSwitch {
	tb.Helper()
	lis, err := net.Listen("tcp", address)
	if err != nil {
		tb.Fatal(err)
	}
	s := &realSwitch{tb: tb, address: lis.Addr().String(), sw: softswitch.New(softswitch.Config{}),
		done: make(chan struct{}), out: map[uint32]int{}}
	for port := uint32(1); port <= 2; port++ {
		if err := s.sw.AddPort(port, softswitch.Port{Name: fmt.Sprint("p", port), Tx: func(frame []byte, _ time.Duration) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.out[port]++
			if s.tx != nil {
				s.tx(port, frame)
			}
		}}); err != nil {
			tb.Fatal(err)
		}
	}
	s.p4rt = p4rtserver.New(s.sw, p4rtserver.Options{Compile: compiler.Compile})
	s.rpc = grpc.NewServer(p4rtserver.ServerOptions()...)
	s.p4rt.Register(s.rpc)
	go func() {
		defer close(s.done)
		if err := s.rpc.Serve(lis); err != nil {
			tb.Errorf("switch: %v", err)
		}
	}()
	tb.Cleanup(s.stop)
	return s
}

func (s *realSwitch) stop() {
	s.rpc.Stop()
	<-s.done
	s.p4rt.Close()
	s.sw.Close()
}

// send sends n packets of one flow, 10.0.1.src to 10.0.2.1, into port 1.
func (s *realSwitch) send(src byte, n int) {
	pkt := udp([4]byte{10, 0, 1, src}, [4]byte{10, 0, 2, 1}, 1000+uint16(src), 53)
	for range n {
		s.sw.Inject(1, pkt, 0)
	}
}

// udp is a minimal Ethernet, IPv4 and UDP packet.
func udp(src, dst [4]byte, sport, dport uint16) []byte {
	b := make([]byte, 14+20+8)
	copy(b, []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0})
	ip := b[14:34]
	ip[0], ip[8], ip[9] = 0x45, 64, 17
	binary.BigEndian.PutUint16(ip[2:], 28)
	copy(ip[12:], src[:])
	copy(ip[16:], dst[:])
	sum := uint32(0)
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	sum = sum>>16 + sum&0xffff
	sum += sum >> 16
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
	binary.BigEndian.PutUint16(b[34:], sport)
	binary.BigEndian.PutUint16(b[36:], dport)
	binary.BigEndian.PutUint16(b[38:], 8)
	return b
}

// real is a collector with real components on virtual time.
type real struct {
	yaml    string
	tb      testing.TB
	c       *collector.Collector
	clock   *epoch.Virtual
	end     time.Time
	log     *testkit.Log
	switch1 *realSwitch
}

// startReal starts a collector with one soft switch and the UnivMon plugin. more holds further
// entries of devices.
func startReal(tb testing.TB, program string, more ...string) *real {
	tb.Helper()
	dir := plugins(tb)
	sw := startSwitch(tb, "127.0.0.1:0")
	yaml := fmt.Sprintf(`
epoch: {guard: 1ms, align: false}
devices:
  - {name: s1, address: "%s", device-id: 1, pipeline: %s, forwarding: managed, tls: {plaintext: true}}
%s
hosts:
  - {name: h1, port: s1/1, addresses: 10.0.1.0/24}
  - {name: h2, port: s1/2, addresses: 10.0.2.0/24}
plugins:
  directory: %s
  restart: {initial: 10ms, maximum: 100ms}
  instances: [{plugin: univmon, deadline: 10s}]
reload: {max-removal: 1}
`, sw.address, program, strings.Join(more, "\n"), dir)
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r := &real{yaml: yaml, tb: tb, clock: epoch.NewVirtual(start, 10*time.Second), end: start, log: &testkit.Log{},
		switch1: sw}
	tb.Cleanup(r.stop)
	r.start(more == nil)
	return r
}

// start starts a collector with the file r.yaml and waits for all devices, or for s1.
func (r *real) start(all bool) {
	r.tb.Helper()
	cfg, err := config.Parse("netsketch.yaml", []byte(r.yaml))
	if err != nil {
		r.tb.Fatal(err)
	}
	show := io.Discard
	if t, isTest := r.tb.(*testing.T); isTest {
		show = testWriter{t}
	}
	r.c, err = collector.New(cfg, collector.Dependencies{
		Clock: r.clock, Programs: programs, Version: "test",
		Logger: slog.New(slog.NewTextHandler(io.MultiWriter(r.log, show), nil)),
	})
	if err != nil {
		r.tb.Fatal(err)
	}
	if err := r.c.Start(context.Background()); err != nil {
		r.tb.Fatal(err)
	}
	if all {
		r.ready()
	} else {
		r.until("s1 is ready", func() bool {
			return r.leaf("/collector/devices/device[node=s1]",
				"state/connection") == "READY"
		})
	}
	if err := r.c.Open(context.Background(), r.end, r.wait); err != nil {
		r.tb.Fatal(err)
	}
}

func (r *real) stop() {
	if err := r.c.Stop(context.Background()); err != nil {
		r.tb.Error(err)
	}
}

// testWriter shows the log of a test that failed.
type testWriter struct{ tb testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.tb.Log(strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}

func (r *real) wait(_ context.Context, d time.Duration) error { r.clock.Advance(d); return nil }

func (r *real) ready() {
	r.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if missing := r.c.WaitReady(ctx); missing != nil {
		r.tb.Fatalf("%v are not ready", missing)
	}
}

// until polls until another goroutine has made ok true.
func (r *real) until(what string, ok func() bool) {
	r.tb.Helper()
	limit := time.After(2 * time.Minute) // slow machines take long to load the programs of 64 switches
	for pause := time.Millisecond; !ok(); pause = min(pause*3/2, 10*time.Millisecond) {
		select {
		case <-limit:
			r.tb.Fatalf("did not happen: %s\n%s", what, r.log)
		case <-time.After(pause):
		}
	}
}

func (r *real) step() collector.Report {
	r.tb.Helper()
	r.end = r.end.Add(time.Second)
	r.clock.AdvanceTo(r.end)
	rep, err := r.c.Step(context.Background(), r.end, r.wait)
	if err != nil {
		r.tb.Fatal(err)
	}
	return rep
}

// leaf returns a leaf of the one row that the path names.
func (r *real) leaf(path, leaf string) string { return leafIn(r.c.Store().View(), path, leaf) }

func leafIn(view *store.View, path, leaf string) string {
	out := "(no row)"
	view.Rows(store.ParseQuery("", path))(func(row *store.Row, _ store.Meta) bool {
		out = "(no leaf)"
		for i, l := range row.List.Leaves {
			if strings.Join(l.Path, "/") == leaf && !row.Values[i].Absent() {
				out = row.Values[i].String()
			}
		}
		return false
	})
	return out
}

func TestRealSwitchRealPlugin(t *testing.T) {
	r := startReal(t, "univmon-300k")
	for e := 1; e <= 3; e++ {
		r.switch1.send(1, 100*e)
		r.switch1.send(2, 10*e)
		rep := r.step()
		if rep.Status != epoch.Complete || rep.Plugins[0].Err != nil || rep.Number != uint64(e) {
			t.Fatalf("report %+v", rep)
		}
		const heavy = "/univmon/heavy-hitters/heavy-hitter[node=s1][dimension=src][flow=10.0.1.1]"
		if got, want := r.leaf(heavy, "state/packets"), fmt.Sprint(100*e); got != want {
			t.Errorf("epoch %d: 10.0.1.1 has %s packets, want %s", e, got, want)
		}
		const summary = "/univmon/node-summaries/node-summary[node=s1][dimension=src]"
		if got, want := r.leaf(summary, "state/packets"), fmt.Sprint(110*e); got != want {
			t.Errorf("epoch %d: %s packets, want %s", e, got, want)
		}
	}
	if got := r.leaf("/collector/devices/device[node=s1]", "state/readout-method"); got != "PACKET" {
		t.Errorf("read-out method %s", got)
	}
	keys := map[string]string{"node": "s1", "dimension": "src", "flow": "10.0.1.2"}
	view, err := r.c.Query(t.Context(), "", "/netsketch-univmon:univmon/flows/flow", keys)
	if err != nil {
		t.Fatal(err)
	}
	if got := leafIn(view, "/univmon/flows/flow", "state/packets"); got != "30" {
		t.Errorf("query: 10.0.1.2 has %s packets in epoch 3, want 30", got)
	}
	r.switch1.mu.Lock()
	defer r.switch1.mu.Unlock()
	if n := r.switch1.out[2]; n != 660 {
		t.Errorf("%d packets were forwarded to h2, want 660", n)
	}
}

func TestPluginKilledHasResultsAgainWithinTwoEpochs(t *testing.T) {
	r := startReal(t, "univmon-300k")
	r.step()
	pid := r.leaf("/collector/plugins/plugin[name=univmon]", "state/pid")
	var n int
	if _, err := fmt.Sscan(pid, &n); err != nil {
		t.Fatalf("pid %s", pid)
	}
	if err := testkit.Signal(n, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	results := 0
	for range 2 {
		if rep := r.step(); rep.Status != epoch.Complete {
			t.Errorf("report %+v", rep)
		} else if rep.Plugins[0].Err == nil {
			results++
		}
	}
	if results == 0 {
		t.Errorf("no results within two epochs\n%s", r.log)
	}
}

// Heavy changes miss no epoch when the plugin is killed between two epochs, and no epoch with data
// when the collector is restarted, because the plugin compares with the sketches that it saved.
func TestHeavyChangesAfterRestarts(t *testing.T) {
	r := startReal(t, "univmon-300k")
	r.stop()
	r.yaml = strings.Replace(r.yaml, "plugins:\n", fmt.Sprintf("plugins:\n  state-directory: %q\n", t.TempDir()), 1)
	r.yaml = strings.Replace(r.yaml, "align: false", "align: true", 1)
	r.start(true)
	n := 0
	step := func(want bool) {
		t.Helper()
		n++
		r.switch1.send(1, 1000)
		r.switch1.send(2, 500*(1+n%2)) // changes by 500 packets
		rep := r.step()
		const change = "/univmon/heavy-changes/heavy-change[node=s1][dimension=src][flow=10.0.1.2]"
		got := r.leaf(change, "state/delta")
		t.Logf("epoch %d: status %v, delta %s, err %v", rep.Number, rep.Status, got, rep.Plugins[0].Err)
		if want && got != fmt.Sprint(500-1000*((n+1)%2)) {
			t.Errorf("epoch %d, %v: 10.0.1.2 changed by %q\n%s", rep.Number, rep.Status, got, r.log)
		}
	}
	step(false)
	step(true)
	var pid int
	if _, err := fmt.Sscan(r.leaf("/collector/plugins/plugin[name=univmon]", "state/pid"), &pid); err != nil {
		t.Fatal(err)
	}
	if err := testkit.Signal(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	step(true)
	step(true)
	r.stop()
	r.start(true)
	step(true)
	step(true)
}

func TestSwitchRestarted(t *testing.T) {
	r := startReal(t, "univmon-300k")
	r.switch1.send(1, 5)
	r.step()
	r.switch1.stop()
	if rep := r.step(); rep.Status != epoch.Lost || rep.Devices[0].Err == nil {
		t.Errorf("report %+v", rep)
	}
	again := startSwitch(t, r.switch1.address)
	r.ready()
	r.step() // the switch joined during this epoch
	again.send(1, 7)
	if rep := r.step(); rep.Status != epoch.Complete {
		t.Errorf("report %+v", rep)
	}
	if got := r.leaf("/univmon/node-summaries/node-summary[node=s1][dimension=src]", "state/packets"); got != "7" {
		t.Errorf("%s packets, want 7", got)
	}
}

// One of two switches misbehaves: its epochs are lost with a reason in the state, the epochs of
// the other switch are complete, and the switch recovers by itself.
func TestMisbehavingSwitchHarmsNoOther(t *testing.T) {
	for name, test := range map[string]struct {
		fault func(*fakeswitch.Switch) error
		heal  func(*fakeswitch.Switch) error
		want  string // in the state's last-error
	}{
		"refuses the pipeline": {
			func(s *fakeswitch.Switch) error {
				s.SetFaults(fakeswitch.Faults{RefusePipeline: status.Error(codes.InvalidArgument, "not for this chip")})
				s.Reboot()
				return nil
			}, nil, "not for this chip",
		},
		"loses mastership":             {(*fakeswitch.Switch).Demote, (*fakeswitch.Switch).Promote, "primary"},
		"drops the stream in mid-read": {setFaults(fakeswitch.Faults{DropAfter: 5}), nil, ""},
		"loses replies":                {setFaults(fakeswitch.Faults{LoseReplies: 50}), nil, "lost cells"},
		"answers garbage":              {setFaults(fakeswitch.Faults{Garbage: true}), nil, "17 bytes"},
		"refuses writes": {setFaults(fakeswitch.Faults{RefuseWrite: status.Error(codes.Internal,
			"broken driver")}), nil, "broken driver"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := programs("univmon-300k")
			if err != nil {
				t.Fatal(err)
			}
			bad := fakeswitch.Start(t, p.P4Info)
			r := startReal(t, "univmon-300k", fmt.Sprintf("  - {name: bad, address: %q, device-id: 1, "+
				"pipeline: univmon-300k, timeout: 1s, tls: {plaintext: true}}", bad.Address))
			r.ready()
			r.untilStatus(epoch.Complete)
			if err := test.fault(bad); err != nil {
				t.Fatal(err)
			}
			step := func() collector.Report { // banks that counted no packet are not read
				bad.Count("ingress.univmon_src.counters", 0, 1)
				return r.step()
			}
			r.until("an epoch is partial", func() bool { return step().Status == epoch.Partial })
			r.switch1.send(1, 9)
			rep := step()
			if rep.Status != epoch.Partial || rep.Devices[0].Name != "bad" || rep.Devices[0].Err == nil ||
				rep.Devices[1].Err != nil || rep.Plugins[0].Err != nil {
				t.Errorf("report %+v", rep)
			}
			if got := r.leaf("/univmon/node-summaries/node-summary[node=s1][dimension=src]", "state/packets"); got != "9" {
				t.Errorf("%s packets at s1, want 9", got)
			}
			r.until("the state says why", func() bool {
				return strings.Contains(r.leaf("/collector/devices/device[node=bad]", "state/last-error"), test.want)
			})
			bad.SetFaults(fakeswitch.Faults{})
			if test.heal != nil {
				if err := test.heal(bad); err != nil {
					t.Fatal(err)
				}
			}
			r.untilStatus(epoch.Complete)
		})
	}
}

func setFaults(f fakeswitch.Faults) func(*fakeswitch.Switch) error {
	return func(s *fakeswitch.Switch) error { s.SetFaults(f); return nil }
}

// untilStatus steps until an epoch has the status.
func (r *real) untilStatus(want epoch.Status) {
	r.tb.Helper()
	r.until("an epoch is "+want.String(), func() bool { return r.step().Status == want })
}

// The message about a configuration that a plugin refuses names file, line and key.
func TestPluginConfigurationRefused(t *testing.T) {
	cfg, err := config.Parse("netsketch.yaml", []byte("plugins:\n  directory: "+plugins(t)+
		"\n  instances:\n    - plugin: univmon\n      config:\n        no-such-key: 1\n"))
	if err != nil {
		t.Fatal(err)
	}
	log := &testkit.Log{}
	c, err := collector.New(cfg, collector.Dependencies{Programs: programs,
		Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := c.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "netsketch.yaml:6:9: plugins.instances[0].config") ||
		!strings.Contains(log.String(), "no-such-key") {
		t.Errorf("log:\n%s", log)
	}
}

// On the wall clock, as the program runs it: epochs, the cancellation by SIGTERM, and a bounded
// stop.
func TestRunAndStop(t *testing.T) {
	dir := plugins(t)
	sw := startSwitch(t, "127.0.0.1:0")
	cfg, err := config.Parse("netsketch.yaml", []byte(fmt.Sprintf(`
epoch: {interval: 200ms, guard: 1ms, align: false}
devices: [{name: s1, address: "%s", device-id: 1, pipeline: univmon-300k, tls: {plaintext: true}}]
plugins: {directory: %s, instances: [{plugin: univmon, deadline: 10s}]}
`, sw.address, dir)))
	if err != nil {
		t.Fatal(err)
	}
	reports := make(chan collector.Report, 1024)
	c, err := collector.New(cfg, collector.Dependencies{Programs: programs,
		OnReport: func(r collector.Report) { reports <- r }})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	for want := uint64(1); want <= 3; {
		rep := <-reports
		if rep.Number < want {
			t.Errorf("epoch %d after %d", rep.Number, want-1)
		}
		want = rep.Number + 1
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := c.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	if err := c.Stop(context.Background()); err != nil {
		t.Errorf("a second stop: %v", err)
	}
	if err := c.Store().Publish(store.Batch{Time: time.Now()}); err == nil {
		t.Error("the store is still open")
	}
}

// A reload adds a switch to a running plugin, and then takes the plugin away with all its results.
func TestReloadWithRealParts(t *testing.T) {
	r := startReal(t, "univmon-300k")
	second := startSwitch(t, "127.0.0.1:0")
	reload := func(yaml string) {
		t.Helper()
		cfg, err := config.Parse("netsketch.yaml", []byte(yaml))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.c.Reload(context.Background(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	r.step()
	reload(strings.Replace(r.yaml, "hosts:", fmt.Sprintf(`  - {name: s2, address: "%s", device-id: 1,
     pipeline: univmon-300k, tls: {plaintext: true}}
hosts:
  - {name: h3, port: s2/1, addresses: 10.0.3.0/24}`, second.address), 1))
	r.ready()
	r.untilStatus(epoch.Complete)
	r.switch1.send(1, 4)
	second.send(1, 6)
	r.step()
	const summary = "/univmon/node-summaries/node-summary[node=%s][dimension=src]"
	for device, want := range map[string]string{"s1": "4", "s2": "6", "network": "10"} {
		if got := r.leaf(fmt.Sprintf(summary, device), "state/packets"); got != want {
			t.Errorf("%s has %s packets, want %s", device, got, want)
		}
	}
	reload(strings.Replace(r.yaml, "instances: [{plugin: univmon, deadline: 10s}]", "instances: []", 1))
	if got := r.leaf(fmt.Sprintf(summary, "s1"), "state/packets"); got != "(no row)" {
		t.Errorf("results of the plugin are still there: %s", got)
	}
	if rep := r.step(); rep.Status != epoch.Complete || len(rep.Devices) != 1 || len(rep.Plugins) != 0 {
		t.Errorf("report %+v", rep)
	}
}

// serveGNMI serves a collector's store as the gNMI output does, and returns a client.
func serveGNMI(tb testing.TB, c *collector.Collector) gpb.GNMIClient {
	tb.Helper()
	srv, err := server.New(server.Options{Store: c.Store(), Schema: c.Schema})
	if err != nil {
		tb.Fatal(err)
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	rpc := grpc.NewServer()
	gpb.RegisterGNMIServer(rpc, srv)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := rpc.Serve(lis); err != nil {
			tb.Error(err)
		}
	}()
	conn, err := grpc.NewClient(lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		conn.Close()
		srv.Close(context.Background())
		rpc.Stop()
		<-done
	})
	return gpb.NewGNMIClient(conn)
}

// subscribe opens a STREAM subscription to everything below the elements.
func subscribe(tb testing.TB, ctx context.Context, client gpb.GNMIClient, elems ...string) gpb.GNMI_SubscribeClient {
	tb.Helper()
	stream, err := client.Subscribe(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	path := &gpb.Path{}
	for _, e := range elems {
		path.Elem = append(path.Elem, &gpb.PathElem{Name: e})
	}
	if err := stream.Send(&gpb.SubscribeRequest{Request: &gpb.SubscribeRequest_Subscribe{Subscribe: &gpb.SubscriptionList{
		Mode: gpb.SubscriptionList_STREAM, Encoding: gpb.Encoding_PROTO,
		Subscription: []*gpb.Subscription{{Path: path, Mode: gpb.SubscriptionMode_ON_CHANGE}},
	}}}); err != nil {
		tb.Fatal(err)
	}
	return stream
}

func TestResultsReachAGNMISubscriber(t *testing.T) {
	r := startReal(t, "univmon-300k")
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	stream := subscribe(t, ctx, serveGNMI(t, r.c), "univmon", "node-summaries", "node-summary", "state", "packets")
	for { // the stream has no data before sync_response
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if m.GetSyncResponse() {
			break
		}
	}
	r.switch1.send(3, 42)
	r.step()
	var got []string
	for len(got) == 0 {
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		n := m.GetUpdate()
		if at := time.Unix(0, n.GetTimestamp()); !at.Equal(r.end) {
			t.Errorf("timestamp %s, want the epoch's end, %s", at, r.end)
		}
		for _, u := range n.GetUpdate() {
			if u.GetVal().GetUintVal() == 42 {
				got = append(got, "42")
			}
		}
	}
	if !slices.Contains(got, "42") {
		t.Errorf("updates %v", got)
	}
}
