// SPDX-License-Identifier: Apache-2.0

package plans

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

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
	plans    map[string][]intent.SharedPlan // of other members
	settings []string
	outcomes []string
	early    bool // settings are not in force yet
}

func (s *side) do(f func(*side)) { s.mu.Lock(); defer s.mu.Unlock(); f(s) }

func start(t *testing.T, server, name string, view func() cluster.View) *side {
	t.Helper()
	s := &side{plans: map[string][]intent.SharedPlan{}}
	s.Component = New(Dependencies{Bus: bustest.Connect(t, "fabric", name, server), Member: name, View: view,
		Incarnation: name,
		Follow: func(_ context.Context, member string, plans []intent.SharedPlan) {
			s.do(func(s *side) { s.plans[member] = plans })
		},
		Outcome: func(o intent.Outcome) bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			early := s.early
			s.outcomes = append(s.outcomes, fmt.Sprintf("%s%s %s %d %v", o.Host, o.Device, o.Reason, o.Plan, !early))
			s.early = false
			return !early
		},
		FollowHosts: func(plugin string, plan sdk.Plan) {
			s.do(func(s *side) {
				for _, h := range plan.Hosts {
					s.settings = append(s.settings, fmt.Sprintf("%s %d %s %s %s%.9s", plugin, plan.ID, h.Host, h.Role, h.Data,
						h.Tail))
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

// shared returns a plan for a device, with one entry whose parameter has the given number of bytes.
func shared(number uint64, bytes int) intent.SharedPlan {
	value := make([]byte, bytes)
	_, _ = rand.NewChaCha8([32]byte{byte(number)}).Read(value) // never fails
	return intent.SharedPlan{Number: number, Plugin: "p", Plan: sdk.Plan{ID: number, FromEpoch: 7, PreEpoch: true,
		Writes: []sdk.DeviceWrite{{Device: "s1", Op: sdk.Insert, Entry: sdk.TableEntry{Table: "t", Action: "a",
			Params: []sdk.ActionParam{{Name: "value", Value: value}}}}}}}
}

// The plans of a member that are not concluded reach the other members: those that are present and
// those that join later, whatever the size of the plans. Concluded plans reach no member.
func TestPlans(t *testing.T) {
	server := bustest.Server(t)
	maker, there := start(t, server, "c1", members), start(t, server, "c2", members)
	var later *side
	for _, plans := range [][]intent.SharedPlan{{shared(1, 9)}, {shared(1, 9), shared(2, 9)}, {shared(2, 9)},
		{shared(2, 9), shared(3, 3<<20)}, {shared(3, 3<<20), shared(4, 9)}} {
		undo := slices.Clone(plans)
		undo[0].Undo = true
		for _, want := range [][]intent.SharedPlan{plans, undo} {
			maker.Share(want)
			if later == nil {
				later = start(t, server, "c3", members)
			}
			for _, s := range []*side{there, later} {
				testkit.Until(t, "the plans of c1", func() bool {
					s.mu.Lock()
					defer s.mu.Unlock()
					return slices.EqualFunc(want, s.plans["c1"], func(a, b intent.SharedPlan) bool {
						return a.Number == b.Number && a.Plugin == b.Plugin && a.Undo == b.Undo && proto.Equal(a.Plan.Proto(),
							b.Plan.Proto())
					})
				})
			}
		}
	}
	bucket, err := maker.plansOf.on(t.Context(), maker.deps.Bus)
	if err != nil {
		t.Fatal(err)
	}
	maker.Share(nil)
	testkit.Until(t, "no plan", func() bool {
		there.mu.Lock()
		defer there.mu.Unlock()
		return len(there.plans["c1"]) == 0
	})
	testkit.Until(t, "no chunks", func() bool {
		keys, err := bucket.Keys(t.Context())
		return err == nil && !slices.ContainsFunc(keys, func(key string) bool { return strings.Count(key, ".") > 1 })
	})
	if len(maker.plans["c1"]) > 0 || maker.EntriesFailed()+there.EntriesFailed() != 0 {
		t.Errorf("the maker follows %v; %d and %d failures", maker.plans, maker.EntriesFailed(), there.EntriesFailed())
	}
	maker.Share([]intent.SharedPlan{shared(5, maxMessage)})
	testkit.Until(t, "the plan is refused", func() bool {
		maker.mu.Lock()
		defer maker.mu.Unlock()
		return slices.ContainsFunc(maker.outcomes, func(o string) bool {
			return strings.HasPrefix(o, "s1 the plan is not shared: it is too large")
		})
	})
}

// Plans that cannot be read are counted, and the earlier plans stay.
func TestPlansThatCannotBeRead(t *testing.T) {
	server := bustest.Server(t)
	maker, other := start(t, server, "c1", members), start(t, server, "c2", members)
	maker.Share([]intent.SharedPlan{shared(1, 9)})
	testkit.Until(t, "the plan", func() bool { other.mu.Lock(); defer other.mu.Unlock(); return len(other.plans) == 1 })
	bucket, err := maker.plansOf.on(t.Context(), maker.deps.Bus)
	if err != nil {
		t.Fatal(err)
	}
	later, err := encode(&clusterv1.StoredPlans{Protocol: clusterv1.Version + 1, From: "c1"})
	if err != nil {
		t.Fatal(err)
	}
	kindless, err := encode(&clusterv1.StoredPlans{Protocol: clusterv1.Version, From: "c1",
		Plans: []*clusterv1.StoredPlan{{Number: 2, Plan: []byte{0x22, 0x03, 0x0a, 0x01, 's'}}}})
	if err != nil {
		t.Fatal(err)
	}
	for i, data := range [][]byte{[]byte("garbage"), later, kindless} {
		if _, err := bucket.Put(t.Context(), plansKey("c1"), data); err != nil {
			t.Fatal(err)
		}
		testkit.Until(t, "it is counted", func() bool { return other.EntriesFailed() == uint64(i)+1 })
	}
	if len(other.plans["c1"]) != 1 {
		t.Errorf("the plans are %v", other.plans)
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
	// Settings of many hosts share their tail in the stored form, and again in memory.
	end := bytes.Repeat([]byte("10.0.0.1 "), 15_000)
	plan := sdk.Plan{ID: 3}
	for i := range 10_000 {
		plan.Hosts = append(plan.Hosts, sdk.HostSetting{Host: fmt.Sprintf("h%d", i), Role: "table", Tail: end,
			Data: fmt.Appendf(nil, "%d of ", i)})
	}
	home.Settings(mine, plan)
	home.Settings(mine, sdk.Plan{ID: 4, Hosts: []sdk.HostSetting{{Host: "h7", Role: "table", Data: []byte("alone")}}})
	testkit.Until(t, "the settings of 10,000 hosts", func() bool {
		other.mu.Lock()
		defer other.mu.Unlock()
		n := len(other.settings)
		return n >= 10_000 && other.settings[n-1] == mine+" 4 h7 table alone" &&
			other.settings[n-2] == mine+" 3 h9999 table 9999 of 10.0.0.1 "
	})
	other.Component.mu.Lock()
	kept := other.Component.settings[mine].StoredSettings
	other.Component.mu.Unlock()
	if size := proto.Size(kept); size > 2*chunkBytes-1024 || len(kept.GetTails()) != 1 {
		t.Errorf("%d bytes are stored for 10,000 hosts, with %d ends", size, len(kept.GetTails()))
	}
	other.takeSettings(mine, []byte("garbage"))
	other.takeSettings(mine, []byte{0x08, clusterv1.Version + 1}) // field 1: another version
	if n := other.EntriesFailed(); n != 2 || len(other.Component.settings[mine].GetHosts()) != 10_002 {
		t.Errorf("%d settings could not be read, want 2; there are %v", n, other.Component.settings[mine])
	}
}

// An outcome reaches the home of the plugin. It is sent again until the home accepts it, and
// follows a plugin that moves meanwhile.
func TestOutcomes(t *testing.T) {
	server := bustest.Server(t)
	home, owner := start(t, server, "c1", members), start(t, server, "c2", members)
	mine, others := homes(t)
	home.do(func(s *side) { s.early = true })
	owner.Outcome(intent.Outcome{Plugin: mine, Host: "h1", Plan: 3, Reason: "full"})
	owner.Outcome(intent.Outcome{Plugin: others, Host: "h2", Plan: 4}) // has moved to the owner
	for s, want := range map[*side][]string{home: {"h1 full 3 false", "h1 full 3 true"}, owner: {"h2  4 true"}} {
		testkit.Until(t, fmt.Sprintf("the outcomes %q", want), func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return slices.Equal(s.outcomes, want)
		})
	}
	owner.Outcome(intent.Outcome{Plugin: others, Maker: "c1", Device: "s1", Plan: 5}) // made before the plugin moved
	testkit.Until(t, "the outcome of a plan", func() bool {
		home.mu.Lock()
		defer home.mu.Unlock()
		return slices.Contains(home.outcomes, "s1  5 true")
	})
	owner.Outcome(intent.Outcome{Plugin: others, Maker: "c9", Device: "s1", Plan: 6}) // a plan whose maker is gone
	testkit.Until(t, "nothing waits", func() bool {
		owner.Component.mu.Lock()
		defer owner.Component.mu.Unlock()
		return len(owner.Component.outcomes) == 0
	})
}

func FuzzDecode(f *testing.F) {
	plan, err := planProto(shared(1, 9))
	if err != nil {
		f.Fatal(err)
	}
	for _, m := range []stored{&clusterv1.StoredEntries{Protocol: clusterv1.Version, From: "c1",
		Entries: entriesProto([]p4rt.Entry{route(1)[0].Entry})},
		&clusterv1.StoredPlans{Protocol: clusterv1.Version, From: "c1", Plans: []*clusterv1.StoredPlan{plan}}} {
		data, err := encode(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("garbage"))
	f.Fuzz(func(t *testing.T, data []byte) {
		plans := &clusterv1.StoredPlans{}
		for _, m := range []stored{&clusterv1.StoredEntries{}, plans} {
			if err := decodeStored(data, m); err == nil && (m.GetFrom() == "" || m.GetProtocol() != clusterv1.Version) {
				t.Errorf("accepted %v", m)
			}
		}
		for _, p := range plans.GetPlans() {
			if _, err := planFrom(p); err != nil {
				return
			}
		}
	})
}
