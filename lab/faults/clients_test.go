// SPDX-License-Identifier: Apache-2.0

// Faults of gNMI clients.

package faults

import (
	"context"
	"net"
	"strings"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

// stranger connects from another loopback address, so that bounds for an address do not affect the
// trial's own client.
func (t *trial) stranger() *grpc.ClientConn {
	t.Helper()
	from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	conn, err := grpc.NewClient(t.gnmi, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return from.DialContext(ctx, "tcp", address)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// subscribe opens a stream with a first message, or without one if the list is nil.
func subscribe(ctx context.Context, conn *grpc.ClientConn,
	list *gpb.SubscriptionList) (gpb.GNMI_SubscribeClient, error) {
	s, err := gpb.NewGNMIClient(conn).Subscribe(ctx)
	if err == nil && list != nil {
		err = s.Send(&gpb.SubscribeRequest{Request: &gpb.SubscribeRequest_Subscribe{Subscribe: list}})
	}
	return s, err
}

// path is a path of a constant.
func path(text string) *gpb.Path {
	p, err := publishedPath(text)
	if err != nil {
		panic(err)
	}
	return p
}

// everything subscribes to all that UnivMon publishes.
func everything(mode gpb.SubscriptionList_Mode) *gpb.SubscriptionList {
	return &gpb.SubscriptionList{Mode: mode, Encoding: gpb.Encoding_PROTO,
		Subscription: []*gpb.Subscription{{Path: path("/univmon"), Mode: gpb.SubscriptionMode_ON_CHANGE}}}
}

// normal checks that a new client is served: a Get, and a subscription up to its sync response.
func (t *trial) normal() {
	t.Helper()
	t.within(3, "a new client's Get is answered", func() bool { return t.get("/collector/state/name") == "netsketch" })
	t.within(3, "a new client's subscription is synchronized", func() bool {
		ctx, cancel := context.WithTimeout(t.client, 5*time.Second)
		defer cancel()
		s, err := subscribe(ctx, t.conn, everything(gpb.SubscriptionList_STREAM))
		for err == nil {
			var m *gpb.SubscribeResponse
			if m, err = s.Recv(); m.GetSyncResponse() {
				return true
			}
		}
		return false
	})
}

// crowd opens streams that do nothing after their first message, from another address, over
// connections of 100 streams each.
func (t *trial) crowd(n int, list *gpb.SubscriptionList) []gpb.GNMI_SubscribeClient {
	t.Helper()
	var streams []gpb.GNMI_SubscribeClient
	var conn *grpc.ClientConn
	for i := range n {
		if i%100 == 0 {
			conn = t.stranger()
		}
		s, err := subscribe(t.client, conn, list)
		if err != nil {
			continue // refused at once
		}
		streams = append(streams, s)
	}
	return streams
}

const (
	idleStreams = 1_100
	unaffected  = "a normal client is served within three epochs and misses none; "
)

// requests are Get requests that no client should send, with the code of the answer.
func hostileRequests() map[string]*gpb.GetRequest {
	elem := func(names ...string) *gpb.Path {
		p := &gpb.Path{}
		for _, n := range names {
			p.Elem = append(p.Elem, &gpb.PathElem{Name: n})
		}
		return p
	}
	var many []*gpb.Path
	for range 200_000 {
		many = append(many, elem("univmon"))
	}
	deep := elem(strings.Split(strings.Repeat("...,", 5_000), ",")...)
	return map[string]*gpb.GetRequest{
		"unknown path":       {Path: []*gpb.Path{elem("nowhere", "else")}},
		"empty element":      {Path: []*gpb.Path{elem("", "")}},
		"control characters": {Path: []*gpb.Path{elem("univ\x00mon\n")}},
		"long element":       {Path: []*gpb.Path{elem(strings.Repeat("x", 1<<20))}},
		"wildcards":          {Path: []*gpb.Path{deep}},
		"200,000 paths":      {Path: many},
		"unknown encoding":   {Path: []*gpb.Path{elem("univmon")}, Encoding: 77},
		"ASCII":              {Path: []*gpb.Path{elem("univmon")}, Encoding: gpb.Encoding_ASCII},
		"unknown type":       {Path: []*gpb.Path{elem("univmon")}, Type: 99},
		"old path form":      {Path: []*gpb.Path{{Element: []string{"univmon"}}}},
		"unknown key": {Path: []*gpb.Path{{Elem: []*gpb.PathElem{{Name: "univmon",
			Key: map[string]string{"x": "y"}}}}}},
		"unknown target": {Prefix: &gpb.Path{Target: "\xf0\x9f\x92\xa3"}, Path: []*gpb.Path{elem("univmon")}},
		"unknown model":  {Path: []*gpb.Path{elem("univmon")}, UseModels: []*gpb.ModelData{{Name: "x"}}},
		"origin of both": {Prefix: &gpb.Path{Origin: "a"}, Path: []*gpb.Path{{Origin: "b"}}},
		"nothing":        {},
		"the root":       {Path: []*gpb.Path{nil}},
	}
}

var clientCases = []fault{
	{
		name:    "clients: 1,100 streams without a first message",
		promise: unaffected + "the idle streams end after 10 s",
		back:    3,
		inject: func(t *trial) {
			streams := t.crowd(idleStreams, nil)
			t.normal()
			t.pass(2)
			ended := make(chan error, len(streams))
			for _, s := range streams {
				go func() {
					_, err := s.Recv()
					ended <- err
				}()
			}
			t.within(14, "all idle streams have ended", func() bool { return len(ended) == len(streams) })
			t.see("%d streams opened, %d ended", len(streams), len(ended))
		},
		check: func(t *trial) { t.small(400) },
	},
	{
		name:    "clients: 1,100 POLL streams that never poll",
		promise: unaffected + "streams above the bound of their address (256) are refused",
		back:    3,
		inject: func(t *trial) {
			streams := t.crowd(idleStreams, everything(gpb.SubscriptionList_POLL))
			t.normal()
			t.pass(2)
			t.see("%d streams opened, %s subscriptions", len(streams), t.get("/collector/state/subscriptions"))
			n := t.number("/collector/state/subscriptions")
			t.require(n > 0 && n <= 256+2, "%d subscriptions are open", n)
		},
		check: func(t *trial) { t.small(600) },
	},
	{
		name:    "clients: 200 subscribers that do not read",
		promise: unaffected + "memory is bounded",
		back:    3,
		inject: func(t *trial) {
			n := len(t.crowd(200, everything(gpb.SubscriptionList_STREAM)))
			t.pass(5)
			t.normal()
			t.see("%d streams opened", n)
		},
		check: func(t *trial) { t.small(600) },
	},
	{
		name:    "clients: garbage on the gNMI port",
		promise: unaffected + "memory is bounded",
		back:    3,
		inject: func(t *trial) {
			n := t.garbage(t.gnmi)
			t.normal()
			t.see("%d connections with garbage", n)
		},
		check: func(t *trial) { t.small(400) },
	},
	{
		name: "clients: hostile requests", short: true,
		promise: "each is refused or answered; " + unaffected + "memory is bounded",
		back:    3,
		inject: func(t *trial) {
			conn := t.stranger()
			requests := hostileRequests()
			for name, r := range requests {
				ctx, cancel := context.WithTimeout(t.client, patience())
				_, err := gpb.NewGNMIClient(conn).Get(ctx, r)
				cancel()
				code := status.Code(err)
				t.require(code != codes.Unknown && code != codes.Internal && code != codes.DeadlineExceeded &&
					code != codes.Unavailable, "%s: %v", name, err)
				t.require((code == codes.OK) == (name == "the root"), "%s: %v", name, code)
			}
			t.normal()
			t.see("%d requests answered", len(requests))
		},
		check: func(t *trial) { t.small(400) },
	},
}
