// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/collector/cluster/bus"
	"github.com/netsketch/netsketch/collector/cluster/bus/bustest"
	"github.com/netsketch/netsketch/internal/testkit"
)

// joined is a member with its connection.
type joined struct {
	*Component
	bus *bus.Bus
	log *testkit.Log
}

func join(t *testing.T, server, name string, change func(*Config)) joined {
	t.Helper()
	j := joined{bus: bustest.Connect(t, "fabric", name, server), log: &testkit.Log{}}
	cfg := Config{Member: name, Weight: 1, Version: "test", Digests: map[string]string{"devices": "1", "epoch": "1"},
		Lease: time.Second}
	if change != nil {
		change(&cfg)
	}
	j.Component = New(cfg, Dependencies{Bus: j.bus, Logger: slog.New(slog.NewTextHandler(j.log, nil)),
		OnView: func() {}})
	if err := j.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Stop)
	return j
}

// sees reports whether a member sees these active members, and holds its lease.
func (j joined) sees(names ...string) bool {
	v := j.View()
	var got []string
	for _, m := range v.Members {
		if m.Active() {
			got = append(got, m.Name)
		}
	}
	return v.Leased && slices.Equal(got, names)
}

func until(t *testing.T, what string, all []joined, names ...string) {
	t.Helper()
	testkit.Until(t, what, func() bool {
		return !slices.ContainsFunc(all, func(j joined) bool { return !j.sees(names...) })
	})
}

// A member that is cut off keeps what it owns without a lease; the others take over with a higher
// fence. A refused member and a draining one own nothing.
func TestMembership(t *testing.T) {
	server := bustest.Server(t)
	a, b := join(t, server, "a", nil), join(t, server, "b", nil)
	all := []joined{a, b}
	until(t, "two members", all, "a", "b")

	c := join(t, server, "c", func(cfg *Config) { cfg.Digests = map[string]string{"devices": "2", "epoch": "1"} })
	testkit.Until(t, "c is refused", func() bool {
		m, ok := a.View().Member("c")
		return ok && m.State == Refused && strings.Contains(m.Reason, "member a in devices")
	})
	if !strings.Contains(c.log.String(), "differs from that of member a in devices") {
		t.Errorf("log of c:\n%s", c.log)
	}
	c.SetDigests(map[string]string{"devices": "1", "epoch": "1"})
	all = append(all, c)
	until(t, "three members", all, "a", "b", "c")

	twin := join(t, server, "b", nil)
	testkit.Until(t, "a second b is named", func() bool {
		return strings.Contains(twin.log.String(), "is member b; it leaves")
	})
	if twin.View().Leased {
		t.Error("two collectors hold the lease of b")
	}
	twin.Stop()

	if err := Command(t.Context(), a.bus, "b", Drain); err != nil {
		t.Error(err)
	}
	until(t, "b drains", all, "a", "c")
	if err := Command(t.Context(), a.bus, "b", Resume); err != nil {
		t.Error(err)
	}
	until(t, "b is back", all, "a", "b", "c")
	if err := Command(t.Context(), a.bus, "x", Drain); err == nil || !strings.Contains(err.Error(), "no member x") {
		t.Errorf("command to a member that is not there: %v", err)
	}

	before := a.View().Fence
	c.bus.Conn().Close()
	until(t, "c is gone", all[:2], "a", "b")
	if after := a.View().Fence; after <= before {
		t.Errorf("fence %d after %d", after, before)
	}
	testkit.Until(t, "c notices", func() bool { return !c.View().Leased })
	if v := c.View(); len(v.Members) != 3 || v.Fence >= a.View().Fence {
		t.Errorf("view of c: %+v", v)
	}

	if m, _ := a.View().Member("a"); m.State != Active {
		t.Errorf("a: %+v", m)
	}
}

// A member that stops is gone at once, and so is its lease, although it would last for an hour.
func TestMemberStops(t *testing.T) {
	server := bustest.Server(t)
	hour := func(cfg *Config) { cfg.Lease = time.Hour }
	a, b := join(t, server, "a", hour), join(t, server, "b", hour)
	until(t, "two members", []joined{a, b}, "a", "b")
	b.Stop()
	until(t, "b has left", []joined{a}, "a")
	found, err := Members(t.Context(), a.bus)
	if err != nil || len(found) != 1 || found[0].Name != "a" {
		t.Errorf("leases of %+v, %v", found, err)
	}
}

