// SPDX-License-Identifier: Apache-2.0

package southbound

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/collector/topology"
	"github.com/netsketch/netsketch/internal/store"
)

// held is a cache with a store that receives the cache's batches.
type held struct {
	*watched
	m      *cache
	stream source
	stats  Stats
}

// all is a stream that subscribes to everything.
var all = source{bit: 1, subs: []Subscription{{Path: &gpb.Path{}}}}

func never() bool { return false }

func hold(t testing.TB) *held {
	st := store.New(store.Options{Schema: testSchema()})
	t.Cleanup(st.Close)
	return &held{&watched{store: st}, newCache("leaf1", 1000, nil), all, Stats{}}
}

func (h *held) take(t testing.TB, notes ...*gpb.Notification) {
	t.Helper()
	for _, n := range notes {
		st := h.m.apply(testSchema(), n, h.stream, time.Unix(100, 0), never, func(string, error) {})
		h.stats.Stale += st.Stale
		h.stats.Unknown += st.Unknown
	}
	for _, b := range h.m.flush(time.Unix(100, 0)) {
		if err := h.store.Publish(b); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCache(t *testing.T) {
	const nb = "/lldp/interfaces/interface[name=e1]/neighbors/neighbor[id=1]"
	for name, tt := range map[string]struct {
		notes []*gpb.Notification
		want  map[string]string
	}{
		"several rows and moments": {[]*gpb.Notification{
			note(1, eth1+"/state/id", 1), note(1, "/interfaces/interface[name=e2]/state/mtu", 1500),
			note(2, eth1+"/state/mtu", 9000),
		}, map[string]string{eth1 + "/state/id": "1", "/interfaces/interface[name=e2]/state/mtu": "1500",
			eth1 + "/state/mtu": "9000"}},
		"list in a list": {[]*gpb.Notification{note(1, nb+"/state/ttl", 120, nb+"/state/id", "1")},
			map[string]string{nb + "/state/ttl": "120", nb + "/state/id": "1", nb + "/id": "1"}},
		"a container in no list": {[]*gpb.Notification{note(1, "/system/state/hostname", "leaf1",
			"/system/state/boot-time", 5)},
			map[string]string{"/system/state/hostname": "leaf1", "/system/state/boot-time": "5"}},
		"delete of a leaf": {[]*gpb.Notification{note(1, eth1+"/state/id", 1, eth1+"/state/mtu", 9000),
			note(2, eth1+"/state/mtu", nil)}, map[string]string{eth1 + "/state/id": "1"}},
		"delete of a row": {[]*gpb.Notification{note(1, eth1+"/state/id", 1, "/interfaces/interface[name=e2]/state/id",
			2), note(2, "/interfaces/interface[name=e2]", nil)}, map[string]string{eth1 + "/state/id": "1"}},
		"delete of a list": {[]*gpb.Notification{note(1, eth1+"/state/id", 1), note(2, "/interfaces/interface", nil)},
			nil},
		"delete of a tree": {[]*gpb.Notification{note(1, nb+"/state/ttl", 120, "/lldp/state/enabled",
			&gpb.TypedValue{Value: &gpb.TypedValue_BoolVal{BoolVal: true}}), note(2, "/lldp", nil)}, nil},
		"delete by the keys of the outer list": {[]*gpb.Notification{note(1, nb+"/state/ttl", 120,
			"/lldp/interfaces/interface[name=e2]/neighbors/neighbor[id=1]/state/ttl", 60),
			note(2, "/lldp/interfaces/interface[name=e1]/neighbors", nil)}, map[string]string{
			"/lldp/interfaces/interface[name=e2]/neighbors/neighbor[id=1]/state/ttl": "60",
			"/lldp/interfaces/interface[name=e2]/neighbors/neighbor[id=1]/id":        "1",
			"/lldp/interfaces/interface[name=e2]/neighbors/neighbor[id=1]/state/id":  "1"}},
		"deleted and there again at one moment": {[]*gpb.Notification{note(1, eth1+"/state/mtu", 9000, eth1+"/state/id",
			1), note(2, eth1, nil, eth1+"/state/id", 2)}, map[string]string{eth1 + "/state/id": "2"}},
		"atomic replaces what is below its prefix": {[]*gpb.Notification{note(1, eth1+"/state/id", 1, eth1+"/state/mtu",
			9000),
			{Timestamp: 2, Atomic: true, Prefix: parsed(eth1 + "/state"),
				Update: []*gpb.Update{{Path: parsed("/id"), Val: number(2)}}}},
			map[string]string{eth1 + "/state/id": "2"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, together := range []bool{true, false} {
				h := hold(t)
				if together {
					h.take(t, tt.notes...)
				} else {
					for _, n := range tt.notes {
						h.take(t, n)
					}
				}
				got := h.leaves()
				for p := range got { // the keys of interfaces are not compared
					if len(p) > 5 && (p[len(p)-5:] == "/name") {
						delete(got, p)
					}
				}
				want := tt.want
				if want == nil {
					want = map[string]string{}
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("together %v (-want +got):\n%s", together, diff)
				}
				for _, b := range h.m.clear(time.Unix(200, 0)) {
					if err := h.store.Publish(b); err != nil {
						t.Fatal(err)
					}
				}
				if left := h.leaves(); len(left) != 0 {
					t.Errorf("cleared, and left are %v", left)
				}
			}
		})
	}
}

// Notifications may arrive in any order: one that is older than a leaf in the cache does not change
// the leaf.
func TestOlderLoses(t *testing.T) {
	const status, mtu = eth1 + "/state/oper-status", eth1 + "/state/mtu"
	for name, tt := range map[string]struct {
		notes []*gpb.Notification
		want  map[string]string
		stale uint64
	}{
		"an update after a newer one": {
			[]*gpb.Notification{note(20, status, "UP"), note(10, status, "DOWN")},
			map[string]string{status: "UP"}, 1},
		"a delete after a newer update": {
			[]*gpb.Notification{note(20, status, "UP"), note(10, status, nil)},
			map[string]string{status: "UP"}, 0},
		"an update after a newer delete": {
			[]*gpb.Notification{note(5, status, "UP"), note(20, status, nil), note(10, status, "DOWN")}, nil, 1},
		"an update after a delete of what was not there": {
			[]*gpb.Notification{note(20, eth1, nil), note(10, status, "DOWN")}, nil, 1},
		"an update after a newer delete with a wildcard": {
			[]*gpb.Notification{note(5, status, "UP"), note(20, "/interfaces/interface[name=*]/state/oper-status", nil),
				note(10, status, "DOWN"), note(25, mtu, 1500)}, map[string]string{mtu: "1500"}, 1},
		"an update after a newer delete without keys": {
			[]*gpb.Notification{note(5, status, "UP"), note(20, "/*/interface", nil), note(10, status, "DOWN")}, nil, 1},
		"a delete of the row spares a newer leaf": {
			[]*gpb.Notification{note(10, status, "UP"), note(30, mtu, 9000), note(20, eth1, nil)},
			map[string]string{mtu: "9000"}, 0},
		"an older leaf of a row deleted since": {
			[]*gpb.Notification{note(10, mtu, 9000), note(20, "/interfaces", nil), note(15, status, "UP"),
				note(25, mtu, 1500)},
			map[string]string{mtu: "1500"}, 1},
		"an older leaf after a delete of everything": {
			[]*gpb.Notification{note(20, "/", nil), note(15, status, "UP"), note(25, mtu, 1500)},
			map[string]string{mtu: "1500"}, 1},
		"a newer value after a delete": {
			[]*gpb.Notification{note(10, status, "UP"), note(20, status, nil), note(30, status, "DOWN")},
			map[string]string{status: "DOWN"}, 0},
		"two at the same time: the last one counts": {
			[]*gpb.Notification{note(10, status, "UP"), note(10, status, "DOWN")},
			map[string]string{status: "DOWN"}, 0},
		"a clock that was ahead, and a value of before its arrival": {
			[]*gpb.Notification{note(1<<61, status, "UP"), note(99e9, status, "DOWN")},
			map[string]string{status: "UP"}, 1}, // the first one arrived at 100 s
		"a clock that was ahead, and a value after its correction": {
			[]*gpb.Notification{note(1<<61, status, "UP"), note(100e9, status, "DOWN")},
			map[string]string{status: "DOWN"}, 0},
		"an atomic update after a newer one": {
			[]*gpb.Notification{
				{Timestamp: 20, Atomic: true, Prefix: parsed(eth1 + "/state"), Update: note(0, "/mtu", 2).Update},
				{Timestamp: 10, Atomic: true, Prefix: parsed(eth1 + "/state"),
					Update: note(0, "/oper-status", "UP", "/mtu", 1).Update}},
			map[string]string{mtu: "2"}, 2},
		"an older leaf of an atomic container": {
			[]*gpb.Notification{
				{Timestamp: 20, Atomic: true, Prefix: parsed(eth1 + "/state"), Update: note(0, "/mtu", 2).Update},
				note(10, status, "UP")},
			map[string]string{mtu: "2"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			h := hold(t)
			h.take(t, tt.notes...)
			got := h.leaves()
			for p := range got {
				if strings.HasSuffix(p, "/name") {
					delete(got, p)
				}
			}
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if h.stats.Stale != tt.stale {
				t.Errorf("%d stale leaves; expected %d", h.stats.Stale, tt.stale)
			}
		})
	}
}

// An atomic notification replaces those leaves of the container that its stream subscribes to. A
// delete of one of these leaves deletes all of them.
func TestAtomicContainers(t *testing.T) {
	const state = eth1 + "/state"
	counters := source{bit: 1, subs: []Subscription{{Path: path("interfaces", "interface", "state", "counters")}}}
	status := source{bit: 2, subs: []Subscription{{Path: path("interfaces", "interface", "state", "oper-status")}}}
	atomic := func(at int64, prefix string, pairs ...any) *gpb.Notification {
		n := note(at, pairs...)
		n.Atomic, n.Prefix = true, parsed(prefix)
		return n
	}
	h := hold(t)
	from := func(src source, n *gpb.Notification, want map[string]string) {
		t.Helper()
		h.stream = src
		h.take(t, n)
		got := h.leaves()
		for p := range got {
			if strings.HasSuffix(p, "/name") {
				delete(got, p)
			}
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("after %v (-want +got):\n%s", n, diff)
		}
	}
	from(status, note(10, state+"/oper-status", "UP"), map[string]string{state + "/oper-status": "UP"})
	from(counters, atomic(20, state, "/counters/in-octets", 1, "/counters/out-octets", 2), map[string]string{
		state + "/oper-status": "UP", state + "/counters/in-octets": "1", state + "/counters/out-octets": "2"})
	from(status, note(15, state+"/oper-status", "DOWN"), map[string]string{
		state + "/oper-status": "DOWN", state + "/counters/in-octets": "1", state + "/counters/out-octets": "2"})
	from(counters, atomic(30, state, "/counters/in-octets", 3), map[string]string{
		state + "/oper-status": "DOWN", state + "/counters/in-octets": "3"})
	from(counters, note(40, state+"/counters/in-octets", nil), map[string]string{state + "/oper-status": "DOWN"})
	from(counters, atomic(50, state+"/counters", "/in-octets", 4, "/out-octets", 5), map[string]string{
		state + "/oper-status": "DOWN", state + "/counters/in-octets": "4", state + "/counters/out-octets": "5"})
	from(counters, note(60, state+"/counters/out-octets", nil), map[string]string{state + "/oper-status": "DOWN"})
	from(status, note(70, eth1, nil), nil)
	// A device splits a long notification, and each stream subscribes to a part of the container.
	whole := map[string]string{state + "/oper-status": "UP", state + "/counters/in-octets": "7",
		state + "/counters/out-octets": "8"}
	from(status, atomic(80, state, "/oper-status", "UP"), map[string]string{state + "/oper-status": "UP"})
	from(counters, atomic(80, state, "/counters/in-octets", 7), map[string]string{state + "/oper-status": "UP",
		state + "/counters/in-octets": "7"})
	from(counters, atomic(80, state, "/counters/out-octets", 8), whole)
	from(counters, atomic(90, state, "/counters/in-octets", 9), map[string]string{state + "/oper-status": "UP",
		state + "/counters/in-octets": "9"})
	from(counters, atomic(0, state, "/counters/in-octets", 9), map[string]string{state + "/oper-status": "UP",
		state + "/counters/in-octets": "9"})
	from(counters, atomic(0, state, "/counters/out-octets", 9), map[string]string{state + "/oper-status": "UP",
		state + "/counters/out-octets": "9"})
	key := parsed(state)
	key.Elem[1] = &gpb.PathElem{Name: "openconfig-interfaces:interface", Key: map[string]string{
		"openconfig-interfaces:name": "Ethernet1"}}
	from(status, &gpb.Notification{Timestamp: 95, Delete: []*gpb.Path{key}}, nil)
}

// A leaf is withdrawn when all streams that delivered it have ended.
func TestForget(t *testing.T) {
	h := hold(t)
	h.stream = source{bit: 1}
	h.take(t, note(1, eth1+"/state/mtu", 1, eth1+"/state/id", 1))
	h.stream = source{bit: 2}
	h.take(t, note(1, eth1+"/state/mtu", 1), note(0, "/lldp/state/system-name", "x"))
	h.m.forget(1)
	h.take(t)
	if got := h.leaves(); got[eth1+"/state/mtu"] != "1" || got[eth1+"/state/id"] != "" {
		t.Errorf("%v", got)
	}
	h.m.forget(2)
	h.take(t)
	if got := h.leaves(); len(got) != 0 || h.m.leaves != 0 || h.m.bytes != 0 {
		t.Errorf("%v; %d leaves and %d bytes are counted", got, h.m.leaves, h.m.bytes)
	}
}

// Paths of another origin are another tree.
func TestForeignOrigin(t *testing.T) {
	h := hold(t)
	n := note(1, eth1+"/state/mtu", 1)
	n.Prefix = &gpb.Path{Origin: "cli"}
	other := note(1, eth1+"/state/id", 1)
	other.Update[0].Path.Origin = "eos_native"
	own := note(1, eth1+"/state/ifindex", 1)
	own.Prefix = &gpb.Path{Origin: "openconfig"}
	gone := note(1, eth1+"/state/ifindex", nil)
	gone.Delete[0].Origin = "cli"
	h.take(t, n, other, own, gone)
	if h.stats.Unknown != 3 || h.m.foreign != "cli" {
		t.Errorf("%d leaves are counted as unknown, the last of the origin %q; expected 3 and cli", h.stats.Unknown,
			h.m.foreign)
	}
	got := h.leaves()
	if got[eth1+"/state/mtu"] != "" || got[eth1+"/state/id"] != "" || got[eth1+"/state/ifindex"] != "1" {
		t.Errorf("%v", got)
	}
}

// Each leaf is served with the time that the switch gave it.
func TestLeavesKeepTheDevicesTime(t *testing.T) {
	h := hold(t)
	h.take(t, note(10, eth1+"/state/oper-status", "UP", "/interfaces/interface[name=e2]/state/oper-status", "UP"),
		note(20, eth1+"/state/counters/in-octets", 1), note(20, "/interfaces/interface[name=e2]/state/id", 2),
		note(30, eth1+"/state/counters/in-octets", 2))
	want := map[string]int64{"Ethernet1 state/oper-status": 10, "Ethernet1 state/counters/in-octets": 30,
		"e2 state/oper-status": 10, "e2 state/id": 20}
	got := map[string]int64{}
	for row, meta := range h.store.View().Rows(store.Query{Target: "leaf1"}) {
		for i, v := range row.Values {
			if l := row.List.Leaves[i]; !v.Absent() && l.KeyOf < 0 {
				got[row.Entry.Keys[0].String()+" "+l.Name] = meta.LeafTime(i)
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Whatever a switch sends, the cache stays within its bound, its leaves fit the schema, and the
// store accepts and returns them.
func FuzzNotifications(f *testing.F) {
	add := func(notes ...*gpb.Notification) {
		var b []byte
		for _, n := range notes {
			one, err := proto.Marshal(n)
			if err != nil {
				f.Fatal(err)
			}
			b = append(append(b, byte(len(one)>>8), byte(len(one))), one...)
		}
		f.Add(b)
	}
	add(note(1, eth1+"/state/id", 1), note(2, eth1, nil))
	add(note(1, "/lldp/interfaces/interface[name=e1]/neighbors/neighbor[id=1]/state/system-name", "spine"))
	add(&gpb.Notification{Atomic: true, Prefix: parsed("/interfaces"),
		Update: []*gpb.Update{{Path: parsed("/"), Val: &gpb.TypedValue{Value: &gpb.TypedValue_JsonVal{
			JsonVal: []byte(`{"interface":[{"name":"a"}]}`)}}}}})
	f.Fuzz(func(t *testing.T, data []byte) {
		h := hold(t)
		h.m.limit = 20
		for len(data) >= 2 {
			n := int(data[0])<<8 | int(data[1])
			data = data[2:]
			n = min(n, len(data))
			note := &gpb.Notification{}
			if proto.Unmarshal(data[:n], note) == nil {
				h.m.apply(testSchema(), note, all, time.Unix(100, 0), never, func(leaf string, err error) {
					if err == nil || len(leaf) > 300 {
						t.Fatalf("complains of %v at %q", err, leaf)
					}
				})
			}
			data = data[n:]
		}
		for _, b := range h.m.flush(time.Unix(100, 0)) {
			for _, p := range b.Tables {
				if err := testSchema().Validate(p.Table); err != nil && !p.Delete {
					t.Fatal(err)
				}
			}
			if err := h.store.Publish(b); err != nil {
				t.Fatal(err)
			}
		}
		held, bytes := 0, 0
		for _, l := range h.m.lists {
			for _, r := range l.rows {
				held += 1 + len(r.leaves)
				bytes += len(r.id)
				for _, f := range r.leaves {
					text, _ := f.value.(string)
					bytes += len(text)
				}
			}
		}
		if held != h.m.leaves || held > h.m.limit || bytes != h.m.bytes {
			t.Fatalf("%d leaves with %d bytes are held, %d with %d are counted, the bound is %d leaves", held, bytes,
				h.m.leaves, h.m.bytes, h.m.limit)
		}
		_ = h.m.facts()
		for _, b := range h.m.clear(time.Unix(200, 0)) {
			if err := h.store.Publish(b); err != nil {
				t.Fatal(err)
			}
		}
		if left := h.leaves(); len(left) != 0 {
			t.Fatalf("cleared, and left are %v", left)
		}
	})
}

func TestLinks(t *testing.T) {
	// a/1-b/1 as configured; a/2-b/2 configured, and swapped with c/1; d reports nothing.
	facts := func(name, chassis string, neighbors ...Neighbor) Facts {
		f := Facts{Number: 1, SystemName: name, Chassis: chassis, LLDP: true, Neighbors: neighbors}
		for i := range 4 {
			f.Ports = append(f.Ports, Port{Name: fmt.Sprintf("e%d", i+1), ID: uint32(i + 1), Down: true})
		}
		return f
	}
	known := map[string]Facts{
		"a": facts("host-a", "02:aa", Neighbor{Interface: "e1", Chassis: "02:bb", PortID: "e1"},
			Neighbor{Interface: "e2", SystemName: "c", PortID: "02:cc:01", PortDescription: "e1"},
			Neighbor{Interface: "e9", Chassis: "02:bb", PortID: "e4"},
			Neighbor{Interface: "e4", Chassis: "02:ff", PortID: "e1"}),
		"b": facts("host-b", "02:bb", Neighbor{Interface: "e1", Chassis: "02:aa", PortID: "e1"}),
		"c": facts("host-c", "02:cc", Neighbor{Interface: "e3", Chassis: "02:bb", PortID: "e3"}),
		"d": {},
	}
	var b topology.Builder
	for name := range known {
		b.AddSwitch(topology.Switch{Name: name})
	}
	port := func(s string, n uint32) topology.Port { return topology.Port{Switch: s, Number: n} }
	b.AddLink(topology.Link{A: port("a", 1), B: port("b", 1)})
	b.AddLink(topology.Link{A: port("a", 2), B: port("b", 2)})
	b.AddLink(topology.Link{A: port("a", 3), B: port("d", 1)})
	b.AddLink(topology.Link{A: port("b", 4), B: port("c", 4)})
	topo, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	none := topology.Port{}
	want := []Link{
		{port("a", 1), Confirmed, port("b", 1), port("b", 1)},
		{port("a", 2), Mismatch, port("b", 2), port("c", 1)},
		{port("a", 3), Configured, port("d", 1), none},
		{port("b", 1), Confirmed, port("a", 1), port("a", 1)},
		{port("b", 2), Missing, port("a", 2), none},
		{port("b", 3), Discovered, none, port("c", 3)},
		{port("b", 4), Missing, port("c", 4), none},
		{port("c", 1), Discovered, none, port("a", 2)},
		{port("c", 3), Discovered, none, port("b", 3)},
		{port("c", 4), Missing, port("b", 4), none},
		{port("d", 1), Configured, port("a", 3), none},
	}
	if diff := cmp.Diff(want, Links(topo, known)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func BenchmarkNotification(b *testing.B) {
	n := &gpb.Notification{Timestamp: 1, Prefix: parsed(eth1 + "/state/counters")}
	leaves := []string{"in-octets", "out-octets", "in-unicast-pkts", "out-unicast-pkts", "in-errors", "out-errors",
		"in-discards", "out-discards"}
	for _, l := range leaves {
		n.Update = append(n.Update, &gpb.Update{Path: parsed("/" + l), Val: number(0)})
	}
	h := hold(b)
	b.ReportAllocs()
	i := uint64(0)
	for b.Loop() {
		i++
		n.Timestamp = int64(i)
		for _, u := range n.Update {
			u.Val.Value = &gpb.TypedValue_UintVal{UintVal: i}
		}
		h.take(b, n)
	}
	b.ReportMetric(float64(i)*float64(len(leaves))/b.Elapsed().Seconds(), "leaves/s")
}
