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

// A switch that refuses everything, and takes a moment for it: the reason is seen while forms are
// still tried. Once all forms were refused, each session tries one form only.
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
