// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"

	"github.com/netsketch/netsketch/collector/analysis"
	"github.com/netsketch/netsketch/collector/device"
	"github.com/netsketch/netsketch/collector/device/banks"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/collector/network"
	"github.com/netsketch/netsketch/collector/pluginhost"
	"github.com/netsketch/netsketch/collector/selfstate"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/plugins/sdk"
	univmon "github.com/netsketch/netsketch/plugins/univmon/plugin"
	"github.com/netsketch/netsketch/yang/table"
)

// fakeDevice is a switch with one register of one cell per bank.
type fakeDevice struct {
	cfg device.Config

	mu      sync.Mutex
	banks   [2]uint32
	current int
	down    error
	life    uint64
	readErr error
	hang    chan struct{} // Flip blocks until it is closed
	wanted  []string
	applied []string
	routes  int
	closed  bool
}

const fakeObject = "ingress.counter"

func (d *fakeDevice) Name() string     { return d.cfg.Name }
func (d *fakeDevice) Role() string     { return d.cfg.Role }
func (d *fakeDevice) Program() string  { return "fake" }
func (d *fakeDevice) Address() string  { return d.cfg.Session.Target }
func (d *fakeDevice) DeviceID() uint64 { return d.cfg.Session.DeviceID }
func (d *fakeDevice) Measured() bool   { return true }
func (d *fakeDevice) Banks() int       { return 2 }

func (d *fakeDevice) Unread() []sdk.Object { return nil }

func (d *fakeDevice) Objects() []sdk.Object {
	if d.cfg.Fault != nil {
		return nil
	}
	return []sdk.Object{{Name: fakeObject, Alias: "counter", Cells: 1, Width: 32, Banks: 2,
		Annotations: sdk.Annotations{"fake": {"kind": "count"}}}}
}

func (d *fakeDevice) do(f func(*fakeDevice)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f(d)
}

func (d *fakeDevice) SelectObjects(o []string) { d.do(func(d *fakeDevice) { d.wanted = o }) }

func (d *fakeDevice) SetBankEpochs(int) {}

func (d *fakeDevice) Key(e p4rt.Entry) (string, error) { return e.Table, nil }

func (d *fakeDevice) Write(_ context.Context, updates ...p4rt.Update) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, u := range updates {
		d.applied = append(d.applied, u.Entry.Table)
	}
	return nil
}

func (d *fakeDevice) Reconcile(context.Context, ...p4rt.Desired) error {
	d.do(func(d *fakeDevice) { d.routes++ })
	return nil
}

func (d *fakeDevice) Status() device.Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	st := device.Status{Session: p4rt.Status{State: p4rt.Ready}, Capabilities: p4rt.Capabilities{PacketReadout: true}}
	if d.down != nil {
		st.Session.State = p4rt.Down
		st.LastError = d.down.Error()
	}
	return st
}

func (d *fakeDevice) Suspend() {}
func (d *fakeDevice) Resume()  {}

func (d *fakeDevice) Start(context.Context) error { return d.cfg.Fault }

func (d *fakeDevice) Close() error {
	d.do(func(d *fakeDevice) { d.closed = true })
	return nil
}

func (d *fakeDevice) Ready() (banks.Incarnation, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return banks.Incarnation{ID: d.life, Clean: true}, d.down
}

func (d *fakeDevice) Flip(ctx context.Context, bank int) error {
	d.mu.Lock()
	hang := d.hang
	d.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	d.do(func(d *fakeDevice) { d.current = bank })
	return nil
}

func (d *fakeDevice) Read(_ context.Context, bank int, _ epoch.Drained) (*epoch.Reading, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.readErr != nil {
		return nil, d.readErr
	}
	v := d.banks[bank]
	d.banks[bank] = 0
	r := &epoch.Reading{}
	for range d.wanted {
		r.Objects = append(r.Objects, sdk.CellsOf(fakeObject, []uint32{v}))
	}
	return r, nil
}

