// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/sdktest"
)

// TestMerge: merged parts of several collectors give the same results as one collector's epoch,
// whether each has its own switches or the packets of a register are divided between two.
func TestMerge(t *testing.T) {
	t.Parallel()
	f := newSmall(t, 51, `{}`)
	steady(f, 5000)
	whole := f.record(f.flows(5000, 0.1, 0.1))
	state := f.h // the plugin that has seen the epochs before
	parts := []*sdk.Epoch{{}, {}, {}}
	for i := range parts {
		*parts[i] = *whole
		parts[i].Devices, parts[i].Expected = nil, nil
	}
	for i := range whole.Devices {
		d := whole.Devices[i]
		p := parts[i%2]
		p.Expected = append(p.Expected, d.Name)
		for _, c := range d.Objects {
			if i != 3 {
				p.Put(d.Name, c)
				continue
			}
			// Part of the counts and sums were read by one collector, the rest by another.
			words := 0
			for fam := range families {
				if c.Object == upNames[fam] || c.Object == downNames[fam] {
					words = 1 + (keyBytes[fam]+3)/4
				}
			}
			v := slices.Clone(c.Uint32s())
			rest := make([]uint32, len(v))
			for k := range v {
				switch {
				case k%3 == 0 && words > 0 && k%words > 0 && v[k] < 1000: // passes the prime
					rest[k] = prime - 1
					v[k]++
				case k%3 == 1:
					rest[k] = v[k] / 3
					v[k] -= rest[k]
				}
			}
			p.Put(d.Name, sdk.CellsOf(c.Object, v))
			parts[2].Put(d.Name, sdk.CellsOf(c.Object, rest))
		}
	}
	parts[2].Expected = []string{whole.Devices[3].Name}
	p := New()
	if _, err := p.Configure(context.Background(), sdk.Config{}, network()); err != nil {
		t.Fatal(err)
	}
	merged, err := p.Merge(context.Background(), parts)
	if err != nil {
		t.Fatal(err)
	}
	if merged.Status != sdk.StatusComplete || len(merged.Devices) != edges ||
		!slices.Equal(merged.Expected, whole.Expected) {
		t.Errorf("%v, %d devices, expected %v", merged.Status, len(merged.Devices), merged.Expected)
	}
	got := everything(t, state.Analyze(merged))
	g := newSmall(t, 51, `{}`)
	steady(g, 5000)
	if want := everything(t, g.play(g.flows(5000, 0.1, 0.1))); !slices.Equal(got, want) {
		t.Errorf("%d lines and %d, which differ", len(got), len(want))
	}
}

// TestMergePartial: what is missing in a part is missing in all, and what cannot be merged is said.
func TestMergePartial(t *testing.T) {
	h := sdktest.Start(t, New(), sdktest.Options{Network: network()})
	if !h.Description().Capabilities.Merge || !h.Description().Capabilities.State {
		t.Errorf("capabilities %+v", h.Description().Capabilities)
	}
	p := New()
	if _, err := p.Configure(context.Background(), sdk.Config{}, network()); err != nil {
		t.Fatal(err)
	}
	one := &sdk.Epoch{Number: 4, Status: sdk.StatusPartial, Expected: []string{"edge1"},
		Missing:          []sdk.Missing{{Name: "edge1", Reason: "dead"}},
		AccuracyWarnings: []sdk.AccuracyWarning{{Reason: "late"}},
		States:           []sdk.DeviceState{{Device: "edge2", Plan: 1}}}
	two := &sdk.Epoch{Number: 4, Expected: []string{"edge2"},
		States: []sdk.DeviceState{{Device: "edge1", Plan: 1}, {Device: "edge2", Plan: 2}}}
	two.Put("edge2", sdk.CellsOf(towerA, make([]uint8, 8)))
	m, err := p.Merge(context.Background(), []*sdk.Epoch{one, two})
	if err != nil || m.Status != sdk.StatusPartial || len(m.Missing) != 1 || len(m.AccuracyWarnings) != 1 ||
		len(m.Expected) != 2 {
		t.Fatalf("%+v, %v", m, err)
	}
	if len(m.States) != 2 || m.States[0].Mixed || !m.States[1].Mixed {
		t.Errorf("states %+v", m.States)
	}
	other := &sdk.Epoch{Number: 5}
	short, unknown := &sdk.Epoch{Number: 4}, &sdk.Epoch{Number: 4}
	short.Put("edge2", sdk.CellsOf(towerA, make([]uint8, 7)))
	unknown.Put("core1", sdk.CellsOf("x", make([]uint8, 7)))
	for text, parts := range map[string][]*sdk.Epoch{
		"no parts":         nil,
		"epochs 4 and 5":   {two, other},
		"8 and with 7":     {two, short},
		"delivered twice":  {unknown, unknown},
		"in banks 0 and 1": {two, {Number: 4, BankShift: 1}},
	} {
		if _, err := p.Merge(context.Background(), parts); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, expected an error that says %q", err, text)
		}
	}
}
