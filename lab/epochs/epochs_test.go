// SPDX-License-Identifier: Apache-2.0

package epochs_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/netsketch/netsketch/collector"
	"github.com/netsketch/netsketch/collector/config"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/collector/store"
	"github.com/netsketch/netsketch/internal/testkit"
	"github.com/netsketch/netsketch/lab"
	"github.com/netsketch/netsketch/lab/chamelemon"
	"github.com/netsketch/netsketch/lab/traffic"
	"github.com/netsketch/netsketch/p4/compiled"
	"github.com/netsketch/netsketch/p4/p4rt"
)

const interval = 50 * time.Millisecond

// plugins is the folder with the plugin's binary.
var plugins string

func TestMain(m *testing.M) { testkit.MainWithPlugins(m, &plugins, "chamelemon") }

// rig is a collector over the paper's testbed: four edge switches with ChameleMon at its sizes, and six that forward.
type rig struct {
	tb      testing.TB
	net     *lab.Network
	clock   *epoch.Virtual // nil: the wall's
	traffic traffic.Source // 4,000 packets a second, on a virtual clock
	start   time.Time      // of the virtual clock
	at      time.Time      // end of the newest epoch
	c       *collector.Collector
	mu      sync.Mutex
	reports []collector.Report
	more    chan struct{} // there are more reports
	log     testkit.Log
}

func newRig(tb testing.TB, virtual bool) *rig {
	tb.Helper()
	r := &rig{tb: tb, more: make(chan struct{}, 1)}
	fabric, err := lab.FatTree(4, 2, 2, 10*time.Microsecond)
	if err != nil {
		tb.Fatal(err)
	}
	programs := map[string]*compiled.Program{}
	for role, name := range map[string]string{"edge": "chamelemon", "transit": "forwarding"} {
		if programs[role], err = compiled.Load(name); err != nil {
			tb.Fatal(err)
		}
	}
	labConfig := lab.Config{Fabric: fabric, Programs: programs}
	deps := collector.Dependencies{
		Logger: slog.New(slog.NewTextHandler(&r.log, &slog.HandlerOptions{Level: slog.LevelInfo})),
		Programs: func(name string) (*p4rt.Program, error) {
			p, err := compiled.Load(name)
			if err != nil {
				return nil, err
			}
			return &p4rt.Program{Name: p.Name, DeviceConfig: p.JSON, P4Info: p.P4Info}, nil
		},
		OnReport: func(rep collector.Report) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.reports = append(r.reports, rep)
			select {
			case r.more <- struct{}{}:
			default:
			}
		},
	}
	if virtual {
		r.start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		r.clock = epoch.NewVirtual(r.start, 0)
		hosts := make([]traffic.Host, len(fabric.Hosts))
		for i, h := range fabric.Hosts {
			hosts[i] = traffic.Host{V4: h.V4, V6: h.V6, Site: h.Switch}
		}
		if r.traffic, err = traffic.Generate(traffic.Generated{Name: "flows", Seed: 1, Rate: 4000, Flows: 500}, hosts); err != nil {
			tb.Fatal(err)
		}
		labConfig.Clock, deps.Clock = lab.VirtualClock(r.clock), r.clock
	}
	if r.net, err = lab.New(labConfig); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := r.net.Close(); err != nil {
			tb.Error(err)
		}
	})
	cfg, err := config.Parse("epochs.yaml", []byte(r.configuration(fabric)))
	if err != nil {
		tb.Fatal(err)
	}
	if r.c, err = collector.New(cfg, deps); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := r.c.Stop(context.Background()); err != nil {
			tb.Error(err)
		}
		tb.Logf("log:\n%.4000s", &r.log)
	})
	if err := r.c.Start(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	if failed := r.c.FailedPlugins(); len(failed) > 0 {
		tb.Fatal(failed)
	}
	ctx, cancel := context.WithTimeout(tb.Context(), 30*time.Second)
	defer cancel()
	if missing := r.c.WaitReady(ctx); missing != nil {
		tb.Fatalf("%v are not ready", missing)
	}
	return r
}

