// SPDX-License-Identifier: Apache-2.0

package plans

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/netsketch/netsketch/collector/cluster"
	"github.com/netsketch/netsketch/collector/cluster/clusterv1"
	"github.com/netsketch/netsketch/collector/intent"
	"github.com/netsketch/netsketch/internal/test/bustest"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// side is one of two collectors.
type side struct {
	*Component
	mu       sync.Mutex
	written  []string
	settings []string
	outcomes []string
	early    bool // settings are not in force yet
	fail     error
	hang     bool
	hangs    func() // is called then
}

func (s *side) do(f func(*side)) { s.mu.Lock(); defer s.mu.Unlock(); f(s) }

func start(t *testing.T, server, name string, view func() cluster.View) *side {
	t.Helper()
	s := &side{}
	s.Component = New(Dependencies{Bus: bustest.Connect(t, "fabric", name, server), Member: name, View: view,
		Incarnation: name,
		Write: func(ctx context.Context, device string, updates []p4rt.Update) (func(context.Context) error, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.hang {
				if s.hangs != nil {
					s.hangs()
				}
				<-ctx.Done()
				return nil, ctx.Err()
			}
			if s.fail != nil {
				return nil, s.fail
			}
			for _, u := range updates {
				s.written = append(s.written, fmt.Sprintf("%s %v %s %x", device, u.Type, u.Entry.Table, u.Entry.Match[0].Value))
			}
			return func(context.Context) error { s.do(func(s *side) { s.written = append(s.written, "undo") }); return nil }, nil
		},
		Outcome: func(o intent.HostOutcome) bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			early := s.early
			s.outcomes = append(s.outcomes, fmt.Sprintf("%s %s %d %v", o.Host, o.Refusal, o.Plan, !early))
			s.early = false
			return !early
		},
		Settings: func(_ context.Context, plugin string, plan sdk.Plan) {
			s.do(func(s *side) {
				for _, h := range plan.Hosts {
					s.settings = append(s.settings, fmt.Sprintf("%s %d %s %s %s", plugin, plan.ID, h.Host, h.Role, h.Data))
				}
			})
		}})
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	if err := s.deps.Bus.Conn().Flush(); err != nil { // the server has the subscription
		t.Fatal(err)
	}
	return s
}

// members have names for which c1 is the home of "univmon" and c2 that of "fake".
func members() cluster.View {
	v := cluster.View{Leased: true, Self: "c1"}
	for _, name := range []string{"c1", "c2"} {
		v.Members = append(v.Members, cluster.Member{Name: name, Weight: 1, State: cluster.Active})
	}
	return v
}

func homes(t *testing.T) (c1, c2 string) {
	t.Helper()
	for i := range 100 {
		name := fmt.Sprintf("plugin%d", i)
		switch members().Plugin(name) {
		case "c1":
			c1 = name
		case "c2":
			c2 = name
		}
	}
	if c1 == "" || c2 == "" {
		t.Fatal("no plugin is at home at one of two members")
	}
	return c1, c2
}

func route(value byte) []p4rt.Update {
	return []p4rt.Update{p4rt.Insert(p4rt.Entry{Table: "ipv4_lpm", Action: "drop",
		Match: []p4rt.Match{p4rt.LPM("hdr.ipv4.dst", []byte{10, value}, 16)}})}
}

