// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/yang"
)

// TestPythonPlugin builds the example plugin in Python and checks that it follows the contract:
// its description, refused configurations, results of several epochs and chunks, and its end.
func TestPythonPlugin(t *testing.T) {
	const python = "/usr/bin/python3"
	if err := exec.Command(python, "-c", "import cryptography, google.protobuf, grpc").Run(); err != nil {
		t.Skip("Python has no grpc, protobuf or cryptography: ", err)
	}
	for _, tool := range []string{"make", "protoc", "grpc_python_plugin"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	dir := t.TempDir()
	path := filepath.Join(dir, FilePrefix+"busiest")
	build := exec.Command("make", "-C", "../../examples/plugin-python", "PYTHON="+python, "OUT="+path)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	h := newHost(t, Options{})
	entry := h.Fingerprint(t.Context(), path)
	if entry.Err != nil || entry.Name != "busiest" {
		t.Fatalf("%+v", entry)
	}
	modules := yang.CollectorModules()
	for _, m := range entry.Description.Modules {
		modules = append(modules, yang.Module{Name: m.Name, Text: m.Text, Source: "plugin busiest"})
	}
	schema, err := yang.Load(modules...)
	if err != nil {
		t.Fatal(err)
	}
	spec := Spec{Path: path, Config: []byte(`{"least": 0}`),
		Network: sdk.Network{Devices: []sdk.Device{{Name: "s1", Objects: []sdk.Object{{Name: "r"},
			{Name: "signed", Annotations: sdk.Annotations{"netsketch_univmon": {"part": "counters", "key": "src",
				"levels": "2", "packets": "3"}}},
			{Name: "slots", Annotations: sdk.Annotations{"netsketch_univmon": {"part": "heavy", "words": "3"}}}}}}}}
	if _, err := h.Start(t.Context(), spec); !errors.Is(err, ErrConfig) {
		t.Errorf("a value out of range: %v", err)
	}
	spec.Config = []byte(`{"least": 2}`)
	inst, err := h.Start(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	long := make([]uint32, 600_000) // more than two chunks
	long[599_999] = 7
	for number := range uint64(3) {
		e := &sdk.Epoch{Number: number + 1, Start: time.Unix(int64(number), 0), End: time.Unix(int64(number)+1, 0),
			Status: sdk.StatusComplete}
		e.Put("s1", sdk.CellsOf("long", long))
		e.Put("s1", sdk.CellsOf("signed", []uint32{3, 1<<32 - 4, 1<<32 - 1, 90, 8, 0}))
		e.Put("s1", sdk.CellsOf("slots", []uint32{2, 1 << 31, 4, 9, 1 << 31, 4}))
		e.Put("s1", sdk.CellsOf("small", []uint8{0, 1, 1}))
		e.Put("s2", sdk.CellsOf("wide", []uint64{1, 1 << 60, 1 << 60}))
		results, err := inst.Analyze(ctx, e)
		if err != nil || len(results.Tables) != 2 {
			t.Fatalf("%+v, %v", results, err)
		}
		table := results.Tables[0].Table
		if err := schema.Validate(table); err != nil {
			t.Fatal(err)
		}
		want := [][4]any{{"s1", "long", uint64(599_999), uint64(7)}, {"s1", "signed", uint64(1), uint64(4)},
			{"s1", "slots", uint64(3), uint64(9)},
			{"s2", "wide", uint64(1), uint64(1 << 60)}}
		if table.Rows() != len(want) {
			t.Fatalf("%d rows, want %d", table.Rows(), len(want))
		}
		for i, w := range want {
			got := [4]any{table.Keys[0].Text(i), table.Keys[1].Text(i), table.Values[0].Uint64(i), table.Values[1].Uint64(i)}
			if got != w {
				t.Errorf("epoch %d: row %v, want %v", e.Number, got, w)
			}
		}
		totals := results.Tables[1].Table
		if err := schema.Validate(totals); err != nil {
			t.Fatal(err)
		}
		if totals.Rows() != 1 || totals.Keys[1].Text(0) != "src" || totals.Values[0].Uint64(0) != 98 {
			t.Errorf("epoch %d: %d rows of totals, want 98 packets by src", e.Number, totals.Rows())
		}
	}
	inst.Stop(t.Context())
}
