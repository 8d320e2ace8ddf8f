// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/collector/intent"
	hostagent "github.com/netsketch/netsketch/hostagent/agent"
	"github.com/netsketch/netsketch/hostagent/hostv1"
	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/plugins/sdk"
)

func TestReports(t *testing.T) {
	r := newRig(t, nil, "h1", "h2")
	h1, h2 := r.start("h1", nil), r.start("h2", nil)
	h2.size = 300_000 // several chunks
	r.open(h1, h2)
	first := r.step()
	r.expect(first, "h1", "joined during the epoch")
	if first.Status != epoch.Lost {
		t.Errorf("status %v of the epoch in which settings came, want lost", first.Status)
	}
	for range 3 {
		ep := r.step()
		r.expect(ep, "h1", fmt.Sprintf("h1 one %d", ep.Number))
		r.expect(ep, "h2", fmt.Sprintf("h2 one %d", ep.Number))
		if ep.Status != epoch.Complete {
			t.Errorf("epoch %d is %v, want complete", ep.Number, ep.Status)
		}
	}
	testkit.Until(t, "acknowledgments", func() bool { return h2.agent.Status().ReportsAcknowledged == 3 })
	if s := r.status("h2"); s.Reports != 3 || s.ReportBytes < 900_000 || s.LastError != "" || !s.Connected {
		t.Errorf("status %+v", s)
	}
	if s := h2.agent.Status(); s.Buffered != 0 || s.Epoch != r.c.newest.Load() {
		t.Errorf("agent %+v, newest epoch %d", s, r.c.newest.Load())
	}
}

// texts returns the data of reports.
func texts(reports []sdk.HostReport) (all []string) {
	for _, r := range reports {
		all = append(all, string(r.Data))
	}
	return all
}

// TestParts: each part of a report is delivered once with its report, even if the agent sends it
// again in another session. Parts of an agent that is killed are delivered with the next epoch.
func TestParts(t *testing.T) {
	r := newRig(t, nil, "h1")
	h1 := r.start("h1", nil)
	r.open(h1)
	r.step()
	send := func(text string) {
		t.Helper()
		h1.do(func(h *testHost) { h.part = text })
		before := r.status("h1").ReportBytes
		testkit.Until(t, "timers", func() bool { return h1.clock.Waiting() == 2 }) // timers of epochs and of parts
		h1.clock.Advance(100 * time.Millisecond)
		testkit.Until(t, "part "+text, func() bool { return r.status("h1").ReportBytes == before+uint64(len(text)) })
	}
	send("one")
	send("two")
	for s := range r.sessions() { // the same part again, as if the session had ended before its acknowledgment
		number := r.c.newest.Load()
		for _, part := range []uint64{1, 2} {
			if err := s.chunk(&hostv1.ReportChunk{Epoch: number, Role: roleName, Part: part}); err != nil {
				t.Error(err)
			}
		}
		for _, bad := range []*hostv1.ReportChunk{{Epoch: number + 5, Role: roleName, Part: 3},
			{Epoch: number, Role: "other", Part: 3}} {
			if err := s.chunk(bad); err != nil {
				t.Error(err)
			}
		}
	}
	ep := r.step()
	if got := fmt.Sprint(texts(ep.Sources[0].Reading.Hosts)); got != fmt.Sprintf("[one two h1 one %d]", ep.Number) {
		t.Errorf("reports %s", got)
	}
	if s := r.status("h1"); s.ReportsRefused != 2 || !strings.Contains(s.LastError, `role "other"`) {
		t.Errorf("status %+v", s)
	}
	send("three")
	h1.cancel()
	testkit.Until(t, "the end of the session", func() bool { return !r.status("h1").Connected })
	if ep = r.step(); ep.Sources[0].Err == nil {
		t.Errorf("reports %v of an agent that is away", ep.Sources[0].Reading)
	}
	next := r.step()
	if len(next.Late) != 1 || next.Late[0].Epoch != ep.Number || string(next.Late[0].Data) != "three" {
		t.Errorf("late reports %+v", next.Late)
	}
}

