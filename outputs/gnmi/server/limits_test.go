// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/internal/test/testkit"
)

// once reads the values of paths as another client.
func (f *fixture) once(paths ...string) error {
	return subscribe(f.tb, f.dial(), subscriptions(gpb.SubscriptionList_ONCE, paths...)).end()
}

// expect checks the code of an error and that its message names the key of a bound.
func expect(t *testing.T, err error, code codes.Code, parts ...string) {
	t.Helper()
	if status.Code(err) != code {
		t.Errorf("error %v, expected %s", err, code)
	}
	for _, part := range parts {
		if !strings.Contains(status.Convert(err).Message(), part) {
			t.Errorf("error %q lacks %q", err, part)
		}
	}
}

// Streams that never send a first message, even more than the bound of streams, leave room for
// another client, even from the same address.
func TestIdleStreamsLeaveRoom(t *testing.T) {
	var log testkit.Log
	f := newFixture(t, func(o *Options) {
		o.MaxStreams, o.MaxStreamsPerClient, o.FirstMessageTimeout, o.Logger = 8, 8, time.Hour, log.Logger()
	})
	f.publish(hitters(t, "s1 10.0.0.1 7"))
	c := f.dial()
	idle := make([]*client, 12)
	for i := range idle {
		idle[i] = subscribe(t, c, nil)
		testkit.Until(t, "the stream waits", func() bool {
			return f.server.Stats().Waiting == min(i+1, 8)
		})
	}
	for _, old := range idle[:4] {
		expect(t, old.end(), codes.ResourceExhausted, "client bufconn", "max-streams-per-client")
	}
	if err := f.once("/univmon"); err != nil {
		t.Fatalf("another client next to idle streams: %v", err)
	}
	if err := idle[11].stream.Send(subscriptions(gpb.SubscriptionList_ONCE, "/univmon")); err != nil {
		t.Fatal(err)
	}
	if err := idle[11].end(); err != nil {
		t.Errorf("an idle stream that sends its message: %v", err)
	}
	st := f.server.Stats()
	if st.Streams != 0 || st.RefusedBy[Stream] < 4 {
		t.Errorf("stats %+v", st)
	}
	if n := strings.Count(log.String(), "gNMI client is refused"); n != 1 || !strings.Contains(log.String(),
		`kind=stream client="client bufconn" suppressed=0`) {
		t.Errorf("%d lines:\n%s", n, &log)
	}
}

// A stream without a first message ends, and so does a POLL subscription without Polls.
func TestSilentStreamsEnd(t *testing.T) {
	f := newFixture(t, func(o *Options) {
		o.FirstMessageTimeout, o.PollIdleTimeout = 50*time.Millisecond, 300*time.Millisecond
	})
	f.publish(hitters(t, "s1 10.0.0.1 7"))
	expect(t, subscribe(t, f.dial(), nil).end(), codes.DeadlineExceeded, "client bufconn", "50ms",
		"first-message-timeout")
	poll := subscribe(t, f.dial(), subscriptions(gpb.SubscriptionList_POLL, "/univmon"))
	poll.until("sync")
	expect(t, poll.end(), codes.DeadlineExceeded, "client bufconn", "300ms", "poll-idle-timeout")
	if n := f.server.Stats().RefusedBy[Stream]; n != 2 {
		t.Errorf("%d streams are counted, expected 2", n)
	}
}

// A POLL subscription with Polls does not end.
func TestPollsKeepAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		ctx, cancel := context.WithCancel(t.Context())
		s := &fakeStream{ctx: ctx, recv: make(chan *gpb.SubscribeRequest), sent: make(chan *gpb.SubscribeResponse, 100)}
		done := make(chan error, 1)
		go func() { done <- f.server.Subscribe(s) }()
		s.recv <- subscriptions(gpb.SubscriptionList_POLL, "/univmon")
		for range 5 {
			time.Sleep(50 * time.Minute)
			s.recv <- &gpb.SubscribeRequest{Request: &gpb.SubscribeRequest_Poll{Poll: &gpb.Poll{}}}
		}
		select {
		case err := <-done:
			t.Errorf("a stream with Polls ended: %v", err)
		default:
		}
		time.Sleep(61 * time.Minute)
		expect(t, <-done, codes.DeadlineExceeded, "1h0m0s")
		cancel()
	})
}

