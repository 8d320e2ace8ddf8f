// SPDX-License-Identifier: Apache-2.0

package southbound

import (
	"strings"
	"testing"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A switch takes some time to refuse each request. The state shows the reason while the session
// still tries further forms of requests. After the switch has refused all forms, each session tries
// one form only.
func TestRefusesEverything(t *testing.T) {
	f := newFake(t)
	f.check = func(*gpb.SubscriptionList) (bool, error) {
		time.Sleep(2 * time.Millisecond)
		return false, status.Error(codes.Internal, "not now")
	}
	asked := func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.subscribed)
	}
	w := watch(t, f.addr, func(c *SessionConfig) {
		c.BackoffBase, c.BackoffMax = 400*time.Millisecond, 400*time.Millisecond
	})
	w.wait("the reason during the first session", func() bool {
		st := w.Status()
		return st.State == Syncing && strings.Contains(st.LastError, "not now")
	})
	w.wait("the end of the first session", func() bool { return w.Status().State == Down })
	first := asked()
	w.wait("the second session", func() bool { return w.Status().State == Syncing })
	w.wait("its end", func() bool { return w.Status().State == Down })
	if second := asked() - first; second == 0 || second > first/5 {
		t.Errorf("%d subscriptions in the first session, %d in the second", first, second)
	}
}

// A switch answers more slowly than the limit of a call, and refuses some paths. The session waits
// for these refusals, and the switch serves the other paths.
func TestSlowRefusals(t *testing.T) {
	f := newFake(t)
	f.answer = ports
	f.check = func(l *gpb.SubscriptionList) (bool, error) {
		time.Sleep(60 * time.Millisecond)
		for _, s := range l.GetSubscription() {
			if strings.HasSuffix(s.GetPath().GetElem()[0].GetName(), "lldp") {
				return false, status.Error(codes.Unimplemented, "no lldp")
			}
		}
		return false, nil
	}
	w := watch(t, f.addr, func(c *SessionConfig) {
		c.CallTimeout, c.BackoffBase, c.BackoffMax = 30*time.Millisecond, 20*time.Millisecond, 2*time.Second
	})
	w.wait("what the switch serves", synced(w))
	f.mu.Lock()
	n := len(f.subscribed)
	f.mu.Unlock()
	if n > 140 { // expected: 70; over 220 if a late refusal counts as accepted
		t.Errorf("%d subscriptions", n)
	}
	if st := w.Status(); !strings.Contains(st.LastError, "no lldp") || w.leaves()[eth1+"/state/oper-status"] != "UP" {
		t.Errorf("status %+v", st)
	}
}
