// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/netsketch/netsketch/collector/cluster/codec"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/internal/config"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// bare returns a plugin that has not been started, in a component that has not been started
// either.
func bare() *plugin {
	c := New(Config{}, Dependencies{Network: fakeNetwork{}, Plans: fakePlans{}, BankShift: func() uint64 { return 1 }})
	p := newPlugin(c, config.Plugin{Name: "fake"})
	p.inst = &fakePlugin{}
	c.plugins[p.name] = p
	return p
}

// A switch whose registers were merged with another switch's counts only if the data of both has
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
	ep.Sources[1] = of("s2") // another collector has read s2
	ep.Sources[3].Reading, ep.Sources[3].Err = nil, errors.New("late")
	if torn := p.torn(ep); len(torn) != 2 || !torn["s1"] || !torn["s3"] {
		t.Errorf("torn %v, want s1 and s3", torn)
	}
}

// A part of an epoch goes through the plugin's Merge if the plugin requests that, with the
// registers that the plugin reads.
func TestMerge(t *testing.T) {
	p := bare()
	ep := &epoch.Epoch{Number: 3, Start: t0, End: t0.Add(1),
		Sources: []epoch.Outcome{{Name: "s2", Err: errors.New("late")}}}
	p.bound, p.version = map[string]map[string]bool{"s2": {"r": true}}, fakeNetwork{}.Version()
	for _, name := range []string{"s1", "s3"} {
		p.bound[name] = map[string]bool{"r": true}
		ep.Sources = append(ep.Sources, epoch.Outcome{Name: name, Reading: &epoch.Reading{
			Objects: []sdk.Cells{sdk.CellsOf("r", []uint32{1}), sdk.CellsOf("unread", []uint32{1})}}})
	}
	if part, err := p.c.Merge(t.Context(), "fake", ep); part != nil || err != nil {
		t.Errorf("part %v, error %v, without a request", part, err)
	}
	p.settings.Merge = true
	part, err := p.c.Merge(t.Context(), "fake", ep)
	if err != nil || part == nil || !slices.Equal(part.Expected, []string{"s1", "s3"}) || len(part.Devices) != 1 ||
		len(part.Devices[0].Objects) != 1 || part.Devices[0].Objects[0].Object != "r" {
		t.Errorf("part %+v, error %v", part, err)
	}
	ep.Sources = ep.Sources[:2]
	if part, err := p.c.Merge(t.Context(), "fake", ep); part != nil || err != nil {
		t.Errorf("part %v, error %v, of one switch", part, err)
	}
}