// The bounds for all clients, for an address and for a user are independent, and the error names
// the bound that is reached.
func TestQuota(t *testing.T) {
	at := func(address, user string) caller { return caller{address: address, User: User{Name: user}} }
	q := newQuota("Subscribe", "streams", "max-streams", 5, 2, 3)
	take := func(c caller, parts ...string) {
		t.Helper()
		err := q.take(c)
		if len(parts) == 0 && err != nil {
			t.Errorf("%s: %v", c, err)
		}
		if len(parts) > 0 {
			expect(t, err, codes.ResourceExhausted, parts...)
		}
	}
	take(at("10.0.0.1", "ops"))
	take(at("10.0.0.1", "ops"))
	take(at("10.0.0.1", "ops"), "client 10.0.0.1, user ops", "the address has 2", "max-streams-per-client")
	take(at("10.0.0.2", "ops"))
	take(at("10.0.0.2", "ops"), "client 10.0.0.2, user ops", "the user has 3", "max-streams-per-user")
	take(at("10.0.0.2", ""))
	take(at("10.0.0.3", ""))
	take(at("10.0.0.4", ""), "client 10.0.0.4", "all clients have 5", "the limit of max-streams;")
	q.release(at("10.0.0.1", "ops"))
	take(at("10.0.0.2", "ops"), "max-streams-per-client")
	take(at("10.0.0.4", "ops"))
	for _, c := range []caller{at("10.0.0.1", "ops"), at("10.0.0.2", "ops"), at("10.0.0.2", ""), at("10.0.0.3", ""),
		at("10.0.0.4", "ops")} {
		q.release(c)
	}
	if q.open != 0 || len(q.byClient) != 0 || len(q.byUser) != 0 {
		t.Errorf("after all have ended: %d open, by client %v, by user %v", q.open, q.byClient, q.byUser)
	}
}

// The number of Gets in progress is bounded.
func TestGetsAreBounded(t *testing.T) {
	f := newFixture(t, func(o *Options) { o.MaxGetsPerClient = 1 })
	f.publish(hitters(t, "s1 10.0.0.1 7"))
	c := caller{address: "bufconn"}
	if err := f.server.gets.take(c); err != nil {
		t.Fatal(err)
	}
	get := func() error {
		_, err := f.dial().Get(t.Context(), &gpb.GetRequest{Path: []*gpb.Path{path("/univmon")}})
		return err
	}
	expect(t, get(), codes.ResourceExhausted, "Get of client bufconn", "max-gets-per-client")
	f.server.gets.release(c)
	if err := get(); err != nil {
		t.Errorf("with room: %v", err)
	}
	if st := f.server.Stats(); st.Gets != 0 || st.RefusedBy[Get] != 1 {
		t.Errorf("stats %+v", st)
	}
}

// A thousand refusals cause two log lines: the first one at once, and one after the interval.
func TestRefusalsAreLoggedAtABoundedRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testkit.Log
		r := refusals{logger: log.Logger(), kinds: map[Kind]*refusal{}}
		for range 1000 {
			r.add(Login, "client 10.0.0.1", errors.New("wrong password"))
		}
		r.add(Stream, "client 10.0.0.2", errors.New("too many"))
		lines := func() int { return strings.Count(log.String(), "\n") }
		if lines() != 2 {
			t.Errorf("at once:\n%s", &log)
		}
		time.Sleep(refusalInterval + time.Second)
		if lines() != 3 || !strings.Contains(log.String(),
			`kind=login client="client 10.0.0.1" suppressed=999 error="wrong password"`) {
			t.Errorf("after the interval:\n%s", &log)
		}
		time.Sleep(time.Hour)
		r.add(Login, "client 10.0.0.1", errors.New("wrong password"))
		r.add(Login, "client 10.0.0.3", errors.New("wrong password"))
		r.close()
		if lines() != 5 || !strings.Contains(log.String(), `client="client 10.0.0.3" suppressed=1`) {
			t.Errorf("at the end:\n%s", &log)
		}
		if n := r.count(Login); n != 1002 {
			t.Errorf("%d refusals are counted", n)
		}
	})
}

