// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// fakeHosts are the hosts h1 and h2.
type fakeHosts struct{ changes atomic.Int64 }

func (*fakeHosts) Has(host string) bool { return host == "h1" || host == "h2" }
func (h *fakeHosts) SettingsChanged()   { h.changes.Add(1) }

// inForce returns the settings of a host as text.
func inForceAt(c *Component, host string) (out []string) {
	for _, s := range c.HostSettings(host) {
		out = append(out, fmt.Sprintf("%s=%s by %s", s.Role, s.Data, s.Plugin))
	}
	return out
}

func TestHostSettings(t *testing.T) {
	r := newRig(t, 0)
	hosts := &fakeHosts{}
	r.c.hosts = hosts
	ctx := context.Background()
	add := func(plugin string, id, from uint64, settings ...sdk.HostSetting) {
		r.c.Add(ctx, plugin, sdk.Plan{ID: id, FromEpoch: from, Hosts: settings})
	}
	expect := func(host string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, inForceAt(r.c, host)); diff != "" {
			t.Errorf("settings of %s (-want +got):\n%s", host, diff)
		}
	}
	open := r.open
	add(plugin, 1, 0, sdk.HostSetting{Role: "a", Data: []byte("all")},
		sdk.HostSetting{Host: "h2", Role: "b", Data: []byte("2")})
	expect("h1", "a=all by fake")
	expect("h2", "a=all by fake", "b=2 by fake")
	add(plugin, 2, 0, sdk.HostSetting{Host: "h1", Role: "a", Data: []byte("own")})
	add(plugin, 3, open+1, sdk.HostSetting{Role: "a", Data: []byte("later")})
	add(plugin, 4, 0, sdk.HostSetting{Host: "h3", Role: "a"})
	add("other", 5, 0, sdk.HostSetting{Role: "a"})
	expect("h1", "a=own by fake")
	changes := hosts.changes.Load()
	r.open++ // the next epoch begins
	expect("h1", "a=later by fake")
	if hosts.changes.Load() == changes {
		t.Error("no change when settings came into force")
	}
	if got := r.c.HostRoles(plugin, "h2"); !cmp.Equal(got, []string{"a", "b"}) {
		t.Errorf("roles %v, want a and b", got)
	}
	if got := r.c.HostRoles("other", "h2"); got != nil {
		t.Errorf("roles %v of a plugin without settings", got)
	}

	s := r.c.HostSettings("h1")[0]
	r.c.HostApplied("h1", "a", s.Generation, "")
	r.c.HostApplied("h1", "a", s.Generation, "") // repeated after the agent reconnected
	r.c.HostApplied("h2", "a", s.Generation, "too large")
	r.c.HostApplied("h2", "a", s.Generation-1, "") // outcome of earlier settings
	want := []sdk.PlanOutcome{
		{Plan: 4, Device: "h3", Status: sdk.PlanFailed, Reason: "host h3 has no agent in the configuration"},
		{Plan: 3, FromEpoch: open + 2, Device: "h1", Status: sdk.PlanApplied},
		{Plan: 3, FromEpoch: open + 1, Device: "h2", Status: sdk.PlanFailed, Reason: "too large"},
	}
	if diff := cmp.Diff(want, r.c.Outcomes(plugin)); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	add(plugin, 6, 0, sdk.HostSetting{Host: "h2", Role: "b"}) // withdraws the settings
	add(plugin, 7, open+2, sdk.HostSetting{Role: "a"})
	expect("h2", "a=later by fake")
	r.open++
	expect("h1")
	expect("h2")
	want = append(want, sdk.PlanOutcome{Plan: 6, Device: "h2", Status: sdk.PlanApplied},
		sdk.PlanOutcome{Plan: 7, FromEpoch: open + 2, Status: sdk.PlanApplied})
	if diff := cmp.Diff(want, r.c.Outcomes(plugin)); diff != "" {
		t.Errorf("outcomes of withdrawals (-want +got):\n%s", diff)
	}
	if got := r.c.Outcomes("other"); len(got) != 1 || got[0].Status != sdk.PlanFailed {
		t.Errorf("outcomes of a plugin that wants another's role: %+v", got)
	}
	r.c.Drop(plugin)
	expect("h1")
}