// In a cluster, the collector that runs a plugin gives it the same epoch as a single collector
// would: registers, reports in parts, late and missing reports, and warnings. The test divides one
// collector's epoch among three, two of which send their parts to the third.
func TestEpochOfACluster(t *testing.T) {
	p := bare()
	p.bound, p.version = map[string]map[string]bool{}, fakeNetwork{}.Version()
	whole := &epoch.Epoch{Number: 7, Start: t0, End: t0.Add(time.Second), Warnings: []epoch.AccuracyWarning{
		{Source: "s2", Reason: "entries changed"}, {Source: "h3", Reason: "clock"}},
		LateWarnings: []epoch.LateWarning{{Epoch: 6,
			AccuracyWarning: epoch.AccuracyWarning{Source: "s3", Reason: "then"}}}}
	random := rand.New(rand.NewPCG(1, 2))
	for _, name := range []string{"s1", "s2", "s3", "s4", "s5"} {
		p.bound[name] = map[string]bool{"r8": true, "r32": true, "r64": true}
		small, wide, zeros := make([]uint8, 7), make([]uint64, 3), make([]uint32, 3000)
		for i := range small {
			small[i], wide[i%3], zeros[2000+i] = uint8(random.Uint32()), random.Uint64(), random.Uint32()
		}
		whole.Sources = append(whole.Sources, epoch.Outcome{Name: name, Sealing: epoch.SealedByCollector,
			Reading: &epoch.Reading{Objects: []sdk.Cells{
				sdk.CellsOf("r32", zeros), sdk.CellsOf("r64", wide), sdk.CellsOf("r8", small)}}})
	}
	for i, name := range []string{"h1", "h2", "h3"} {
		reading := &epoch.Reading{}
		for range 3 {
			reading.Hosts = append(reading.Hosts, sdk.HostReport{Host: name, Role: "role",
				Data: fmt.Append(nil, name, random.Uint32())})
		}
		whole.Sources = append(whole.Sources, epoch.Outcome{Name: name, Sealing: epoch.SealedBySource, Reading: reading,
			Began: t0.Add(time.Second + time.Duration(i)*time.Millisecond)})
		whole.Late = append(whole.Late, sdk.LateReport{Epoch: 5, HostReport: sdk.HostReport{Host: name, Role: "role",
			Data: []byte("late " + name)}})
	}
	whole.Sources[3].Err, whole.Sources[3].Reading = fmt.Errorf("started: %w", epoch.ErrJoining), nil
	whole.Sources[6].Reading = &epoch.Reading{MissingRoles: map[string]error{"role": errors.New("full")}}

	shared := *whole
	shared.Sources, shared.Late, shared.Warnings, shared.LateWarnings = nil, nil, nil, nil
	for member := range 3 {
		part := epoch.Epoch{Number: whole.Number, Start: whole.Start, End: whole.End}
		own := func(source string) bool { return int(source[1])%3 == member }
		for _, o := range whole.Sources {
			if own(o.Name) {
				part.Sources = append(part.Sources, o)
			}
		}
		for _, l := range whole.Late {
			if own(l.Host) {
				part.Late = append(part.Late, l)
			}
		}
		for _, w := range whole.Warnings {
			if own(w.Source) {
				part.Warnings = append(part.Warnings, w)
			}
		}
		for _, w := range whole.LateWarnings {
			if own(w.Source) {
				part.LateWarnings = append(part.LateWarnings, w)
			}
		}
		if member > 0 {
			received(t, &part)
		}
		shared.Sources = append(shared.Sources, part.Sources...)
		shared.Late = append(shared.Late, part.Late...)
		shared.Warnings = append(shared.Warnings, part.Warnings...)
		shared.LateWarnings = append(shared.LateWarnings, part.LateWarnings...)
	}
	slices.SortFunc(shared.Sources, func(a, b epoch.Outcome) int { // in the engine's order
		return slices.IndexFunc(whole.Sources, func(o epoch.Outcome) bool { return o.Name == a.Name }) -
			slices.IndexFunc(whole.Sources, func(o epoch.Outcome) bool { return o.Name == b.Name })
	})
	want, got := p.view(whole), p.view(&shared)
	byName := cmpopts.SortSlices(func(a, b sdk.LateReport) bool { return a.Host < b.Host })
	bySource := cmpopts.SortSlices(func(a, b sdk.AccuracyWarning) bool { return a.Device < b.Device })
	if diff := cmp.Diff(want, got, byName, bySource, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-one +cluster):\n%s", diff)
	}
	if len(want.Devices) != 4 || len(want.Hosts) != 6 || len(want.Late) != 3 || len(want.Missing) != 2 {
		t.Errorf("the test compares too little: %+v", want)
	}
}

// received replaces one collector's reading by the reading that another collector receives from
// it.
func received(t *testing.T, ep *epoch.Epoch) {
	t.Helper()
	d := codec.NewPartDecoder(1 << 20)
	if err := codec.WritePart(d, ep, 1, 1<<30, func(string, string) bool { return true }); err != nil {
		t.Fatal(err)
	}
	part, err := d.Part()
	if err != nil {
		t.Fatal(err)
	}
	ep.Sources, ep.Late, ep.Warnings, ep.LateWarnings = nil, part.Late, nil, nil
	for _, s := range part.Sources {
		sealing := map[bool]epoch.Sealing{false: epoch.DeviceElsewhere, true: epoch.HostElsewhere}[s.Host]
		ep.Sources = append(ep.Sources, epoch.Outcome{Name: s.Name, Sealing: sealing, Err: s.Err,
			Reading: s.Result.Reading, Began: s.Result.Began})
		for _, reason := range s.Result.Warnings {
			ep.Warnings = append(ep.Warnings, epoch.AccuracyWarning{Source: s.Name, Reason: reason})
		}
		ep.LateWarnings = append(ep.LateWarnings, s.Result.LateWarnings...)
	}
}
