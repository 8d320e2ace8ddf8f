// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	gpb "github.com/openconfig/gnmi/proto/gnmi"
)

// virtual is a stream on a virtual clock.
type virtual struct {
	*fixture
	stream *fakeStream
	start  time.Time
	ended  chan error
}

// onVirtualClock runs a test against a stream with this request.
func onVirtualClock(t *testing.T, req *gpb.SubscribeRequest, before func(*fixture), test func(*virtual)) {
	t.Helper()
	testSchema() // compiled outside of the bubble
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		if before != nil {
			before(f)
		}
		ctx, cancel := context.WithCancel(t.Context())
		v := &virtual{fixture: f, start: time.Now(), ended: make(chan error, 1), stream: &fakeStream{
			ctx: ctx, recv: make(chan *gpb.SubscribeRequest, 4), sent: make(chan *gpb.SubscribeResponse, 1000),
		}}
		v.stream.recv <- req
		go func() { v.ended <- f.server.Subscribe(v.stream) }()
		test(v)
		cancel()
		<-v.ended
		synctest.Wait()
	})
}

// during returns the messages that are sent within d, each line with its time in milliseconds.
func (v *virtual) during(d time.Duration) []string {
	end := time.After(time.Until(v.start.Add(d)))
	var out []string
	for {
		select {
		case m := <-v.stream.sent:
			at := time.Since(v.start).Milliseconds()
			for _, l := range lines(m) {
				if rest, ok := strings.CutPrefix(l, "/univmon/heavy-hitters/heavy-hitter[dimension=src]"); ok {
					l = strings.Replace(rest, "[node=s1]", "", 1)
				}
				out = append(out, fmt.Sprintf("%d %s", at, l))
			}
		case <-end:
			return out
		}
	}
}

func sampled(mode gpb.SubscriptionMode, sample, heartbeat time.Duration, suppress bool) *gpb.SubscribeRequest {
	req := subscriptions(gpb.SubscriptionList_STREAM, packets)
	s := req.GetSubscribe().Subscription[0]
	s.Mode, s.SampleInterval, s.HeartbeatInterval, s.SuppressRedundant = mode, uint64(sample), uint64(heartbeat),
		suppress
	return req
}

func TestSampling(t *testing.T) {
	const a, b = "[flow=10.0.0.1]/state/packets = uint ", "[flow=10.0.0.2]/state/packets = uint "
	for _, tc := range []struct {
		name string
		req  *gpb.SubscribeRequest
		want []string
	}{
		{"SAMPLE sends everything once per interval",
			sampled(gpb.SubscriptionMode_SAMPLE, 100*time.Millisecond, 0, false), []string{
				"0 " + a + "1", "0 " + b + "1", "0 sync",
				"100 " + a + "2", "100 " + b + "1",
				"200 " + a + "4", "200 " + b + "1",
				"300 " + a + "4", "300 " + b + "1",
			}},
		{"suppress_redundant leaves out what has not changed",
			sampled(gpb.SubscriptionMode_SAMPLE, 100*time.Millisecond, 0, true), []string{
				"0 " + a + "1", "0 " + b + "1", "0 sync", "100 " + a + "2", "200 " + a + "4",
			}},
		{"heartbeat under suppress_redundant", sampled(gpb.SubscriptionMode_SAMPLE, 100*time.Millisecond,
			250*time.Millisecond, true), []string{
			"0 " + a + "1", "0 " + b + "1", "0 sync", "100 " + a + "2", "200 " + a + "4", "250 " + a + "4",
			"250 " + b + "1",
		}},
		{"interval 0 is the lowest there is", sampled(gpb.SubscriptionMode_SAMPLE, 0, 0, true), []string{
			"0 " + a + "1", "0 " + b + "1", "0 sync", "60 " + a + "2", "160 " + a + "3", "170 " + a + "4",
		}},
		{"ON_CHANGE", sampled(gpb.SubscriptionMode_ON_CHANGE, 0, 0, false), []string{
			"0 " + a + "1", "0 " + b + "1", "0 sync", "55 " + a + "2", "155 " + a + "3", "165 " + a + "4",
		}},
		{"ON_CHANGE with heartbeat", sampled(gpb.SubscriptionMode_ON_CHANGE, 0, 200*time.Millisecond, false), []string{
			"0 " + a + "1", "0 " + b + "1", "0 sync", "55 " + a + "2", "155 " + a + "3", "165 " + a + "4",
			"200 " + a + "4", "200 " + b + "1",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			onVirtualClock(t, tc.req,
				func(f *fixture) { f.publish(hitters(t, "s1 10.0.0.1 1", "s1 10.0.0.2 1")) },
				func(v *virtual) {
					var got []string
					for _, step := range []struct{ at, packets int }{{55, 2}, {155, 3}, {165, 4}} {
						got = append(got, v.during(time.Duration(step.at)*time.Millisecond)...)
						v.publish(hitters(t, fmt.Sprintf("s1 10.0.0.1 %d", step.packets), "s1 10.0.0.2 1"))
					}
					got = append(got, v.during(305*time.Millisecond)...)
					if diff := cmp.Diff(tc.want, got); diff != "" {
						t.Error(diff)
					}
				})
		})
	}
}

