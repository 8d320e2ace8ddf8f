// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/collector/intent"
	hostagent "github.com/netsketch/netsketch/hostagent/agent"
	hostepoch "github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/hostagent/role"
	"github.com/netsketch/netsketch/internal/certs"
	"github.com/netsketch/netsketch/internal/testkit"
)

// agentVariable makes the test binary an agent of the host that it names, NAME@ADDRESS.
const agentVariable = "NETSKETCH_TEST_AGENT"

func TestMain(m *testing.M) {
	if name, address, ok := strings.Cut(os.Getenv(agentVariable), "@"); ok {
		h := &testHost{name: name}
		a, err := hostagent.New(hostagent.Config{Address: address, Host: name, DataPaths: []hostagent.DataPath{h.path()}},
			hostagent.Dependencies{})
		if err == nil {
			err = a.Run(context.Background())
		}
		panic(err) // it runs until it is killed
	}
	goleak.VerifyTestMain(m)
}

const roleName = "test"

// testRole reports its settings and the epoch.
type testRole struct {
	clock    *hostepoch.Clock
	host     *testHost
	settings []byte
	sealed   map[uint64]bool
}

// testHost is the part of a role that a test controls.
type testHost struct {
	name string

	mu     sync.Mutex
	refuse string        // settings
	block  chan struct{} // Append waits for its end; nil: it does not
	size   int           // of a report, in addition
	agent  *hostagent.Agent
	clock  *epoch.Virtual
	cancel func()
	done   chan struct{}
}

func (r *testRole) Name() string         { return roleName }
func (r *testRole) Out([]*packet.Frame)  {}
func (r *testRole) In([]*packet.Frame)   {}
func (h *testHost) do(f func(*testHost)) { h.mu.Lock(); defer h.mu.Unlock(); f(h) }

func (r *testRole) Apply(settings []byte) error {
	r.host.mu.Lock()
	defer r.host.mu.Unlock()
	if r.host.refuse != "" {
		return errors.New(r.host.refuse)
	}
	r.settings = settings
	return nil
}

func (r *testRole) Seal(e uint64) role.Report {
	if r.settings == nil || e >= r.clock.Current() || r.sealed[e] {
		return nil
	}
	r.sealed[e] = true
	return testReport{r.host, fmt.Sprintf("%s %s %d", r.host.name, r.settings, e)}
}

type testReport struct {
	host *testHost
	text string
}

func (r testReport) Append(b []byte) []byte {
	r.host.mu.Lock()
	block, size := r.host.block, r.host.size
	r.host.mu.Unlock()
	if block != nil {
		<-block
	}
	return append(append(b, r.text...), make([]byte, size)...)
}

func (testReport) Release() {}

// path returns a data path of the host's role.
func (h *testHost) path() *hostagent.RolePath {
	return hostagent.NewRolePath(func(c *hostepoch.Clock) role.Role {
		return &testRole{clock: c, host: h, sealed: map[uint64]bool{}}
	})
}

// rig is a component with an epoch engine on virtual time, and agents on loopback.
type rig struct {
	t      *testing.T
	log    testkit.Log
	clock  *epoch.Virtual
	engine *epoch.Engine
	c      *Component
	at     time.Time

	mu       sync.Mutex
	settings map[string][]intent.HostSetting // "" is every host
	applied  []string
}

var start = time.Unix(1_000_000, 0).UTC()

func newRig(t *testing.T, change func(*Config), hosts ...string) *rig {
	r := &rig{t: t, clock: epoch.NewVirtual(start, 0), at: start, settings: map[string][]intent.HostSetting{}}
	r.engine = epoch.New(epoch.Config{Interval: time.Second, Deadline: 800 * time.Millisecond,
		Origin: time.Unix(0, 0)}, epoch.Dependencies{Clock: r.clock, Logger: r.log.Logger()})
	cfg := Config{Address: "127.0.0.1:0", Timeout: 10 * time.Second, MaxReport: 1 << 20, MaxEpoch: 1 << 30, Hosts: hosts}
	if change != nil {
		change(&cfg)
	}
	r.c = New(cfg, Dependencies{
		Logger: r.log.Logger(), Epochs: r.engine, OnChange: func() {},
		Settings: func(host string) []intent.HostSetting {
			r.mu.Lock()
			defer r.mu.Unlock()
			if own, ok := r.settings[host]; ok {
				return own
			}
			return r.settings[""]
		},
		Applied: func(host, role string, generation uint64, refusal string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.applied = append(r.applied, fmt.Sprintf("%s %s %d %s", host, role, generation, refusal))
		},
	})
	r.set("", intent.HostSetting{Role: roleName, Generation: 1, Data: []byte("one")})
	if err := r.c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.c.Stop()
		r.engine.Shutdown()
	})
	return r
}

