// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Published results of the collector, and their comparison with the sent packets.

package main

import (
	"errors"
	"fmt"
	"log"
	"strings"
	"sync"
	"time"

	"github.com/netsketch/netsketch/internal/test/netns"
)

// results has the published results of the collector since the case began.
type results struct {
	mu     sync.Mutex
	newest int64
	epochs map[int64]netns.Row
	flows  map[string]netns.Row // flows by flow and epoch
}

// follow subscribes to the collector, again and again if it is restarted.
func follow() *results {
	r := &results{epochs: map[int64]netns.Row{}, flows: map[string]netns.Row{}}
	go func() {
		for last := ""; ; {
			err := netns.Watch(&r.mu, r.take, "/omnimon")
			if text := err.Error(); text != last {
				log.Print("results: ", text)
				last = text
			}
			time.Sleep(50 * time.Millisecond)
		}
	}()
	return r
}

// take stores a row. The caller holds the lock.
func (r *results) take(list string, row netns.Row, _ int64) {
	switch list {
	case "/omnimon/summary":
		e := row.Number("epoch")
		r.newest = max(r.newest, e)
		r.epochs[e] = row
	case "/omnimon/flows/flow":
		r.flows[fmt.Sprint(row.Text("flow"), " ", row.Number("epoch"))] = row
	}
}

func (r *results) last() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.newest
}

// flow adds up the rows of a flow.
func (r *results) flow(key string) (packets, received, lost int64, exact bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	exact = true
	for at, row := range r.flows {
		if strings.HasPrefix(at, key+" ") {
			packets += row.Number("packets")
			if row["received-packets"] != nil {
				received += row.Number("received-packets")
			}
			if row["lost-packets"] != nil {
				lost += row.Number("lost-packets")
			}
			exact = exact && isExact(row)
		}
	}
	return packets, received, lost, exact
}

// isExact reports whether the values of a flow are exact, except that missing packets may still
// arrive.
func isExact(row netns.Row) bool {
	lost := row.Text("lost-packets-quality")
	return row.Text("quality") == "EXACT" && (lost == "EXACT" || lost == "UPPER_BOUND")
}

// exactTCP returns an error unless all rows of TCP in the newest epoch are exact. Connections that
// are older than the agents do not count: no agent saw their SYN and the length of segments in it.
func (r *results) exactTCP() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	rows := 0
	for at, row := range r.flows {
		if !strings.Contains(at, ",tcp,") || row.Number("epoch") != r.newest || row.Number("duration") > 3 {
			continue
		}
		if rows++; !isExact(row) {
			return fmt.Errorf("the row of TCP is not exact: %v", row)
		}
	}
	if rows == 0 {
		return errors.New("no row of TCP")
	}
	return nil
}

// problem returns why the newest epoch is not exact.
func (r *results) problem() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.epochs[r.newest].Text("problem")
}

// prove sends new streams between the hosts with agents and compares their rows with the sent
// packets. It returns the difference, empty once every packet is in exactly one row. It sends
// streams again while results recover, at most tries times; took is the number of tries.
func (t *trial) prove(tries int) (took int, wrong string) {
	const packets = packetRate // packets of each stream in a second
	for took = 1; ; took++ {
		var streams []*stream
		for _, way := range [][3]string{{"4 proof", "h1", "h2"}, {"4 proof", "h2", "h1"}, {"6 proof", "h1", "h2"}} {
			s, err := t.traffic.open(way[0], way[1], way[2], 200)
			if err != nil {
				return took, err.Error()
			}
			streams = append(streams, s)
			t.proofs = append(t.proofs, s)
			t.traffic.start(s, packets)
		}
		time.Sleep(packets * time.Second / packetRate)
		// The epoch in which the streams end is published two epochs later at the latest, and a third one
		// shows that no row follows.
		until := t.results.last() + 4
		for end := time.Now().Add(10*t.world.epoch + 10*time.Second); t.results.last() < until && time.Now().Before(end); {
			time.Sleep(50 * time.Millisecond)
		}
		if wrong = t.compare(streams); wrong == "" || took >= tries {
			return took, wrong
		}
	}
}

func (t *trial) compare(streams []*stream) string {
	for _, s := range streams {
		key := fmt.Sprintf("%s,%s,udp,%d,%d", address(s.from, s.six()), address(s.to, s.six()), s.port, udpPort)
		packets, received, lost, exact := t.results.flow(key)
		c, _ := s.account(nil)
		if int(packets) != c.sent || int(received) != c.sent-c.lost || int(lost) != c.lost || !exact {
			return fmt.Sprintf("flow %s: %d packets sent, %d arrived; published: %d sent, %d received, %d lost, exact %v; "+
				"problem of the epoch: %q", key, c.sent, c.sent-c.lost, packets, received, lost, exact, t.results.problem())
		}
	}
	return ""
}