func TestSampleUpdatesOnly(t *testing.T) {
	req := sampled(gpb.SubscriptionMode_SAMPLE, 100*time.Millisecond, 0, false)
	req.GetSubscribe().UpdatesOnly = true
	onVirtualClock(t, req, func(f *fixture) { f.publish(hitters(t, "s1 10.0.0.1 1")) }, func(v *virtual) {
		want := []string{"0 sync", "100 [flow=10.0.0.1]/state/packets = uint 1"}
		if diff := cmp.Diff(want, v.during(150*time.Millisecond)); diff != "" {
			t.Error(diff)
		}
	})
}

// TestTwoIntervals: one stream has two sampling intervals.
func TestTwoIntervals(t *testing.T) {
	req := sampled(gpb.SubscriptionMode_SAMPLE, 100*time.Millisecond, 0, false)
	other := sampled(gpb.SubscriptionMode_SAMPLE, 150*time.Millisecond, 0, false).GetSubscribe().Subscription[0]
	other.Path = path("/univmon/node-summaries/node-summary/state/second-moment")
	req.GetSubscribe().Subscription = append(req.GetSubscribe().Subscription, other)
	onVirtualClock(t, req,
		func(f *fixture) { f.publish(hitters(t, "s1 10.0.0.1 1"), summary(t, "s1", 1, 1, 1)) },
		func(v *virtual) {
			const a = "[flow=10.0.0.1]/state/packets = uint 1"
			const s = "/univmon/node-summaries/node-summary[dimension=src][node=s1]/state/second-moment = uint 1"
			want := []string{"0 " + a, "0 " + s, "0 sync", "100 " + a, "150 " + s, "200 " + a, "300 " + a, "300 " + s}
			if diff := cmp.Diff(want, v.during(310*time.Millisecond)); diff != "" {
				t.Error(diff)
			}
		})
}

func TestAtomicContainer(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Atomic = []string{"/univmon/node-summaries/node-summary/state"} })
	f.publish(summary(t, "s1", 1, 10, 2.5))
	api := f.dial()
	c := subscribe(t, api, subscriptions(gpb.SubscriptionList_STREAM, "/univmon/node-summaries/node-summary/state"))
	part := subscribe(t, api, subscriptions(gpb.SubscriptionList_STREAM,
		"/univmon/node-summaries/node-summary/state/packets",
		"/univmon/node-summaries/node-summary/state/second-moment"))
	c.until("sync")
	part.until("sync")
	f.publish(summary(t, "s1", 2, 10, nan))
	at := "/univmon/node-summaries/node-summary[dimension=src][node=s1]/state"
	head := "atomic " + at + ": "
	same(t, "the whole container, without the leaf that is gone", c.next(),
		head+at+"/node = string s1", head+at+"/dimension = string src", head+at+"/second-moment = uint 2",
		head+at+"/status = string COMPLETE", head+at+"/packets = uint 10", head+at+"/heavy-hitters = uint 3")
	same(t, "only what was subscribed to of it", part.next(), head+at+"/second-moment = uint 2",
		head+at+"/packets = uint 10")
	f.publish(summary(t, "s2", 3, 1, nan))
	got := c.next()
	got = append(got, c.next()...)
	if fmt.Sprint(got) == "" || !strings.Contains(strings.Join(got, "\n"), "- "+at) &&
		!strings.Contains(strings.Join(got, "\n"), "- atomic "+at) {
		t.Errorf("no delete of the entry that is gone: %q", got)
	}
}