func (r *rig) set(host string, settings ...intent.HostSetting) {
	r.mu.Lock()
	r.settings[host] = settings
	r.mu.Unlock()
	r.c.SettingsChanged()
}

// newHost returns a host whose agent does not run.
func (r *rig) newHost(name string) *testHost {
	return &testHost{name: name, clock: epoch.NewVirtual(r.clock.Now(), 0)}
}

// run starts the agent of a host.
func (r *rig) run(h *testHost, change func(*hostagent.Config)) *testHost {
	path := h.path()
	cfg := hostagent.Config{Address: r.c.Address(), Host: h.name, Version: "1", DataPaths: []hostagent.DataPath{path}}
	if change != nil {
		change(&cfg)
	}
	a, err := hostagent.New(cfg, hostagent.Dependencies{Clock: h.clock, Logger: r.log.Logger()})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	h.agent, h.done = a, make(chan struct{})
	go func() {
		defer close(h.done)
		if err := a.Run(ctx); err != nil {
			r.t.Errorf("agent %s: %v", h.name, err)
		}
	}()
	h.cancel = func() { cancel(); <-h.done }
	r.t.Cleanup(func() {
		h.do(func(h *testHost) {
			if h.block != nil {
				close(h.block)
				h.block = nil
			}
		})
		h.cancel()
	})
	return h
}

// start starts the agent of a host and waits for its session.
func (r *rig) start(name string, change func(*hostagent.Config)) *testHost {
	r.t.Helper()
	h := r.run(r.newHost(name), change)
	testkit.Until(r.t, "a session of "+name, func() bool { return h.agent.Status().Connected })
	return h
}

// open begins the epochs, and waits until hosts measure.
func (r *rig) open(hosts ...*testHost) {
	r.t.Helper()
	if err := r.engine.Open(context.Background(), r.at, noWait); err != nil {
		r.t.Fatal(err)
	}
	r.measuring(hosts...)
}

// measuring waits until settings are in force at hosts.
func (r *rig) measuring(hosts ...*testHost) {
	r.t.Helper()
	for _, h := range hosts {
		testkit.Until(r.t, "settings at "+h.name, func() bool { return r.status(h.name).SettingsApplied > 0 })
	}
}

func noWait(context.Context, time.Duration) error { return nil }

// step closes the open epoch.
func (r *rig) step() *epoch.Epoch {
	r.t.Helper()
	r.at = r.at.Add(time.Second)
	r.clock.AdvanceTo(r.at)
	ep, err := r.engine.Close(context.Background(), r.at, noWait)
	if err != nil {
		r.t.Fatal(err)
	}
	return ep
}

func (r *rig) status(host string) Status {
	r.t.Helper()
	for _, s := range r.c.Hosts() {
		if s.Name == host {
			return s
		}
	}
	r.t.Fatalf("no host %s", host)
	return Status{}
}

// outcome returns the report of a host as text, or its error.
func outcome(ep *epoch.Epoch, host string) string {
	for _, o := range ep.Sources {
		switch {
		case o.Name != host:
		case o.Err != nil:
			return "error: " + o.Err.Error()
		case len(o.Reading.Hosts) == 0:
			return "nothing"
		case o.Reading.Hosts[0].Err != nil:
			return "role error: " + o.Reading.Hosts[0].Err.Error()
		default:
			return string(bytes.TrimRight(o.Reading.Hosts[0].Data, "\x00"))
		}
	}
	return "missing"
}

func (r *rig) expect(ep *epoch.Epoch, host, want string) {
	r.t.Helper()
	if got := outcome(ep, host); !strings.Contains(got, want) {
		r.t.Errorf("epoch %d, host %s: %q, want %q", ep.Number, host, got, want)
	}
}

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

