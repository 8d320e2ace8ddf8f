// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	gpb "github.com/openconfig/gnmi/proto/gnmi"
	extpb "github.com/openconfig/gnmi/proto/gnmi_ext"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/internal/test/yangtest"
	"github.com/netsketch/netsketch/yang"
)

const (
	packets = "/univmon/heavy-hitters/heavy-hitter/state/packets"
	hitterA = "/univmon/heavy-hitters/heavy-hitter[dimension=src][flow=10.0.0.1][node=s1]"
	hitterB = "/univmon/heavy-hitters/heavy-hitter[dimension=src][flow=10.0.0.2][node=s1]"
)

func same(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got): %s", what, diff)
	}
}

func TestOnceSendsValuesAndSyncAndEnds(t *testing.T) {
	f := newFixture(t)
	f.publish(hitters(t, "s1 10.0.0.1 100", "s1 10.0.0.2 50"))
	c := subscribe(t, f.dial(), subscriptions(gpb.SubscriptionList_ONCE, packets))
	same(t, "once", c.until("sync"), hitterA+"/state/packets = uint 100", hitterB+"/state/packets = uint 50", "sync")
	if err := c.end(); err != nil {
		t.Error("a ONCE stream ends with", err)
	}
}

func TestOnceOfWhatIsNotThere(t *testing.T) {
	f := newFixture(t)
	c := subscribe(t, f.dial(), subscriptions(gpb.SubscriptionList_ONCE, packets))
	same(t, "once", c.until("sync"), "sync")
	if err := c.end(); err != nil {
		t.Error(err)
	}
}

func TestPollAnswersEachPoll(t *testing.T) {
	f := newFixture(t)
	f.publish(hitters(t, "s1 10.0.0.1 1"))
	c := subscribe(t, f.dial(), subscriptions(gpb.SubscriptionList_POLL, packets))
	poll := &gpb.SubscribeRequest{Request: &gpb.SubscribeRequest_Poll{Poll: &gpb.Poll{}}}
	for i, want := range []string{hitterA + "/state/packets = uint 1", hitterB + "/state/packets = uint 2"} {
		if i == 1 {
			f.publish(hitters(t, "s1 10.0.0.2 2"))
		}
		if err := c.stream.Send(poll); err != nil {
			t.Fatal(err)
		}
		same(t, "poll", c.until("sync"), want, "sync")
	}
	if err := c.stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := c.end(); err != nil {
		t.Error("a POLL stream whose client is done ends with", err)
	}
}

func TestStreamSyncsOnceAfterInitialValues(t *testing.T) {
	for _, mode := range []gpb.SubscriptionMode{gpb.SubscriptionMode_ON_CHANGE, gpb.SubscriptionMode_TARGET_DEFINED,
		gpb.SubscriptionMode_SAMPLE} {
		t.Run(mode.String(), func(t *testing.T) {
			f := newFixture(t)
			f.publish(hitters(t, "s1 10.0.0.1 1", "s1 10.0.0.2 2"))
			req := subscriptions(gpb.SubscriptionList_STREAM, packets)
			req.GetSubscribe().Subscription[0].Mode = mode
			c := subscribe(t, f.dial(), req)
			same(t, "initial", c.until("sync"), hitterA+"/state/packets = uint 1", hitterB+"/state/packets = uint 2",
				"sync")
			f.publish(hitters(t, "s1 10.0.0.1 1", "s1 10.0.0.2 3"))
			got := c.until("uint 3")
			if slices.Contains(got, "sync") {
				t.Error("a second sync response")
			}
		})
	}
}

func TestOnChangeSendsOnlyWhatChanged(t *testing.T) {
	f := newFixture(t)
	f.publish(summary(t, "s1", 1, 1000, 2.5))
	c := subscribe(t, f.dial(), subscriptions(gpb.SubscriptionList_STREAM, "/univmon/node-summaries/node-summary/state"))
	c.until("sync")
	f.publish(summary(t, "s1", 2, 1000, 2.75))
	row := "/univmon/node-summaries/node-summary[dimension=src][node=s1]/state/"
	same(t, "change", c.next(), row+"second-moment = uint 2", row+"entropy = double 2.75")
}

