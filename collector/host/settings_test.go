// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/collector/intent"
	hostagent "github.com/netsketch/netsketch/hostagent/agent"
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

// TestSharedEnd: settings often have the same tail as the settings before. The collector does not
// send an unchanged tail again, and the agent applies the whole settings. An agent without
// Hello.tails receives the whole settings.
func TestSharedEnd(t *testing.T) {
	r := newRig(t, nil, "h1")
	h := r.start("h1", nil)
	r.open(h)
	table := []byte(strings.Repeat("10.0.0.1,", 1000) + "end")
	old := &session{c: r.c, agent: newAgent(r.c, "h1"), sent: map[string]uint64{}, length: time.Second}
	current := &session{c: r.c, agent: newAgent(r.c, "h1"), sent: map[string]uint64{}, length: time.Second,
		ends: map[string][]byte{}}
	for i, tt := range []struct {
		data string
		tail []byte
		sent int // bytes to a current agent
	}{
		{"first ", table, 6 + len(table)}, {"second ", table, 7}, {"third ", slices.Clone(table), 6},
		{"fourth ", slices.Concat([]byte("10.0.0.2,"), table), 7 + 9}, {"fifth", nil, 5}, {"sixth ", table, 6 + len(table)},
	} {
		r.set("", intent.HostSetting{Role: roleName, Generation: uint64(i + 2), Data: []byte(tt.data), Tail: tt.tail})
		testkit.Until(t, "new settings", func() bool { return r.status("h1").SettingsApplied == uint64(i+2) })
		h.do(func(h *testHost) {
			if got := h.inUse; got != tt.data+string(tt.tail) {
				t.Errorf("%s: settings %.20q…, %d bytes; want %d", tt.data, got, len(got), len(tt.data)+len(tt.tail))
			}
		})
		for s, want := range map[*session]int{old: len(tt.data) + len(tt.tail), current: tt.sent} {
			m := s.settings()
			if len(m) != 1 || len(m[0].GetSettings().GetData()) != want {
				t.Errorf("%s: %d messages, the first with %d bytes; want one with %d", tt.data, len(m),
					len(m[0].GetSettings().GetData()), want)
			}
		}
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

// tablePath checks the settings that it receives.
type tablePath struct {
	stampPath
	check func(settings []byte)
}

func (p *tablePath) Apply(settings []byte) error { p.check(settings); return nil }

// TestManyAgents: 500 agents receive settings with the addresses of 10,000 hosts, and then other
// settings with the same addresses, which are not sent again.
func TestManyAgents(t *testing.T) {
	const agents = 500
	table := bytes.Repeat([]byte(`["10.0.0.1"],`), 10_000)
	names := make([]string, agents)
	for i := range names {
		names[i] = fmt.Sprintf("h%d", i)
	}
	var generation atomic.Uint64
	generation.Store(1)
	engine := &fixedEpochs{}
	engine.number.Store(1)
	c := New(Config{Address: "127.0.0.1:0", Timeout: time.Minute, MaxReport: 1 << 20, MaxEpoch: 1 << 30, Hosts: names},
		Dependencies{Epochs: engine, Applied: func(string, string, uint64, string) {}, OnChange: func() {},
			Settings: func(host string) []intent.HostSetting {
				g := generation.Load()
				return []intent.HostSetting{{Role: roleName, Generation: g, Data: fmt.Appendf(nil, "%s %d ", host, g), Tail: table}}
			}})
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Stop()
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	left := [2]atomic.Int64{}
	done := [2]chan struct{}{make(chan struct{}), make(chan struct{})}
	began := time.Now()
	for i := range left {
		left[i].Store(agents)
	}
	for _, name := range names {
		p := &tablePath{stampPath{left: new(atomic.Int64), all: make(chan struct{}, 1)}, func(b []byte) {
			for i := range left {
				if string(b[:len(b)-len(table)]) == fmt.Sprintf("%s %d ", name, i+1) && bytes.HasSuffix(b, table) &&
					left[i].Add(-1) == 0 {
					close(done[i])
				}
			}
		}}
		a, err := hostagent.New(hostagent.Config{Address: c.Address(), Host: name,
			DataPaths: []hostagent.DataPath{p}}, hostagent.Dependencies{Clock: epoch.NewVirtual(time.Unix(3600, 0), 0)})
		if err != nil {
			t.Fatal(err)
		}
		work.Go(func() { _ = a.Run(ctx) }) // Run returns nil
	}
	for i := range done {
		select {
		case <-done[i]:
		case <-time.After(2 * time.Minute):
			t.Fatalf("settings %d: %d agents lack them", i+1, left[i].Load())
		}
		t.Logf("settings %d: %d agents after %v", i+1, agents, time.Since(began))
		began = time.Now()
		generation.Store(2)
		c.SettingsChanged()
	}
}
