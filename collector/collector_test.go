// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/openconfig/ygot/ygot"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/collector/pluginhost"
	"github.com/netsketch/netsketch/collector/selfstate"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/yang/bindings"
)

// pluginsYAML returns a configuration of these plugins, and of a directory in which findPlugin
// finds them.
func pluginsYAML(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	var b strings.Builder
	fmt.Fprintf(&b, "plugins:\n  directory: %s\n  instances:\n", dir)
	for _, n := range names {
		writeFile(t, dir+"/"+pluginhost.FilePrefix+n, "")
		fmt.Fprintf(&b, "    - {plugin: %s}\n", n)
	}
	return b.String()
}

func storeRows(t testing.TB, s *store.Store, target, list string, leaves ...string) []string {
	t.Helper()
	var out []string
	s.View().Rows(store.ParseQuery(target, stripModules(list)))(func(r *store.Row, m store.Meta) bool {
		line := ""
		for i, k := range r.Entry.Keys {
			line += fmt.Sprintf("[%s=%s]", r.List.Keys[i].Name, k)
		}
		for _, name := range leaves {
			i := slices.IndexFunc(r.List.Leaves, func(l store.Leaf) bool { return l.Name == name })
			if i >= 0 && !r.Values[i].Absent() {
				line += fmt.Sprintf(" %s=%s", path.Base(name), r.Values[i])
			}
		}
		out = append(out, line)
		return true
	})
	slices.Sort(out)
	return out
}

func stripModules(path string) string {
	elems := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i, e := range elems {
		if _, local, ok := strings.Cut(e, ":"); ok {
			elems[i] = local
		}
	}
	return "/" + strings.Join(elems, "/")
}