func TestUpdatesOnlySyncsFirst(t *testing.T) {
	f := newFixture(t)
	f.publish(hitters(t, "s1 10.0.0.1 1"))
	req := subscriptions(gpb.SubscriptionList_STREAM, packets)
	req.GetSubscribe().UpdatesOnly = true
	c := subscribe(t, f.dial(), req)
	same(t, "first", c.next(), "sync")
	f.publish(hitters(t, "s1 10.0.0.1 1", "s1 10.0.0.2 2"))
	same(t, "then", c.next(), hitterB+"/state/packets = uint 2")

	for _, mode := range []gpb.SubscriptionList_Mode{gpb.SubscriptionList_ONCE, gpb.SubscriptionList_POLL} {
		req := subscriptions(mode, packets)
		req.GetSubscribe().UpdatesOnly = true
		c := subscribe(t, f.dial(), req)
		if mode == gpb.SubscriptionList_POLL {
			if err := c.stream.Send(&gpb.SubscribeRequest{Request: &gpb.SubscribeRequest_Poll{Poll: &gpb.Poll{}}}); err != nil {
				t.Fatal(err)
			}
		}
		same(t, mode.String(), c.next(), "sync")
	}
}

func TestSubscriptionBeforeDataStaysOpen(t *testing.T) {
	for _, target := range []string{"", "netsketch", "later"} {
		f := newFixture(t)
		req := subscriptions(gpb.SubscriptionList_STREAM, packets)
		req.GetSubscribe().Prefix = &gpb.Path{Target: target}
		c := subscribe(t, f.dial(), req)
		same(t, "nothing yet", c.next(), "sync")
		err := f.store.Publish(store.Batch{Target: target, Time: t0,
			Tables: []store.Publication{{Table: hitters(t, "s1 10.0.0.1 1"), Replace: true}}})
		if err != nil {
			t.Fatal(err)
		}
		if got := c.next(); len(got) != 1 || !strings.Contains(got[0], hitterA) {
			t.Errorf("target %q: got %v", target, got)
		}
	}
}

func TestDeletes(t *testing.T) {
	f := newFixture(t)
	f.publish(hitters(t, "s1 10.0.0.1 1", "s1 10.0.0.2 2"), summary(t, "s1", 1, 1, 1))
	api := f.dial()
	row := subscribe(t, api, subscriptions(gpb.SubscriptionList_STREAM, "/univmon/heavy-hitters"))
	leaf := subscribe(t, api, subscriptions(gpb.SubscriptionList_STREAM, packets))
	sum := subscribe(t, api, subscriptions(gpb.SubscriptionList_STREAM,
		"/univmon/node-summaries/node-summary/state/entropy"))
	for _, c := range []*client{row, leaf, sum} {
		c.until("sync")
	}
	f.publish(hitters(t, "s1 10.0.0.1 1"), summary(t, "s1", 2, 1, nan))
	same(t, "the entry was subscribed to", row.next(), "- "+hitterB)
	same(t, "a leaf was subscribed to", leaf.next(), "- "+hitterB+"/state/packets")
	same(t, "a leaf is gone", sum.next(), "- /univmon/node-summaries/node-summary[dimension=src][node=s1]/state/entropy")
}

