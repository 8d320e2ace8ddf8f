// SPDX-License-Identifier: Apache-2.0

package southbound

import (
	"strings"
	"testing"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/netsketch/netsketch/internal/test/grpctest"
)

// A switch that vanishes without closing its connection is noticed by keepalive, although it only
// has on-change subscriptions.
func TestSwitchVanishes(t *testing.T) {
	t.Parallel()
	if k := Keepalive(); k.Time < 5*time.Minute || k.Time > 6*time.Minute || k.Timeout > time.Minute {
		t.Errorf("keepalive is %+v; servers refuse pings within 5 minutes", k)
	}
	f := newFake(t, grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second}))
	f.answer = ports
	addr, vanish := grpctest.Vanishing(t, f.addr)
	shorter := Keepalive()
	shorter.Time, shorter.Timeout = 10*time.Second, time.Second // the shortest that gRPC allows
	w := watch(t, addr, func(c *SessionConfig) {
		c.Subscriptions = []Subscription{{Path: path("components"), Mode: OnChange}}
		c.DialOptions = []grpc.DialOption{grpc.WithKeepaliveParams(shorter)}
	})
	w.wait("sync", synced(w))
	vanish()
	w.wait("the session to be down", func() bool {
		return strings.Contains(w.Status().LastError, "keepalive ping failed")
	})
}

// Calls to a switch go to the switch, whatever proxy the environment names.
func TestNoProxy(t *testing.T) {
	if grpctest.BehindProxy(t) {
		return
	}
	conn, err := Endpoint{Address: "switch.invalid:9339"}.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err = gpb.NewGNMIClient(conn).Capabilities(t.Context(), &gpb.CapabilityRequest{}); err == nil {
		t.Error("a switch whose name does not exist has answered")
	}
}
