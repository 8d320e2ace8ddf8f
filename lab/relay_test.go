// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/netsketch/netsketch/p4/compiled"
	"github.com/netsketch/netsketch/p4/p4rt"
)

// The relay between the collector and BMv2 changes nothing: a session through it, here to a soft
// switch, pushes, writes, reads and flips, its errors name the update, and it leaves nothing
// behind.
func TestRelay(t *testing.T) {
	leaks := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, leaks) })
	fabric, err := LeafSpine(2, 1, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	program, err := compiled.Load("univmon-300k")
	if err != nil {
		t.Fatal(err)
	}
	n, err := New(Config{Fabric: fabric, Program: program})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	conn, err := toSwitch(n.Devices()[0].Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	rpc := grpc.NewServer(grpc.MaxRecvMsgSize(maxMessage))
	p4v1.RegisterP4RuntimeServer(rpc, &relay{to: p4v1.NewP4RuntimeClient(conn), wrote: new(external).wrote})
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- rpc.Serve(lis) }()
	t.Cleanup(func() {
		rpc.Stop()
		<-served
	})

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c, err := p4rt.Dial(ctx, p4rt.Config{
		Target: lis.Addr().String(), DeviceID: 1,
		Program: &p4rt.Program{Name: program.Name, DeviceConfig: program.JSON, P4Info: program.P4Info},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := c.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	cat, err := c.Catalog()
	if err != nil {
		t.Fatal(err)
	}
	route := p4rt.Entry{
		Table: "ipv4_lpm", Match: []p4rt.Match{p4rt.Prefix("hdr.ipv4.dst", netip.MustParsePrefix("10.0.1.0/24"))},
		Action: "forward", Params: []p4rt.Param{p4rt.Uint("port", 1), p4rt.Bytes("src_mac", make([]byte, 6)),
			p4rt.Bytes("dst_mac", make([]byte, 6))},
	}
	if err := c.Write(ctx, p4rt.Insert(route)); err != nil {
		t.Fatal(err)
	}
	var refused *p4rt.WriteError
	if err := c.Write(ctx, p4rt.Insert(route)); !errors.As(err, &refused) || len(refused.Failed) != 1 ||
		refused.Failed[0].Code != codes.AlreadyExists {
		t.Errorf("the same entry again: %v", err)
	}
	if err := c.SetDefaultAction(ctx, "bank", "set_bank", p4rt.Uint("bank", 1)); err != nil {
		t.Fatal(err)
	}
	if bank := n.Truth(0).Bank(); bank != 1 {
		t.Errorf("bank %d after a flip to 1", bank)
	}
	for _, r := range cat.Readouts() {
		if cells, err := c.ReadBanks(ctx, 0, r.Name); err != nil || cells[0].Len() != r.Readout.Cells {
			t.Errorf("%s: %v", r.Name, err)
		}
	}
}