func TestWildcardsAndOmittedKeys(t *testing.T) {
	f := newFixture(t)
	f.publish(hitters(t, "s1 10.0.0.1 1", "s1 10.0.0.2 2", "s2 10.0.0.1 3"))
	api := f.dial()
	onS2 := "/univmon/heavy-hitters/heavy-hitter[dimension=src][flow=10.0.0.1][node=s2]/state/packets = uint 3"
	a, b := hitterA+"/state/packets = uint 1", hitterB+"/state/packets = uint 2"
	for _, tc := range []struct {
		path string
		want []string
	}{
		{"/univmon/heavy-hitters/heavy-hitter/state/packets", []string{a, b, onS2}},
		{"/univmon/heavy-hitters/heavy-hitter[node=s1]/state/packets", []string{a, b}},
		{"/univmon/heavy-hitters/heavy-hitter[dimension=*][flow=10.0.0.1][node=*]/state/packets", []string{a, onS2}},
		{"/*/*/*/state/packets", []string{a, b, onS2}},
		{"/univmon/*/heavy-hitter[flow=10.0.0.2]/state/packets", []string{b}},
		{"/.../packets", []string{a, b, onS2}},
		{"/univmon/.../packets", []string{a, b, onS2}},
		{"/netsketch-univmon:univmon/heavy-hitters/heavy-hitter/state/packets", []string{a, b, onS2}},
		{hitterB + "/state/packets", []string{b}},
		{hitterB + "/flow", []string{hitterB + "/flow = string 10.0.0.2"}},
		{hitterB + "/state/flow", []string{hitterB + "/state/flow = string 10.0.0.2"}},
		{"/univmon/heavy-hitters/heavy-hitter[node=s9]/state/packets", nil},
	} {
		t.Run(strings.ReplaceAll(tc.path, "/", "|"), func(t *testing.T) {
			c := subscribe(t, api, subscriptions(gpb.SubscriptionList_ONCE, tc.path))
			same(t, tc.path, c.until("sync"), append(tc.want, "sync")...)
		})
	}
}

func TestOriginAndTarget(t *testing.T) {
	f := newFixture(t)
	f.publish(hitters(t, "s1 10.0.0.1 1"))
	err := f.store.Publish(store.Batch{Target: "leaf7", Time: t0,
		Tables: []store.Publication{{Table: hitters(t, "s1 10.0.0.2 2")}}})
	if err != nil {
		t.Fatal(err)
	}
	api := f.dial()
	a, b := hitterA+"/state/packets = uint 1", hitterB+"/state/packets = uint 2"
	for _, tc := range []struct {
		name         string
		prefix       *gpb.Path
		origin, path string
		want         []string
	}{
		{"no target, no origin", nil, "", packets, []string{a}},
		{"target is reflected", &gpb.Path{Target: "netsketch"}, "", packets, []string{"netsketch " + a}},
		{"another target", &gpb.Path{Target: "leaf7"}, "", packets, []string{"leaf7 " + b}},
		{"every target", &gpb.Path{Target: "*"}, "", packets, []string{"leaf7 " + b, "netsketch " + a}},
		{"no such target", &gpb.Path{Target: "x"}, "", packets, nil},
		{"origin in the path", nil, "openconfig", packets, []string{"openconfig:" + a}},
		{"origin in the prefix", &gpb.Path{Origin: "openconfig"}, "", packets, []string{"openconfig:" + a}},
		{"module as origin", nil, "netsketch-univmon", packets, []string{"netsketch-univmon:" + a}},
		{"prefix with elements", path("/univmon/heavy-hitters"), "", "/heavy-hitter/state/packets", []string{a}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req := subscriptions(gpb.SubscriptionList_ONCE, tc.path)
			req.GetSubscribe().Prefix = tc.prefix
			req.GetSubscribe().Subscription[0].Path.Origin = tc.origin
			c := subscribe(t, api, req)
			same(t, tc.name, c.until("sync"), append(tc.want, "sync")...)
		})
	}
}

func TestAnyTargetIsALabel(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.AnyTarget = true })
	f.publish(hitters(t, "s1 10.0.0.1 1"))
	req := subscriptions(gpb.SubscriptionList_ONCE, packets)
	req.GetSubscribe().Prefix = &gpb.Path{Target: "10.1.1.1:9339"}
	c := subscribe(t, f.dial(), req)
	same(t, "label", c.until("sync"), "10.1.1.1:9339 "+hitterA+"/state/packets = uint 1", "sync")
}

