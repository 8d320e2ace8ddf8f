// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"testing"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	extpb "github.com/openconfig/gnmi/proto/gnmi_ext"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// FuzzRequest sends the bytes as a SubscribeRequest and as a GetRequest. The server either
// replies, or refuses the request with a code for a client's error or an unsupported feature.
func FuzzRequest(f *testing.F) {
	seed := func(m proto.Message) {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	for _, mode := range []gpb.SubscriptionList_Mode{gpb.SubscriptionList_ONCE, gpb.SubscriptionList_STREAM,
		gpb.SubscriptionList_POLL} {
		req := subscriptions(mode, packets, "/.../state", hitterA)
		req.GetSubscribe().Prefix = &gpb.Path{Target: "*", Origin: "openconfig"}
		req.Extension = []*extpb.Extension{{Ext: &extpb.Extension_Depth{Depth: &extpb.Depth{Level: 2}}}}
		seed(req)
	}
	seed(&gpb.GetRequest{Path: []*gpb.Path{path(packets), path("/")}, Encoding: gpb.Encoding_JSON_IETF,
		Type: gpb.GetRequest_STATE})
	fix := newFixture(f, func(o *Options) { o.MaxPaths, o.MaxGetLeaves = 20, 1000 })
	fix.publish(hitters(f, "s1 10.0.0.1 1", "s1 10.0.0.2 2"), summary(f, "s1", 1, 2, 3))
	f.Fuzz(func(t *testing.T, b []byte) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		get := new(gpb.GetRequest)
		if proto.Unmarshal(b, get) == nil {
			_, err := fix.server.Get(ctx, get)
			checkCode(t, err, codes.NotFound)
		}
		sub := new(gpb.SubscribeRequest)
		if proto.Unmarshal(b, sub) != nil {
			return
		}
		if l := sub.GetSubscribe(); l != nil && l.Mode != gpb.SubscriptionList_ONCE {
			l.Mode = gpb.SubscriptionList_ONCE // the other modes do not end
		}
		s := &fakeStream{ctx: ctx, recv: make(chan *gpb.SubscribeRequest, 1),
			sent: make(chan *gpb.SubscribeResponse, 10000)}
		s.recv <- sub
		checkCode(t, fix.server.Subscribe(s))
	})
}

func checkCode(t *testing.T, err error, more ...codes.Code) {
	t.Helper()
	for _, c := range append(more, codes.OK, codes.InvalidArgument, codes.Unimplemented, codes.ResourceExhausted) {
		if status.Code(err) == c {
			return
		}
	}
	t.Errorf("refused with %v", err)
}