func (r *rig) configuration(fabric *lab.Fabric) string {
	var b strings.Builder
	fmt.Fprintf(&b, "epoch: {interval: %v, guard: 1ms}\ndevice-defaults: {forwarding: managed, tls: {plaintext: true}}\ndevices:\n", interval)
	for _, d := range r.net.Devices() {
		program := "forwarding"
		if d.Role == "edge" {
			program = "chamelemon"
		}
		fmt.Fprintf(&b, "  - {name: %s, address: %q, device-id: %d, role: %s, pipeline: %s}\n", d.Name, d.Address, d.DeviceID, d.Role, program)
	}
	b.WriteString("links:\n")
	name := func(i int, port uint32) string { return fmt.Sprintf("%s/%d", fabric.Switches[i].Name, port) }
	for _, l := range fabric.Links {
		fmt.Fprintf(&b, "  - {from: %s, to: %s}\n", name(l.A, l.PortA), name(l.B, l.PortB))
	}
	b.WriteString("hosts:\n")
	for _, h := range fabric.Hosts {
		fmt.Fprintf(&b, "  - {name: %s, port: %s, addresses: [%q]}\n", h.Name, name(h.Switch, h.Port), h.V4)
	}
	fmt.Fprintf(&b, "plugins: {directory: %q, instances: [{plugin: chamelemon}]}\n", plugins)
	return b.String()
}

// play drives n epochs, on the wall clock or as fast as they are computed.
func (r *rig) play(n int) {
	r.tb.Helper()
	ctx, cancel := context.WithCancel(r.tb.Context())
	defer cancel()
	if r.clock == nil {
		done := make(chan error, 1)
		go func() { done <- r.c.Run(ctx) }()
		for len(r.seen()) < n {
			select {
			case <-r.more:
			case err := <-done:
				r.tb.Fatalf("the collector ended: %v", err)
			}
		}
		cancel()
		if err := <-done; err != nil {
			r.tb.Fatal(err)
		}
		return
	}
	until := func(at time.Time) error { return r.net.Play(ctx, r.traffic, at.Sub(r.start)) }
	wait := func(_ context.Context, d time.Duration) error { return until(r.clock.Now().Add(d)) }
	at := r.clock.Now()
	if len(r.reports) == 0 {
		if err := r.c.Open(ctx, at, wait); err != nil {
			r.tb.Fatal(err)
		}
		r.at = at
	}
	for range n {
		r.at = r.at.Add(interval)
		if err := until(r.at); err != nil {
			r.tb.Fatal(err)
		}
		if _, err := r.c.Step(ctx, r.at, wait); err != nil {
			r.tb.Fatal(err)
		}
	}
}

func (r *rig) seen() []collector.Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.reports)
}

// check fails the test for each epoch that is not whole.
func (r *rig) check(n int) {
	r.tb.Helper()
	reports := r.seen()
	if len(reports) < n {
		r.tb.Errorf("%d epochs, want %d", len(reports), n)
	}
	for i, rep := range reports[:min(n, len(reports))] {
		var errs []error
		for _, d := range rep.Devices {
			errs = append(errs, d.Err)
		}
		for _, p := range rep.Plugins {
			errs = append(errs, p.Err)
		}
		if err := errors.Join(errs...); err != nil || rep.Status != epoch.Complete || rep.Skipped > 0 || len(rep.Devices) != 4 {
			r.tb.Errorf("epoch %d of %d is %v, %d skipped before it, stages %+v: %v", i+1, n, rep.Status, rep.Skipped, rep.Stages, err)
		}
		if len(rep.Doubts) > 0 {
			r.tb.Logf("epoch %d of %d: %v", i+1, n, rep.Doubts)
		}
	}
}