// If another collector serves a host, the outcome of a setting there reaches the collector that
// runs the plugin, once.
func TestOutcomesOfHostsElsewhere(t *testing.T) {
	home, owner := newRig(t, 0), newRig(t, 0)
	shared := &record{elsewhere: true}
	owner.c.cluster = shared
	open := owner.open
	for _, r := range []*rig{home, owner} {
		r.c.hosts = &fakeHosts{}
		r.c.Add(t.Context(), plugin, sdk.Plan{ID: 1, FromEpoch: open + 1, Hosts: []sdk.HostSetting{
			{Role: "a", Data: []byte("all")}}})
	}
	owner.open++ // the owner's clock is ahead
	for host, refusal := range map[string]string{"h1": "", "h2": "too large"} {
		s := owner.c.HostSettings(host)[0]
		owner.c.HostApplied(host, "a", s.Generation, refusal)
		owner.c.HostApplied(host, "a", s.Generation, refusal) // repeated after the agent reconnected
	}
	sent := shared.sent
	if len(sent) != 2 || len(owner.c.Outcomes(plugin)) != 0 {
		t.Fatalf("the owner sent %+v, and has the outcomes %+v", sent, owner.c.Outcomes(plugin))
	}
	if home.c.TakeOutcome(sent[0]) {
		t.Error("the home takes the outcome of a setting that is not in force there yet")
	}
	home.open++
	for _, o := range append(sent, sent...) { // each outcome is sent twice
		if !home.c.TakeOutcome(o) {
			t.Errorf("the home does not take %+v", o)
		}
	}
	old := sent[0]
	old.Plan--
	if !home.c.TakeOutcome(old) {
		t.Error("the outcome of an earlier plan is to be sent again")
	}
	want := []sdk.PlanOutcome{{Plan: 1, FromEpoch: open + 2, Device: "h1", Status: sdk.PlanApplied},
		{Plan: 1, FromEpoch: open + 1, Device: "h2", Status: sdk.PlanFailed, Reason: "too large"}}
	got := home.c.Outcomes(plugin)
	slices.SortFunc(got, func(a, b sdk.PlanOutcome) int { return strings.Compare(a.Device, b.Device) })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("outcomes at the home (-want +got):\n%s", diff)
	}
}

// allHosts has every host.
type allHosts struct{ fakeHosts }

func (*allHosts) Has(string) bool { return true }

// TestManyHosts: the settings of 10,000 hosts come into force together, share one table in memory,
// and the plugin receives the outcome of each host.
func TestManyHosts(t *testing.T) {
	const count = 10_000
	r := newRig(t, 0)
	hosts := &allHosts{}
	r.c.hosts = hosts
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, began := heap(), time.Now()
	table := bytes.Repeat([]byte(`["10.0.0.1"],`), count)
	plan := func(id, from uint64) (p sdk.Plan) {
		p.ID, p.FromEpoch = id, from
		for i := range count {
			p.Hosts = append(p.Hosts, sdk.HostSetting{Host: fmt.Sprintf("h%d", i), Role: "a", Tail: table,
				Data: fmt.Appendf(nil, `{"host":%d, "plan":%d`, i, id)})
		}
		return p
	}
	r.c.Add(t.Context(), plugin, plan(1, 0))
	r.c.Add(t.Context(), plugin, plan(2, r.open+1))
	if n := hosts.changes.Load(); n != 1 {
		t.Errorf("hosts were told %d times, want once", n)
	}
	r.open++
	for i := range count {
		s := r.c.HostSettings(fmt.Sprintf("h%d", i))
		if len(s) != 1 || string(s[0].Data) != fmt.Sprintf(`{"host":%d, "plan":2`, i) || !sdk.SameTail(s[0].Tail, table) {
			t.Fatalf("settings of h%d: %+v", i, s)
		}
		r.c.HostApplied(fmt.Sprintf("h%d", i), "a", s[0].Generation, "")
	}
	took, grown := time.Since(began), int64(heap())-int64(before)
	t.Logf("two plans for %d hosts in %v, %d KiB", count, took, grown>>10)
	if limit := int64(32 << 20); grown > limit {
		t.Errorf("%d bytes for the settings of %d hosts, want at most %d", grown, count, limit)
	}
	outcomes := r.c.Outcomes(plugin)
	if len(outcomes) != count {
		t.Errorf("%d outcomes, want %d", len(outcomes), count)
	}
}
