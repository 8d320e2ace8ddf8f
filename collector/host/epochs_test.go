// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"strings"
	"testing"
	"time"

	hostagent "github.com/netsketch/netsketch/hostagent/agent"
	"github.com/netsketch/netsketch/internal/testkit"
)

// TestRelay: the epoch that one host's clock begins reaches all others, with one message up.
func TestRelay(t *testing.T) {
	for _, udp := range []bool{false, true} {
		t.Run(fmt.Sprintf("udp=%v", udp), func(t *testing.T) {
			r := newRig(t, func(c *Config) { c.UDP = udp }, "h1", "h2", "h3")
			withUDP := func(c *hostagent.Config) { c.UDP = udp }
			hosts := []*testHost{r.start("h1", withUDP), r.start("h2", withUDP), r.start("h3", withUDP)}
			r.open(hosts...)
			for _, h := range hosts {
				testkit.Until(t, "UDP", func() bool { return r.status(h.name).UDP == udp })
			}
			_, _, open := r.engine.Numbering()
			fast := hosts[1]
			fast.clock.Advance(time.Second)
			fast.agent.Tick()
			for _, h := range hosts {
				testkit.Until(t, "the epoch at "+h.name, func() bool { return h.agent.Status().Epoch == open+1 })
				if h != fast {
					h.clock.Advance(time.Second) // too late to begin the epoch
					h.agent.Tick()
				}
			}
			r.step()
			r.step()
			sent := uint64(0)
			for _, h := range hosts {
				sent += h.agent.Status().EpochsSent
			}
			if s := r.status("h2"); sent != 1 || s.Epochs != 1 {
				t.Errorf("%d epochs were sent, %d arrived of h2; want 1", sent, s.Epochs)
			}
		})
	}
}

// TestDeviation: the collector knows when each host began an epoch although clocks differ, within
// the time that a request and a report take.
func TestDeviation(t *testing.T) {
	r := newRig(t, nil, "h1", "h2", "h3")
	hosts := []*testHost{r.start("h1", nil), r.start("h2", nil), r.start("h3", nil)}
	hosts[1].clock.Advance(time.Hour) // its time of day does not matter
	r.open(hosts...)
	r.step()
	number, _ := r.engine.Current()
	r.c.begin(number + 1)
	age := func(i int) time.Duration { return time.Duration(i+1) * 200 * time.Millisecond }
	for i, h := range hosts {
		testkit.Until(t, "the epoch at "+h.name, func() bool { return h.agent.Status().Epoch == number+1 })
		h.clock.Advance(age(i)) // the epoch is open since then
	}
	begin := time.Now() // the component runs on the wall clock, the hosts on theirs
	ep := r.step()
	took := time.Since(begin)
	for i, o := range ep.Sources {
		want := begin.Add(-age(i))
		if off := o.Began.Sub(want); off < 0 || off > took {
			t.Errorf("%s began at %v after what happened; the epoch took %v", o.Name, off, took)
		}
	}
}

// TestClockAhead: a clock that is far ahead moves neither the network nor its own host.
func TestClockAhead(t *testing.T) {
	r := newRig(t, nil, "h1", "h2")
	h1, h2 := r.start("h1", nil), r.start("h2", nil)
	h1.clock.Advance(time.Hour)
	r.open(h1, h2)
	h1.agent.Tick()
	_, _, open := r.engine.Numbering()
	if s := h1.agent.Status(); s.Epoch != open || s.EpochsHeld == 0 {
		t.Errorf("agent %+v, want epoch %d", s, open)
	}
	for s := range r.sessions() { // an agent that does not hold back
		if s.agent.name == "h1" {
			s.epochBegan(open + 3600)
		}
	}
	if s := r.status("h1"); s.EpochsRefused != 1 || !strings.Contains(s.LastError, "3600 epochs ahead") {
		t.Errorf("status %+v", s)
	}
	r.step()
	ep := r.step()
	r.expect(ep, "h1", "h1 one")
	r.expect(ep, "h2", "h2 one")
}

// TestNumbersGoBack: an agent follows a collector whose epoch numbers are lower.
func TestNumbersGoBack(t *testing.T) {
	r := newRig(t, nil, "h1")
	h := r.newHost("h1")
	path := h.path()
	path.Advance(1 << 40)
	r.run(h, func(c *hostagent.Config) { c.DataPaths = []hostagent.DataPath{path} })
	testkit.Until(t, "a session", func() bool { return r.status("h1").Connected })
	r.open(h)
	r.step()
	ep := r.step()
	r.expect(ep, "h1", fmt.Sprintf("h1 one %d", ep.Number))
}