// TestSettingsFollowTheSchedule: a session that begins before the epochs sends its settings when
// they begin.
func TestSettingsFollowTheSchedule(t *testing.T) {
	engine := &fixedEpochs{}
	c := New(Config{Hosts: []string{"h1"}}, Dependencies{Epochs: engine, OnChange: func() {},
		Settings: func(string) []intent.HostSetting { return []intent.HostSetting{{Role: roleName, Generation: 1}} }})
	s := &session{c: c, agent: newAgent(c, "h1"), sent: map[string]uint64{}, queued: true}
	if m := s.next(); m != nil {
		t.Errorf("message %v before the first epoch", m)
	}
	engine.number.Store(1)
	if m := s.next(); m.GetSchedule() == nil {
		t.Errorf("message %v, want the schedule", m)
	}
	if m := s.next(); m.GetSettings().GetGeneration() != 1 {
		t.Errorf("message %v, want the settings", m)
	}
}

func TestSettings(t *testing.T) {
	r := newRig(t, nil, "h1")
	h := r.start("h1", nil)
	r.open(h)
	r.step()
	r.set("", intent.HostSetting{Role: roleName, Generation: 2, Data: []byte("two")})
	testkit.Until(t, "new settings", func() bool { return r.status("h1").SettingsApplied == 2 })
	ep := r.step()
	r.expect(ep, "h1", "h1 two")
	h.do(func(h *testHost) { h.refuse = "no such thing" })
	r.set("", intent.HostSetting{Role: roleName, Generation: 3, Data: []byte("three")})
	testkit.Until(t, "a refusal", func() bool { return r.status("h1").SettingsRefused == 1 })
	r.expect(r.step(), "h1", "h1 two")
	if s := r.status("h1"); !strings.Contains(s.LastError, "no such thing") {
		t.Errorf("last error %q", s.LastError)
	}
	r.set("", intent.HostSetting{Role: roleName, Generation: 4, Data: []byte("four")},
		intent.HostSetting{Role: "other", Generation: 1})
	testkit.Until(t, "two refusals", func() bool { return r.status("h1").SettingsRefused == 3 })
	ep = r.step()
	got := ep.Sources[0].Reading.Hosts
	if len(got) != 2 || got[0].Role != "other" || got[0].Err == nil || got[1].Err != nil {
		t.Errorf("reports %+v, want an error for role other, and a report", got)
	}
	r.set("")
	testkit.Until(t, "removed settings", func() bool { return outcome(r.step(), "h1") == "nothing" })
	r.mu.Lock()
	defer r.mu.Unlock()
	if got := fmt.Sprint(r.applied); !strings.Contains(got, "h1 test 1 ") ||
		!strings.Contains(got, "has no role \"other\"") {
		t.Errorf("outcomes %s", got)
	}
}

// TestSlowAgent: an agent that does not report in time makes its epoch partial and delays no other
// host; the report is delivered later.
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
		ep, _ := r.engine.Close(ctx, r.at, noWait) // ctx ends instead of the deadline, which is in real time
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
		next.Late[0].Source != "h2" {
		t.Errorf("next epoch %v, late %+v, want that of h2 in epoch %d", next.Status, next.Late, ep.Number)
	}
}

// TestReconnect: an agent that reconnects reports the epochs that it missed, as late reports.
func TestReconnect(t *testing.T) {
	r := newRig(t, nil, "h1")
	h := r.start("h1", nil)
	r.open(h)
	r.step()
	for s := range r.sessions() {
		s.end(errors.New("cut by the test"))
	}
	testkit.Until(t, "another session", func() bool { return r.status("h1").Sessions == 2 && r.status("h1").Connected })
	testkit.Until(t, "settings", func() bool { return r.status("h1").SettingsApplied == 2 })
	ep := r.step()
	r.expect(ep, "h1", fmt.Sprintf("h1 one %d", ep.Number)) // the role went on
}

func (r *rig) sessions() map[*session]struct{} {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	out := map[*session]struct{}{}
	for s := range r.c.sessions {
		out[s] = struct{}{}
	}
	return out
}