func expectRows(t *testing.T, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

func TestEpochsReachTheStore(t *testing.T) {
	r := newRig(t, devicesYAML(2)+pluginsYAML(t, "fake"), nil)
	r.count("s1", 3)
	r.count("s2", 4)
	rep := r.step()
	if rep.Status != epoch.Complete || rep.Number == 0 || rep.Cells != 2 || rep.Rows != 2 || rep.Plugins[0].Err != nil {
		t.Errorf("report %+v", rep)
	}
	expectRows(t, r.rows("", listSummaries, "state/packets"), "[node=s1][dimension=src] packets=3",
		"[node=s2][dimension=src] packets=4")
	expectRows(t, r.rows("", listCollector, "name", "version", "epochs-complete"),
		" name=netsketch version=test epochs-complete=1")
	expectRows(t, r.rows("", listEpoch, "number", "status", "devices-expected", "devices-present", "missing"),
		fmt.Sprintf(" number=%d status=COMPLETE devices-expected=2 devices-present=2 missing=", rep.Number))
	expectRows(t, r.rows("", listDevices, "state/connection", "state/epochs-complete", "state/readout-method"),
		"[node=s1] connection=READY epochs-complete=1 readout-method=PACKET",
		"[node=s2] connection=READY epochs-complete=1 readout-method=PACKET")
	expectRows(t, r.rows("", listPlugins, "state/status", "state/rows"), "[name=fake] status=RUNNING rows=2")
	r.count("s1", 5)
	r.step()
	expectRows(t, r.rows("", listSummaries, "state/packets"), "[node=s1][dimension=src] packets=5",
		"[node=s2][dimension=src] packets=0")
	if len(r.reports) != 2 || r.reports[1].Number != rep.Number+1 {
		t.Errorf("reports %+v", r.reports)
	}
	if strings.Contains(r.log.String(), "level=ERROR") {
		t.Errorf("log:\n%s", r.log)
	}
}

func TestLostDeviceMakesPartialEpochsForThePlugin(t *testing.T) {
	r := newRig(t, devicesYAML(2)+pluginsYAML(t, "fake"), nil)
	down := errors.New("connection refused by s2")
	r.devices["s2"].do(func(d *fakeDevice) { d.down = down })
	r.count("s1", 1)
	if rep := r.step(); rep.Status != epoch.Partial || rep.Devices[1].Err == nil {
		t.Errorf("report %+v", rep)
	}
	e := r.plugins["fake"].epochs[0]
	if e.Status != sdk.StatusPartial || !slices.Equal(e.Expected, []string{"s1", "s2"}) || len(e.Devices) != 1 ||
		len(e.Missing) != 1 || e.Missing[0].Name != "s2" || !strings.Contains(e.Missing[0].Reason, "refused") {
		t.Errorf("epoch %+v", e)
	}
	expectRows(t, r.rows("", listDevices, "state/connection", "state/epochs-lost", "state/last-error"),
		"[node=s1] connection=READY epochs-lost=0 last-error=",
		"[node=s2] connection=DOWN epochs-lost=1 last-error=connection refused by s2")
	r.devices["s1"].do(func(d *fakeDevice) { d.down = down })
	if rep := r.step(); rep.Status != epoch.Lost {
		t.Errorf("report %+v", rep)
	}
	if e := r.plugins["fake"].epochs[1]; e.Status != sdk.StatusLost {
		t.Errorf("epoch %+v", e)
	}
	r.devices["s1"].do(func(d *fakeDevice) { d.down, d.life = nil, 2 })
	back := false
	for range 100 { // the device joins in a goroutine of its own
		if back = r.step().Status == epoch.Partial; back {
			break
		}
	}
	if !back {
		t.Error("s1 never came back")
	}
	for range 3 {
		r.step()
	}
	if n := strings.Count(r.log.String(), "device is missing from the epoch"); n != 2 {
		t.Errorf("%d lines about missing devices, want one each:\n%s", n, r.log)
	}
}

func TestPluginThatFailsHarmsNoOther(t *testing.T) {
	r := newRig(t, devicesYAML(1)+pluginsYAML(t, "bad", "broken", "good"), nil)
	r.plugins["bad"].do(func(p *fakePlugin) { p.err = errors.New("plugin died") })
	for range 3 {
		rep := r.step()
		if len(rep.Plugins) != 2 || rep.Plugins[0].Err == nil || rep.Plugins[1].Err != nil {
			t.Errorf("report %+v", rep)
		}
	}
	expectRows(t, r.rows("", listSummaries, "state/packets"), "[node=s1][dimension=src] packets=0")
	if n := strings.Count(r.log.String(), "plugin loses epochs"); n != 1 {
		t.Errorf("%d lines about lost epochs, want 1:\n%s", n, r.log)
	}
	r.plugins["bad"].do(func(p *fakePlugin) { p.err = nil })
	r.step()
	if !strings.Contains(r.log.String(), "plugin has results again") {
		t.Errorf("log:\n%s", r.log)
	}
	got := r.rows("", listPlugins, "state/status", "state/last-error")
	if len(got) != 3 || !strings.HasPrefix(got[1], "[name=broken] status=FAILED last-error=") ||
		!strings.Contains(got[1], "not a netsketch plugin") {
		t.Errorf("plugins %q", got)
	}
}

// With plugins.autoload, plugins of the directory that no instance names run; without it, the log
// lists them. A reload starts plugins that were added to the directory.
func TestAutoload(t *testing.T) {
	yaml := devicesYAML(1) + pluginsYAML(t, "good")
	dir := parseConfig(t, yaml).Plugins.Directory
	writeFile(t, dir+"/"+pluginhost.FilePrefix+"extra", "")
	r := newRig(t, yaml, nil)
	if rep := r.step(); len(rep.Plugins) != 1 || !strings.Contains(r.log.String(), "plugins=[extra]") {
		t.Fatalf("report %+v, log:\n%s", rep.Plugins, r.log)
	}
	yaml = strings.Replace(yaml, "plugins:\n", "plugins:\n  autoload: true\n", 1)
	if err := os.WriteFile(dir+"/README", nil, 0o600); err != nil { // not executable
		t.Fatal(err)
	}
	for _, name := range []string{"extra", "more", "not a name"} {
		writeFile(t, dir+"/"+pluginhost.FilePrefix+name, "")
		if _, err := r.c.Reload(t.Context(), parseConfig(t, yaml)); err != nil {
			t.Fatal(err)
		}
	}
	names := []string{}
	for _, p := range r.step().Plugins {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{"extra", "good", "more"}) {
		t.Errorf("plugins %q", names)
	}
	for _, want := range []string{"nothing changed", "plugin not a name: ", dir + "/README"} {
		if !strings.Contains(r.log.String(), want) {
			t.Errorf("%q is not in the log:\n%s", want, r.log)
		}
	}
	if _, err := r.c.Reload(t.Context(), parseConfig(t, yaml)); err != nil {
		t.Fatal(err)
	}
}

// A plugin that could not be started is started as soon as possible, and then measures.
func TestPluginThatDidNotStartIsTriedAgain(t *testing.T) {
	yaml := devicesYAML(1) + strings.Replace(pluginsYAML(t, "broken", "good"), "plugins:\n",
		"plugins:\n  restart: {initial: 5ms, maximum: 10ms}\n", 1)
	r := newRig(t, yaml, nil)
	r.step()
	if len(r.c.FailedPlugins()) != 1 {
		t.Fatalf("failed plugins: %v", r.c.FailedPlugins())
	}
	mended.Store(true)
	defer mended.Store(false)
	testkit.Until(t, "the plugin runs", func() bool { return len(r.c.FailedPlugins()) == 0 })
	if n := strings.Count(r.log.String(), "plugin does not run"); n != 1 {
		t.Errorf("it is said %d times:\n%s", n, r.log)
	}
	rep := r.step()
	if len(rep.Plugins) != 2 || rep.Plugins[0].Err != nil {
		t.Errorf("report %+v", rep.Plugins)
	}
}

// A reload that is requested tries a plugin again that could not be started, and says why it does
// not run.
func TestReloadTriesAPluginAgain(t *testing.T) {
	yaml := devicesYAML(1) + strings.Replace(pluginsYAML(t, "broken", "good"), "plugins:\n",
		"plugins:\n  restart: {initial: 1h, maximum: 1h}\n", 1)
	r := newRig(t, yaml, nil)
	good := r.plugins["good"]
	for range 2 {
		if err := r.reload(yaml); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(r.log.String(), "plugin does not run"); n != 3 || len(r.c.FailedPlugins()) != 1 {
		t.Errorf("it is said %d times:\n%s", n, r.log)
	}
	mended.Store(true)
	defer mended.Store(false)
	if err := r.reload(yaml); err != nil || len(r.c.FailedPlugins()) > 0 {
		t.Errorf("%v, failed plugins: %v", err, r.c.FailedPlugins())
	}
	if err := r.reload(yaml); err != nil || r.plugins["good"] != good || good.stopped {
		t.Errorf("%v; the other plugin was restarted", err)
	}
}

func TestPlansHoldFromTheirEpoch(t *testing.T) {
	r := newRig(t, devicesYAML(2)+pluginsYAML(t, "fake"), nil)
	first := r.step().Number
	write := func(device, table string) sdk.DeviceWrite {
		return sdk.DeviceWrite{Device: device, Op: sdk.Insert, Entry: sdk.TableEntry{Table: table}}
	}
	r.plugins["fake"].do(func(p *fakePlugin) {
		p.plans = []sdk.Plan{
			{FromEpoch: first + 4, Writes: []sdk.DeviceWrite{write("s1", "later")}},
			{FromEpoch: first, Writes: []sdk.DeviceWrite{write("s1", "late"), write("s2", "late2"),
				write("s1", "late3")}},
		}
	})
	applied := func(name string) (out []string) {
		r.devices[name].do(func(d *fakeDevice) { out = slices.Clone(d.applied) })
		return out
	}
	r.step() // closes first+1; the plugin returns its plans
	if got := applied("s1"); got != nil {
		t.Errorf("applied %v before the boundary", got)
	}
	r.step() // first+3 opens
	expectRows(t, applied("s1"), "late", "late3")
	expectRows(t, applied("s2"), "late2")
	r.step() // first+4 opens
	expectRows(t, applied("s1"), "late", "late3", "later")
	if !strings.Contains(r.log.String(), "plan is late") {
		t.Errorf("log:\n%s", r.log)
	}
}

func TestWatchedRowsReachThePlugin(t *testing.T) {
	r := newRig(t, devicesYAML(1)+pluginsYAML(t, "fake"), nil)
	sub, err := r.c.Store().Subscribe(store.SubscribeOptions{
		Queries: []store.Query{store.ParseQuery("", "/univmon/flows/flow[node=s1][dimension=src][flow=10.0.0.1]")},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []sdk.RowKey
	r.plugins["fake"].do(func(p *fakePlugin) { got = p.watched })
	want := []sdk.RowKey{{List: listFlows, Keys: map[string]string{"node": "s1", "dimension": "src",
		"flow": "10.0.0.1"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("watched (-want +got):\n%s", diff)
	}
	r.step()
	expectRows(t, r.rows("", listCollector, "watched-flows"), " watched-flows=1")
	sub.Close()
	r.plugins["fake"].do(func(p *fakePlugin) { got = p.watched })
	if len(got) != 0 {
		t.Errorf("still watched: %v", got)
	}
}

func TestResultsForAnUnknownTargetAreRefused(t *testing.T) {
	r := newRig(t, devicesYAML(1)+pluginsYAML(t, "fake"), nil)
	r.plugins["fake"].do(func(p *fakePlugin) { p.target = "nobody" })
	if rep := r.step(); rep.Plugins[0].Err == nil || !strings.Contains(rep.Plugins[0].Err.Error(), `"nobody"`) {
		t.Errorf("report %+v", rep)
	}
	expectRows(t, r.rows("", listPlugins, "state/rows-refused"), "[name=fake] rows-refused=1")
	r.plugins["fake"].do(func(p *fakePlugin) { p.target = "s1" })
	r.step()
	expectRows(t, r.rows("s1", listSummaries, "state/packets"), "[node=s1][dimension=src] packets=0")
}

func TestReload(t *testing.T) {
	base := devicesYAML(2)
	plug := pluginsYAML(t, "fake", "other")
	level := &slog.LevelVar{}
	r := newRig(t, base+plug, func(d *Dependencies) { d.Level = level })
	r.step()
	removed := r.devices["s2"]
	next := strings.Replace(base, "{name: s2, address: \"127.0.0.1:1001\"", "{name: s3, address: \"127.0.0.1:1002\"",
		1) +
		strings.Replace(plug, "{plugin: fake}", "{plugin: fake, config: {threshold: 2}}", 1)
	next = strings.Replace(next, "    - {plugin: other}\n", "", 1) + "epoch: {interval: 2s}\nlog: {level: warn}\n"
	changes, err := r.c.Reload(context.Background(), parseConfig(t, next))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"epoch"}, changes.NeedRestart); diff != "" {
		t.Error(diff)
	}
	if !removed.closed || !r.plugins["other"].stopped || level.Level() != slog.LevelWarn {
		t.Errorf("s2 closed %t, other stopped %t, level %s", removed.closed, r.plugins["other"].stopped, level.Level())
	}
	p := r.plugins["fake"]
	if want := []string{"{}", `{"threshold":2}`}; !slices.Equal(p.config, want) || p.network.Device("s3") == nil ||
		p.network.Device("s2") != nil {
		t.Errorf("plugin was configured %q with network %+v", p.config, p.network)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if missing := r.c.WaitReady(ctx); missing != nil {
		t.Fatalf("%v are not ready", missing)
	}
	if rep := r.step(); rep.Status != epoch.Partial { // s3 joined during the epoch
		t.Errorf("report %+v", rep)
	}
	r.count("s3", 7)
	if rep := r.step(); rep.Status != epoch.Complete {
		t.Errorf("report %+v", rep)
	}
	expectRows(t, r.rows("", listSummaries, "state/packets"), "[node=s1][dimension=src] packets=0",
		"[node=s3][dimension=src] packets=7")

	bad := strings.Replace(next, "threshold: 2", "bad: 1", 1)
	if _, err := r.c.Reload(context.Background(), parseConfig(t, bad)); err == nil ||
		!strings.Contains(err.Error(), "plugin fake keeps its configuration") {
		t.Errorf("error %v", err)
	}
	r.step()
	expectRows(t, r.rows("", listPlugins, "state/status", "state/last-error"),
		"[name=fake] status=RUNNING last-error=keeps its configuration: configuration refused: bad")
	if _, err := r.c.Reload(context.Background(), parseConfig(t, next)); err != nil {
		t.Error(err)
	}
	r.step()
	expectRows(t, r.rows("", listPlugins, "state/status", "state/last-error"), "[name=fake] status=RUNNING last-error=")
}

// A plugin whose file has been replaced is restarted by a reload of the same configuration.
func TestReloadOfAReplacedPlugin(t *testing.T) {
	yaml := devicesYAML(1) + pluginsYAML(t, "fake", "other")
	r := newRig(t, yaml, nil)
	before, other := r.plugins["fake"], r.plugins["other"]
	before.replaced.Store(true)
	next := strings.Replace(yaml, "{plugin: fake}", "{plugin: fake, config: {threshold: 2}}", 1)
	for _, text := range []string{yaml, next} {
		changes, err := r.c.Reload(context.Background(), parseConfig(t, text))
		if err != nil || len(changes.PluginsRestarted) != 1 || changes.PluginsReconfigured != nil {
			t.Fatalf("changes %+v, error %v", changes, err)
		}
		if now := r.plugins["fake"]; !before.stopped || now == before || r.plugins["other"] != other || other.stopped {
			t.Errorf("stopped %t, another process %t, stopped the other one %t", before.stopped, now != before, other.stopped)
		}
		before = r.plugins["fake"]
		before.replaced.Store(true)
	}
	before.replaced.Store(false)
	if got := before.spec.Config; string(got) != `{"threshold":2}` {
		t.Errorf("restarted with %s", got)
	}
	if changes, err := r.c.Reload(context.Background(), parseConfig(t, next)); err != nil || !changes.Empty() {
		t.Errorf("changes %+v, error %v", changes, err)
	}
}

func TestPluginSelectsDevices(t *testing.T) {
	yaml := devicesYAML(3) + strings.Replace(pluginsYAML(t, "fake"), "{plugin: fake}",
		"{plugin: fake, devices: [s1, s3]}", 1)
	r := newRig(t, yaml, nil)
	r.step()
	if e := r.plugins["fake"].epochs[0]; !slices.Equal(e.Expected, []string{"s1", "s3"}) || e.Device("s2") != nil {
		t.Errorf("epoch %+v", e)
	}
	if w := r.devices["s2"].wanted; len(w) != 0 {
		t.Errorf("s2 is read: %v", w)
	}
}

// A plugin logs at the collector's level.
func TestPluginLogLevel(t *testing.T) {
	r := newRig(t, devicesYAML(1)+pluginsYAML(t, "fake")+"log: {level: debug}\n", nil)
	if got := r.plugins["fake"].spec.LogLevel; got != slog.LevelDebug {
		t.Errorf("it logs from %v on", got)
	}
}

// On the wall clock, one of 64 devices hangs in every flip. The other devices' epochs continue,
// and a plugin that is too slow loses only epochs of its own.
func TestWallClockWithAHangingDeviceAndASlowPlugin(t *testing.T) {
	yaml := devicesYAML(64) + pluginsYAML(t, "fast", "slow") + "epoch: {interval: 250ms, deadline: 200ms, guard: 1ms}\n"
	hang, hold := make(chan struct{}), make(chan struct{})
	reports := make(chan Report, 64)
	r := newRig(t, yaml, func(d *Dependencies) {
		d.Clock = epoch.Wall{}
		d.OnReport = func(rep Report) { reports <- rep }
	})
	r.devices["s7"].do(func(d *fakeDevice) { d.hang = hang })
	r.plugins["slow"].do(func(p *fakePlugin) { p.hold = hold })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.c.Run(ctx) }()
	var fast, slow, hung int
	for range 6 {
		rep := <-reports
		for _, d := range rep.Devices {
			if d.Name == "s7" && d.Err != nil {
				hung++
			}
		}
		if rep.Plugins[0].Err == nil {
			fast++
		}
		if rep.Plugins[1].Err == nil {
			slow++
		}
	}
	close(hang)
	close(hold)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if hung != 6 || fast != 6 || slow != 0 {
		t.Errorf("of 6 epochs s7 is missing from %d, fast has results for %d and slow for %d; want 6, 6, 0\n%s", hung,
			fast, slow, r.log)
	}
}

// BenchmarkEpochLoop measures the collector's own cost: one epoch with 64 fake devices and one
// fake plugin. The stages are reported in microseconds.
func BenchmarkEpochLoop(b *testing.B) {
	dir := b.TempDir()
	writeFile(b, dir+"/"+pluginhost.FilePrefix+"fake", "")
	cfg, err := config.Parse("b.yaml", []byte(devicesYAML(64)+"plugins: {directory: "+dir+
		", instances: [{plugin: fake}]}\nepoch: {guard: 0s}\n"))
	if err != nil {
		b.Fatal(err)
	}
	clock := epoch.NewVirtual(t0, 0)
	c := fakeCollector(b, cfg, Dependencies{Clock: clock, Programs: fakePrograms}, map[string]*fakeDevice{},
		map[string]*fakePlugin{})
	wait := func(_ context.Context, d time.Duration) error { clock.Advance(d); return nil }
	if err := c.Open(context.Background(), t0, wait); err != nil {
		b.Fatal(err)
	}
	end := t0
	var sum Stages
	n := 0
	for b.Loop() {
		end = end.Add(time.Second)
		clock.AdvanceTo(end)
		rep, err := c.Step(context.Background(), end, wait)
		if err != nil || rep.Status != epoch.Complete {
			b.Fatalf("%v: %+v", err, rep)
		}
		n++
		sum.Flip += rep.Stages.Flip
		sum.Read += rep.Stages.Read
		sum.Plugin += rep.Stages.Plugin
		sum.Publish += rep.Stages.Publish
	}
	for unit, d := range map[string]time.Duration{"flip-µs": sum.Flip, "read-µs": sum.Read, "plugin-µs": sum.Plugin,
		"publish-µs": sum.Publish} {
		b.ReportMetric(float64(d.Microseconds())/float64(n), unit)
	}
}

// /metrics serves the values of the state leaves, and /readyz follows the epochs and outputs.
func TestOperatorEndpoints(t *testing.T) {
	r := newRig(t, "http: {address: \"127.0.0.1:0\"}\n"+devicesYAML(2)+pluginsYAML(t, "fake"), nil)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	get := func(path string) (int, string) {
		t.Helper()
		resp, err := http.Get("http://" + r.c.HTTPAddress() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	r.devices["s2"].do(func(d *fakeDevice) { d.down = errors.New("connection refused") })
	rep := r.step()
	_, body := get("/metrics")
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	value := func(name, label, of string) string {
		for _, m := range families[name].GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == label && l.GetValue() == of {
					return strconv.FormatFloat(m.GetCounter().GetValue()+m.GetGauge().GetValue(), 'f', -1, 64)
				}
			}
			if label == "" {
				return strconv.FormatFloat(m.GetCounter().GetValue()+m.GetGauge().GetValue(), 'f', -1, 64)
			}
		}
		return "none"
	}
	for _, name := range []string{"s1", "s2"} {
		expectRows(t, []string{fmt.Sprintf("epochs-complete=%s epochs-lost=%s",
			value("netsketch_device_epochs_complete_total", "node", name),
			value("netsketch_device_epochs_lost_total", "node", name))},
			strings.TrimPrefix(r.rows("", listDevices+"[node="+name+"]", "state/epochs-complete",
				"state/epochs-lost")[0], "[node="+name+"] "))
	}
	expectRows(t, r.rows("", listEpoch, "number", "devices-missing"),
		fmt.Sprintf(" number=%s devices-missing=%s", value("netsketch_epoch_number", "", ""),
			value("netsketch_epoch_devices_missing", "", "")))
	expectRows(t, r.rows("", listPlugins, "state/rows"),
		"[name=fake] rows="+value("netsketch_plugin_rows_total", "plugin", "fake"))
	if got := value("netsketch_epoch_number", "", ""); got != fmt.Sprint(rep.Number) {
		t.Errorf("epoch %s is published; expected %d", got, rep.Number)
	}
	if code, body := get("/readyz"); code != http.StatusServiceUnavailable ||
		!strings.Contains(body, "epochs: ok\noutputs: not ready") {
		t.Errorf("without outputs: %d %q", code, body)
	}
	r.c.Health().Outputs.Store(true)
	if code, body := get("/readyz"); code != http.StatusOK {
		t.Errorf("with outputs: %d %q", code, body)
	}
	if code, body := get("/healthz"); code != http.StatusOK {
		t.Errorf("healthz: %d %q", code, body)
	}
	if err := r.c.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	if res, err := http.Get("http://" + r.c.HTTPAddress() + "/healthz"); err == nil {
		res.Body.Close()
		t.Error("the server responds after Stop")
	}
}

// Configuration is published as config leaves, and again after a reload.
func TestConfigurationIsPublished(t *testing.T) {
	yaml := devicesYAML(1) + pluginsYAML(t, "fake")
	r := newRig(t, yaml, nil)
	r.step()
	expectRows(t, r.rows("", selfstate.Root+"/config", "name", "epoch-length", "guard"),
		" name=netsketch epoch-length=1000000000 guard=10000000")
	expectRows(t, r.rows("", listDevices, "config/node", "config/address", "config/device-id", "config/program",
		"gnmi/config/address"),
		"[node=s1] node=s1 address=127.0.0.1:1000 device-id=1 program=univmon")
	expectRows(t, r.rows("", listPlugins, "config/name"), "[name=fake] name=fake")
	if _, err := r.c.Reload(context.Background(), parseConfig(t,
		strings.Replace(yaml, "device-id: 1,", "device-id: 5,", 1))); err != nil {
		t.Fatal(err)
	}
	r.step()
	expectRows(t, r.rows("", listDevices, "config/device-id", "state/device-id"), "[node=s1] device-id=5 device-id=5")
}

// An output that starts after the collector gets the settings and the network with the next epoch,
// or with a later one of 60, and not with each.
func TestNetworkIsPublishedAgain(t *testing.T) {
	r := newRig(t, devicesYAML(1), nil)
	tap := r.c.Store().Tap(1000)
	defer tap.Close()
	want := []string{selfstate.Root + "/config", selfstate.Topology + "/nodes/node", selfstate.Topology + "/links/link"}
	published := map[string][]int{} // numbers of epochs, by list
	for number := range 70 {
		r.step()
		for len(tap.C()) > 0 {
			b := <-tap.C()
			for _, p := range b.Tables {
				if b.Epoch != 0 && b.Own && slices.Contains(want, p.Table.List) {
					published[p.Table.List] = append(published[p.Table.List], number)
				}
			}
		}
	}
	for _, list := range want {
		if at := published[list]; len(at) != 2 || at[1]-at[0] != 60 {
			t.Errorf("%s was published with the epochs %v", list, at)
		}
	}
}

// The state of the outputs is published with each epoch. After a change, only tables that changed
// are published.
func TestStateOfOutputsIsPublished(t *testing.T) {
	r := newRig(t, devicesYAML(1)+"outputs: [{type: influxdb, name: db, url: \"http://127.0.0.1:1\", bucket: b}]\n", nil)
	list := selfstate.Root + "/outputs/output"
	var sent atomic.Uint64
	r.c.ObserveOutputs(func() selfstate.Outputs {
		return selfstate.Outputs{Streams: 3, ByName: map[string]*bindings.Collector_Output{"db": {
			Name: ygot.String("db"), Type: ygot.String("influxdb"), Status: bindings.Output_Status_REFUSED,
			Sent: ygot.Uint64(sent.Load()), LastError: ygot.String("401\nno \x00token\xff" + strings.Repeat("x", 5000)),
		}}}
	})
	r.step()
	expectRows(t, r.rows("", list, "config/type", "state/type", "state/status", "state/sent"),
		"[name=db] type=influxdb type=influxdb status=REFUSED sent=0")
	expectRows(t, r.rows("", listCollector, "subscriptions"), " subscriptions=3")
	if got := r.rows("", list, "state/last-error")[0]; !strings.Contains(got, "=401; no  token?xxx") ||
		!strings.HasSuffix(got, "xx…") || len(got) > 4200 {
		t.Errorf("last error %q of %d bytes", got, len(got))
	}
	tap := r.c.Store().Tap(16)
	defer tap.Close()
	sent.Store(7)
	r.c.StateChanged()
	for {
		var lists []string
		for _, p := range (<-tap.C()).Tables {
			lists = append(lists, p.Table.List)
		}
		if slices.Contains(lists, listDevices) || slices.Contains(lists, selfstate.Root+"/config") {
			t.Fatalf("published %v; the devices and the configuration have not changed", lists)
		}
		if slices.Contains(lists, list) {
			break
		}
	}
	expectRows(t, r.rows("", list, "state/sent"), "[name=db] sent=7")
}