func TestHalfCloseKeepsTheStream(t *testing.T) {
	f := newFixture(t)
	c := subscribe(t, f.dial(), subscriptions(gpb.SubscriptionList_STREAM, packets))
	if err := c.stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	same(t, "sync", c.next(), "sync")
	f.publish(hitters(t, "s1 10.0.0.1 1"))
	same(t, "update", c.next(), hitterA+"/state/packets = uint 1")
}

// TestHalfClose: a client that sends no more gets what it asked for, also when it closes its side
// at once, and sampling goes on.
func TestHalfClose(t *testing.T) {
	f := newFixture(t)
	f.publish(hitters(t, "s1 10.0.0.1 1"))
	api := f.dial()
	closed := func(req *gpb.SubscribeRequest) *client {
		c := subscribe(t, api, req)
		if err := c.stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		return c
	}
	value := hitterA + "/state/packets = uint 1"
	c := closed(subscriptions(gpb.SubscriptionList_ONCE, packets))
	same(t, "once", c.until("sync"), value, "sync")
	if err := c.end(); err != nil {
		t.Error("a ONCE stream ends with", err)
	}
	sampled := subscriptions(gpb.SubscriptionList_STREAM, packets)
	sub := sampled.GetSubscribe().Subscription[0]
	sub.Mode, sub.SampleInterval = gpb.SubscriptionMode_SAMPLE, uint64(time.Second)
	c = closed(sampled)
	same(t, "sampled", c.until("sync"), value, "sync")
	same(t, "a sample", c.next(), value)
	same(t, "another sample", c.next(), value)
	if err := closed(subscriptions(gpb.SubscriptionList_POLL, packets)).end(); err != nil {
		t.Error("a POLL stream without a poll ends with", err)
	}
	if err := closed(nil).end(); err != nil {
		t.Error("a stream without a message ends with", err)
	}
}

func TestEncodings(t *testing.T) {
	f := newFixture(t)
	f.publish(summary(t, "s1", 7, 1<<60, 2.5))
	api := f.dial()
	row := "/univmon/node-summaries/node-summary[dimension=src][node=s1]/state/"
	for enc, want := range map[gpb.Encoding][]string{
		gpb.Encoding_PROTO: {"packets = uint 1152921504606846976", "entropy = double 2.5",
			"status = string COMPLETE", "heavy-hitters = uint 3"},
		gpb.Encoding_JSON: {"packets = json 1152921504606846976", "entropy = json 2.5", `status = json "COMPLETE"`,
			"heavy-hitters = json 3"},
		gpb.Encoding_JSON_IETF: {`packets = ietf "1152921504606846976"`, `entropy = ietf "2.5"`,
			`status = ietf "COMPLETE"`, "heavy-hitters = ietf 3"},
	} {
		req := subscriptions(gpb.SubscriptionList_ONCE, "/univmon/node-summaries/node-summary/state")
		req.GetSubscribe().Encoding = enc
		got := subscribe(t, api, req).until("sync")
		for _, w := range want {
			if !slices.Contains(got, row+w) {
				t.Errorf("%s: no %q in %q", enc, w, got)
			}
		}
	}
}

func TestUseModels(t *testing.T) {
	f := newFixture(t)
	f.publish(hitters(t, "s1 10.0.0.1 1"))
	api := f.dial()
	req := subscriptions(gpb.SubscriptionList_ONCE, "/")
	req.GetSubscribe().UseModels = []*gpb.ModelData{{Name: "netsketch-collector"}}
	same(t, "another model", subscribe(t, api, req).until("sync"), "sync")
	req.GetSubscribe().UseModels = []*gpb.ModelData{{Name: "netsketch-univmon", Version: "0.1.0",
		Organization: "netsketch"}}
	if got := subscribe(t, api, req).until("sync"); len(got) < 2 {
		t.Errorf("the model itself gives %v", got)
	}
}

