// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"

	"github.com/netsketch/netsketch/internal/store"
)

// One client does not read while hundreds of rows change hundreds of times. A second client still
// receives every last value, and memory does not grow with the updates. When the first client
// reads again, it receives the newest values with the number of values it missed.
func TestSlowSubscriberNextToAHealthyOne(t *testing.T) {
	const rows, rounds = 300, 200
	f := newFixture(t)
	api := f.dial()
	slow := subscribe(t, api, subscriptions(gpb.SubscriptionList_STREAM, packets))
	slow.until("sync")
	healthy := subscribe(t, f.dial(), subscriptions(gpb.SubscriptionList_STREAM, packets))
	healthy.until("sync")

	round := func(n int) {
		l := make([]string, rows)
		for i := range l {
			l[i] = fmt.Sprintf("s1 10.0.%d.%d %d", i/256, i%256, n)
		}
		f.publish(hitters(t, l...))
	}
	last := fmt.Sprintf("uint %d", rounds)
	done := make(chan int)
	go func() {
		final, n := 0, 0
		for final < rows {
			m, err := healthy.stream.Recv()
			if err != nil {
				t.Error("the healthy one:", err)
				break
			}
			for _, l := range lines(m) {
				n++
				if strings.Contains(l, last) {
					final++
				}
			}
		}
		done <- n
	}()
	held := held(t, f)
	round(1)
	round(2)
	before := held()
	for n := 3; n <= rounds; n++ {
		round(n)
	}
	if n := <-done; n < rows {
		t.Errorf("the healthy one got %d updates", n)
	}
	if grown := held() - before; grown > 8<<20 {
		t.Errorf("%d rounds with a subscriber that does not read took %d MiB more", rounds, grown>>20)
	}

	final, duplicates := 0, uint64(0)
	for final < rows {
		m, err := slow.stream.Recv()
		if err != nil {
			t.Fatal("the slow one:", err)
		}
		for _, u := range m.GetUpdate().GetUpdate() {
			duplicates += uint64(u.GetDuplicates())
			if u.GetVal().GetUintVal() == rounds {
				final++
			}
		}
	}
	if duplicates == 0 {
		t.Error("the slow one received no count of the values that it missed")
	}
	if got := f.server.Stats().Coalesced; got < duplicates {
		t.Errorf("%d coalesced in the server's count, the slow one alone missed %d", got, duplicates)
	}
}

// Clients do not read while every row of a large list is replaced in each round, as victim flows
// are replaced from epoch to epoch. The memory held for these clients does not grow with the
// rounds, and a client that reads again ends with exactly the current rows.
func TestSlowSubscribersOfAListThatTurnsOver(t *testing.T) {
	const rows, rounds, clients = 5_000, 30, 8
	f := newFixture(t)
	round := func(n int) {
		l := make([]string, rows)
		for i := range l {
			l[i] = fmt.Sprintf("s1 10.%d.%d.%d %d", n, i/256, i%256, n)
		}
		f.publish(hitters(t, l...))
	}
	round(0)
	streams := make([]*client, clients)
	for i := range streams {
		streams[i] = subscribe(t, f.dial(), subscriptions(gpb.SubscriptionList_STREAM, packets))
		streams[i].until("sync")
	}
	held := held(t, f)
	round(1)
	round(2)
	before := held()
	for n := 3; n <= rounds; n++ {
		round(n)
	}
	if grown := held() - before; grown > 16<<20 {
		t.Errorf("%d rounds with %d subscribers that do not read took %d MiB more", rounds, clients, grown>>20)
	}
	have, newest := map[string]bool{}, 0
	for newest < rows || len(have) > rows {
		m, err := streams[0].stream.Recv()
		if err != nil {
			t.Fatalf("%v; %d rows, of which %d are the newest", err, len(have), newest)
		}
		for _, l := range lines(m) {
			entry, value, _ := strings.Cut(l, "/state/packets = ")
			gone, deleted := strings.CutPrefix(l, "- ")
			switch {
			case deleted:
				delete(have, strings.TrimSuffix(gone, "/state/packets"))
			case value != "" && !have[entry]:
				have[entry] = true
				if strings.HasPrefix(value, fmt.Sprintf("uint %d", rounds)) {
					newest++
				}
			}
		}
	}
}

