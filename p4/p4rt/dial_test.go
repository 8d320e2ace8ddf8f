// SPDX-License-Identifier: Apache-2.0

package p4rt_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/netsketch/netsketch/internal/test/grpctest"
	"github.com/netsketch/netsketch/p4/p4rt"
)

// A session notices by keepalive that its switch has vanished without closing the connection.
func TestSwitchVanishes(t *testing.T) {
	t.Parallel()
	s := startSwitch(t, grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second}))
	addr, vanish := grpctest.Vanishing(t, s.addr)
	shorter := p4rt.Keepalive()
	if shorter.Time < 5*time.Minute || shorter.Time > 6*time.Minute || shorter.Timeout > time.Minute {
		t.Errorf("keepalive is %+v; servers refuse pings within 5 minutes", shorter)
	}
	shorter.Time, shorter.Timeout = 10*time.Second, time.Second // the shortest that gRPC allows
	c := dial(t, p4rt.Config{Target: addr, DeviceID: 1, Program: program(t, "forwarding"),
		DialOptions: []grpc.DialOption{grpc.WithKeepaliveParams(shorter)}})
	waitReady(t, c)
	vanish()
	waitStatus(t, c, "down because of keepalive", func(st p4rt.Status) bool {
		return st.Reason != nil && strings.Contains(st.Reason.Error(), "keepalive ping failed")
	})
}

// The client connects to the switch, whatever proxy the environment names.
func TestNoProxy(t *testing.T) {
	if grpctest.BehindProxy(t) {
		return
	}
	c := dial(t, p4rt.Config{Target: "switch.invalid:9559", DeviceID: 1, Mode: p4rt.Backup})
	waitStatus(t, c, "refused by the resolver", func(st p4rt.Status) bool {
		return st.Reason != nil && strings.Contains(st.Reason.Error(), "switch.invalid")
	})
}
