// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/sdktest"
)

// wide is a network with three leaves and two spines.
func wide() sdk.Network {
	n := leafSpine()
	for _, d := range []sdk.Device{{Name: "leaf3", Role: "edge"}, {Name: "spine2", Role: "transit"}} {
		d.Objects = objects()
		n.Devices = append(n.Devices, d)
	}
	for i := range n.Devices {
		n.Devices[i].Objects = append(n.Devices[i].Objects, unparsedObject("not-ip,truncated"))
	}
	return n
}

// weighted is a configuration in which the network adds, subtracts and ignores switches.
const weighted = `{"switches": false,
	"network": {"weights": {"leaf1": 1, "leaf2": 1, "leaf3": 1, "spine1": -1, "spine2": 0}}}`

func wideEpoch(t *testing.T, number uint64) *sdk.Epoch {
	t.Helper()
	f := newFabric(t, "leaf1", "leaf2", "leaf3", "spine1", "spine2")
	for i := range 400 {
		k := key(t, fmt.Sprint("10.1.0.", i%100), "10.2.0.1", uint16(i))
		for j, name := range []string{"leaf1", "spine1", "leaf2", "leaf3", "spine2"} {
			for range (i*int(number) + j) % 5 {
				if name == "spine1" && j > i%4 {
					continue
				}
				for _, s := range f[name] {
					s.Update(&k)
				}
			}
		}
	}
	e := f.epoch(number)
	for i, name := range e.Expected {
		putUnparsed(e, name, uint32(i), uint32(number))
	}
	return e
}

func restrict(e *sdk.Epoch, devices ...string) *sdk.Epoch {
	part := &sdk.Epoch{Number: e.Number, Start: e.Start, End: e.End, Status: sdk.StatusComplete}
	for _, d := range e.Devices {
		if slices.Contains(devices, d.Name) {
			part.Expected, part.Devices = append(part.Expected, d.Name), append(part.Devices, d)
		}
	}
	return part
}

// clustered returns an epoch in which one collector has its own switch and the merged parts of two
// other collectors.
func clustered(t *testing.T, by *sdktest.Harness, whole *sdk.Epoch) *sdk.Epoch {
	t.Helper()
	out := *whole
	out.Devices = restrict(whole, "leaf2").Devices
	for _, devices := range [][]string{{"leaf1", "leaf3", "spine2"}, {"spine1"}} {
		part := restrict(whole, devices...)
		before := part.Bytes()
		merged, err := by.Merge(part)
		if err != nil {
			t.Fatal(err)
		}
		if after := merged.Bytes(); len(devices) > 1 && after > before*3/5 {
			t.Errorf("%v: %d bytes are merged to %d", devices, before, after)
		}
		for _, d := range merged.Devices {
			for _, c := range d.Objects {
				out.Put(d.Name, c)
			}
		}
	}
	return &out
}

// Results of merged sketches equal the results of all single sketches, including heavy changes,
// results after a restart, and results of an epoch without a switch.
func TestMerge(t *testing.T) {
	options := sdktest.Options{Network: wide(), Config: weighted}
	by := sdktest.Start(t, New(), options)
	alone, shared := sdktest.Start(t, New(), options), sdktest.Start(t, New(), options)
	if !shared.Settings().Merge {
		t.Fatal("merging is not requested")
	}
	var state *sdk.State
	compared := 0
	for number := uint64(1); number <= 4; number++ {
		whole := wideEpoch(t, number)
		if number == 3 { // a home that continues from the state of another one
			restored := options
			restored.State = state
			shared = sdktest.Start(t, New(), restored)
		}
		if number == 4 {
			whole.Devices = slices.DeleteFunc(whole.Devices, func(d sdk.DeviceData) bool { return d.Name == "leaf3" })
			whole.Missing, whole.Status = []sdk.Missing{{Name: "leaf3", Reason: "dead"}}, sdk.StatusPartial
		}
		got := shared.Analyze(clustered(t, by, whole))
		want := alone.Analyze(wholeCopy(whole))
		for _, table := range want.Tables {
			if diff := cmp.Diff(rows(want, table.Table.List), rows(got, table.Table.List)); diff != "" {
				t.Errorf("epoch %d, %s (-alone +shared):\n%s", number, table.Table.List, diff)
			}
		}
		compared += len(rows(got, summaryList)) + len(rows(got, changeList))
		state = got.State
	}
	if compared < 20 {
		t.Errorf("%d rows: the test compares too little", compared)
	}
}

func wholeCopy(e *sdk.Epoch) *sdk.Epoch {
	c := *e
	return &c
}

// Merged cells of other sizes are refused.
func TestMergedCells(t *testing.T) {
	p := New()
	if _, err := p.Configure(context.Background(), sdk.Config{JSON: []byte(weighted)}, wide()); err != nil {
		t.Fatal(err)
	}
	e := clustered(t, sdktest.Start(t, New(), sdktest.Options{Network: wide(), Config: weighted}), wideEpoch(t, 1))
	in := p.plan.instances["leaf1"]["src"]
	for name, change := range map[string]func(counters, heavy *sdk.Cells){
		"":                 func(_, _ *sdk.Cells) {},
		"merged cells":     func(c, _ *sdk.Cells) { c.Packed = c.Packed[:len(c.Packed)-4] },
		"was not merged":   func(_, h *sdk.Cells) { h.Width = 32 },
		"1 bytes too many": func(_, h *sdk.Cells) { h.Packed = append(slices.Clone(h.Packed), 1) },
		"heavy: ":          func(_, h *sdk.Cells) { h.Packed = h.Packed[:len(h.Packed)-1] },
	} {
		d := sdk.DeviceData{Name: "leaf1", Objects: slices.Clone(e.Device("leaf1").Objects)}
		change(d.Object(in.counters), d.Object(in.heavy))
		_, err := newOpener(p.plan, e).open(&in, &d)
		if (err == nil) != (name == "") || err != nil && !strings.Contains(err.Error(), name) {
			t.Errorf("error %v; want %q", err, name)
		}
	}
}

// Merged sketches that do not belong to the configuration are refused as a whole.
func TestMergeRefused(t *testing.T) {
	whole := wideEpoch(t, 1)
	epoch := clustered(t, sdktest.Start(t, New(), sdktest.Options{Network: wide(), Config: weighted}), whole)
	for config, want := range map[string]string{
		`{}`: "results of switches are configured",
		strings.Replace(weighted, `"spine2": 0`, `"spine2": -1`, 1): "another network model (spine2)",
	} {
		p := New()
		if _, err := p.Configure(context.Background(), sdk.Config{JSON: []byte(config)}, wide()); err != nil {
			t.Fatal(err)
		}
		r, err := p.Analyze(context.Background(), epoch)
		if err != nil {
			t.Fatal(err)
		}
		if text := sdktest.Text(r); !strings.Contains(text, want) ||
			strings.Contains(text, "[device=network][dimension=src] state/epoch=1 state/status=COMPLETE") {
			t.Errorf("%s: expected %q in\n%s", config, want, text)
		}
	}
}
