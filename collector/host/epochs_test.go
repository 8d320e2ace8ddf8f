// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/collector/intent"
	hostagent "github.com/netsketch/netsketch/hostagent/agent"
	"github.com/netsketch/netsketch/hostagent/hostv1"
	"github.com/netsketch/netsketch/internal/test/testkit"
)

// TestRelay: an epoch that one host's clock begins reaches all other hosts, with one message to
// the collector.
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

// TestDeviation: the collector estimates when each host began an epoch, whatever the hosts' clocks
// show, to within the time that a request and a report take.
func TestDeviation(t *testing.T) {
	r := newRig(t, nil, "h1", "h2", "h3")
	hosts := []*testHost{r.start("h1", nil), r.start("h2", nil), r.start("h3", nil)}
	hosts[1].clock.Advance(time.Hour) // the host's time of day does not matter
	r.open(hosts...)
	r.step()
	number, _ := r.engine.Current()
	r.c.begin(number + 1)
	age := func(i int) time.Duration { return time.Duration(i+1) * 200 * time.Millisecond }
	for i, h := range hosts {
		testkit.Until(t, "the epoch at "+h.name, func() bool { return h.agent.Status().Epoch == number+1 })
		h.clock.Advance(age(i)) // the host opened the epoch at this time
	}
	begin := time.Now() // the component uses the wall clock, the hosts use their own clocks
	ep := r.step()
	took := time.Since(begin)
	for i, o := range ep.Sources {
		want := begin.Add(-age(i))
		if off := o.Began.Sub(want); off < 0 || off > took {
			t.Errorf("%s began at %v after what happened; the epoch took %v", o.Name, off, took)
		}
	}
}

