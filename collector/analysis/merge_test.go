// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"errors"
	"slices"
	"testing"

	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// A switch whose registers were merged with those of another one counts only if all of them have
// arrived.
func TestTorn(t *testing.T) {
	p := &plugin{name: "fake"}
	one, two := &epoch.Merged{Plugin: "fake", Devices: []string{"s1", "s2"}},
		&epoch.Merged{Plugin: "fake", Devices: []string{"s3", "s4"}}
	other := &epoch.Merged{Plugin: "other", Devices: []string{"s1", "s9"}}
	of := func(name string, merged ...*epoch.Merged) epoch.Outcome {
		return epoch.Outcome{Name: name, Reading: &epoch.Reading{Merged: merged}}
	}
	ep := &epoch.Epoch{Sources: []epoch.Outcome{of("s1", one, other), of("s2", one), of("s3", two), of("s4", two),
		of("s5")}}
	if torn := p.torn(ep); len(torn) > 0 {
		t.Errorf("torn %v, although all is there", torn)
	}
	ep.Sources[1] = of("s2") // another collector has read it
	ep.Sources[3].Reading, ep.Sources[3].Err = nil, errors.New("late")
	if torn := p.torn(ep); len(torn) != 2 || !torn["s1"] || !torn["s3"] {
		t.Errorf("torn %v, want s1 and s3", torn)
	}
}

// A part goes through the plugin if it requests that, with the registers that it reads.
func TestMerge(t *testing.T) {
	r := newRig(t, nil, "fake")
	p := r.c.plugin("fake")
	ep := &epoch.Epoch{Number: 3, Start: t0, End: t0.Add(1),
		Sources: []epoch.Outcome{{Name: "s2", Err: errors.New("late")}}}
	p.bound, p.version = map[string]map[string]bool{"s2": {"r": true}}, fakeNetwork{}.Version()
	for _, name := range []string{"s1", "s3"} {
		p.bound[name] = map[string]bool{"r": true}
		ep.Sources = append(ep.Sources, epoch.Outcome{Name: name, Reading: &epoch.Reading{
			Objects: []sdk.Cells{sdk.CellsOf("r", []uint32{1}), sdk.CellsOf("unread", []uint32{1})}}})
	}
	if part, err := r.c.Merge(t.Context(), "fake", ep); part != nil || err != nil {
		t.Errorf("part %v, error %v, without a request", part, err)
	}
	p.settings.Merge = true
	part, err := r.c.Merge(t.Context(), "fake", ep)
	if err != nil || part == nil || !slices.Equal(part.Expected, []string{"s1", "s3"}) || len(part.Devices) != 1 ||
		len(part.Devices[0].Objects) != 1 || part.Devices[0].Objects[0].Object != "r" {
		t.Errorf("part %+v, error %v", part, err)
	}
	ep.Sources = ep.Sources[:2]
	if part, err := r.c.Merge(t.Context(), "fake", ep); part != nil || err != nil {
		t.Errorf("part %v, error %v, of one switch", part, err)
	}
}