func TestDepth(t *testing.T) {
	f := newFixture(t)
	f.publish(hitters(t, "s1 10.0.0.1 1"))
	api := f.dial()
	key := hitterA
	for _, tc := range []struct {
		level uint32
		path  string
		want  []string
	}{
		{1, key, []string{key + "/node = string s1", key + "/dimension = string src",
			key + "/flow = string 10.0.0.1"}},
		{1, key + "/state/packets", []string{key + "/state/packets = uint 1"}},
		{1, "/univmon/heavy-hitters", nil},
		{2, "/univmon/heavy-hitters", []string{key + "/node = string s1", key + "/dimension = string src",
			key + "/flow = string 10.0.0.1"}},
	} {
		req := subscriptions(gpb.SubscriptionList_ONCE, tc.path)
		req.Extension = []*extpb.Extension{{Ext: &extpb.Extension_Depth{Depth: &extpb.Depth{Level: tc.level}}}}
		same(t, tc.path, subscribe(t, api, req).until("sync"), append(tc.want, "sync")...)
	}
}

// TestRefused sends every kind of invalid request, and checks the code and a helpful word of the
// message.
func TestRefused(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.MaxPaths = 3 })
	api := f.dial()
	sub := func(edit func(*gpb.SubscribeRequest)) *gpb.SubscribeRequest {
		req := subscriptions(gpb.SubscriptionList_STREAM, packets)
		edit(req)
		return req
	}
	list := func(edit func(*gpb.SubscriptionList)) *gpb.SubscribeRequest {
		return sub(func(r *gpb.SubscribeRequest) { edit(r.GetSubscribe()) })
	}
	one := func(edit func(*gpb.Subscription)) *gpb.SubscribeRequest {
		return list(func(l *gpb.SubscriptionList) { edit(l.Subscription[0]) })
	}
	ext := func(e *extpb.Extension) *gpb.SubscribeRequest {
		return sub(func(r *gpb.SubscribeRequest) { r.Extension = []*extpb.Extension{e} })
	}
	deprecated := &gpb.Path{}
	deprecated.ProtoReflect().SetUnknown(nil)
	if err := proto.Unmarshal([]byte{0x0a, 0x01, 'a'}, deprecated); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		req  *gpb.SubscribeRequest
		code codes.Code
		want string
	}{
		{"no list", &gpb.SubscribeRequest{}, codes.InvalidArgument, "no SubscriptionList"},
		{"poll first", &gpb.SubscribeRequest{Request: &gpb.SubscribeRequest_Poll{Poll: &gpb.Poll{}}},
			codes.InvalidArgument, "Poll before"},
		{"no subscription", list(func(l *gpb.SubscriptionList) { l.Subscription = nil }), codes.InvalidArgument,
			"no subscription"},
		{"too many", list(func(l *gpb.SubscriptionList) { l.Subscription = slices.Repeat(l.Subscription, 4) }),
			codes.ResourceExhausted, "at most 3"},
		{"mode", list(func(l *gpb.SubscriptionList) { l.Mode = 9 }), codes.InvalidArgument, "mode 9"},
		{"encoding ASCII", list(func(l *gpb.SubscriptionList) { l.Encoding = gpb.Encoding_ASCII }), codes.Unimplemented,
			"encoding ASCII is unsupported"},
		{"encoding BYTES", list(func(l *gpb.SubscriptionList) { l.Encoding = gpb.Encoding_BYTES }), codes.Unimplemented,
			"encoding BYTES is unsupported"},
		{"qos", list(func(l *gpb.SubscriptionList) { l.Qos = &gpb.QOSMarking{Marking: 64} }), codes.InvalidArgument,
			"qos marking 64"},
		{"use_models", list(func(l *gpb.SubscriptionList) { l.UseModels = []*gpb.ModelData{{Name: "nope"}} }),
			codes.InvalidArgument, `"nope"`},
		{"model version", list(func(l *gpb.SubscriptionList) {
			l.UseModels = []*gpb.ModelData{{Name: "netsketch-univmon", Version: "9.9.9"}}
		}), codes.InvalidArgument, `"9.9.9"`},
		{"two origins", list(func(l *gpb.SubscriptionList) {
			l.Prefix = &gpb.Path{Origin: "openconfig"}
			l.Subscription[0].Path.Origin = "openconfig"
		}), codes.InvalidArgument, "one of them"},
		{"origin", one(func(s *gpb.Subscription) { s.Path.Origin = "juniper_cli" }), codes.Unimplemented,
			"juniper_cli"},
		{"another module as origin", one(func(s *gpb.Subscription) { s.Path.Origin = "openconfig-interfaces" }),
			codes.Unimplemented, "openconfig-interfaces"},
		{"target in the path", one(func(s *gpb.Subscription) { s.Path.Target = "x" }), codes.InvalidArgument,
			"belongs in the prefix"},
		{"path outside the schema", one(func(s *gpb.Subscription) { s.Path = path("/univmon/heavy-hiters") }),
			codes.Unimplemented, `"heavy-hiters"`},
		{"path below a leaf", one(func(s *gpb.Subscription) { s.Path = path(packets + "/x") }), codes.Unimplemented,
			`"x"`},
		{"no such key", one(func(s *gpb.Subscription) { s.Path = path("/univmon/heavy-hitters/heavy-hitter[name=x]") }),
			codes.Unimplemented, `"name"`},
		{"key on a container", one(func(s *gpb.Subscription) { s.Path = path("/univmon[name=x]") }),
			codes.Unimplemented, `"name"`},
		{"element of gNMI 0.3", one(func(s *gpb.Subscription) { s.Path = deprecated }), codes.InvalidArgument,
			"element"},
		{"sample interval too low", one(func(s *gpb.Subscription) {
			s.Mode, s.SampleInterval = gpb.SubscriptionMode_SAMPLE, 1000
		}), codes.InvalidArgument, "the lowest is 10ms"},
		{"sample interval too long", one(func(s *gpb.Subscription) {
			s.Mode, s.SampleInterval = gpb.SubscriptionMode_SAMPLE, 1<<63
		}), codes.InvalidArgument, "is too long"},
		{"heartbeat too low", one(func(s *gpb.Subscription) { s.HeartbeatInterval = 5 }), codes.InvalidArgument,
			"heartbeat_interval"},
		{"TARGET_DEFINED with an interval", one(func(s *gpb.Subscription) {
			s.Mode, s.SampleInterval = gpb.SubscriptionMode_TARGET_DEFINED, 1e9
		}), codes.InvalidArgument, "TARGET_DEFINED"},
		{"subscription mode", one(func(s *gpb.Subscription) { s.Mode = 7 }), codes.InvalidArgument, "mode 7"},
		{"history", ext(&extpb.Extension{Ext: &extpb.Extension_History{History: &extpb.History{}}}),
			codes.Unimplemented, "history"},
		{"master arbitration", ext(&extpb.Extension{Ext: &extpb.Extension_MasterArbitration{}}), codes.Unimplemented,
			"master_arbitration"},
		{"commit", ext(&extpb.Extension{Ext: &extpb.Extension_Commit{}}), codes.Unimplemented, "commit"},
		{"config subscription", ext(&extpb.Extension{Ext: &extpb.Extension_ConfigSubscription{}}), codes.Unimplemented,
			"config_subscription"},
		{"registered", ext(&extpb.Extension{Ext: &extpb.Extension_RegisteredExt{
			RegisteredExt: &extpb.RegisteredExtension{Id: 999}}}), codes.Unimplemented, "registered"},
		{"unknown extension", ext(&extpb.Extension{}), codes.Unimplemented, "extension"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := subscribe(t, api, tc.req).end()
			if status.Code(err) != tc.code || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %s with %q", err, tc.code, tc.want)
			}
		})
	}
	if st := f.server.Stats(); st.Refused == 0 || st.Streams != 0 {
		t.Errorf("stats %+v", st)
	}
}

