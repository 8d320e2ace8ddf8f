// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/yang"
)

// TestThirdPartyPlugin builds the example plugin, which is a module of its own, and copies the
// binary into a directory. The host must accept its YANG module, its list and its results.
func TestThirdPartyPlugin(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a binary")
	}
	dir := t.TempDir()
	if err := testkit.BuildPlugins(dir, "hello"); err != nil {
		t.Fatal(err)
	}
	var schema *yang.Schema
	h := newHost(t, Options{})
	entries, err := h.Catalog(t.Context(), dir)
	if err != nil || len(entries) != 1 || entries[0].Err != nil || entries[0].Name != "hello" {
		t.Fatalf("%+v, %v", entries, err)
	}
	var modules []yang.Module
	for _, m := range entries[0].Description.Modules {
		modules = append(modules, yang.Module{Name: m.Name, Text: m.Text, Source: "plugin hello"})
	}
	if schema, err = yang.Load(append(yang.CollectorModules(), modules...)...); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(schema.Models(), func(m yang.Model) bool { return m.Name == "acme-hello" && m.Data }) {
		t.Error("the module is not among the schema's models")
	}
	for _, l := range entries[0].Description.Lists {
		if _, err := schema.List(l.Path); err != nil {
			t.Error(err)
		}
	}
	var settings sdk.Settings
	inst, err := h.Start(t.Context(), Spec{
		OnSettings: func(s sdk.Settings) { settings = s },
		Path:       entries[0].Path, SHA256: entries[0].SHA256, Config: []byte(`{"objects":"r*"}`),
		Network: sdk.Network{Devices: []sdk.Device{{Name: "s1", Objects: []sdk.Object{{Name: "r"}, {Name: "other"}}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if b := settings.Bindings; len(b) != 1 || b[0] != (sdk.Binding{Device: "s1", Object: "r"}) {
		t.Errorf("bindings %v", b)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	results, err := inst.Analyze(ctx, epoch(8, ""))
	if err != nil || len(results.Tables) != 2 || results.Tables[1].Table.Rows() != 2 {
		t.Fatalf("%+v, %v", results, err)
	}
	if err := schema.Validate(results.Tables[1].Table); err != nil {
		t.Error(err)
	}
}