// TestMissedEpochs: epochs that ended without a session arrive when the agent is back.
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
	r.run(h, same) // another process with the data path of the first
	testkit.Until(t, "the missed reports", func() bool { return r.status("h1").ReportsLate == 2 })
	ep := r.step()
	if len(ep.Late) != 2 || ep.Late[0].Epoch+ep.Late[1].Epoch != a.Number+b.Number {
		t.Errorf("late %+v, want epochs %d and %d", ep.Late, a.Number, b.Number)
	}
	r.expect(ep, "h1", fmt.Sprintf("h1 one %d", ep.Number))
}

// TestRestartedAgent: an agent that starts again without its data is missing from the epoch in
// which it starts.
func TestRestartedAgent(t *testing.T) {
	r := newRig(t, nil, "h1")
	h := r.start("h1", nil)
	r.open(h)
	r.step()
	r.expect(r.step(), "h1", "h1 one")
	h.cancel()
	testkit.Until(t, "the end of the session", func() bool { return !r.status("h1").Connected })
	r.start("h1", nil)
	testkit.Until(t, "settings", func() bool { return r.status("h1").SettingsApplied == 2 })
	r.expect(r.step(), "h1", "joined during the epoch")
	r.expect(r.step(), "h1", "h1 one")
}

// TestKilledAgent: a process that is killed in an epoch is missing from it, and from the one in
// which it starts again; then results are exact.
func TestKilledAgent(t *testing.T) {
	r := newRig(t, nil, "h1", "h2")
	other := r.start("h2", nil)
	run := func() *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), agentVariable+"=h1@"+r.c.Address())
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill() // it may have been killed
			_ = cmd.Wait()
		})
		testkit.Until(t, "a session of the process", func() bool { return r.status("h1").Connected })
		return cmd
	}
	cmd := run()
	r.open(other)
	r.measuring(&testHost{name: "h1"})
	r.step()
	r.expect(r.step(), "h1", "h1 one")
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	testkit.Until(t, "the end of the session", func() bool { return !r.status("h1").Connected })
	ep := r.step()
	r.expect(ep, "h1", "no session with the agent")
	r.expect(ep, "h2", "h2 one")
	run()
	testkit.Until(t, "settings", func() bool { return r.status("h1").SettingsApplied == 2 })
	r.expect(r.step(), "h1", "joined during the epoch")
	if ep := r.step(); ep.Status != epoch.Complete {
		t.Errorf("two epochs later the epoch is %v, want complete", ep.Status)
	}
}

func TestTwoAgentsOfOneHost(t *testing.T) {
	r := newRig(t, nil, "h1")
	first := r.start("h1", nil)
	second := r.run(r.newHost("h1"), nil)
	testkit.Until(t, "a refusal", func() bool {
		return strings.Contains(second.agent.Status().LastError, "has a session with another agent")
	})
	if s := r.status("h1"); !s.Connected || s.SessionsRefused == 0 || !strings.Contains(s.LastError, "second agent") {
		t.Errorf("status %+v", s)
	}
	first.cancel()
	testkit.Until(t, "a session of the second agent", func() bool { return second.agent.Status().Connected })
}

// TestConnectionsShareALine: hosts that connect, are measured, and leave together have one line of
// the log for each change.
func TestConnectionsShareALine(t *testing.T) {
	names := make([]string, 8)
	for i := range names {
		names[i] = fmt.Sprintf("h%d", i)
	}
	r := newRig(t, nil, names...)
	r.c.connections.after = time.Hour // flushed by the test
	hosts := make([]*testHost, len(names))
	for i, name := range names {
		hosts[i] = r.start(name, nil)
	}
	r.c.connections.flush()
	r.open(hosts...)
	r.step()
	r.step()
	for _, h := range hosts[2:] {
		h.cancel()
		testkit.Until(t, "the end of "+h.name, func() bool { return !r.status(h.name).Connected })
	}
	r.c.connections.flush()
	r.step()
	log := r.log.String()
	for _, line := range []string{
		`level=INFO msg="host agents connected" connected="8 of 8" hosts="h0,h1,h2,h3,h4 and 3 more"`,
		`level=INFO msg="hosts are measured" count="8 of 8" hosts="h0,h1,h2,h3,h4 and 3 more"`,
		`level=WARN msg="sessions of host agents ended" connected="2 of 8" hosts="h2,h3,h4,h5,h6 and 1 more" ` +
			`reason="the agent closed the connection"`,
		`level=WARN msg="hosts are missing from the epoch" count="6 of 8" hosts="h2,h3,h4,h5,h6 and 1 more" reason=`,
	} {
		if n := strings.Count(log, line); n != 1 {
			t.Errorf("%d lines %s in\n%s", n, line, log)
		}
	}
}

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