func TestSecondMessages(t *testing.T) {
	f := newFixture(t)
	api := f.dial()
	poll := &gpb.SubscribeRequest{Request: &gpb.SubscribeRequest_Poll{Poll: &gpb.Poll{}}}
	other := subscribe(t, api, subscriptions(gpb.SubscriptionList_STREAM, packets))
	other.until("sync")
	for _, tc := range []struct {
		name   string
		mode   gpb.SubscriptionList_Mode
		second *gpb.SubscribeRequest
		want   string
	}{
		{"list on STREAM", gpb.SubscriptionList_STREAM, subscriptions(gpb.SubscriptionList_STREAM, packets),
			"second SubscriptionList"},
		{"list on POLL", gpb.SubscriptionList_POLL, subscriptions(gpb.SubscriptionList_POLL, packets),
			"second SubscriptionList"},
		{"poll on STREAM", gpb.SubscriptionList_STREAM, poll, "not in mode POLL"},
		{"nothing on STREAM", gpb.SubscriptionList_STREAM, &gpb.SubscribeRequest{}, "neither"},
		{"nothing on POLL", gpb.SubscriptionList_POLL, &gpb.SubscribeRequest{}, "neither"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := subscribe(t, api, subscriptions(tc.mode, packets))
			if err := c.stream.Send(tc.second); err != nil {
				t.Fatal(err)
			}
			err := c.end()
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v", err)
			}
		})
	}
	f.publish(hitters(t, "s1 10.0.0.1 1"))
	same(t, "the other stream on the connection", other.next(), hitterA+"/state/packets = uint 1")
}

