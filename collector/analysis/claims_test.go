// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/netsketch/netsketch/collector/pluginhost"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// claiming is a plugin that needs registers and writes tables.
type claiming struct {
	*fakePlugin
	needs []sdk.ObjectNeed
}

func (p claiming) Describe() sdk.Description {
	d := p.fakePlugin.Describe()
	d.Objects = p.needs
	return d
}

// twoSwitches has the switches s1 and s2. Each has two registers: a, which has a read-out
// annotation, and b.
type twoSwitches struct{ fakeNetwork }

func (twoSwitches) Model() sdk.Network {
	objects := []sdk.Object{{Name: "in.a", Annotations: sdk.Annotations{"mine": {"part": "heavy"}}}, {Name: "in.b"}}
	return sdk.Network{Version: 1, Devices: []sdk.Device{{Name: "s1", Objects: objects}, {Name: "s2", Objects: objects}}}
}

// If two plugins need the same object, the later one in the file does not start. The error names
// both plugins, the object, the switch and the way out. A plugin that shares registers is admitted,
// and so are plugins of different switches and plugins that write clone sessions.
func TestClaims(t *testing.T) {
	write := func(device, table string) *sdk.Plan {
		return &sdk.Plan{Writes: []sdk.DeviceWrite{{Device: device, Entry: sdk.TableEntry{Table: table, Action: "x"}}}}
	}
	register := func(device, name string) string {
		return fmt.Sprintf("plugin second reads register %s of %s, which plugin first reads: ask in Describe for an",
			name, device)
	}
	all := []sdk.ObjectNeed{{Name: "*"}}
	for name, c := range map[string]struct {
		first, second sdk.ObjectNeed
		plans         [2]*sdk.Plan
		devices       [2][]string
		want          string
	}{
		"the same name": {first: sdk.ObjectNeed{Name: "in.a"}, second: sdk.ObjectNeed{Name: "in.a"},
			want: register("s1", "in.a")},
		"a pattern and a name": {first: all[0], second: sdk.ObjectNeed{Name: "in.b"}, want: register("s1", "in.b")},
		"the same annotation": {first: sdk.ObjectNeed{Annotation: "mine"},
			second: sdk.ObjectNeed{Annotation: "mine", Values: map[string]string{"part": "heavy"}},
			want:   register("s1", "in.a")},
		"one common switch": {first: all[0], second: all[0], devices: [2][]string{{"s2"}, {"s1", "s2"}},
			want: register("s2", "in.a")},
		"the first reads along":  {first: sdk.ObjectNeed{Name: "*", Shared: true}, second: sdk.ObjectNeed{Name: "in.b"}},
		"the second reads along": {first: sdk.ObjectNeed{Name: "in.b"}, second: sdk.ObjectNeed{Name: "*", Shared: true}},
		"other registers":        {first: sdk.ObjectNeed{Name: "in.a"}, second: sdk.ObjectNeed{Name: "in.b"}},
		"other switches":         {first: all[0], second: all[0], devices: [2][]string{{"s1"}, {"s2"}}},
		"one table": {first: sdk.ObjectNeed{Name: "in.a"}, second: sdk.ObjectNeed{Name: "in.b"},
			plans: [2]*sdk.Plan{write("s1", "in.t"), write("s1", "in.t")},
			want:  "plugin second writes table in.t of s1, which has entries of plugin first: give each a table of its own"},
		"tables of other switches": {first: sdk.ObjectNeed{Name: "in.a"}, second: sdk.ObjectNeed{Name: "in.b"},
			plans: [2]*sdk.Plan{write("s1", "in.t"), write("s2", "in.t")}},
		"clone sessions": {first: sdk.ObjectNeed{Name: "in.a"}, second: sdk.ObjectNeed{Name: "in.b"},
			plans: [2]*sdk.Plan{write("s1", sdk.CloneSessions), write("s1", sdk.CloneSessions)}},
	} {
		t.Run(name, func(t *testing.T) {
			names := []string{"first", "second"}
			needs := []sdk.ObjectNeed{c.first, c.second}
			r := newRigWith(t, func(cfg *Config) {
				for i := range names {
					cfg.Plugins.Instances[i].Devices = c.devices[i]
				}
			}, func(d *Dependencies) {
				d.Network = twoSwitches{}
				d.Launch = func(_ context.Context, spec pluginhost.Spec) (Instance, error) {
					i := slices.Index(names, spec.Name)
					spec.OnSettings(sdk.Settings{Plan: c.plans[i]})
					return claiming{&fakePlugin{spec: spec}, needs[i : i+1]}, nil
				}
			}, names...)
			failed := r.c.Failed()
			err := failed["second"]
			if failed["first"] != nil || (err == nil) != (c.want == "") ||
				err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("errors %v, want %q for the second one", failed, c.want)
			}
			if err != nil && (!strings.Contains(err.Error(), "with the key devices") || r.c.Running() != 1) {
				t.Errorf("%d plugins run; no way out in %v", r.c.Running(), err)
			}
		})
	}
}

// changing is a network whose only switch gets registers while plugins run.
type changing struct {
	fakeNetwork
	objects *atomic.Pointer[[]sdk.Object]
}