// NATS servers that all restart have lost the leases, and count revisions anew. The fences of
// members that were there and of one that joins are above all earlier ones nevertheless.
func TestServersRestart(t *testing.T) {
	servers := bustest.StartCluster(t, t.TempDir(), t.TempDir())
	a, b := join(t, servers.Addresses[0], "a", nil), join(t, servers.Addresses[1], "b", nil)
	all := []joined{a, b}
	until(t, "two members", all, "a", "b")
	before := max(a.View().Fence, b.View().Fence)
	testkit.Until(t, "leases are renewed", func() bool { return a.View().Fence > before && b.View().Fence > before })
	before = max(a.View().Fence, b.View().Fence)
	for i := range servers.Addresses {
		servers.Stop(i)
	}
	testkit.Until(t, "no leases", func() bool { return !a.View().Leased && !b.View().Leased })
	for i := range servers.Addresses {
		servers.Start(i)
	}
	all = append(all, join(t, servers.Addresses[0], "c", nil))
	until(t, "three members", all, "a", "b", "c")
	for _, j := range all {
		if now := j.View().Fence; now <= before {
			t.Errorf("member %s has the fence %#x, and there was %#x before", j.cfg.Member, now, before)
		}
	}
}

// A member that notices the loss of leases only by its revision makes another bucket.
func TestRevisionsGoBack(t *testing.T) {
	b, l := bustest.Connect(t, "fabric", "a", bustest.Server(t)), lease{now: time.Now}
	renew := func() error {
		_, err := l.renew(t.Context(), b, Member{Name: "a", Incarnation: "1"}, time.Minute)
		return err
	}
	if err := renew(); err != nil {
		t.Fatal(err)
	}
	l.newest = 1 << 30
	before := l.fence() + l.newest
	if err := renew(); err == nil || !strings.Contains(err.Error(), "have lost the leases") {
		t.Errorf("revision %d after 1<<30: error %v", l.revision, err)
	}
	testkit.Until(t, "a lease with a fence above that of the newest revision", func() bool {
		return renew() == nil && l.fence() > before
	})
}

// A member renews its lease when the owners change: its fence is above that of each member that was
// an owner before.
func TestFenceOfTheNextOwner(t *testing.T) {
	server := bustest.Server(t)
	rarely := func(cfg *Config) { cfg.Lease = time.Hour }
	a, b := join(t, server, "a", rarely), join(t, server, "b", rarely)
	until(t, "two members", []joined{a, b}, "a", "b")
	for _, command := range []string{Drain, Resume} {
		before := max(a.View().Fence, b.View().Fence)
		if err := Command(t.Context(), a.bus, "b", command); err != nil {
			t.Fatal(err)
		}
		testkit.Until(t, "a has a newer lease", func() bool { return a.View().Fence > before })
	}
}

// A member of the next minor release takes part, also if it says more than this one knows; one that
// is two ahead is refused, and named.
func TestMembersOfOtherReleases(t *testing.T) {
	server := bustest.Server(t)
	release := func(version string) func(*Config) { return func(cfg *Config) { cfg.Version = version } }
	a := join(t, server, "a", release("1.4.2"))
	until(t, "one member", []joined{a}, "a")
	b := join(t, server, "b", release("1.5.0"))
	until(t, "two members", []joined{a, b}, "a", "b")
	c := join(t, server, "c", release("1.6.0"))
	testkit.Until(t, "c is refused", func() bool {
		m, ok := a.View().Member("c")
		return ok && m.State == Refused && strings.Contains(m.Reason, "member a has version 1.4.2")
	})
	until(t, "c owns nothing", []joined{c}, "a", "b")
	testkit.Until(t, "d takes part", func() bool {
		if err := a.bus.Conn().Publish(a.bus.Subject("beat"), []byte(`{"name":"d","incarnation":"1","protocol":1,`+
			`"version":"1.5.0","weight":1,"state":"active","a later key":{"x":[1]}}`)); err != nil {
			t.Fatal(err)
		}
		m, ok := a.View().Member("d")
		return ok && m.Active() && m.Version == "1.5.0"
	})
}

// A program without a NATS server says so, and names the key.
func TestNoEmbeddedServer(t *testing.T) {
	_, err := bus.Connect(t.Context(), bus.Config{Name: "fabric", Embedded: &bus.Embedded{Listen: "127.0.0.1:0"}})
	if err == nil || !strings.Contains(err.Error(), "cluster.nats.embedded: this program has no NATS server") {
		t.Error(err)
	}
}

// The clock of a member that is 2 s ahead is measured, published to the others and named.
func TestClocksApart(t *testing.T) {
	server := bustest.Server(t)
	a := join(t, server, "a", nil)
	b := join(t, server, "b", func(c *Config) { c.Now = func() time.Time { return time.Now().Add(2 * time.Second) } })
	until(t, "both are members", []joined{a, b}, "a", "b")
	for _, of := range []joined{a, b} {
		testkit.Until(t, "the clock of b at "+of.cfg.Member, func() bool {
			for _, m := range of.View().Members {
				off := m.Offset - map[string]time.Duration{"b": 2 * time.Second}[m.Name]
				if m.Uncertainty == 0 || off.Abs() > m.Uncertainty {
					return false
				}
			}
			return true
		})
	}
	for of, want := range map[*joined]string{&a: "the clock of collector b is ", &b: "the clock of collector a is -"} {
		got := of.ClockWarnings(10 * time.Millisecond)
		if len(got) != 1 || !strings.HasPrefix(got[0], want) {
			t.Errorf("%s warns %q, want %q", of.cfg.Member, got, want)
		}
	}
}