func TestApply(t *testing.T) {
	server := bustest.Server(t)
	home, owner := start(t, server, "c1", members), start(t, server, "c2", members)
	mine, others := homes(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	undo, err := home.Apply(ctx, mine, "c2", "s1", route(1))
	if err != nil {
		t.Fatal(err)
	}
	if err := undo(ctx); err != nil {
		t.Error(err)
	}
	if err := undo(ctx); !errors.Is(err, intent.ErrPartiallyApplied) {
		t.Errorf("a second undo: %v", err)
	}
	owner.do(func(s *side) {
		if want := []string{"s1 INSERT ipv4_lpm 0a01", "undo"}; !slices.Equal(s.written, want) {
			t.Errorf("written %q, want %q", s.written, want)
		}
	})
	if _, err := home.Apply(ctx, others, "c2", "s1", route(1)); !errors.Is(err, p4rt.ErrNotReady) ||
		!strings.Contains(err.Error(), "is at home at") {
		t.Errorf("a plan of a plugin that is at home elsewhere: %v", err)
	}
	if _, err := home.Apply(ctx, mine, "c3", "s1", route(1)); !errors.Is(err, p4rt.ErrNotReady) {
		t.Errorf("a plan for a member that is not there: %v", err)
	}
	for _, test := range []struct {
		fail          error
		partial, away bool
	}{
		{intent.ErrPartiallyApplied, true, false}, {p4rt.ErrNotReady, false, true},
		{errors.New("no such table"), false, false},
	} {
		owner.do(func(s *side) { s.fail = test.fail })
		_, err := home.Apply(ctx, mine, "c2", "s1", route(2))
		if err == nil || !strings.Contains(err.Error(), test.fail.Error()) ||
			errors.Is(err, intent.ErrPartiallyApplied) != test.partial || errors.Is(err, p4rt.ErrNotReady) != test.away {
			t.Errorf("%v arrives as %v", test.fail, err)
		}
	}
	owner.do(func(s *side) { s.hang = true })
	short, end := context.WithTimeout(ctx, 100*time.Millisecond)
	defer end()
	if _, err := home.Apply(short, mine, "c2", "s1", route(3)); err == nil || errors.Is(err, p4rt.ErrNotReady) {
		t.Errorf("an owner that hangs: %v", err)
	}
	reply, err := home.deps.Bus.Conn().RequestMsgWithContext(ctx, &nats.Msg{
		Subject: home.deps.Bus.Subject("plan", "c2"), Data: []byte("garbage")})
	if err != nil || !bytes.Contains(reply.Data, []byte("cannot be read")) {
		t.Errorf("garbage: %+v, %v", reply, err)
	}
}

// A part for a device that moves is written by the collector that has it, which undoes it, too.
func TestApplyWhileADeviceMoves(t *testing.T) {
	server := bustest.Server(t)
	view := func() cluster.View {
		v := members()
		v.Members = append(v.Members, cluster.Member{Name: "c3", State: cluster.Active})
		return v
	}
	home, next, owner := start(t, server, "c1", view), start(t, server, "c2", view), start(t, server, "c3", view)
	mine, _ := homes(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	next.do(func(s *side) { s.fail = &intent.ForeignError{Device: "s1", Owner: "c3"} })
	undo, err := home.Apply(ctx, mine, "c2", "s1", route(1))
	if err != nil {
		t.Fatal(err)
	}
	if err := undo(ctx); err != nil {
		t.Error(err)
	}
	owner.do(func(s *side) {
		if want := []string{"s1 INSERT ipv4_lpm 0a01", "undo"}; !slices.Equal(s.written, want) {
			t.Errorf("written %q, want %q", s.written, want)
		}
		s.fail = &intent.ForeignError{Device: "s1", Owner: "c2"}
	})
	if _, err := home.Apply(ctx, mine, "c2", "s1", route(1)); !errors.Is(err, p4rt.ErrNotReady) {
		t.Errorf("each of two collectors names the other one: %v", err)
	}
	next.do(func(s *side) { s.fail = &intent.ForeignError{Device: "s1", Owner: "c1"} })
	if _, err := home.Apply(ctx, mine, "c2", "s1", route(1)); !errors.Is(err, p4rt.ErrNotReady) {
		t.Errorf("the owner names the home: %v", err)
	}
}

// A request to an owner that is gone ends at once, although its caller has much time: the device
// takes no other write meanwhile.
func TestApplyToAnOwnerThatGoes(t *testing.T) {
	server := bustest.Server(t)
	var gone atomic.Bool
	view := func() cluster.View {
		v := members()
		if gone.Load() {
			v.Members = v.Members[:1]
		}
		return v
	}
	home, owner := start(t, server, "c1", view), start(t, server, "c2", members)
	mine, _ := homes(t)
	owner.do(func(s *side) { s.hang, s.hangs = true, func() { gone.Store(true) } })
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	_, err := home.Apply(ctx, mine, "c2", "s1", route(1))
	if !errors.Is(err, intent.ErrPartiallyApplied) || errors.Is(err, p4rt.ErrNotReady) ||
		!strings.Contains(err.Error(), "collector c2 of the cluster: it cannot be reached") {
		t.Errorf("a plan for a member that goes: %v", err)
	}
}

// Settings reach members that are there and those that join later, the newest of each role and
// host.
func TestSettings(t *testing.T) {
	server := bustest.Server(t)
	home := start(t, server, "c1", members)
	mine, _ := homes(t)
	home.Settings(mine, sdk.Plan{ID: 1, Hosts: []sdk.HostSetting{{Role: "count", Data: []byte("all")},
		{Host: "h1", Role: "trace", Data: []byte("one")}}})
	home.Settings(mine, sdk.Plan{ID: 2, Hosts: []sdk.HostSetting{{Role: "count", Data: []byte("none")}}})
	other := start(t, server, "c2", members)
	want := []string{mine + " 1 h1 trace one", mine + " 2  count none"}
	testkit.Until(t, "the settings", func() bool {
		other.mu.Lock()
		defer other.mu.Unlock()
		n := len(other.settings)
		return n >= 2 && slices.Equal(other.settings[n-2:], want)
	})
	home.do(func(s *side) {
		if len(s.settings) != 0 {
			t.Errorf("the home takes its own settings: %q", s.settings)
		}
	})
	other.takeEntry(mine, []byte("garbage"))
	other.takeEntry(mine, []byte{0x08, clusterv1.Version + 1}) // field 1: another version
	if n := other.EntriesFailed(); n != 2 || len(other.Component.settings[mine].GetHosts()) != 2 {
		t.Errorf("%d settings could not be read, want 2; there are %v", n, other.Component.settings[mine])
	}
}

// An outcome reaches the home of the plugin: again if the home takes it later, and wherever the
// plugin moves meanwhile.
func TestOutcomes(t *testing.T) {
	server := bustest.Server(t)
	home, owner := start(t, server, "c1", members), start(t, server, "c2", members)
	mine, others := homes(t)
	home.do(func(s *side) { s.early = true })
	owner.Outcome(intent.HostOutcome{Plugin: mine, Host: "h1", Plan: 3, Refusal: "full"})
	owner.Outcome(intent.HostOutcome{Plugin: others, Host: "h2", Plan: 4}) // has moved to the owner
	for s, want := range map[*side][]string{home: {"h1 full 3 false", "h1 full 3 true"}, owner: {"h2  4 true"}} {
		testkit.Until(t, fmt.Sprintf("the outcomes %q", want), func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return slices.Equal(s.outcomes, want)
		})
	}
	testkit.Until(t, "nothing waits", func() bool {
		owner.Component.mu.Lock()
		defer owner.Component.mu.Unlock()
		return len(owner.Component.outcomes) == 0
	})
}

func FuzzDecode(f *testing.F) {
	data, err := encode(&clusterv1.PlanRequest{From: "c1", Plugin: "p", Device: "s1", TimeoutNs: 1,
		Updates: each(route(1), updateProto)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte("garbage"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if r, err := decodeRequest(data); err == nil && (r.GetDevice() == "" || r.GetTimeoutNs() <= 0) {
			t.Errorf("accepted %v", r)
		}
		if h, err := decodeEntries(data); err == nil && (h.GetFrom() == "" || h.GetProtocol() != clusterv1.Version) {
			t.Errorf("accepted %v", h)
		}
	})
}
