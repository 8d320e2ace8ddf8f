// SPDX-License-Identifier: Apache-2.0

package southbound

import (
	"fmt"
	"strings"
	"testing"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/protobuf/proto"
)

// A switch that reports 200,000 interfaces is read up to the bound, and what exceeds it is counted.
func TestManyInterfaces(t *testing.T) {
	f := newFake(t)
	f.answer = func(subscribed string) ([]*gpb.Notification, error) {
		if subscribed != "ON_CHANGE "+operStatus {
			return nil, nil
		}
		var out []*gpb.Notification
		for i := range 200 {
			n := &gpb.Notification{Timestamp: 1}
			for j := range 1000 {
				n.Update = append(n.Update, &gpb.Update{Val: text("UP"), Path: &gpb.Path{Elem: []*gpb.PathElem{
					{Name: "interfaces"}, {Name: "interface", Key: map[string]string{"name": fmt.Sprint(i*1000 + j)}},
					{Name: "state"}, {Name: "oper-status"}}}})
			}
			out = append(out, n)
		}
		return out, nil
	}
	w := watch(t, f.addr, func(c *SessionConfig) { c.SyncTimeout = 2 * time.Minute }) // later it counts as synced in part
	w.wait("sync", synced(w))
	if st := w.Status(); st.Refused != 100_000 || len(w.Facts().Ports) != 100_000 {
		t.Errorf("status %+v, %d ports; expected half of the interfaces", st, len(w.Facts().Ports))
	}
}

// A path whose value exceeds the largest message costs that path only.
func TestHugeValue(t *testing.T) {
	f := newFake(t)
	f.answer = func(subscribed string) ([]*gpb.Notification, error) {
		if strings.HasSuffix(subscribed, "/interfaces/interface/state/description") {
			return []*gpb.Notification{note(1, eth1+"/state/description", strings.Repeat("x", 60<<20))}, nil
		}
		return ports(subscribed)
	}
	w := watch(t, f.addr)
	w.wait("sync", synced(w))
	if st := w.Status(); st.Missing != 1 || !strings.Contains(st.LastError, "larger than max") ||
		w.leaves()[eth1+"/state/id"] != "7" {
		t.Errorf("status %+v, leaves %v", st, w.leaves())
	}
}

// Text within the bound of a leaf is bounded for the switch, too.
func TestMuchText(t *testing.T) {
	h := hold(t)
	h.m.limit = 1 << 20
	big := strings.Repeat("x", maxText)
	for i := range maxBytes/maxText + 100 {
		h.take(t, note(1, fmt.Sprintf("/interfaces/interface[name=e%d]/state/description", i), big))
	}
	if h.m.bytes > maxBytes || h.m.bytes < maxBytes-4*maxText {
		t.Errorf("%d bytes are held; the bound is %d", h.m.bytes, maxBytes)
	}
}

// Notifications with missing parts, as protobuf allows them, and sync_responses without end are
// harmless.
func TestEmptyMessages(t *testing.T) {
	h := hold(t)
	h.take(t, &gpb.Notification{}, &gpb.Notification{Atomic: true}, &gpb.Notification{Delete: []*gpb.Path{nil, {}}},
		&gpb.Notification{Update: []*gpb.Update{nil, {}, {Path: &gpb.Path{Elem: []*gpb.PathElem{nil, {}}}}}},
		&gpb.Notification{Atomic: true, Prefix: &gpb.Path{Elem: []*gpb.PathElem{nil, {}}},
			Delete: []*gpb.Path{{Elem: []*gpb.PathElem{nil}}}},
		&gpb.Notification{Timestamp: -1 << 63}, &gpb.Notification{Timestamp: 1<<63 - 1})
	long := &gpb.Path{}
	for range 100_000 {
		long.Elem = append(long.Elem, &gpb.PathElem{Name: "interfaces", Key: map[string]string{"name": "*"}})
	}
	h.take(t, &gpb.Notification{Prefix: long, Atomic: true, Delete: []*gpb.Path{proto.CloneOf(long)},
		Update: []*gpb.Update{{Path: long, Val: text("x")}}})
	if got := h.leaves(); len(got) != 0 {
		t.Errorf("%v", got)
	}
}