// TestVolume: reports beyond the bound of an epoch are refused with the reason; others are used.
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

func TestRemovedHost(t *testing.T) {
	r := newRig(t, nil, "h1", "h2")
	h1, h2 := r.start("h1", nil), r.start("h2", nil)
	r.open(h1, h2)
	r.c.SetHosts([]string{"h2"})
	testkit.Until(t, "the refusal", func() bool {
		return strings.Contains(h1.agent.Status().LastError, "no longer configured") ||
			strings.Contains(h1.agent.Status().LastError, "not configured with an agent")
	})
	if ep := r.step(); len(ep.Sources) != 1 || ep.Sources[0].Name != "h2" {
		t.Errorf("sources %+v, want h2", ep.Sources)
	}
}

func TestCertificates(t *testing.T) {
	directory := t.TempDir()
	authority, other := testkit.NewAuthority(t, "root"), testkit.NewAuthority(t, "other")
	year := time.Now().AddDate(1, 0, 0)
	ca := authority.Write(t, directory, "ca.pem")
	server, serverKey := authority.Issue(t, directory, "collector", year)
	store := certs.New(certs.Options{})
	serverTLS, err := store.Server(certs.Files{Cert: server, Key: serverKey, CA: ca})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, func(c *Config) { c.TLS = serverTLS }, "h1", "h2")
	tests := []struct {
		name, commonName string
		by               *testkit.Authority
		dns              []string
		host             string // that the agent states
		connected        string // host of the session; empty: refused
		want             string // error
	}{
		{"common name", "h1", authority, nil, "", "h1", ""},
		{"DNS names", "ignored", authority, []string{"h2.example.com", "h2"}, "h2", "h2", ""},
		{"DNS names replace the common name", "h1", authority, []string{"h9"}, "", "", "which is no host with an agent"},
		{"another host", "h1", authority, nil, "h2", "", "has the certificate of host"},
		{"two hosts", "x", authority, []string{"h1", "h2"}, "", "", "several hosts"},
		{"another authority", "h1", other, nil, "", "", "certificate"},
	}
	for i, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			cert, key := tc.by.Issue(t, directory, tc.commonName, year, tc.dns...)
			files := certs.Files{Cert: cert, Key: key, CA: ca}
			clientTLS, err := certs.New(certs.Options{}).Client(files, "127.0.0.1")
			if err != nil {
				t.Fatal(err)
			}
			h := r.run(r.newHost(fmt.Sprintf("agent%d", i)), func(c *hostagent.Config) { c.TLS, c.Host = clientTLS, tc.host })
			defer h.cancel()
			if tc.connected != "" {
				testkit.Until(t, "a session", func() bool { return r.status(tc.connected).Connected })
				return
			}
			testkit.Until(t, "a refusal", func() bool { return strings.Contains(h.agent.Status().LastError, tc.want) })
			if s := h.agent.Status(); s.Sessions != 0 {
				t.Errorf("the session was accepted: %+v", s)
			}
		})
	}
	t.Run("plaintext", func(t *testing.T) {
		h := r.run(r.newHost("h1"), nil)
		testkit.Until(t, "an error", func() bool { return h.agent.Status().LastError != "" })
	})
}

// Plugins send settings when they are configured, which is before Start.
func TestHasBeforeStart(t *testing.T) {
	c := New(Config{Address: "127.0.0.1:0", Hosts: []string{"h1"}}, Dependencies{})
	defer c.Stop()
	if !c.Has("h1") || c.Has("h2") {
		t.Errorf("h1 %v, h2 %v", c.Has("h1"), c.Has("h2"))
	}
}
