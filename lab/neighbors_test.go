// SPDX-License-Identifier: Apache-2.0

package lab_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/netsketch/netsketch/lab"
	"github.com/netsketch/netsketch/p4/compiled"
)

// Every switch publishes its neighbors over gNMI, and a link that is disabled at one
// end goes down at the other.
func TestNeighbors(t *testing.T) {
	f, err := lab.LeafSpine(2, 2, 1, time.Microsecond)
	if err != nil {
		t.Fatal(err)
	}
	p, err := compiled.Load("univmon-300k")
	if err != nil {
		t.Fatal(err)
	}
	n, err := lab.New(lab.Config{Fabric: f, Program: p})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}()
	conn, err := grpc.NewClient(n.Devices()[0].Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	api := gpb.NewGNMIClient(conn)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	follow := func(path ...*gpb.PathElem) func(want map[string]bool) {
		stream, err := api.Subscribe(ctx)
		if err != nil {
			t.Fatal(err)
		}
		err = stream.Send(&gpb.SubscribeRequest{Request: &gpb.SubscribeRequest_Subscribe{Subscribe: &gpb.SubscriptionList{
			Encoding:     gpb.Encoding_PROTO,
			Subscription: []*gpb.Subscription{{Mode: gpb.SubscriptionMode_ON_CHANGE, Path: &gpb.Path{Elem: path}}},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		return func(want map[string]bool) {
			t.Helper()
			for len(want) > 0 {
				m, err := stream.Recv()
				if err != nil {
					t.Fatalf("%v; still waiting for %v", err, want)
				}
				for _, u := range m.GetUpdate().GetUpdate() {
					elems := u.GetPath().GetElem()
					delete(want, elems[len(elems)-3].GetKey()["name"]+u.GetVal().GetStringVal())
					delete(want, u.GetVal().GetStringVal())
				}
			}
		}
	}
	e := func(name string) *gpb.PathElem { return &gpb.PathElem{Name: name} }
	neighbors := follow(e("lldp"), e("interfaces"), e("interface"), e("neighbors"), e("neighbor"), e("state"),
		e("system-name"))
	neighbors(map[string]bool{"spine1": true, "spine2": true})

	oper := follow(e("interfaces"), e("interface"), e("state"), e("oper-status"))
	link := f.Links[0]
	name := fmt.Sprintf("Ethernet%d", link.PortA)
	oper(map[string]bool{name + "UP": true})
	spine := n.Switch(link.B)
	for _, on := range []bool{false, true} {
		if err := spine.SetPortEnabled(link.PortB, on); err != nil {
			t.Fatal(err)
		}
		oper(map[string]bool{name + map[bool]string{true: "UP", false: "DOWN"}[on]: true})
	}
	if err := n.SetLink(f.LinkName(link), lab.LinkState{Down: true}); err != nil {
		t.Fatal(err)
	}
	oper(map[string]bool{name + "DOWN": true})
}
