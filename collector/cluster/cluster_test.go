// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/collector/cluster/bus"
	"github.com/netsketch/netsketch/collector/cluster/clusterv1"
	"github.com/netsketch/netsketch/internal/test/bustest"
	"github.com/netsketch/netsketch/internal/test/testkit"
)

// joined is a member with its connection.
type joined struct {
	*Component
	bus *bus.Bus
	log *testkit.Log
}

func join(t *testing.T, server, name string, change func(*Config)) joined {
	t.Helper()
	return joinAs(t, server, name, change, func(*Member) {})
}

// joinAs is join for a member that describes itself differently.
func joinAs(t *testing.T, server, name string, change func(*Config), describe func(*Member)) joined {
	t.Helper()
	j := joined{bus: bustest.Connect(t, "fabric", name, server), log: &testkit.Log{}}
	cfg := Config{Member: name, Weight: 1, Version: "test", Digests: map[string]string{"devices": "1", "epoch": "1"},
		Lease: time.Second}
	if change != nil {
		change(&cfg)
	}
	j.Component = New(cfg, Dependencies{Bus: j.bus, Logger: slog.New(slog.NewTextHandler(j.log, nil)),
		OnView: func() {}})
	describe(&j.self)
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

// A member that is cut off keeps its devices, hosts and plugins without a lease, and the others
// take them over with a higher fence. A refused member and a draining member own nothing.
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

// When a member stops, the others see at once that it is gone, and its lease is deleted, although
// the lease would last for an hour.
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

// When all NATS servers restart, the leases are lost and revisions count from 1 again.
// Nevertheless, the new fences of all members, old and new, are above all earlier fences.
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

// A member that recognizes the loss of the leases only by the revisions creates the bucket again.
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

// A member renews its lease when the owners change, so that its fence is above the fence of each
// former owner.
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

// A member of another version of the messages is refused, whichever version joined first. Both
// members log this in one line.
func TestMembersOfOtherVersions(t *testing.T) {
	const first = clusterv1.Version + 5
	for _, version := range []uint32{first - 1, first + 1} {
		server := bustest.Server(t)
		a := joinAs(t, server, "a", nil, func(m *Member) { m.Protocol = first })
		until(t, "one member", []joined{a}, "a")
		b := joinAs(t, server, "b", nil, func(m *Member) { m.Protocol, m.Version = version, "other" })
		want := fmt.Sprintf("member a has version %d of the cluster's messages (netsketch test), and this one has %d (other)",
			first, version)
		testkit.Until(t, "b is refused", func() bool {
			m, ok := a.View().Member("b")
			return ok && m.State == Refused && strings.Contains(m.Reason, want)
		})
		until(t, "b owns nothing", []joined{a, b}, "a")
		for _, j := range []joined{a, b} {
			testkit.Until(t, "a line says why", func() bool { return strings.Contains(j.log.String(), want) })
			if n := strings.Count(j.log.String(), want); n != 1 {
				t.Errorf("%d lines of %s say why, want 1:\n%s", n, j.cfg.Member, j.log)
			}
		}
		a.Stop()
		until(t, "b takes part without a", []joined{b}, "b")
	}
}

// Of two members of different versions that join at the same time, one is refused.
func TestVersionsThatJoinTogether(t *testing.T) {
	self := Member{Name: "b", Protocol: 1, State: Active, Started: time.Unix(1, 0)}
	for name, want := range map[string]bool{"a": true, "c": false} {
		c := New(Config{Member: "b"}, Dependencies{})
		c.self = self
		c.peers[name] = peer{Member{Name: name, Protocol: 2, State: Active, Started: self.Started}, time.Now()}
		c.judge(false)
		if got := c.self.State == Refused; got != want {
			t.Errorf("with %s, started at the same time: refused %v, want %v", name, got, want)
		}
	}
}

// A collector whose lease and beats cannot be read keeps others from joining until it has ended. A
// collector that is already a member remains one, and logs the problem once.
func TestMemberThatCannotBeRead(t *testing.T) {
	server := bustest.Server(t)
	a := join(t, server, "a", nil)
	until(t, "one member", []joined{a}, "a")
	b := New(Config{Member: "b", Lease: time.Second}, Dependencies{})
	b.stranger = time.Now()
	b.judge(true)
	if b.self.State != Refused || !strings.Contains(b.self.Reason, "another version of netsketch is in the cluster") {
		t.Errorf("b with a stranger: %+v", b.self)
	}
	b.stranger = time.Now().Add(-time.Second)
	b.judge(false)
	if b.self.State != Active {
		t.Errorf("b without a stranger: %+v", b.self)
	}
	for range 2 {
		if err := a.bus.Conn().Publish(a.bus.Subject("beat"), []byte(`{"name":"x"}`)); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Until(t, "a names the stranger", func() bool {
		return strings.Contains(a.log.String(), "beats cannot be read")
	})
	bucket, err := OpenMembers(t.Context(), a.bus)
	if err == nil {
		_, err = bucket.PutString(t.Context(), "x", `{"name":"x"}`)
	}
	if err == nil {
		_, err = bucket.PutString(t.Context(), "c", `{"name":"c"}`)
	}
	if err != nil {
		t.Fatal(err)
	}
	found, err := Members(t.Context(), a.bus)
	if err != nil || !slices.ContainsFunc(found, func(m Member) bool { return m.Name == "x" && !m.Active() }) {
		t.Errorf("members %+v, error %v", found, err)
	}
	c := join(t, server, "c", nil) // the name c is taken until the lease ends, and then member x keeps c out
	testkit.Until(t, "c waits for its name", func() bool {
		return strings.Contains(c.log.String(), "another collector, of another version of netsketch, is member c")
	})
	until(t, "a and c", []joined{a, c}, "a", "c")
	if n := strings.Count(a.log.String(), "beats cannot be read"); n != 1 {
		t.Errorf("a names the stranger %d times, want once:\n%s", n, a.log)
	}
}

// A collector that finds a lease that cannot be read is refused, and logs the reason in one line.
func TestLeaseThatCannotBeRead(t *testing.T) {
	server := bustest.Server(t)
	hour := func(cfg *Config) { cfg.Lease = time.Hour }
	a := join(t, server, "a", hour)
	until(t, "one member", []joined{a}, "a")
	bucket, err := OpenMembers(t.Context(), a.bus)
	if err == nil {
		_, err = bucket.PutString(t.Context(), "x", `{"name":"x"}`)
	}
	if err != nil {
		t.Fatal(err)
	}
	b := join(t, server, "b", hour)
	testkit.Until(t, "b is refused", func() bool {
		m, ok := a.View().Member("b")
		return ok && m.State == Refused && strings.Contains(m.Reason, "its lease and beats cannot be read")
	})
	if err := a.bus.Conn().Publish(a.bus.Subject("beat"), []byte(`{"name":"x"}`)); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "the members have the beat", func() bool {
		return strings.Contains(a.log.String(), "is in the cluster, and is ignored")
	})
	if n := strings.Count(b.log.String(), "another version of netsketch"); n != 1 {
		t.Errorf("b says %d times why it is refused, want once:\n%s", n, b.log)
	}
}

// Each field of a member's description reaches the other members.
func TestMemberForm(t *testing.T) {
	m := Member{Name: "a", Incarnation: "i", Protocol: 1, Version: "v", Weight: 2, State: Refused, Reason: "r", Since: 3,
		Drained: true, Started: time.Unix(4, 0).UTC(), Agents: "x:1", Digests: map[string]string{"s": "d"}, Offset: 5,
		Uncertainty: 6}
	for i := range reflect.TypeOf(m).NumField() {
		if reflect.ValueOf(m).Field(i).IsZero() {
			t.Errorf("this test does not set %s", reflect.TypeOf(m).Field(i).Name)
		}
	}
	data, err := m.encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decodeMember(data); err != nil || !reflect.DeepEqual(got, m) {
		t.Errorf("%+v, error %v; want %+v", got, err, m)
	}
	for _, bad := range []Member{{}, {Name: "a", Incarnation: "i", State: Active, Weight: maxWeight + 1}} {
		data, err := bad.encode()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decodeMember(data); err == nil {
			t.Errorf("accepted %+v", got)
		}
	}
}

// A program without an embedded NATS server refuses a configuration that needs one, and names the
// key.
func TestNoEmbeddedServer(t *testing.T) {
	_, err := bus.Connect(t.Context(), bus.Config{Name: "fabric", Embedded: &bus.Embedded{Listen: "127.0.0.1:0"}})
	if err == nil || !strings.Contains(err.Error(), "cluster.nats.embedded: this program has no NATS server") {
		t.Error(err)
	}
}

// A member's clock is 2 s ahead. The offset is measured and published, and the warnings of the
// other members name the member.
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
