// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/collector/pluginhost"
	"github.com/netsketch/netsketch/collector/schema"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/plugins/sdk"
	univmon "github.com/netsketch/netsketch/plugins/univmon/plugin"
	"github.com/netsketch/netsketch/yang"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	listSummaries = "/netsketch-univmon:univmon/node-summaries/node-summary"
	listFlows     = "/netsketch-univmon:univmon/flows/flow"
)

// fakePlugin is an Instance whose results a test chooses.
type fakePlugin struct {
	spec pluginhost.Spec

	mu      sync.Mutex
	analyze func(context.Context, *sdk.Epoch) (*sdk.Results, error) // nil: no results
	epochs  []uint64
	refuse  error    // error of Configure
	resumed []uint64 // epochs of the states passed to Restart
	query   func(context.Context, sdk.RowKey) ([]sdk.TableResult, uint64, error)
}

func (p *fakePlugin) do(f func(*fakePlugin)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(p)
}

func (p *fakePlugin) Replaced(time.Duration) bool { return false }

func (p *fakePlugin) Describe() sdk.Description {
	return sdk.Description{
		Name: "fake", Version: "1", Modules: univmon.New().Describe().Modules,
		Lists:        []sdk.List{{Path: listSummaries}, {Path: listFlows, Watchable: true}},
		Capabilities: sdk.Capabilities{Merge: true},
	}
}

func (p *fakePlugin) Analyze(ctx context.Context, e *sdk.Epoch) (*sdk.Results, error) {
	p.mu.Lock()
	p.epochs = append(p.epochs, e.Number)
	analyze := p.analyze
	p.mu.Unlock()
	if analyze == nil {
		return &sdk.Results{}, nil
	}
	return analyze(ctx, e)
}

// Merge keeps the first device, and adds an object that the plugin does not read.
func (p *fakePlugin) Merge(_ context.Context, part *sdk.Epoch) (*sdk.Epoch, error) {
	part.Devices = part.Devices[:1]
	part.Put(part.Devices[0].Name, sdk.CellsOf("unread", []uint32{1}))
	return part, nil
}

func (p *fakePlugin) Query(ctx context.Context, row sdk.RowKey) ([]sdk.TableResult, uint64, error) {
	p.mu.Lock()
	query := p.query
	p.mu.Unlock()
	if query == nil {
		return nil, 0, pluginhost.ErrNoCapability
	}
	return query(ctx, row)
}

func (p *fakePlugin) Configure(context.Context, []byte, sdk.Network) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refuse
}

func (p *fakePlugin) SetWatched([]sdk.RowKey) {}
func (p *fakePlugin) SetState(*sdk.State)     {}

func (p *fakePlugin) Restart(_ context.Context, s *sdk.State) {
	p.do(func(p *fakePlugin) { p.resumed = append(p.resumed, s.Epoch) })
}
func (p *fakePlugin) SetNetwork(context.Context, sdk.Network) error { return nil }

func (p *fakePlugin) Status() pluginhost.Status {
	return pluginhost.Status{State: pluginhost.StateRunning}
}

func (p *fakePlugin) Stop(context.Context) {}

// roles lists the roles of the plugins at hosts.
var roles = map[string][]string{"h1": {"role"}, "h2": {"role"}, "h3": {"role"}}

// fakeNetwork has one switch, s1. fakePlans accepts everything.
type (
	fakeNetwork struct{}
	fakePlans   struct{}
)

func (fakeNetwork) Model() sdk.Network {
	return sdk.Network{Version: 1, Devices: []sdk.Device{{Name: "s1"}}}
}
func (fakeNetwork) Version() uint64           { return 1 }
func (fakeNetwork) IsDevice(name string) bool { return name == "s1" }

func (fakePlans) Add(context.Context, string, sdk.Plan)             {}
func (fakePlans) Collected(context.Context, uint64) func()          { return func() {} }
func (fakePlans) States(string, uint64, []string) []sdk.DeviceState { return nil }
func (fakePlans) HostRoles(_, host string) []string                 { return roles[host] }
func (fakePlans) Outcomes(string) []sdk.PlanOutcome                 { return nil }
func (fakePlans) Delivered(string, int)                             {}
func (fakePlans) Drop(string)                                       {}

// rig is a component with fake plugins.
type rig struct {
	t       *testing.T
	c       *Component
	store   *store.Store
	log     *testkit.Log
	plugins map[string]*fakePlugin
	reports chan Report
	number  uint64
}

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// newRig starts a component with plugins of these names. change may adapt its configuration.
func newRig(t *testing.T, change func(*Config), names ...string) *rig {
	t.Helper()
	return newRigWith(t, change, nil, names...)
}

// newRigWith starts a rig as newRig does; with may change the dependencies.
func newRigWith(t *testing.T, change func(*Config), with func(*Dependencies), names ...string) *rig {
	t.Helper()
	r := &rig{t: t, log: &testkit.Log{}, plugins: map[string]*fakePlugin{}, reports: make(chan Report, 64)}
	cfg := Config{Plugins: config.Plugins{Directory: t.TempDir(),
		Restart: config.Restart{Initial: time.Second, Maximum: time.Minute}}, EpochLength: time.Second}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(cfg.Plugins.Directory, pluginhost.FilePrefix+name), nil,
			0o700); err != nil {
			t.Fatal(err)
		}
		cfg.Plugins.Instances = append(cfg.Plugins.Instances, config.Plugin{Name: name, Plugin: name})
	}
	if change != nil {
		change(&cfg)
	}
	sch, err := schema.New(yang.CollectorModules())
	if err != nil {
		t.Fatal(err)
	}
	r.store = store.New(store.Options{DefaultTarget: "netsketch", Schema: sch})
	var mu sync.Mutex
	deps := Dependencies{
		Clock: epoch.Wall{}, Logger: slog.New(slog.NewTextHandler(r.log, nil)), Store: r.store, Schema: sch,
		Network: fakeNetwork{}, Plans: fakePlans{}, BankShift: func() uint64 { return 1 }, SettingsChanged: func() {},
		StatusChanged: func() {},
		Report:        func(rep Report) { r.reports <- rep },
		Launch: func(_ context.Context, spec pluginhost.Spec) (Instance, error) {
			mu.Lock()
			defer mu.Unlock()
			p := &fakePlugin{spec: spec}
			r.plugins[spec.Name] = p
			return p, nil
		},
	}
	if with != nil {
		with(&deps)
	}
	r.c = New(cfg, deps)
	if err := r.c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		r.store.Close()
	})
	return r
}

// deliver hands over the next epoch.
func (r *rig) deliver() *Delivery {
	r.number++
	start := t0.Add(time.Duration(r.number) * time.Second)
	return r.c.Deliver(&epoch.Epoch{Number: r.number, Start: start, End: start.Add(time.Second),
		Status: epoch.Complete})
}