func TestAtomicList(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Atomic = []string{"/univmon/heavy-hitters"} })
	f.publish(hitters(t, "s1 10.0.0.1 1", "s1 10.0.0.2 2"))
	api := f.dial()
	c := subscribe(t, api, subscriptions(gpb.SubscriptionList_STREAM, packets))
	head := "atomic /univmon/heavy-hitters: "
	same(t, "initial", c.until("sync"), head+hitterA+"/state/packets = uint 1", head+hitterB+"/state/packets = uint 2",
		"sync")
	f.publish(hitters(t, "s1 10.0.0.1 1", "s1 10.0.0.3 3"))
	same(t, "replaced as a whole", c.next(), head+hitterA+"/state/packets = uint 1",
		head+"/univmon/heavy-hitters/heavy-hitter[dimension=src][flow=10.0.0.3][node=s1]/state/packets = uint 3")
	once := subscribe(t, api, subscriptions(gpb.SubscriptionList_ONCE, packets))
	if got := once.until("sync"); len(got) != 3 || !strings.HasPrefix(got[0], head) {
		t.Errorf("ONCE gives %q", got)
	}
	f.publish(hitters(t))
	same(t, "nothing is left", c.next(), "- "+head+"/univmon/heavy-hitters")
}

// TestAtomicListTooLarge: a list that is sent whole does not fit in one message.
func TestAtomicListTooLarge(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.Atomic = []string{"/univmon/heavy-hitters"} })
	f.server.whole = 10_000
	var many []string
	for i := range 2000 {
		many = append(many, fmt.Sprintf("s1 10.%d.%d.%d %d", i>>16, i>>8&255, i&255, i))
	}
	f.publish(hitters(t, many...))
	c := subscribe(t, f.dial(), subscriptions(gpb.SubscriptionList_STREAM, packets))
	got := c.until("sync")
	if len(got) != 2002 || got[0] != "- /univmon/heavy-hitters" {
		t.Errorf("%d lines, the first is %q", len(got), got[0])
	}
}

// TestPollBegins checks a POLL client that waits for initial values, as openconfig's does, and a
// client that polls at once.
func TestPollBegins(t *testing.T) {
	const a = "[flow=10.0.0.1]/state/packets = uint 1"
	poll := &gpb.SubscribeRequest{Request: &gpb.SubscribeRequest_Poll{Poll: &gpb.Poll{}}}
	for _, tc := range []struct {
		name string
		at   time.Duration
		want []string
	}{
		{"at once", 0, []string{"0 " + a, "0 sync"}},
		{"after the initial values", 300 * time.Millisecond, []string{"100 " + a, "100 sync", "300 " + a, "300 sync"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			onVirtualClock(t, subscriptions(gpb.SubscriptionList_POLL, packets),
				func(f *fixture) { f.publish(hitters(t, "s1 10.0.0.1 1")) },
				func(v *virtual) {
					got := v.during(tc.at)
					v.stream.recv <- poll
					got = append(got, v.during(time.Second)...)
					if diff := cmp.Diff(tc.want, got); diff != "" {
						t.Error(diff)
					}
				})
		})
	}
}

// TestSamplingOfAListThatTurnsOver: rows that begin and end between two samples are in the samples
// in which they exist, and are deleted once.
func TestSamplingOfAListThatTurnsOver(t *testing.T) {
	onVirtualClock(t, sampled(gpb.SubscriptionMode_SAMPLE, 100*time.Millisecond, 0, false),
		func(f *fixture) { f.publish(hitters(t, "s1 10.0.0.1 1")) },
		func(v *virtual) {
			var got []string
			for i := 2; i < 8; i++ {
				got = append(got, v.during(time.Duration(61*i)*time.Millisecond)...)
				v.publish(hitters(t, fmt.Sprintf("s1 10.0.0.%d %d", i, i)))
			}
			slices.Sort(got)
			ended := func(at, flow int) string {
				return fmt.Sprintf("%d - /univmon/heavy-hitters/heavy-hitter[dimension=src][flow=10.0.0.%d][node=s1]/state/packets",
					at, flow)
			}
			exists := func(at, flow int) string {
				return fmt.Sprintf("%d [flow=10.0.0.%d]/state/packets = uint %d", at, flow, flow)
			}
			want := []string{"0 sync", exists(0, 1), exists(100, 1), ended(200, 1), exists(200, 3), ended(300, 3),
				exists(300, 4), ended(400, 4), exists(400, 6)}
			slices.Sort(want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
}