// TestSlowAgent: an agent that does not report in time makes its epoch partial and does not delay
// other hosts; its report is delivered later.
func TestSlowAgent(t *testing.T) {
	r := newRig(t, nil, "h1", "h2")
	h1, h2 := r.start("h1", nil), r.start("h2", nil)
	r.open(h1, h2)
	r.step()
	h2.do(func(h *testHost) { h.block = make(chan struct{}) })
	r.at = r.at.Add(time.Second)
	r.clock.AdvanceTo(r.at)
	ctx, cancel := context.WithCancel(context.Background())
	closed := make(chan *epoch.Epoch, 1)
	go func() {
		ep, _ := r.engine.Close(ctx, r.at, noWait) // ctx ends the epoch, because the deadline is in real time
		closed <- ep
	}()
	testkit.Until(t, "the report of h1", func() bool { return r.status("h1").Reports == 1 })
	cancel()
	ep := <-closed
	r.expect(ep, "h1", "h1 one")
	r.expect(ep, "h2", "not read before the deadline")
	if ep.Status != epoch.Partial {
		t.Errorf("status %v, want partial", ep.Status)
	}
	h2.do(func(h *testHost) { close(h.block); h.block = nil })
	testkit.Until(t, "the late report", func() bool { return r.status("h2").ReportsLate == 1 })
	next := r.step()
	if next.Status != epoch.Complete || len(next.Late) != 1 || next.Late[0].Epoch != ep.Number ||
		next.Late[0].Host != "h2" {
		t.Errorf("next epoch %v, late %+v, want that of h2 in epoch %d", next.Status, next.Late, ep.Number)
	}
}

// TestRoleOfAnotherPlugin: a late report of a role that belongs to another plugin by now is lost,
// and not delivered to that plugin.
func TestRoleOfAnotherPlugin(t *testing.T) {
	r := newRig(t, nil, "h1")
	r.set("", intent.HostSetting{Role: roleName, Plugin: "before", Generation: 1, Data: []byte("one")})
	h := r.start("h1", nil)
	r.open(h)
	r.step()
	h.do(func(h *testHost) { h.block = make(chan struct{}) })
	r.at = r.at.Add(time.Second)
	r.clock.AdvanceTo(r.at)
	ctx, cancel := context.WithCancel(context.Background())
	_, _ = r.engine.Close(ctx, r.at, func(context.Context, time.Duration) error {
		cancel() // ends the epoch, because the deadline is in real time
		return ctx.Err()
	})
	a := r.c.agent("h1")
	testkit.Until(t, "a request", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.wanted) == 1
	})
	before := r.status("h1")
	r.set("", intent.HostSetting{Role: roleName, Plugin: "after", Generation: 2, Data: []byte("two")})
	h.do(func(h *testHost) { close(h.block); h.block = nil })
	testkit.Until(t, "the report", func() bool {
		s := r.status("h1")
		return s.ReportsLost+s.ReportsLate == before.ReportsLost+1
	})
	if s := r.status("h1"); s.ReportsLate > 0 {
		t.Errorf("status %+v, want a lost report", s)
	}
	if next := r.step(); len(next.Late) > 0 {
		t.Errorf("late reports %+v", next.Late)
	}
}

// TestSlowNetwork: if the deadline comes before the network has drained, the reports of the epoch
// are delivered later.
func TestSlowNetwork(t *testing.T) {
	r := newRig(t, nil, "h1")
	r.open(r.start("h1", nil))
	r.step()
	r.at = r.at.Add(time.Second)
	r.clock.AdvanceTo(r.at)
	ctx, cancel := context.WithCancel(context.Background())
	ep, _ := r.engine.Close(ctx, r.at, func(context.Context, time.Duration) error {
		cancel() // ends the epoch, because the deadline is in real time
		testkit.Until(t, "the late report", func() bool { return r.status("h1").ReportsLate == 1 })
		return ctx.Err()
	})
	r.expect(ep, "h1", "error: "+epoch.ErrLate.Error())
	next := r.step()
	r.expect(next, "h1", fmt.Sprintf("h1 one %d", next.Number))
	if len(next.Late) != 1 || next.Late[0].Epoch != ep.Number || next.Status != epoch.Complete {
		t.Errorf("next epoch %v, late %+v, want that of epoch %d", next.Status, next.Late, ep.Number)
	}
}

