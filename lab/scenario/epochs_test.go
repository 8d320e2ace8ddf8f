// SPDX-License-Identifier: Apache-2.0

package scenario_test

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
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/internal/test/chamelemon"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/lab"
	"github.com/netsketch/netsketch/lab/traffic"
	"github.com/netsketch/netsketch/p4/compiled"
	"github.com/netsketch/netsketch/p4/p4rt"
)

const interval = 50 * time.Millisecond

// rig is a collector over the paper's testbed: four edge switches with ChameleMon at its sizes, and
// six that forward.
type rig struct {
	tb      testing.TB
	net     *lab.Network
	clock   *epoch.Virtual // nil: the wall clock
	traffic traffic.Source // 4,000 packets a second, on a virtual clock
	start   time.Time      // start of the virtual clock
	at      time.Time      // end of the latest epoch
	c       *collector.Collector
	mu      sync.Mutex
	reports []collector.Report
	more    chan struct{} // signals that there are more reports
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
	labConfig := lab.Config{Fabric: fabric, Programs: programs, Compiler: &compiler}
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
		if r.traffic, err = traffic.Generate(traffic.Generated{Name: "flows", Seed: 1, Rate: 4000, Flows: 500},
			hosts); err != nil {
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
	ctx, cancel := context.WithTimeout(tb.Context(), 2*time.Minute)
	defer cancel()
	if missing := r.c.WaitReady(ctx); missing != nil {
		tb.Fatalf("%v are not ready", missing)
	}
	return r
}

func (r *rig) configuration(fabric *lab.Fabric) string {
	var b strings.Builder
	fmt.Fprintf(&b, "epoch: {interval: %v, guard: 1ms}\ndevice-defaults: {forwarding: managed, tls: {plaintext: "+
		"true}}\ndevices:\n", interval)
	for _, d := range r.net.Devices() {
		program := "forwarding"
		if d.Role == "edge" {
			program = "chamelemon"
		}
		fmt.Fprintf(&b, "  - {name: %s, address: %q, device-id: %d, role: %s, pipeline: %s}\n", d.Name, d.Address,
			d.DeviceID, d.Role, program)
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

// playUntilExact drives epochs until the log says that they are exact again.
func (r *rig) playUntilExact() {
	r.tb.Helper()
	for range 50 {
		r.play(1)
		log := r.log.String()
		begins := strings.Count(log, `level=WARN msg="epochs may be inexact"`)
		if ends := strings.Count(log, `level=INFO msg="epochs are exact again"`); ends > 0 && ends == begins {
			return
		}
	}
	r.tb.Fatal("epochs are not exact again after 50")
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

// check fails the test for each epoch that is not complete.
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
		if err := errors.Join(errs...); err != nil || rep.Status != epoch.Complete || rep.Skipped > 0 ||
			len(rep.Devices) != 4 {
			r.tb.Errorf("epoch %d of %d is %v, %d skipped before it, stages %+v: %v", i+1, n, rep.Status, rep.Skipped,
				rep.Stages, err)
		}
		if len(rep.Warnings) > 0 {
			r.tb.Logf("epoch %d of %d: %v", i+1, n, rep.Warnings)
		}
	}
}

// Epochs of 50 ms on a virtual clock are complete and without warnings, and plans for them are in
// time.
func TestShortEpochs(t *testing.T) {
	r := newRig(t, true)
	const n = 12
	r.play(n)
	r.check(n)
	for _, rep := range r.seen() {
		if len(rep.Warnings) > 0 {
			t.Errorf("epoch %d has warnings %v", rep.Number, rep.Warnings)
		}
	}
	if log := r.log.String(); strings.Contains(log, "plan") {
		t.Error("a plan was not applied")
	}
}

// Epochs of 50 ms on the wall clock without traffic. NETSKETCH_SUSTAIN_EPOCHS is their number.
func TestSustainedEpochs(t *testing.T) {
	number := os.Getenv("NETSKETCH_SUSTAIN_EPOCHS")
	if number == "" {
		t.Skip("needs an idle machine: NETSKETCH_SUSTAIN_EPOCHS=1000 runs 1,000 epochs on the wall clock")
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 {
		t.Fatalf("NETSKETCH_SUSTAIN_EPOCHS=%s: set a number of epochs, for example 1000", number)
	}
	r := newRig(t, false)
	r.play(n)
	r.check(n)
	logStages(t, r)
}

// logStages logs the quantiles of the stages.
func logStages(t *testing.T, r *rig) {
	stages := []struct {
		name string
		of   func(collector.Report) time.Duration
	}{
		{"late", func(r collector.Report) time.Duration { return r.Stages.Late }},
		{"flip", func(r collector.Report) time.Duration { return r.Stages.Flip }},
		{"skew", func(r collector.Report) time.Duration { return r.Stages.Skew }},
		{"read-out of a switch", func(r collector.Report) time.Duration {
			return slices.MaxFunc(r.Devices, func(a, b collector.DeviceReport) int {
				return cmp.Compare(a.Read,
					b.Read)
			}).Read
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

// BenchmarkEpoch measures the processor time of an epoch with little traffic: that of the emulated
// switches and the collector, without the plugin.
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

// A plugin process that replaces a killed one continues with its state: at most one epoch is lost
// for it, plans stay in force, and the new process recognizes them.
func TestPluginKilledBetweenShortEpochs(t *testing.T) {
	r := newRig(t, true)
	r.play(6)
	pid := r.plugin("state/pid")
	if r.plugin("state/saved-epoch") == 0 {
		t.Fatal("no saved epoch")
	}
	if err := testkit.Signal(int(pid), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.play(6)
	lost := 0
	for _, rep := range r.seen() {
		if rep.Status != epoch.Complete || len(rep.Warnings) > 0 {
			t.Errorf("epoch %d is %v, warnings %v", rep.Number, rep.Status, rep.Warnings)
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
	for _, line := range []string{"earlier process", "no ChameleMon plan", "saved state not restored"} {
		if strings.Contains(r.log.String(), line) {
			t.Errorf("the log has %q", line)
		}
	}
}

// An edge switch is away for two epochs, and flips too late in two others. The collector's state
// and log show this while it lasts, and its end; no other epoch is lost.
func TestMissingAndLateSwitchesAreShown(t *testing.T) {
	r := newRig(t, true)
	r.play(3)
	of := func(leaf string) string { return r.leaf("/collector/devices/device[node=edge1-1]", leaf) }
	epochs := func(leaf string) string { return r.leaf("/collector/epoch/state", leaf) }
	well := func() {
		t.Helper()
		if s, d, e := epochs("status"), epochs("accuracy-warnings"), of("state/last-error"); s != "COMPLETE" ||
			d != "" || e != "" {
			t.Errorf("status %q, warnings %q, last error %q", s, d, e)
		}
	}
	well()

	edge := slices.IndexFunc(r.net.Devices(), func(d lab.Device) bool { return d.Name == "edge1-1" })
	r.net.SetRefusing(edge, true)
	for range 2 {
		r.play(1)
		if s, e := epochs("status"), of("state/last-error"); s != "PARTIAL" || !strings.Contains(e, "refuse calls") {
			t.Errorf("status %q, last error %q of a switch that does not reply", s, e)
		}
	}
	r.net.SetRefusing(edge, false)
	// The switch joins while epochs go on without it: at least the next epoch is partial.
	if r.play(1); r.seen()[5].Status != epoch.Partial {
		t.Errorf("the epoch in which it was back is %v, want partial", r.seen()[5].Status)
	}
	for try := 0; epochs("status") != "COMPLETE"; try++ {
		if try == 50 {
			t.Fatal("no epoch is complete although the switch is back")
		}
		r.play(1)
	}
	r.playUntilExact()
	well()

	// The lab holds the late flip until the others are carried out. On a busy machine their
	// acknowledgments can arrive later, and then that epoch shows a smaller skew or none.
	r.net.SetSkew(edge, 3*time.Millisecond)
	shown := 0
	for try := 0; shown < 2 && try < 20; try++ {
		r.play(1)
		s, d := epochs("status"), epochs("accuracy-warnings")
		if s != "COMPLETE" || d != "" && !strings.Contains(d, "ms apart, more than the guard of 1ms") {
			t.Errorf("status %q, warnings %q of epochs with flips apart", s, d)
		}
		if d != "" {
			shown++
		}
	}
	if shown < 2 {
		t.Errorf("%d of 20 epochs show that flips were apart, want 2", shown)
	}
	r.net.SetSkew(edge, 0)
	r.playUntilExact()
	well()
	for _, line := range []string{
		`level=WARN msg="device is missing from the epoch" device=edge1-1`,
		`level=INFO msg="device is measured" device=edge1-1`,
		`level=WARN msg="epochs may be inexact" device="" reason="the flips at the end of the epoch were `,
	} {
		if !strings.Contains(r.log.String(), line) {
			t.Errorf("the log does not have %q", line)
		}
	}
}

// plugin returns a leaf of the plugin's state, 0 if it has no value.
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

// leaf returns the value of a leaf of the collector's state, or "" if it has no value.
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
