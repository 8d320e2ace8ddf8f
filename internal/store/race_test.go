// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
)

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, seed)) }

// TestEveryoneAtOnce is for the race detector: publishers, viewers and subscribers run at once,
// and subscribers come and go. At the end, every remaining subscriber has the store's rows.
func TestEveryoneAtOnce(t *testing.T) {
	s := New(Options{})
	defer s.Close()
	queries := []string{
		"/univmon/heavy-hitters/heavy-hitter/state/packets",
		"/univmon/heavy-hitters/heavy-hitter[node=s1][flow=f3]/state/packets",
		"/univmon/heavy-hitters/heavy-hitter[node=s1]",
	}
	var publishers, readers sync.WaitGroup
	stop := make(chan struct{})
	for p := range 2 {
		publishers.Go(func() {
			rng := newRand(uint64(p))
			for i := 1; i <= 300; i++ {
				var lines []string
				for range rng.IntN(20) + 1 {
					lines = append(lines, fmt.Sprintf("s%d f%d %d", p, rng.IntN(40), i))
				}
				publish(t, s, i, Publication{Table: hh(t, dedupe(lines)...), Replace: i%10 == 0})
			}
		})
	}
	for r := range 3 {
		readers.Go(func() {
			rng := newRand(uint64(100 + r))
			for {
				select {
				case <-stop:
					return
				default:
				}
				sub, err := s.Subscribe(SubscribeOptions{Queries: []Query{ParseQuery("",
					queries[rng.IntN(len(queries))])}, UpdatesOnly: rng.IntN(2) == 0})
				if err != nil {
					t.Error(err)
					return
				}
				for range rng.IntN(10) {
					sub.Pull(rng.IntN(8) + 1)
					if rng.IntN(4) == 0 {
						sub.QueueAll()
					}
				}
				sub.Close()
				dump(s.View(), ParseQuery("", queries[r]))
			}
		})
	}
	stay, err := s.Subscribe(SubscribeOptions{Queries: []Query{ParseQuery("", queries[0])}})
	if err != nil {
		t.Fatal(err)
	}
	defer stay.Close()
	seen := map[string]uint64{}
	take := func() {
		for more := true; more; {
			var deltas []Delta
			deltas, more = stay.Pull(7)
			for _, d := range deltas {
				k := d.Row.Entry.Keys[0].Text() + d.Row.Entry.Keys[1].Text()
				if d.Removed {
					delete(seen, k)
				}
				for _, l := range d.Leaves {
					if v := d.Row.Values[l.Leaf]; !v.Absent() {
						seen[k] = v.Uint()
					}
				}
			}
		}
	}
	readers.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-stay.Ready():
				take()
			}
		}
	})
	publishers.Wait()
	close(stop)
	readers.Wait()
	stay.feed.evaluate()
	take()
	truth := map[string]uint64{}
	for r := range s.View().Rows(ParseQuery("", queries[0])) {
		truth[r.Entry.Keys[0].Text()+r.Entry.Keys[1].Text()] = r.Values[2].Uint()
	}
	if len(truth) == 0 || fmt.Sprint(truth) != fmt.Sprint(seen) {
		t.Errorf("the store has %v\nthe subscriber %v", truth, seen)
	}
}

// dedupe keeps the first line of each key.
func dedupe(lines []string) []string {
	seen := map[string]bool{}
	var out []string
	for _, l := range lines {
		key := l[:strings.LastIndexByte(l, ' ')]
		if !seen[key] {
			seen[key] = true
			out = append(out, l)
		}
	}
	return out
}