// Epochs of 50 ms on a virtual clock: each is whole and without doubt, and plans for it come in time.
func TestShortEpochs(t *testing.T) {
	r := newRig(t, true)
	const n = 12
	r.play(n)
	r.check(n)
	for _, rep := range r.seen() {
		if len(rep.Doubts) > 0 {
			t.Errorf("epoch %d: doubts %v", rep.Number, rep.Doubts)
		}
	}
	if log := r.log.String(); strings.Contains(log, "plan") {
		t.Error("a plan was not carried out")
	}
}

// Epochs of 50 ms on the wall clock, as many as NETSKETCH_SUSTAIN says, without traffic.
func TestSustainedEpochs(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("NETSKETCH_SUSTAIN"))
	if n == 0 {
		t.Skip("needs a machine with nothing else to do: NETSKETCH_SUSTAIN=1000 plays 1,000 epochs on the wall clock")
	}
	r := newRig(t, false)
	r.play(n)
	r.check(n)
	report(t, r)
}

// report logs the quantiles of the stages.
func report(t *testing.T, r *rig) {
	stages := []struct {
		name string
		of   func(collector.Report) time.Duration
	}{
		{"late", func(r collector.Report) time.Duration { return r.Stages.Late }},
		{"flip", func(r collector.Report) time.Duration { return r.Stages.Flip }},
		{"skew", func(r collector.Report) time.Duration { return r.Stages.Skew }},
		{"read-out of a switch", func(r collector.Report) time.Duration {
			return slices.MaxFunc(r.Devices, func(a, b collector.DeviceReport) int { return cmp.Compare(a.Read, b.Read) }).Read
		}},
		{"read-out with drain", func(r collector.Report) time.Duration { return r.Stages.Read }},
		{"plugin", func(r collector.Report) time.Duration { return r.Stages.Plugin }},
		{"plan", func(r collector.Report) time.Duration { return r.Stages.Plan }},
		{"publish", func(r collector.Report) time.Duration { return r.Stages.Publish }},
		{"total", func(r collector.Report) time.Duration { return r.Stages.Total }},
	}
	for _, s := range stages {
		all := make([]time.Duration, 0, len(r.reports))
		for _, rep := range r.seen() {
			all = append(all, s.of(rep))
		}
		slices.Sort(all)
		t.Logf("%-22s median %8v  99 %% %8v  worst %8v", s.name, all[len(all)/2].Round(10*time.Microsecond),
			all[len(all)*99/100].Round(10*time.Microsecond), all[len(all)-1].Round(10*time.Microsecond))
	}
}

// BenchmarkEpoch measures the processor time that an epoch takes, of the emulated switches and the collector, not of
// the plugin, with little traffic.
func BenchmarkEpoch(b *testing.B) {
	r := newRig(b, true)
	r.play(4)
	b.ReportAllocs()
	b.ResetTimer()
	begin := chamelemon.ProcessorTime()
	r.play(b.N)
	b.ReportMetric(float64(chamelemon.ProcessorTime().Sub(begin).Microseconds())/float64(b.N)/1e3, "ms-processor/op")
	r.check(b.N + 4)
}