func TestStreamLimit(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.MaxStreams = 2 })
	api := f.dial()
	a := subscribe(t, api, subscriptions(gpb.SubscriptionList_STREAM, packets))
	b := subscribe(t, api, subscriptions(gpb.SubscriptionList_STREAM, packets))
	a.until("sync")
	b.until("sync")
	if err := subscribe(t, api, subscriptions(gpb.SubscriptionList_STREAM,
		packets)).end(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a third stream: %v", err)
	}
	if got := f.server.Stats().Streams; got != 2 {
		t.Errorf("%d streams", got)
	}
}

func TestCloseEndsStreams(t *testing.T) {
	f := newFixture(t)
	api := f.dial()
	var all []*client
	for _, mode := range []gpb.SubscriptionList_Mode{gpb.SubscriptionList_STREAM, gpb.SubscriptionList_POLL} {
		c := subscribe(t, api, subscriptions(mode, packets))
		if mode == gpb.SubscriptionList_STREAM {
			c.until("sync")
		}
		all = append(all, c)
	}
	if err := f.server.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if err := c.end(); status.Code(err) != codes.Unavailable {
			t.Errorf("an open stream ended with %v", err)
		}
	}
	if err := subscribe(t, api, subscriptions(gpb.SubscriptionList_ONCE,
		packets)).end(); status.Code(err) != codes.Unavailable {
		t.Errorf("a new stream: %v", err)
	}
}

// TestSchemaGrows adds a plugin's module while the server runs.
func TestSchemaGrows(t *testing.T) {
	var now atomic.Pointer[yang.Schema]
	now.Store(testSchema())
	f := newFixture(t, func(o *Options) { o.Schema = now.Load })
	api := f.dial()
	req := subscriptions(gpb.SubscriptionList_ONCE, "/acme")
	if err := subscribe(t, api, req).end(); status.Code(err) != codes.Unimplemented {
		t.Fatalf("before: %v", err)
	}
	mods := append(yangtest.Modules(), yang.Module{Name: "acme", Text: `module acme { namespace "urn:acme"; prefix a;
		organization "acme"; revision 2026-01-01; container acme { config false; leaf x { type uint8; } } }`})
	grown, err := yang.Load(mods...)
	if err != nil {
		t.Fatal(err)
	}
	now.Store(grown)
	same(t, "after", subscribe(t, api, req).until("sync"), "sync")
	caps, err := api.Capabilities(context.Background(), &gpb.CapabilityRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(caps.SupportedModels, func(m *gpb.ModelData) bool {
		return m.Name == "acme" &&
			m.Organization == "acme"
	}) {
		t.Errorf("Capabilities has no acme: %v", caps.SupportedModels)
	}
}
