// SPDX-License-Identifier: Apache-2.0

package p4rt_test

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/netsketch/netsketch/p4/p4rt"
)

// session returns a clone session that sends copies to a port.
func session(id, port uint64) p4rt.Entry {
	return p4rt.Entry{Table: p4rt.CloneSessions, Match: []p4rt.Match{{Field: "session", Value: p4rt.Uint("", id).Value}},
		Action: "clone", Params: []p4rt.Param{p4rt.Uint("port", port)}}
}

// TestCloneSessions writes clone sessions like entries of a table, and reconciles them.
func TestCloneSessions(t *testing.T) {
	s, c := ready(t, entities(t))
	cloneSessions(t, c)
	s.dropRequests()
	if err := c.Reconcile(t.Context(), p4rt.Desired{Entries: []p4rt.Entry{session(7, 3)}}); err != nil {
		t.Fatal(err)
	}
	if n := updatesIn(s); n != 0 {
		t.Errorf("%d updates for a session that is there", n)
	}
	sessions := s.sw.ReadCloneSessions()
	if len(sessions) != 1 || sessions[0].ID != 7 || len(sessions[0].Replicas) != 1 || sessions[0].Replicas[0].Port != 3 {
		t.Errorf("sessions %+v", sessions)
	}
	_, err := c.Catalog()
	if err != nil {
		t.Fatal(err)
	}
	cat := catalogOf(t, entities(t))
	for want, e := range map[string]p4rt.Entry{
		"expected 1 to 32767": session(1<<15, 1),
		`"clone" with the`:    {Table: p4rt.CloneSessions, Match: session(1, 1).Match, Action: "drop"},
		`exact field`:         {Table: p4rt.CloneSessions, Default: true},
	} {
		if _, err := e.Build(cat); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestCloneSessionsOnBMv2 runs the checks of TestCloneSessions on BMv2.
func TestCloneSessionsOnBMv2(t *testing.T) {
	c := dial(t, p4rt.Config{Target: startBMv2(t), DeviceID: 1, Program: program(t, "sketchint")})
	waitReady(t, c)
	cloneSessions(t, c)
}

// cloneSessions writes clone sessions to a switch, and leaves session 7 to port 3.
func cloneSessions(t *testing.T, c *p4rt.Client) {
	t.Helper()
	ctx := t.Context()
	if err := c.Write(ctx, p4rt.Insert(session(7, 1)), p4rt.Insert(session(8, 2))); err != nil {
		t.Fatal(err)
	}
	var failed *p4rt.WriteError
	if err := c.Write(ctx, p4rt.Insert(session(7, 2))); !errors.As(err, &failed) || len(failed.Failed) != 1 ||
		failed.Failed[0].Code != codes.AlreadyExists || !strings.Contains(err.Error(), "clone session 7") {
		t.Errorf("a session that is there: %v", err)
	}
	if err := c.Write(ctx, p4rt.Modify(session(7, 2)), p4rt.Delete(session(8, 0))); err != nil {
		t.Error(err)
	}
	if err := c.Write(ctx, p4rt.Delete(session(8, 0))); !errors.As(err, &failed) || len(failed.Failed) != 1 ||
		failed.Failed[0].Code != codes.NotFound {
		t.Errorf("a session that is gone: %v", err)
	}
	for _, port := range []uint64{3, 3} {
		if err := c.Reconcile(ctx, p4rt.Desired{Entries: []p4rt.Entry{session(7, port)}}); err != nil {
			t.Error(err)
		}
	}
}