// held returns a function that measures the memory that subscribers of packets occupy. It first
// waits until the store has evaluated the published rows for them, and collects garbage, so that
// neither queued work nor garbage counts on a slow machine.
func held(t *testing.T, f *fixture) func() int64 {
	t.Helper()
	sub, err := f.store.Subscribe(store.SubscribeOptions{Queries: []store.Query{store.ParseQuery("", packets)},
		UpdatesOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sub.Close)
	return func() int64 {
		sub.Sync()
		runtime.GC()
		runtime.GC() // the first collection moves pooled buffers to the place where the second one frees them
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
}

// At random reading speeds, received and missed values add up to the number of published values,
// also if several are published before the store looks at them for its subscribers.
func TestEveryValueIsAccountedFor(t *testing.T) {
	f := newFixture(t)
	st, err := f.store.Subscribe(store.SubscribeOptions{Queries: []store.Query{store.ParseQuery("", packets)},
		UpdatesOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	rng := rand.New(rand.NewPCG(1, 2))
	seen := 0
	const rounds = 200
	for n := 1; n <= rounds; n++ {
		f.publish(hitters(t, fmt.Sprintf("s1 10.0.0.1 %d", n)))
		if rng.IntN(5) > 0 && n < rounds {
			continue
		}
		st.Sync()
		deltas, _ := st.Pull(100)
		for _, d := range deltas {
			for _, l := range d.Leaves {
				if d.Row.List.Leaves[l.Leaf].Name == "state/packets" {
					seen += 1 + int(l.Duplicates)
				}
			}
		}
	}
	if seen != rounds {
		t.Errorf("%d values accounted for, %d were published", seen, rounds)
	}
}

// Streams of every mode are canceled at random moments while values are published and other streams
// open and close.
func TestCancelledAtAnyMoment(t *testing.T) {
	f := newFixture(t)
	api := f.dial()
	stop := make(chan struct{})
	var publisher, clients sync.WaitGroup
	publisher.Go(func() {
		for n := 1; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			l := []string{"s1 10.0.0.1 1"}
			for i := range 50 {
				l = append(l, fmt.Sprintf("s2 10.0.1.%d %d", (i*n)%250, n))
			}
			f.publish(hitters(t, dedupe(l)...))
		}
	})
	for w := range 4 {
		clients.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 7))
			for range 40 {
				mode := []gpb.SubscriptionList_Mode{gpb.SubscriptionList_STREAM, gpb.SubscriptionList_ONCE,
					gpb.SubscriptionList_POLL}[rng.IntN(3)]
				req := subscriptions(mode, []string{packets, "/univmon", hitterA}[rng.IntN(3)])
				if rng.IntN(3) == 0 {
					req.GetSubscribe().Subscription[0].Mode = gpb.SubscriptionMode_SAMPLE
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rng.IntN(30))*time.Millisecond)
				stream, err := api.Subscribe(ctx)
				if err != nil { // the context ended before the stream began
					cancel()
					continue
				}
				reads := rng.IntN(20)
				if stream.Send(req) == nil {
					if mode == gpb.SubscriptionList_POLL {
						// Errors are ignored: the stream ends soon in any case.
						_ = stream.Send(&gpb.SubscribeRequest{Request: &gpb.SubscribeRequest_Poll{Poll: &gpb.Poll{}}})
						reads = rng.IntN(2)
					}
					for range reads {
						if _, err := stream.Recv(); err != nil {
							break
						}
					}
				}
				cancel()
			}
		})
	}
	clients.Wait()
	close(stop)
	publisher.Wait()
	deadline := time.Now().Add(time.Minute)
	for f.server.Stats().Streams > 0 && time.Now().Before(deadline) {
		runtime.Gosched()
	}
	if n := f.server.Stats().Streams; n > 0 {
		t.Errorf("%d streams are left", n)
	}
	if n := f.store.Stats(); n.Subscriptions != 0 {
		t.Errorf("left in the store: %+v", n)
	}
}

func dedupe(l []string) []string {
	seen := map[string]bool{}
	out := l[:0]
	for _, s := range l {
		key := s[:strings.LastIndexByte(s, ' ')]
		if !seen[key] {
			seen[key] = true
			out = append(out, s)
		}
	}
	return out
}

// The server bounds paths that match in very many ways, and requests with very many paths.
func TestHostileWildcards(t *testing.T) {
	f := newFixture(t)
	f.publish(hitters(t, "s1 10.0.0.1 1"), summary(t, "s1", 1, 1, 1))
	api := f.dial()
	dots := strings.Repeat("/...", 60)
	c := subscribe(t, api, subscriptions(gpb.SubscriptionList_ONCE, dots+"/packets", dots+"/*/*/packets",
		strings.Repeat("/.../*", 5)))
	if got := c.until("sync"); len(got) < 3 {
		t.Errorf("got %q", got)
	}
	many := make([]string, 10_000)
	for i := range many {
		many[i] = fmt.Sprintf("/univmon/heavy-hitters/heavy-hitter[dimension=src][flow=10.0.%d.%d][node=s1]", i/256,
			i%256)
	}
	c = subscribe(t, api, subscriptions(gpb.SubscriptionList_STREAM, many...))
	if got := c.until("sync"); len(got) != 8 {
		t.Errorf("%d lines for one row of seven leaves, and sync: %q", len(got), got)
	}
	f.publish(hitters(t, "s1 10.0.0.1 2", "s1 10.0.39.15 3", "s1 10.0.39.16 4"))
	got := append(c.next(), c.next()...)
	if n := strings.Count(strings.Join(got, "\n"), "/state/packets"); n != 2 {
		t.Errorf("%d of the watched rows in %q", n, got)
	}
}
