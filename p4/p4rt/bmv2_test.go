// SPDX-License-Identifier: Apache-2.0

package p4rt_test

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/netsketch/netsketch/p4/bmv2"
	"github.com/netsketch/netsketch/p4/p4rt"
)

// startBMv2 starts simple_switch_grpc on loopback, without a program, and returns its P4Runtime
// address. The test is skipped if simple_switch_grpc is not installed.
func startBMv2(t testing.TB) string {
	t.Helper()
	sw, err := bmv2.Start(t.Context(), bmv2.Config{})
	if errors.Is(err, bmv2.ErrNotInstalled) {
		t.Skipf("%v: this test holds the client to BMv2 where there is one", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("simple_switch_grpc wrote:\n%s", sw.Log())
		}
		sw.Close()
	})
	return sw.P4Runtime()
}

// TestBMv2 runs everything that a collector does to a switch on BMv2: pipeline by cookie, entries,
// errors by update, bank flip, read-out.
func TestBMv2(t *testing.T) {
	addr := startBMv2(t)
	c := dial(t, p4rt.Config{Target: addr, DeviceID: 1, Program: program(t, "univmon-300k")})
	ctx := t.Context()
	waitReady(t, c)
	st := c.Status()
	caps, err := c.Capabilities()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("BMv2 speaks P4Runtime %s; pushed %v; registers: %v", caps.Version, st.Pushed, caps.RegisterError)
	if !st.Pushed || !caps.PacketReadout || caps.Registers {
		t.Errorf("status %+v, capabilities %+v", st, caps)
	}

	route := func(prefix string, port uint64) p4rt.Entry { return ipv4Route(t, prefix, port) }
	if err := c.Reconcile(ctx, p4rt.Desired{Entries: []p4rt.Entry{route("10.0.1.0/24", 1), route("10.0.2.0/24", 2)},
		Tables: []string{"ipv4_lpm"}}); err != nil {
		t.Fatal(err)
	}
	p := program(t, "univmon-300k")
	if entries := entriesOn(t, addr, p, "ipv4_lpm"); len(entries) != 2 {
		t.Fatalf("%d entries", len(entries))
	}

	cat, err := c.Catalog()
	if err != nil {
		t.Fatal(err)
	}
	err = c.Write(ctx, p4rt.Insert(route("10.0.3.0/24", 3)), p4rt.Insert(route("10.0.1.0/24", 7)))
	var we *p4rt.WriteError
	if !errors.As(err, &we) || len(we.Failed) != 1 || we.Failed[0].Index != 1 ||
		we.Failed[0].Code != codes.AlreadyExists {
		t.Errorf("a duplicate entry: %v", err)
	} else if !strings.Contains(err.Error(), "ipv4_lpm") || !strings.Contains(err.Error(), "10.0.1.0/24") {
		t.Errorf("the error does not name the update: %v", err)
	}

	if err := c.SetDefaultAction(ctx, "bank", "set_bank", p4rt.Uint("bank", 1)); err != nil {
		t.Fatal(err)
	}
	for _, r := range cat.Readouts() {
		cells, err := readBank(ctx, c, r.Name, 0)
		if err != nil {
			t.Fatal(err)
		}
		if cells.Len() != r.Readout.Cells {
			t.Errorf("%s: %d cells", r.Name, cells.Len())
		}
		for i := range cells.Len() {
			if cells.At(i) != 0 {
				t.Fatalf("%s[%d] = %d before any packet", r.Name, i, cells.At(i))
			}
		}
	}

	// A second client finds the same cookie and pushes nothing; the first client is outbid and stops
	// writing.
	other := dial(t, p4rt.Config{Target: addr, DeviceID: 1, ElectionID: p4rt.ElectionID{Low: 7},
		Program: program(t, "univmon-300k")})
	waitReady(t, other)
	if other.Status().Pushed {
		t.Error("the second client pushed a pipeline that was there")
	}
	waitState(t, c, p4rt.Standby)
	if err := c.SetDefaultAction(ctx, "bank", "set_bank", p4rt.Uint("bank", 0)); !errors.Is(err, p4rt.ErrNotPrimary) {
		t.Errorf("a write in standby: %v", err)
	}
	if left := entriesOn(t, addr, p, "ipv4_lpm"); len(left) != 3 {
		t.Errorf("%d entries are left", len(left))
	}

	// A third client takes over when both have ended, as in a handover between collectors.
	heir := dial(t, p4rt.Config{Target: addr, DeviceID: 1, ElectionID: p4rt.ElectionID{Low: 9}, Yields: true,
		Program: program(t, "univmon-300k")})
	waitState(t, heir, p4rt.Standby)
	c.Close()
	other.Close()
	waitReady(t, heir)
	if err := heir.SetDefaultAction(ctx, "bank", "set_bank", p4rt.Uint("bank", 0)); err != nil || heir.Status().Pushed {
		t.Errorf("a write after the handover: %v; %+v", err, heir.Status())
	}
}

func ipv4Route(t testing.TB, prefix string, port uint64) p4rt.Entry {
	t.Helper()
	return p4rt.Entry{
		Table: "ipv4_lpm", Match: []p4rt.Match{p4rt.Prefix("hdr.ipv4.dst", mustPrefix(t, prefix))},
		Action: "forward", Params: []p4rt.Param{
			p4rt.Uint("port", port), p4rt.Bytes("src_mac", []byte{2, 0, 0, 0, 0, 1}),
			p4rt.Bytes("dst_mac", []byte{2, 0, 0, 0, 0, byte(port)}),
		},
	}
}
