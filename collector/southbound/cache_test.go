// SPDX-License-Identifier: Apache-2.0

package southbound

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/collector/topology"
	"github.com/netsketch/netsketch/internal/store"
)

// held is a cache with a store that receives the cache's batches.
type held struct {
	*watched
	m *cache
}

func hold(t testing.TB) *held {
	st := store.New(store.Options{Schema: testSchema()})
	t.Cleanup(st.Close)
	return &held{&watched{store: st}, newCache("leaf1", 1000, nil)}
}

func (h *held) take(t testing.TB, notes ...*gpb.Notification) {
	t.Helper()
	for _, n := range notes {
		h.m.apply(testSchema(), n, time.Unix(100, 0), func(error) {})
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
				h.m.apply(testSchema(), note, time.Unix(100, 0), func(err error) {
					if err == nil {
						t.Fatal("complains of nothing")
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
		held := 0
		for _, l := range h.m.lists {
			for _, r := range l.rows {
				held += 1 + len(r.leaves)
			}
		}
		if held != h.m.leaves || held > h.m.limit {
			t.Fatalf("%d leaves are held, %d are counted, the bound is %d", held, h.m.leaves, h.m.limit)
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
			f.Ports = append(f.Ports, Port{fmt.Sprintf("e%d", i+1), uint32(i + 1), true})
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