// fakePlugin counts the packets of each device and publishes them as a row of UnivMon's summaries.
type fakePlugin struct {
	spec pluginhost.Spec

	mu      sync.Mutex
	epochs  []*sdk.Epoch
	watched []sdk.RowKey
	config  []string
	network sdk.Network
	err     error
	hold    chan struct{} // Analyze waits for it
	plans   []sdk.Plan
	target  string
	stopped bool
	state   *sdk.State

	replaced atomic.Bool // the file differs from the file that the plugin was started from
}

const listSummaries = "/netsketch-univmon:univmon/node-summaries/node-summary"
const listFlows = "/netsketch-univmon:univmon/flows/flow"

func (p *fakePlugin) Replaced(time.Duration) bool { return p.replaced.Load() }

func (p *fakePlugin) Describe() sdk.Description {
	return sdk.Description{
		Name: "fake", Version: "1",
		Objects: []sdk.ObjectNeed{{Annotation: "fake", Values: map[string]string{"kind": "count"}, Shared: true}},
		Modules: univmon.New().Describe().Modules,
		Lists:   []sdk.List{{Path: listSummaries}, {Path: listFlows, Watchable: true}},
	}
}

func (p *fakePlugin) do(f func(*fakePlugin)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(p)
}

func (p *fakePlugin) Analyze(ctx context.Context, e *sdk.Epoch) (*sdk.Results, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hold != nil {
		hold := p.hold
		p.mu.Unlock()
		select {
		case <-hold:
		case <-ctx.Done():
		}
		p.mu.Lock()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	p.epochs = append(p.epochs, e)
	if p.err != nil {
		return nil, p.err
	}
	b := table.NewBuilder(listSummaries)
	dev, dim := b.TextKey("node"), b.TextKey("dimension")
	number, packets := b.Uint("state/second-moment"), b.Uint("state/packets") // shows the number of the epoch
	for _, d := range e.Devices {
		dev.Append(d.Name)
		dim.Append("src")
		number.Append(e.Number)
		packets.Append(d.Object(fakeObject).At(0))
	}
	t, err := b.Table()
	if err != nil {
		return nil, err
	}
	r := &sdk.Results{Plans: p.plans, State: p.state}
	p.plans = nil
	r.Add(t, nil)
	r.Tables[0].Target = p.target
	return r, nil
}

func (p *fakePlugin) SetWatched(rows []sdk.RowKey) { p.do(func(p *fakePlugin) { p.watched = rows }) }

func (p *fakePlugin) SetNetwork(_ context.Context, n sdk.Network) error {
	p.do(func(p *fakePlugin) { p.network = n })
	return nil
}

func (p *fakePlugin) Configure(_ context.Context, config []byte, n sdk.Network) error {
	if bytes.Contains(config, []byte("bad")) {
		return fmt.Errorf("%w: bad", pluginhost.ErrConfig)
	}
	p.do(func(p *fakePlugin) { p.config, p.network = append(p.config, string(config)), n })
	return nil
}

func (p *fakePlugin) Merge(context.Context, *sdk.Epoch) (*sdk.Epoch, error) {
	return nil, pluginhost.ErrNoCapability
}

func (p *fakePlugin) Query(context.Context, sdk.RowKey) ([]sdk.TableResult, uint64, error) {
	return nil, 0, pluginhost.ErrNoCapability
}

func (p *fakePlugin) SetState(*sdk.State)                 {}
func (p *fakePlugin) Restart(context.Context, *sdk.State) {}

func (p *fakePlugin) Status() pluginhost.Status {
	return pluginhost.Status{State: pluginhost.StateRunning, PID: 1}
}

func (p *fakePlugin) Stop(context.Context) { p.do(func(p *fakePlugin) { p.stopped = true }) }

// mended makes the plugin "broken" start successfully.
var mended atomic.Bool

// Lists of the collector's own state.
const (
	listCollector = selfstate.Root + "/state"
	listEpoch     = selfstate.Root + "/epoch/state"
	listDevices   = selfstate.Root + "/devices/device"
	listPlugins   = selfstate.Root + "/plugins/plugin"
)

// rig is a collector with fakes on virtual time.
type rig struct {
	t       *testing.T
	c       *Collector
	clock   *epoch.Virtual
	devices map[string]*fakeDevice
	plugins map[string]*fakePlugin
	log     *testkit.Log
	end     time.Time
	reports []Report
}

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func parseConfig(t testing.TB, yaml string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("netsketch.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// fakePrograms returns an empty program, because the fakes do not use it.
func fakePrograms(name string) (*p4rt.Program, error) {
	return &p4rt.Program{Name: name, DeviceConfig: []byte("{}"), P4Info: &p4configv1.P4Info{}}, nil
}

// fakeCollector starts a collector whose devices and plugins are fakes, and keeps the fakes in the
// maps.
func fakeCollector(tb testing.TB, cfg *config.Config, deps Dependencies, devices map[string]*fakeDevice,
	plugins map[string]*fakePlugin,
) *Collector {
	tb.Helper()
	var mu sync.Mutex
	deps.launch = func(_ context.Context, spec pluginhost.Spec) (analysis.Instance, error) {
		mu.Lock()
		defer mu.Unlock()
		if spec.Name == "broken" && !mended.Load() {
			return nil, &pluginhost.StartError{Name: spec.Name, Path: spec.Path, Err: pluginhost.ErrNotPlugin}
		}
		p := &fakePlugin{spec: spec, config: []string{string(spec.Config)}, network: spec.Network}
		plugins[spec.Name] = p
		return p, nil
	}
	deps.newDevice = func(cfg device.Config) (network.Device, error) {
		d := &fakeDevice{cfg: cfg, life: 1, down: cfg.Fault}
		devices[cfg.Name] = d
		return d, nil
	}
	c, err := New(cfg, deps)
	if err != nil {
		tb.Fatal(err)
	}
	if err := c.Start(context.Background()); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Stop(context.Background()); err != nil {
			tb.Error(err)
		}
	})
	testkit.Until(tb, "all devices but those with a fault are ready", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		return !slices.ContainsFunc(c.WaitReady(ctx), func(name string) bool { return devices[name].cfg.Fault == nil })
	})
	return c
}