// A plugin process that is killed goes on where it was: the epoch at hand is lost for it at most, switches keep what it
// planned, and no plan is unknown to the process that follows.
func TestPluginKilledBetweenShortEpochs(t *testing.T) {
	r := newRig(t, true)
	r.play(6)
	pid := r.plugin("state/pid")
	if pid <= 0 || r.plugin("state/saved-epoch") == 0 {
		t.Fatalf("process %d, saved epoch %d", pid, r.plugin("state/saved-epoch"))
	}
	if err := syscall.Kill(int(pid), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.play(6)
	lost := 0
	for _, rep := range r.seen() {
		if rep.Status != epoch.Complete || len(rep.Doubts) > 0 {
			t.Errorf("epoch %d is %v, doubts %v", rep.Number, rep.Status, rep.Doubts)
		}
		for _, p := range rep.Plugins {
			if p.Err != nil {
				lost++
			}
		}
	}
	if lost > 1 {
		t.Errorf("%d epochs are lost for the plugin, want one at most", lost)
	}
	if again := r.plugin("state/pid"); again == pid || r.plugin("state/restarts") != 1 {
		t.Errorf("process %d after %d", again, pid)
	}
	for _, said := range []string{"earlier process", "no configuration of ChameleMon", "state that was saved is of no use"} {
		if strings.Contains(r.log.String(), said) {
			t.Errorf("the log has %q", said)
		}
	}
}

// What becomes of an edge switch that is away for two epochs, and of one that flips too late in two: the collector's state and
// its log say so while it lasts, and that it is over; no epoch more is lost than it touches.
func TestMissingAndLateSwitchesAreSaid(t *testing.T) {
	r := newRig(t, true)
	r.play(3)
	of := func(leaf string) string { return r.leaf("/collector/devices/device[name=edge1-1]", leaf) }
	epochs := func(leaf string) string { return r.leaf("/collector/epoch/state", leaf) }
	well := func() {
		t.Helper()
		if s, d, e := epochs("status"), epochs("doubts"), of("state/last-error"); s != "complete" || d != "" || e != "" {
			t.Errorf("status %q, doubts %q, last error %q", s, d, e)
		}
	}
	well()

	edge := slices.IndexFunc(r.net.Devices(), func(d lab.Device) bool { return d.Name == "edge1-1" })
	r.net.SetDeaf(edge, true)
	for range 2 {
		r.play(1)
		if s, e := epochs("status"), of("state/last-error"); s != "partial" || !strings.Contains(e, "deaf") {
			t.Errorf("status %q, last error %q of a switch that is away", s, e)
		}
	}
	r.net.SetDeaf(edge, false)
	r.play(3)
	if rep := r.seen(); rep[5].Status != epoch.Partial || rep[6].Status != epoch.Partial || rep[7].Status != epoch.Complete {
		t.Errorf("after it was back epochs are %v, %v, %v", rep[5].Status, rep[6].Status, rep[7].Status)
	}
	r.play(2)
	well()

	r.net.SetSkew(edge, 3*time.Millisecond)
	for range 2 {
		r.play(1)
		if s, d := epochs("status"), epochs("doubts"); s != "complete" || !strings.Contains(d, "3ms apart, more than the guard of 1ms") {
			t.Errorf("status %q, doubts %q of epochs with flips apart", s, d)
		}
	}
	r.net.SetSkew(edge, 0)
	r.play(1)
	well()
	for _, said := range []string{
		`level=WARN msg="device is missing from the epoch" device=edge1-1`, `level=INFO msg="device is measured" device=edge1-1`,
		`level=WARN msg="epochs are not exact" device="" reason="the flips at its end were 3ms apart, more than the guard of 1ms"`,
		`level=INFO msg="epochs are exact again"`,
	} {
		if !strings.Contains(r.log.String(), said) {
			t.Errorf("the log does not have %q", said)
		}
	}
}

// plugin returns a leaf of the plugin's state, 0 where it has no value.
func (r *rig) plugin(leaf string) int64 {
	r.tb.Helper()
	text := r.leaf("/collector/plugins/plugin", leaf)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		r.tb.Errorf("leaf %s of the plugin: %v", leaf, err)
	}
	return n
}

// leaf returns the value of a leaf of the collector's state, "" where it has none.
func (r *rig) leaf(list, leaf string) (value string) {
	r.tb.Helper()
	r.c.Store().View().Rows(store.ParseQuery("", list))(func(row *store.Row, _ store.Meta) bool {
		for i, l := range row.List.Leaves {
			if strings.Join(l.Path, "/") == leaf && !row.Values[i].Absent() {
				value = fmt.Sprint(row.Values[i])
			}
		}
		return true
	})
	return value
}
