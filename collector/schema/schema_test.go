// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/plugins/sdk"
	univmon "github.com/netsketch/netsketch/plugins/univmon/plugin"
	"github.com/netsketch/netsketch/yang"
	"github.com/netsketch/netsketch/yang/table"
)

const summaries = "/netsketch-univmon:univmon/node-summaries/node-summary"

func collectorSchema(t *testing.T) *Registry {
	t.Helper()
	r, err := New(yang.CollectorModules())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A plugin's modules widen the schema. A description that cannot be used leaves the schema
// unchanged.
func TestAdopt(t *testing.T) {
	r := collectorSchema(t)
	before := r.Current()
	good := univmon.New().Describe()
	for name, test := range map[string]struct {
		change func(*sdk.Description)
		want   string
	}{
		"no module": {func(d *sdk.Description) { d.Modules = nil },
			"the plugin brings no module netsketch-univmon, and none is built in"},
		"not YANG": {func(d *sdk.Description) { d.Modules[0].Text = "module x {" }, "plugin univmon"},
		"results that are configuration": {func(d *sdk.Description) {
			d.Modules[0].Text = strings.Replace(d.Modules[0].Text, "config false;", "", 1)
		}, "plugin univmon: netsketch-univmon.yang:"},
		"a list without keys": {func(d *sdk.Description) {
			d.Modules[0].Text = strings.Replace(d.Modules[0].Text, `key "node dimension flow";`, "", 3)
		}, "has no key, so its rows cannot be told apart"},
		"no such list": {func(d *sdk.Description) { d.Lists[0].Path = "/netsketch-univmon:univmon/sums/sum" },
			"the plugin publishes /netsketch-univmon:univmon/sums/sum"},
	} {
		d := good
		d.Modules, d.Lists = slices.Clone(d.Modules), slices.Clone(d.Lists)
		test.change(&d)
		if err := r.Adopt(d); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q", name, err, test.want)
		}
		if r.Current() != before {
			t.Errorf("%s: the schema changed", name)
		}
	}
	unknown := good
	unknown.Lists = []sdk.List{{Path: "/netsketch-univmon:a/b"}, {Path: "/netsketch-univmon:c/d"}}
	if err := r.Adopt(unknown); err == nil || strings.Count(err.Error(), "the plugin publishes") != 2 {
		t.Errorf("two unknown lists: %v", err)
	}
	if err := r.Adopt(good); err != nil {
		t.Fatal(err)
	}
	if err := r.Adopt(good); err != nil {
		t.Errorf("the same plugin again: %v", err)
	}
	if _, err := r.Current().List(summaries); err != nil {
		t.Error(err)
	}
}

// A plugin may publish a list of a built-in module that the collector has not loaded yet.
func TestAdoptBundledModule(t *testing.T) {
	r := collectorSchema(t)
	const list = "/netsketch-lldp:lldp/interfaces/interface"
	if err := r.Adopt(sdk.Description{Name: "p", Lists: []sdk.List{{Path: list}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Current().List(list); err != nil {
		t.Error(err)
	}
}

func TestLookups(t *testing.T) {
	r := collectorSchema(t)
	if err := r.Adopt(univmon.New().Describe()); err != nil {
		t.Fatal(err)
	}
	for _, path := range [][]string{{"univmon", "node-summaries", "node-summary"},
		{"netsketch-univmon:univmon", "node-summaries", "node-summary"}} {
		list, keys, ok := r.ListKeys(path)
		if !ok || list != summaries || !slices.Equal(keys, []string{"node", "dimension"}) {
			t.Errorf("%v: list %q, keys %v, %v", path, list, keys, ok)
		}
	}
	for _, path := range [][]string{{"univmon"}, {"univmon", "node-summaries"}, {"univmon", "sums"}} {
		if list, _, ok := r.ListKeys(path); ok {
			t.Errorf("%v is taken for the list %q", path, list)
		}
	}
	if leaves := r.KeyLeaves(summaries); leaves["state/node"] != "node" || leaves["state/dimension"] != "dimension" {
		t.Errorf("leaves that repeat a key: %v", leaves)
	}
}

// The schema refuses a decimal that is not a number, and its error names list, row and column.
func TestDecimalsAreFinite(t *testing.T) {
	r := collectorSchema(t)
	if err := r.Adopt(univmon.New().Describe()); err != nil {
		t.Fatal(err)
	}
	summary := func(entropy float64) *table.Table {
		b := table.NewBuilder(summaries)
		b.TextKey("node").Append("s1")
		b.TextKey("dimension").Append("src")
		b.Float("state/entropy").Append(entropy)
		tab, err := b.Table()
		if err != nil {
			t.Fatal(err)
		}
		return tab
	}
	if err := r.Validate(summary(1.5)); err != nil {
		t.Error(err)
	}
	for name, entropy := range map[string]float64{"NaN": math.NaN(), "+Inf": math.Inf(1), "-Inf": math.Inf(-1)} {
		want := summaries + "[node=s1][dimension=src]: state/entropy: " + name + " is not a finite number"
		if err := r.Validate(summary(entropy)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