func writeFile(tb testing.TB, name, text string) {
	tb.Helper()
	if err := os.WriteFile(name, []byte(text), 0o700); err != nil {
		tb.Fatal(err)
	}
}

// newRig starts a collector with a configuration, and opens its first epoch.
func newRig(t *testing.T, yaml string, change func(*Dependencies)) *rig {
	t.Helper()
	r := &rig{
		t: t, clock: epoch.NewVirtual(t0, 5*time.Second), devices: map[string]*fakeDevice{},
		plugins: map[string]*fakePlugin{},
		log:     &testkit.Log{}, end: t0,
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the collector:\n%s", r.log)
		}
	})
	deps := Dependencies{
		Clock: r.clock, Programs: fakePrograms, Version: "test", Logger: slog.New(slog.NewTextHandler(r.log, nil)),
		OnReport: func(rep Report) { r.reports = append(r.reports, rep) },
	}
	if change != nil {
		change(&deps)
	}
	r.c = fakeCollector(t, parseConfig(t, yaml), deps, r.devices, r.plugins)
	if _, wall := deps.Clock.(epoch.Wall); !wall {
		if err := r.c.Open(context.Background(), t0, r.wait); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func (r *rig) wait(_ context.Context, d time.Duration) error { r.clock.Advance(d); return nil }

// count makes a device count packets.
func (r *rig) count(name string, n uint32) {
	r.devices[name].do(func(d *fakeDevice) { d.banks[d.current] += n })
}

// step closes the epoch.
func (r *rig) step() Report {
	r.t.Helper()
	r.end = r.end.Add(time.Second)
	r.clock.AdvanceTo(r.end)
	rep, err := r.c.Step(context.Background(), r.end, r.wait)
	if err != nil {
		r.t.Fatal(err)
	}
	return rep
}

// rows lists the rows of a list in the store as "key=… leaf=…", with the given leaves only.
func (r *rig) rows(target, list string, leaves ...string) []string {
	r.t.Helper()
	return storeRows(r.t, r.c.Store(), target, list, leaves...)
}

func devicesYAML(n int) string {
	var b bytes.Buffer
	b.WriteString("devices:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - {name: s%d, address: \"127.0.0.1:%d\", device-id: 1, tls: {plaintext: true}}\n", i+1,
			1000+i)
	}
	return b.String()
}
