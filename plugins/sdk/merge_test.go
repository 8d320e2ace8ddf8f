// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The parts of a report stay in the order of their arrival.
func TestMergeReportsInParts(t *testing.T) {
	var parts []*Epoch
	for _, host := range []string{"h2", "h1"} {
		e := &Epoch{Number: 4}
		for i := range byte(40) {
			e.Hosts = append(e.Hosts, HostReport{Host: host, Role: "r", Data: []byte{i}})
		}
		parts = append(parts, e)
	}
	got, err := MergeParts(parts, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(slices.Concat(parts[1].Hosts, parts[0].Hosts), got.Hosts); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMergeParts(t *testing.T) {
	at := time.Unix(100, 0)
	one := &Epoch{
		Number: 4, Start: at, End: at.Add(time.Second), Status: StatusPartial, Skew: 3, Expected: []string{"s2", "s3"},
		Missing: []Missing{{Name: "s3", Reason: "dead"}}, Hosts: []HostReport{{Host: "h2"}},
		AccuracyWarnings: []AccuracyWarning{{Reason: "late"}},
		States:           []DeviceState{{Device: "s2", Plan: 1}, {Device: "s3", Plan: 1}}, Plans: []PlanOutcome{{Plan: 1}},
	}
	two := &Epoch{
		Number: 4, Start: at.Add(-1), End: at.Add(time.Second + 1), Status: StatusComplete, Skew: 2,
		Expected: []string{"s1", "s2"},
		Hosts:    []HostReport{{Host: "h1"}}, States: []DeviceState{{Device: "s1", Plan: 1}, {Device: "s2", Plan: 2}},
	}
	one.Put("s2", CellsOf("a", []uint32{1, 2}))
	two.Put("s2", CellsOf("a", []uint32{10, 20}))
	two.Put("s2", CellsOf("b", []uint32{5}))
	two.Put("s1", CellsOf("a", []uint32{7}))
	add := func(device string, a, b Cells) (Cells, error) {
		if device != "s2" || a.Object != "a" || b.Object != "a" {
			t.Errorf("%s: %s and %s are added", device, a.Object, b.Object)
		}
		sum := slices.Clone(a.Uint32s())
		for i, v := range b.Uint32s() {
			sum[i] += v
		}
		return CellsOf("a", sum), nil
	}
	got, err := MergeParts([]*Epoch{one, two}, add)
	if err != nil {
		t.Fatal(err)
	}
	want := &Epoch{
		Number: 4, Start: at.Add(-1), End: at.Add(time.Second + 1), Status: StatusPartial, Skew: 3,
		Expected: []string{"s1", "s2", "s3"},
		Missing:  one.Missing, Hosts: []HostReport{{Host: "h1"}, {Host: "h2"}}, AccuracyWarnings: one.AccuracyWarnings,
		States: []DeviceState{{Device: "s1", Plan: 1}, {Device: "s2", Plan: 1, Mixed: true}, {Device: "s3", Plan: 1}},
		Plans:  one.Plans,
		Devices: []DeviceData{
			{Name: "s1", Objects: []Cells{CellsOf("a", []uint32{7})}},
			{Name: "s2", Objects: []Cells{CellsOf("a", []uint32{11, 22}), CellsOf("b", []uint32{5})}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := one.Device("s2").Object("a").Uint32s(); !slices.Equal(got, []uint32{1, 2}) {
		t.Errorf("a part was changed to %v", got)
	}
}

func TestMergePartsThatDoNotFit(t *testing.T) {
	twice := &Epoch{Number: 4}
	twice.Put("s1", CellsOf("a", []uint32{1}))
	refuse := func(string, Cells, Cells) (Cells, error) { return Cells{}, errors.New("is there twice") }
	for want, parts := range map[string][]*Epoch{
		"no parts":                           nil,
		"epochs 4 and 5":                     {{Number: 4}, {Number: 5}},
		"epoch 4: switch s1: is there twice": {twice, twice},
	} {
		if _, err := MergeParts(parts, refuse); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected an error that says %q", err, want)
		}
	}
	if e, err := MergeParts([]*Epoch{{Number: 4}}, refuse); err != nil || e.Status != StatusLost {
		t.Errorf("of nothing: %+v (%v)", e, err)
	}
}