// TestMissedEpochs: when an agent is back, it sends the reports of epochs that ended while it had
// no session.
func TestMissedEpochs(t *testing.T) {
	r := newRig(t, nil, "h1")
	h := r.newHost("h1")
	path := h.path()
	same := func(c *hostagent.Config) { c.DataPaths = []hostagent.DataPath{path} }
	r.run(h, same)
	testkit.Until(t, "a session", func() bool { return r.status("h1").Connected })
	r.open(h)
	r.step()
	h.cancel()
	testkit.Until(t, "the end of the session", func() bool { return !r.status("h1").Connected })
	a, b := r.step(), r.step()
	r.expect(a, "h1", "no session with the agent: the agent closed the connection")
	if b.Status != epoch.Lost {
		t.Errorf("an epoch without any source is %v, want lost", b.Status)
	}
	r.run(h, same) // another process with the first one's data path
	testkit.Until(t, "the missed reports", func() bool { return r.status("h1").ReportsLate == 2 })
	ep := r.step()
	if len(ep.Late) != 2 || ep.Late[0].Epoch+ep.Late[1].Epoch != a.Number+b.Number {
		t.Errorf("late %+v, want epochs %d and %d", ep.Late, a.Number, b.Number)
	}
	r.expect(ep, "h1", fmt.Sprintf("h1 one %d", ep.Number))
}

func TestLargeReport(t *testing.T) {
	r := newRig(t, nil, "h1")
	h := r.start("h1", nil)
	h.do(func(h *testHost) { h.size = 2 << 20 })
	r.open(h)
	r.step()
	r.expect(r.step(), "h1", "raise agents.max-report")
	h.do(func(h *testHost) { h.size = 0 })
	r.expect(r.step(), "h1", "h1 one")
}

// TestVolume: reports beyond the epoch's bound are refused with the reason; other reports are
// used.
func TestVolume(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MaxEpoch = 1000 }, "h1", "h2", "h3")
	hosts := []*testHost{r.start("h1", nil), r.start("h2", nil), r.start("h3", nil)}
	for _, h := range hosts {
		h.do(func(h *testHost) { h.size = 400 })
	}
	r.open(hosts...)
	r.step()
	ep := r.step()
	refused := 0
	for _, h := range hosts {
		if got := outcome(ep, h.name); strings.Contains(got, "more than the 1000 that agents.max-epoch allows") {
			refused++
			if s := r.status(h.name); s.ReportsRefused != 1 || !strings.Contains(s.LastError, "agents.max-epoch") {
				t.Errorf("status %+v", s)
			}
		} else if !strings.Contains(got, h.name+" one") {
			t.Errorf("host %s: %s", h.name, got)
		}
		h.do(func(h *testHost) { h.size = 0 })
	}
	if refused != 1 || ep.Status != epoch.Partial {
		t.Errorf("%d reports were refused, the epoch is %v; want 1, partial", refused, ep.Status)
	}
	if ep := r.step(); ep.Status != epoch.Complete {
		t.Errorf("the next epoch is %v, want complete", ep.Status)
	}
	var v volume
	v.limit = 10
	if !v.add(5, 10) || v.add(5, 1) || !v.add(6, 4) || v.add(4, 11) {
		t.Error("the bound is not that of each epoch")
	}
	if v.remove(5, 10); !v.add(5, 6) || v.add(5, 5) {
		t.Error("a report that did not arrive still counts")
	}
	if v.add(20, 1); len(v.byEpoch) != 1 {
		t.Errorf("%d epochs are kept; want 1", len(v.byEpoch))
	}
}