// In every RPC, a user can read the permitted paths and the nodes below. A wider path is refused
// as a whole.
func TestScopes(t *testing.T) {
	user := User{Name: "tenant", Paths: []*gpb.Path{path("/univmon/node-summaries"),
		path("/univmon/heavy-hitters/heavy-hitter[node=s1]")}}
	f := newFixture(t, func(o *Options) { o.User = func(context.Context) User { return user } })
	f.publish(hitters(t, "s1 10.0.0.1 7", "s2 10.0.0.2 8"), summary(t, "s2", 1, 15, nan))
	c := f.dial()
	for text, permitted := range map[string]bool{
		"/univmon/node-summaries": true,
		"/univmon/node-summaries/node-summary[dimension=src][node=s2]/state":         true,
		"/univmon/node-summaries/*/state":                                            true,
		"/univmon/node-summaries/.../packets":                                        true,
		"/netsketch-univmon:univmon/node-summaries":                                  true,
		"/univmon/heavy-hitters/heavy-hitter[node=s1]":                               true,
		"/univmon/heavy-hitters/heavy-hitter[dimension=*][node=s1]":                  true,
		"/univmon/heavy-hitters/heavy-hitter[dimension=src][flow=10.0.0.1][node=s1]": true,
		"/univmon/heavy-hitters/heavy-hitter[node=s2]":                               false,
		"/univmon/heavy-hitters/heavy-hitter[node=*]":                                false,
		"/univmon/heavy-hitters/heavy-hitter":                                        false,
		"/univmon/heavy-hitters":                                                     false,
		"/univmon/*/heavy-hitter[node=s1]":                                           false,
		"/.../packets":                                                               false,
		"/*":                                                                         false,
		"/":                                                                          false,
		"/collector":                                                                 false,
	} {
		check := func(rpc string, err error) {
			t.Helper()
			if permitted && err != nil {
				t.Errorf("%s of %s: %v", rpc, text, err)
			}
			if !permitted {
				expect(t, err, codes.PermissionDenied, "user tenant may read only /univmon/node-summaries")
			}
		}
		_, err := c.Get(t.Context(), &gpb.GetRequest{Path: []*gpb.Path{path(text)}})
		check("Get", err)
		p := path(text)
		_, err = c.Get(t.Context(), &gpb.GetRequest{Prefix: &gpb.Path{Target: "*", Elem: p.GetElem()[:len(p.GetElem())/2]},
			Path: []*gpb.Path{{Elem: p.GetElem()[len(p.GetElem())/2:]}}})
		check("Get with a prefix", err)
		check("ONCE", subscribe(t, c, subscriptions(gpb.SubscriptionList_ONCE, text)).end())
		for _, mode := range []gpb.SubscriptionList_Mode{gpb.SubscriptionList_POLL, gpb.SubscriptionList_STREAM} {
			s := subscribe(t, c, subscriptions(mode, "/univmon/node-summaries", text))
			if permitted {
				s.until("sync")
				s.cancel()
				continue
			}
			check(mode.String(), s.end())
		}
	}
	if _, err := c.Get(t.Context(), &gpb.GetRequest{}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a Get without a path: %v", err)
	}
	if _, err := c.Capabilities(t.Context(), &gpb.CapabilityRequest{}); err != nil {
		t.Errorf("Capabilities: %v", err)
	}
	values := subscribe(t, c, subscriptions(gpb.SubscriptionList_ONCE, "/univmon/heavy-hitters/heavy-hitter[node=s1]"))
	for {
		m, err := values.stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if text := strings.Join(lines(m), "\n"); strings.Contains(text, "s2") {
			t.Errorf("values of another device: %s", text)
		}
	}
	if n := f.server.Stats().RefusedBy[Path]; n != 9*5 {
		t.Errorf("%d refused paths are counted", n)
	}
}

// If a user may read one leaf of a container that is sent whole, the user receives no other leaf
// of it.
func TestScopeInAtomicContainer(t *testing.T) {
	const leaf = "/univmon/node-summaries/node-summary/state/packets"
	f := newFixture(t, func(o *Options) {
		o.Atomic = []string{"/netsketch-univmon:univmon/node-summaries/node-summary/state"}
		o.User = func(context.Context) User { return User{Name: "tenant", Paths: []*gpb.Path{path(leaf)}} }
	})
	f.publish(summary(t, "s1", 1, 15, 2.5))
	s := subscribe(t, f.dial(), subscriptions(gpb.SubscriptionList_ONCE, leaf))
	for _, l := range s.until("sync") {
		if l != "sync" && !strings.Contains(l, "state/packets") {
			t.Errorf("a leaf that the user may not read: %s", l)
		}
	}
}