// TestClockAhead: a clock that is far ahead moves neither the network nor its own host to its
// epoch.
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
	testkit.Until(t, "the refusal", func() bool { return r.status("h1").EpochsRefused == 1 })
	if s := r.status("h1"); !strings.Contains(s.LastError, "3600 epochs ahead") {
		t.Errorf("status %+v", s)
	}
	for range 3 { // the host stays set aside at each boundary
		h1.clock.Advance(time.Second)
		h1.agent.Tick()
		r.step()
		if s := r.status("h1"); s.EpochsAhead == 0 {
			t.Errorf("h1 is not set aside any more: %+v", s)
		}
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

// TestClockAlone: a clock that is two epochs ahead of all others does not move other hosts. The
// log names it, and its host follows the others.
func TestClockAlone(t *testing.T) {
	r := newRig(t, nil, "h1", "h2", "h3")
	hosts := []*testHost{r.start("h1", nil), r.start("h2", nil), r.start("h3", nil)}
	r.open(hosts...)
	_, _, open := r.engine.Numbering()
	wrong := hosts[0]
	wrong.clock.Advance(2 * time.Second)
	wrong.agent.Tick()
	testkit.Until(t, "the refusal", func() bool { return r.status("h1").EpochsRefused > 0 })
	next := func() {
		for _, h := range hosts {
			h.clock.Advance(time.Second)
			h.agent.Tick()
		}
		r.step()
	}
	next()
	testkit.Until(t, "that h1 is set aside", func() bool { return r.status("h1").EpochsAhead > 0 })
	if s := r.status("h1"); !strings.Contains(s.LastError, "epochs ahead") {
		t.Errorf("status %+v", s)
	}
	for range 5 {
		next()
	}
	_, _, now := r.engine.Numbering()
	for _, h := range hosts[1:] {
		if e := h.agent.Status().Epoch; e > now {
			t.Errorf("%s is in epoch %d, the collector in %d", h.name, e, now)
		}
		if s := r.status(h.name); s.EpochsAhead != 0 || s.EpochsRefused != 0 {
			t.Errorf("%s, whose clock is right: %+v", h.name, s)
		}
	}
	if e := wrong.agent.Status().Epoch; e > max(now, open+2) {
		t.Errorf("h1 is in epoch %d, the collector in %d", e, now)
	}

	if s := r.status("h1"); s.EpochsAhead == 0 {
		t.Errorf("h1 is not set aside any more: %+v", s)
	}
}

// TestCollectorBehind: while the clocks of all hosts are two epochs ahead of the collector, they
// move no host more than one epoch ahead, and the status names each host. It names none after the
// clocks are right again.
func TestCollectorBehind(t *testing.T) {
	r := newRig(t, nil, "h1", "h2", "h3")
	hosts := []*testHost{r.start("h1", nil), r.start("h2", nil), r.start("h3", nil)}
	r.open(hosts...)
	next := func(by time.Duration) {
		for _, h := range hosts {
			h.clock.Advance(by)
			h.agent.Tick()
		}
		r.step()
	}
	next(3 * time.Second)
	for range 3 {
		next(time.Second)
		_, _, open := r.engine.Numbering()
		for _, h := range hosts {
			testkit.Until(t, "the epoch at "+h.name, func() bool { return h.agent.Status().Epoch >= open })
			testkit.Until(t, "that the clock of "+h.name+" is named", func() bool { return r.status(h.name).EpochsAhead > 0 })
			if e := h.agent.Status().Epoch; e > open+1 {
				t.Errorf("%s is in epoch %d, the collector in %d", h.name, e, open)
			}
		}
	}
	next(-time.Second)
	next(0)
	next(time.Second)
	next(time.Second)
	for _, h := range hosts {
		testkit.Until(t, "that the clock of "+h.name+" is right", func() bool { return r.status(h.name).EpochsAhead == 0 })
	}
}

// TestClockFirst: a clock that begins every epoch slightly before the collector's clock is not set
// aside, although the collector never sends that host a newer epoch.
func TestClockFirst(t *testing.T) {
	for _, measured := range []bool{true, false} {
		r := newRig(t, nil, "h1", "h2")
		hosts := []*testHost{r.start("h1", nil), r.start("h2", nil)}
		r.open(hosts...)
		if !measured { // hosts measure nothing, so no reports are requested
			r.set("h1")
			r.set("h2")
		}
		for n := range uint64(30) {
			for _, h := range hosts {
				h.clock.Advance(time.Second)
				h.agent.Tick()
			}
			if s := hosts[0].agent.Status(); s.EpochsHeld != 0 {
				t.Fatalf("measured %v, after %d epochs: %+v", measured, n, s)
			}
			_, _, open := r.engine.Numbering()
			testkit.Until(t, "the epoch at the collector", func() bool { return r.c.newest.Load() > open })
			r.step()
			if measured {
				continue
			}
			for _, h := range hosts { // messages that would follow the epoch if the collector sent one
				r.set(h.name, intent.HostSetting{Role: "none", Generation: n + 100})
				testkit.Until(t, "a refusal", func() bool { return r.status(h.name).SettingsRefused > n })
				r.set(h.name)
			}
		}
	}
}

// TestLeaves: the state of leases arrives with the names of hosts, and its size is bounded.
func TestLeaves(t *testing.T) {
	r := newRig(t, nil, "h1", "h2")
	r.c.deps.HostOf = func(a netip.Addr) string {
		if a == netip.MustParseAddr("10.0.0.2") {
			return "h2"
		}
		return ""
	}
	r.start("h1", nil)
	m := &hostv1.Leases{Role: "r", Held: 7, Missing: 300}
	for i := range 300 {
		m.Without = append(m.Without, &hostv1.NoLease{Address: []byte{10, 0, byte(i / 256), byte(i)},
			Reason: "carrier lost on the path"})
	}
	m.Without[0].Address, m.Without[1].Reason = []byte{1}, strings.Repeat("x", 1000)
	for s := range r.sessions() {
		if err := s.take(&hostv1.AgentMessage{Message: &hostv1.AgentMessage_Leases{Leases: m}}); err != nil {
			t.Fatal(err)
		}
	}
	s := r.status("h1")
	if s.Leases != 7 || s.LeasesMissing != 300 || len(s.NoLease) != 98 ||
		s.NoLease[0] != "h2 (10.0.0.2): carrier lost on the path" || !strings.HasPrefix(s.NoLease[1], "10.0.0.3: ") {
		t.Errorf("%d leases, %d missing, %d reasons: %q", s.Leases, s.LeasesMissing, len(s.NoLease), s.NoLease)
	}
}
