// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/yang/table"
)

// gauges is a module with values of several types.
const gauges = `module acme-gauges {
  yang-version 1.1;
  namespace "urn:acme:gauges";
  prefix g;
  revision 2026-01-01;
  container gauges {
    config false;
    list gauge {
      key "node";
      leaf node { type leafref { path "../state/node"; } }
      container state {
        leaf node { type string { length "1..8"; } }
        leaf cells { type uint8; }
        leaf share { type decimal64 { fraction-digits 2; } }
        leaf kind { type enumeration { enum GOOD; enum BAD; } }
      }
    }
  }
}`

const gauge = "/acme-gauges:gauges/gauge"

// mistaken is a plugin that publishes what results returns.
type mistaken struct {
	description sdk.Description
	results     func(*sdk.Epoch) (*sdk.Results, error)
}

func (m *mistaken) Describe() sdk.Description { return m.description }

func (m *mistaken) Configure(context.Context, sdk.Config, sdk.Network) (sdk.Settings, error) {
	return sdk.Settings{}, nil
}

func (m *mistaken) Analyze(_ context.Context, e *sdk.Epoch) (*sdk.Results, error) {
	return m.results(e)
}

// Mistakes of a plugin's author are refused where they are made, with the object and the way out.
// TestStartRefusals and TestLostEpochs of collector/pluginhost have those of processes: panics,
// exits, time and huge tables; TestRefused of yang those in modules; TestCheckProgram of
// collector/device and TestP4Check of cmd/netsketch those in programs, such as wrong banks and
// hashes; TestOwnProgram of lab/scenario those in scenarios, such as lists that a plugin does not
// publish; TestClaims of collector/analysis two plugins that want one object.
func TestMistakes(t *testing.T) {
	described := func(change func(*sdk.Description)) func() (*mistaken, *sdk.Epoch) {
		return func() (*mistaken, *sdk.Epoch) {
			m := &mistaken{description: sdk.Description{Name: "gauges", Version: "1",
				Modules: []sdk.Module{{Name: "acme-gauges", Text: gauges}}, Lists: []sdk.List{{Path: gauge}}}}
			change(&m.description)
			m.results = func(*sdk.Epoch) (*sdk.Results, error) { return &sdk.Results{}, nil }
			return m, Epoch(1)
		}
	}
	module := func(old, new string) func() (*mistaken, *sdk.Epoch) {
		return described(func(d *sdk.Description) {
			if d.Modules[0].Text = strings.Replace(gauges, old, new, 1); d.Modules[0].Text == gauges {
				t.Errorf("%q is not in the module", old)
			}
		})
	}
	published := func(results func(*sdk.Epoch) (*sdk.Results, error)) func() (*mistaken, *sdk.Epoch) {
		return func() (*mistaken, *sdk.Epoch) {
			m, e := described(func(*sdk.Description) {})()
			m.results = results
			return m, e
		}
	}
	rows := func(fill func(*table.Builder)) func() (*mistaken, *sdk.Epoch) {
		return published(func(*sdk.Epoch) (*sdk.Results, error) {
			b, out := table.NewBuilder(gauge), &sdk.Results{}
			fill(b)
			out.Add(b.Table())
			return out, out.Err()
		})
	}
	row := func(fill func(*table.Builder)) func() (*mistaken, *sdk.Epoch) {
		return rows(func(b *table.Builder) {
			b.TextKey("node").Append("leaf1")
			fill(b)
		})
	}
	plan := func(p sdk.Plan) func() (*mistaken, *sdk.Epoch) {
		return published(func(*sdk.Epoch) (*sdk.Results, error) { return &sdk.Results{Plans: []sdk.Plan{p}}, nil })
	}
	epoch := func(change func(*sdk.Epoch)) func() (*mistaken, *sdk.Epoch) {
		return func() (*mistaken, *sdk.Epoch) {
			m, e := described(func(*sdk.Description) {})()
			change(e)
			return m, e
		}
	}
	write := func(device, table, action string) sdk.Plan {
		return sdk.Plan{FromEpoch: 2, Writes: []sdk.DeviceWrite{{Device: device, Op: sdk.Modify,
			Entry: sdk.TableEntry{Table: table, Action: action}}}}
	}
	for name, c := range map[string]struct {
		of   func() (*mistaken, *sdk.Epoch)
		want string
	}{
		"nothing": {described(func(*sdk.Description) {}), ""},

		"no name": {described(func(d *sdk.Description) { d.Name = "" }),
			`"" is not a plugin's name: expected at most`},
		"capital name": {described(func(d *sdk.Description) { d.Name = "Gauges" }),
			`"Gauges" is not a plugin's name`},
		"double dash": {described(func(d *sdk.Description) { d.Name = "a--b" }), `"a--b" is not a plugin's name`},
		"long name": {described(func(d *sdk.Description) { d.Name = strings.Repeat("a", 64) }),
			"expected at most 63 lower-case letters"},
		"no list": {described(func(d *sdk.Description) { d.Lists = nil }),
			"declares no list, so it cannot publish"},
		"no module": {described(func(d *sdk.Description) { d.Modules = nil }), "the list " + gauge},
		"empty module": {described(func(d *sdk.Description) { d.Modules[0].Text = "" }),
			`module "acme-gauges" has no proper`},
		"named in path": {described(func(d *sdk.Description) { d.Modules[0].Name = "a/b" }),
			`module "a/b" has no proper name`},
		"list twice": {described(func(d *sdk.Description) { d.Lists = append(d.Lists, d.Lists[0]) }),
			"declares the list " + gauge + " twice"},
		"path without module": {described(func(d *sdk.Description) { d.Lists[0].Path = "/gauges/gauge" }),
			`"/gauges/gauge" is not a schema path such as /module:container/list`},
		"path with keys": {described(func(d *sdk.Description) { d.Lists[0].Path = gauge + "[node=x]" }),
			"is not a schema path such as"},
		"another list": {described(func(d *sdk.Description) { d.Lists[0].Path += "s" }), "gauge"},
		"module of another name": {described(func(d *sdk.Description) { d.Modules[0].Name = "acme-others" }),
			"acme-others"},

		"no brace":          {module("}\n}", "}"), "acme-gauges"},
		"misspelled type":   {module("type uint8", "type unit8"), "unit8"},
		"unknown statement": {module("type uint8;", "type uint8; unit \"x\";"), "unit"},
		"no type": {module("{ type uint8; }", "{ }"),
			"acme-gauges.yang:13:9: missing required leaf field: type"},
		"leaf twice":       {module("leaf cells", "leaf share { type string; } leaf cells"), "share"},
		"key without leaf": {module(`key "node"`, `key "devices"`), "devices"},
		"no key":           {module(`key "node";`, ""), "has no key, so its rows cannot be told apart"},
		"configuration":    {module("config false;", ""), "is configuration"},
		"import":           {module("prefix g;", "prefix g; import acme-none { prefix n; }"), "acme-none"},
		"broken leafref":   {module("../state/node", "../state/devic"), "devic"},
		"bad range":        {module("length \"1..8\"", "length \"8..1\""), "8..1"},

		"value out of range": {row(func(b *table.Builder) { b.Uint("state/cells").Append(300) }),
			"[node=leaf1]: state/cells"},
		"unknown leaf": {row(func(b *table.Builder) { b.Uint("state/cell").Append(1) }), "state/cell"},
		"wrong type":   {row(func(b *table.Builder) { b.Text("state/cells").Append("1") }), "state/cells"},
		"NaN": {row(func(b *table.Builder) { b.Float("state/share").Append(math.NaN()) }),
			"NaN is not a finite number"},
		"infinity": {row(func(b *table.Builder) { b.Float("state/share").Append(math.Inf(1)) }),
			"+Inf is not a finite"},
		"unknown enum": {row(func(b *table.Builder) { b.Text("state/kind").Append("good") }), "state/kind"},
		"columns of different lengths": {row(func(b *table.Builder) {
			cells := b.Uint("state/cells")
			cells.Append(1)
			cells.Append(2)
		}), "state/cells"},
		"no key column": {rows(func(b *table.Builder) { b.Uint("state/cells").Append(1) }), "node"},
		"key out of range": {rows(func(b *table.Builder) { b.TextKey("node").Append("a very long name") }),
			"node"},
		"rows of the same keys": {rows(func(b *table.Builder) {
			device := b.TextKey("node")
			device.Append("leaf1")
			device.Append("leaf1")
		}), "leaf1"},
		"undeclared list": {published(func(*sdk.Epoch) (*sdk.Results, error) {
			b, out := table.NewBuilder(gauge+"s"), &sdk.Results{}
			b.TextKey("node").Append("leaf1")
			out.Add(b.Table())
			return out, nil
		}), "a table of " + gauge + "s, a list that the description does not declare"},
		"no table": {published(func(*sdk.Epoch) (*sdk.Results, error) {
			return &sdk.Results{Tables: []sdk.TableResult{{}}}, nil
		}), "a result without a table"},
		"an error": {published(func(*sdk.Epoch) (*sdk.Results, error) { return nil, errors.New("no sketch") }),
			"no sketch"},

		"plan for no device":  {plan(write("leaf9", "t", "a")), `write 0: the network has no device "leaf9"`},
		"plan without table":  {plan(write("leaf1", "", "a")), "device leaf1: it names no table"},
		"plan without action": {plan(write("leaf1", "t", "")), "device leaf1: table t: it names no action"},
		"plan for no host": {plan(sdk.Plan{FromEpoch: 2, Hosts: []sdk.HostSetting{{Host: "h9", Role: "r"}}}),
			`the network has no host "h9"`},
		"setting for no role": {plan(sdk.Plan{FromEpoch: 2, Hosts: []sdk.HostSetting{{Host: "h1"}}}),
			"it names no role"},

		"epoch without times": {epoch(func(e *sdk.Epoch) { e.Start, e.End = time.Time{}, time.Time{} }),
			"set Start and End"},
		"epoch that ends before": {epoch(func(e *sdk.Epoch) { e.End = e.Start }), "set Start and End"},
	} {
		t.Run(name, func(t *testing.T) {
			m, e := c.of()
			_, err := start(t, m, Options{})
			if err == nil {
				h := Start(t, m, Options{Network: sdk.Network{Devices: []sdk.Device{{Name: "leaf1"}},
					Hosts: []sdk.Host{{Name: "h1"}}}})
				_, err = h.TryAnalyze(e)
			}
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}
