// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"strings"
	"testing"

	"github.com/netsketch/netsketch/collector/intent"
	"github.com/netsketch/netsketch/internal/test/testkit"
)

// TestSettingsFollowTheSchedule: a session that begins before the epochs sends its settings when
// they begin.
func TestSettingsFollowTheSchedule(t *testing.T) {
	engine := &fixedEpochs{}
	c := New(Config{Hosts: []string{"h1"}}, Dependencies{Epochs: engine, OnChange: func() {},
		Settings: func(string) []intent.HostSetting { return []intent.HostSetting{{Role: roleName, Generation: 1}} }})
	s := &session{c: c, agent: newAgent(c, "h1"), sent: map[string]uint64{}, settingsChanged: true}
	if m := s.next(); m != nil {
		t.Errorf("message %v before the first epoch", m)
	}
	engine.number.Store(1)
	if m := s.next(); m.GetSchedule() == nil {
		t.Errorf("message %v, want the schedule", m)
	}
	if m := s.next(); m.GetSettings().GetGeneration() != 1 {
		t.Errorf("message %v, want the settings", m)
	}
}

func TestSettings(t *testing.T) {
	r := newRig(t, nil, "h1")
	h := r.start("h1", nil)
	r.open(h)
	r.step()
	r.set("", intent.HostSetting{Role: roleName, Generation: 2, Data: []byte("two")})
	testkit.Until(t, "new settings", func() bool { return r.status("h1").SettingsApplied == 2 })
	ep := r.step()
	r.expect(ep, "h1", "h1 two")
	h.do(func(h *testHost) { h.refuse = "no such thing" })
	r.set("", intent.HostSetting{Role: roleName, Generation: 3, Data: []byte("three")})
	testkit.Until(t, "a refusal", func() bool { return r.status("h1").SettingsRefused == 1 })
	r.expect(r.step(), "h1", "h1 two")
	if s := r.status("h1"); !strings.Contains(s.LastError, "no such thing") {
		t.Errorf("last error %q", s.LastError)
	}
	r.set("", intent.HostSetting{Role: roleName, Generation: 4, Data: []byte("four")},
		intent.HostSetting{Role: "other", Generation: 1})
	testkit.Until(t, "two refusals", func() bool { return r.status("h1").SettingsRefused == 3 })
	ep = r.step()
	if got := ep.Sources[0].Reading; len(got.Hosts) != 1 || got.MissingRoles["other"] == nil {
		t.Errorf("reading %+v, want an error for role other, and a report", got)
	}
	r.set("")
	testkit.Until(t, "removed settings", func() bool { return outcome(r.step(), "h1") == "nothing" })
	r.mu.Lock()
	defer r.mu.Unlock()
	if got := fmt.Sprint(r.applied); !strings.Contains(got, "h1 test 1 ") ||
		!strings.Contains(got, "has no role \"other\"") {
		t.Errorf("outcomes %s", got)
	}
}

// Plugins send settings when they are configured, which is before Start.
func TestHasBeforeStart(t *testing.T) {
	c := New(Config{Address: "127.0.0.1:0", Hosts: []string{"h1"}}, Dependencies{})
	defer c.Stop()
	if !c.Has("h1") || c.Has("h2") {
		t.Errorf("h1 %v, h2 %v", c.Has("h1"), c.Has("h2"))
	}
}