func (n changing) Version() uint64 { return uint64(1 + len(*n.objects.Load())) }

func (n changing) Model() sdk.Network {
	return sdk.Network{Version: n.Version(), Devices: []sdk.Device{{Name: "s1", Objects: *n.objects.Load()}}}
}

// After a change of the network, two plugins need the same register. The later one shows the
// conflict as its error, has state FAILED, and its standing plan is held back. It loses epochs
// until the other plugin stops.
func TestLateClaims(t *testing.T) {
	var objects atomic.Pointer[[]sdk.Object]
	objects.Store(&[]sdk.Object{})
	var plans collected
	r := newRigWith(t, nil, func(d *Dependencies) {
		d.Network, d.Plans = changing{objects: &objects}, &plans
		d.Launch = func(_ context.Context, spec pluginhost.Spec) (Instance, error) {
			return claiming{&fakePlugin{spec: spec}, []sdk.ObjectNeed{{Name: "*"}}}, nil
		}
	}, "b", "a")
	state := func(name string) Status {
		all := r.c.Status()
		return all[slices.IndexFunc(all, func(s Status) bool { return s.Name == name })]
	}
	reportOf := func(name string) error {
		rep := r.deliver().Wait()
		return rep.Plugins[slices.IndexFunc(rep.Plugins, func(p PluginReport) bool { return p.Name == name })].Err
	}
	if err := reportOf("a"); err != nil {
		t.Fatal(err)
	}
	objects.Store(&[]sdk.Object{{Name: "in.a"}})
	write := sdk.DeviceWrite{Device: "s1", Entry: sdk.TableEntry{Table: "in.t", Action: "x"}}
	r.c.plugin("a").configured(sdk.Settings{Plan: &sdk.Plan{Writes: []sdk.DeviceWrite{write}}})
	const want = "plugin a reads register in.a of s1, which plugin b reads"
	if s := state("a"); s.State != pluginhost.StateFailed || !strings.Contains(s.LastError, want) {
		t.Errorf("state %v, %q; want FAILED, %q", s.State, s.LastError, want)
	}
	if s := state("b"); s.State != pluginhost.StateRunning || s.LastError != "" {
		t.Errorf("the earlier plugin is %v, %q", s.State, s.LastError)
	}
	if err := reportOf("a"); err == nil || !strings.Contains(err.Error(), want) || state("a").EpochsLost != 1 ||
		plans.n.Load() > 0 {
		t.Errorf("%v; %d epochs lost, %d plans", err, state("a").EpochsLost, plans.n.Load())
	}
	cfg := r.c.config()
	cfg.Plugins.Instances = cfg.Plugins.Instances[1:]
	if err := r.c.Reload(t.Context(), cfg, config.Changes{PluginsRemoved: []string{"b"}}); err != nil {
		t.Fatal(err)
	}
	if err := reportOf("a"); err != nil || state("a").State != pluginhost.StateRunning || plans.n.Load() != 1 {
		t.Errorf("after the other plugin stopped: %v, %v, %d plans", err, state("a").State, plans.n.Load())
	}
	if n := strings.Count(r.log.String(), "two plugins want one object"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, r.log.String())
	}
}

// collected counts the plans that it accepts.
type collected struct {
	fakePlans
	n atomic.Int32
}

func (c *collected) Add(context.Context, string, sdk.Plan) { c.n.Add(1) }

// A plugin loses an epoch if its plan writes another plugin's table; the error names both plugins.
// The table is free once its plugin stops.
func TestClaimsOfPlans(t *testing.T) {
	r := newRig(t, nil, "first", "second")
	plan := sdk.Plan{Writes: []sdk.DeviceWrite{{Device: "s1", Entry: sdk.TableEntry{Table: "in.t", Action: "x"}}}}
	planning := func(context.Context, *sdk.Epoch) (*sdk.Results, error) {
		return &sdk.Results{Plans: []sdk.Plan{plan}}, nil
	}
	reportOf := func(name string) PluginReport {
		rep := r.deliver().Wait()
		return rep.Plugins[slices.IndexFunc(rep.Plugins, func(p PluginReport) bool { return p.Name == name })]
	}
	r.plugins["first"].do(func(p *fakePlugin) { p.analyze = planning })
	if p := reportOf("first"); p.Err != nil {
		t.Error(p.Err)
	}
	r.plugins["second"].do(func(p *fakePlugin) { p.analyze = planning })
	const want = "plugin second writes table in.t of s1, which has entries of plugin first"
	if p := reportOf("second"); p.Err == nil || !strings.Contains(p.Err.Error(), want) {
		t.Errorf("%v, want %q", p.Err, want)
	}
	cfg := r.c.config()
	cfg.Plugins.Instances = cfg.Plugins.Instances[1:]
	if err := r.c.Reload(t.Context(), cfg, config.Changes{PluginsRemoved: []string{"first"}}); err != nil {
		t.Fatal(err)
	}
	if p := reportOf("second"); p.Err != nil {
		t.Errorf("after the other plugin stopped: %v", p.Err)
	}
}
