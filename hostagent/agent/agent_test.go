// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/hostv1"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/hostagent/role"
	"github.com/netsketch/netsketch/internal/test/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakePath is a data path whose reports have a size.
type fakePath struct {
	clock *epoch.Clock
	size  int

	mu       sync.Mutex
	settings string
	err      error // error that Apply returns
}

type fakeReport string

func (r fakeReport) Append(b []byte) []byte { return append(b, r...) }
func (fakeReport) Release()                 {}

func (*fakePath) Role() string          { return "r" }
func (*fakePath) Since() (uint64, bool) { return 1, true }
func (p *fakePath) Epoch() uint64       { return p.clock.Current() }
func (p *fakePath) Advance(e uint64) bool {
	return p.clock.Advance(e)
}
func (*fakePath) Reset(uint64) error { return nil }
func (*fakePath) Close() error       { return nil }

func (p *fakePath) Apply(settings []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.settings = string(settings)
	}
	return p.err
}

func (p *fakePath) Seal(e uint64) (role.Report, error) {
	return fakeReport(fmt.Sprintf("%0*d", p.size, e)), nil
}

// collector accepts sessions, which the test serves.
type collector struct {
	hostv1.UnimplementedHostSessionsServer
	t        *testing.T
	address  string
	udp      *net.UDPConn
	sessions chan *served
	end      chan struct{}
	clock    Clock // clock of the agent; nil: the wall clock
}

// served is a session at the collector.
type served struct {
	hostv1.HostSessions_SessionServer
	t     *testing.T
	hello *hostv1.Hello
	done  chan error // ends the session
}

func (c *collector) Session(stream hostv1.HostSessions_SessionServer) error {
	m, err := stream.Recv()
	if err != nil {
		return err
	}
	s := &served{stream, c.t, m.GetHello(), make(chan error, 1)}
	select {
	case c.sessions <- s:
	case <-c.end:
		return status.Error(codes.Unavailable, "the test is over")
	}
	select {
	case err := <-s.done:
		return err
	case <-stream.Context().Done():
		return stream.Context().Err()
	case <-c.end:
		return status.Error(codes.Unavailable, "the test is over")
	}
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{t: t, sessions: make(chan *served), end: make(chan struct{})}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if c.udp, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}); err != nil {
		t.Fatal(err)
	}
	c.address = l.Addr().String()
	server := grpc.NewServer()
	hostv1.RegisterHostSessionsServer(server, c)
	go func() { _ = server.Serve(l) }() // Serve returns after Stop
	t.Cleanup(func() {
		close(c.end)
		server.Stop()
		_ = c.udp.Close()
	})
	return c
}

// accept takes the next session and sends the first messages, after which epoch 10 is open.
func (c *collector) accept(welcome *hostv1.Welcome) *served {
	c.t.Helper()
	s := <-c.sessions
	s.send(&hostv1.CollectorMessage{Message: &hostv1.CollectorMessage_Welcome{Welcome: welcome}})
	s.schedule(time.Hour)
	return s
}

func (s *served) send(m *hostv1.CollectorMessage) {
	s.t.Helper()
	if err := s.Send(m); err != nil {
		s.t.Fatal(err)
	}
}

func (s *served) schedule(length time.Duration) {
	s.send(&hostv1.CollectorMessage{Message: &hostv1.CollectorMessage_Schedule{Schedule: &hostv1.Schedule{
		LengthNs: int64(length), ZeroUnixNs: time.Now().Add(-10 * length).UnixNano(), Epoch: 10}}})
}

func (s *served) request(e uint64) {
	s.send(&hostv1.CollectorMessage{Message: &hostv1.CollectorMessage_Request{
		Request: &hostv1.ReportRequest{Epoch: e, Roles: []string{"r", "absent"}}}})
}

// receive returns the next message of the agent.
func (s *served) receive() *hostv1.AgentMessage {
	s.t.Helper()
	m, err := s.Recv()
	if err != nil {
		s.t.Fatal(err)
	}
	return m
}

// report receives a whole report.
func (s *served) report() (e uint64, data []byte) {
	s.t.Helper()
	for {
		m := s.receive()
		c := m.GetChunk()
		if c == nil {
			continue
		}
		if c.GetOffset() != uint64(len(data)) {
			s.t.Fatalf("a chunk at %d, expected %d", c.GetOffset(), len(data))
		}
		if data = append(data, c.GetData()...); uint64(len(data)) == c.GetTotalBytes() {
			return c.GetEpoch(), data
		}
	}
}

// start runs an agent until the test ends.
func (c *collector) start(path *fakePath, change func(*Config)) (*Agent, *testkit.Log) {
	c.t.Helper()
	path.clock = epoch.NewClock(0, 0)
	cfg := Config{Address: c.address, Host: "h1", DataPaths: []DataPath{path}}
	if change != nil {
		change(&cfg)
	}
	log := &testkit.Log{}
	a, err := New(cfg, Dependencies{Clock: c.clock, Logger: log.Logger()})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() {
		if err := a.Run(ctx); err != nil {
			c.t.Error(err)
		}
	})
	c.t.Cleanup(func() {
		cancel()
		work.Wait()
	})
	return a, log
}

// If a session ends within a report, the next session sends the report whole. An acknowledged
// report is dropped.
func TestResendAfterReconnect(t *testing.T) {
	c := newCollector(t)
	path := &fakePath{size: 3*chunkBytes + 5}
	a, _ := c.start(path, nil)
	s := c.accept(&hostv1.Welcome{MaxReportBytes: 1 << 20})
	if s.hello.GetHost() != "h1" || s.hello.GetInstance() == "" || fmt.Sprint(s.hello.GetRoles()) != "[r]" {
		t.Errorf("hello %v", s.hello)
	}
	s.request(9)
	if m := s.receive().GetMissing(); m.GetRole() != "absent" || m.GetReason() != "the agent has no such role" {
		t.Errorf("missing %v; want that of the other role", m)
	}
	if m := s.receive(); m.GetChunk().GetEpoch() != 9 || a.Status().Epoch != 10 {
		t.Errorf("message %v, epoch %d", m, a.Status().Epoch)
	}
	s.done <- status.Error(codes.Unavailable, "cut by the test")
	s = c.accept(&hostv1.Welcome{MaxReportBytes: 1 << 20})
	want := fmt.Appendf(nil, "%0*d", path.size, 9)
	if e, data := s.report(); e != 9 || !bytes.Equal(data, want) {
		t.Errorf("epoch %d, %d bytes", e, len(data))
	}
	if st := a.Status(); st.Sessions != 2 || st.Buffered != int64(path.size) {
		t.Errorf("status %+v", st)
	}
	ack := func(e uint64, refusal string) {
		s.send(&hostv1.CollectorMessage{Message: &hostv1.CollectorMessage_Ack{
			Ack: &hostv1.ReportAck{Epoch: e, Role: "r", Error: refusal}}})
	}
	ack(9, "")
	ack(9, "") // has no effect
	ack(8, "") // of no report
	testkit.Until(t, "the acknowledgment", func() bool { return a.Status().ReportsAcknowledged == 1 })
	s.request(10)
	s.report()
	ack(10, "too late")
	testkit.Until(t, "the refusal", func() bool { return a.Status().ReportsRefused == 1 })
	if st := a.Status(); st.Buffered != 0 || st.ReportsAcknowledged != 1 || st.ReportsDropped != 0 {
		t.Errorf("status %+v", st)
	}
}

// manualClock calls functions when the test says so.
type manualClock struct {
	wallClock
	mu    sync.Mutex
	calls []call
}

type call struct {
	after time.Duration
	f     func()
}

func (c *manualClock) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, call{d, f})
	return func() bool { return true }
}

// streamingPath is a data path whose reports consist of several messages; all but the last are
// full.
type streamingPath struct {
	*fakePath
	onFull   func()
	full     int
	messages []string
}

func (*streamingPath) Streams() bool     { return true }
func (p *streamingPath) OnFull(f func()) { p.onFull = f }

func (p *streamingPath) Part(full bool) (epoch uint64, part role.Report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.messages) == 0 || full && p.full == 0 {
		return 0, nil
	}
	r := fakeReport(p.messages[0])
	p.messages = p.messages[1:]
	p.full = max(p.full-1, 0)
	return p.Epoch(), r
}

// Messages of an open epoch are sent when they are full, or else 100 ms later.
func TestParts(t *testing.T) {
	c := newCollector(t)
	clock := &manualClock{}
	c.clock = clock
	path := &streamingPath{fakePath: &fakePath{size: 1}}
	c.start(path.fakePath, func(cfg *Config) { cfg.DataPaths = []DataPath{path} })
	s := c.accept(&hostv1.Welcome{MaxReportBytes: 1 << 20, Parts: true})
	s.request(9)
	s.report() // the schedule is there
	want := func(part uint64, text string) {
		t.Helper()
		if m := s.receive().GetChunk(); m.GetPart() != part || m.GetEpoch() != 10 || string(m.GetData()) != text {
			t.Errorf("%v; want part %d, %q", m, part, text)
		}
	}
	path.mu.Lock()
	path.messages, path.full = []string{"first", "second", "rest"}, 2
	path.mu.Unlock()
	path.onFull()
	want(1, "first")
	want(2, "second")
	path.onFull()
	clock.mu.Lock()
	i := slices.IndexFunc(clock.calls, func(x call) bool { return x.after == 100*time.Millisecond })
	timer := clock.calls[i]
	clock.mu.Unlock()
	path.mu.Lock()
	if len(path.messages) != 1 {
		t.Errorf("%q wait; want the one that is not full", path.messages)
	}
	path.mu.Unlock()
	timer.f()
	want(3, "rest")
}

// While the load is high epochs are sent, and reports wait.
func TestReportsWaitForLowLoad(t *testing.T) {
	c := newCollector(t)
	var busy atomic.Bool
	busy.Store(true)
	a, _ := c.start(&fakePath{size: 10}, func(cfg *Config) { cfg.Busy = busy.Load })
	s := c.accept(&hostv1.Welcome{MaxReportBytes: 1000})
	s.request(10) // also of a role that the agent does not have
	if m := s.receive().GetMissing(); m.GetRole() != "absent" {
		t.Errorf("missing %v; want that of the other role", m)
	}
	testkit.Until(t, "the report waits", func() bool { return a.Status().ChunksHeld > 1 })
	if b := a.Status().Buffered; b != 10 {
		t.Errorf("%d bytes wait, want 10", b)
	}
	busy.Store(false)
	if e, data := s.report(); e != 10 || len(data) != 10 {
		t.Errorf("epoch %d, %d bytes", e, len(data))
	}
}

// Without acknowledgments the agent keeps the newest reports up to its bound, and counts those that
// it drops; a report that the collector does not take is not kept.
func TestBufferIsBounded(t *testing.T) {
	c := newCollector(t)
	a, _ := c.start(&fakePath{size: 1000}, func(cfg *Config) { cfg.MaxBuffered = 3500 })
	s := c.accept(&hostv1.Welcome{MaxReportBytes: 1000})
	for e := uint64(10); e < 20; e++ {
		s.request(e)
		if got, _ := s.report(); got != e {
			t.Fatalf("epoch %d, want %d", got, e)
		}
	}
	if st := a.Status(); st.Buffered != 3000 || st.ReportsDropped != 7 {
		t.Errorf("status %+v, want 3 reports, 7 dropped", st)
	}
	s.done <- status.Error(codes.Unavailable, "cut by the test")
	s = c.accept(&hostv1.Welcome{MaxReportBytes: 999})
	for _, want := range []uint64{19, 18, 17} {
		if got, _ := s.report(); got != want {
			t.Errorf("epoch %d is sent again; want %d", got, want)
		}
	}
	s.request(20)
	for {
		if m := s.receive().GetMissing(); m != nil && m.GetRole() == "r" {
			if want := "the report has 1000 bytes, and the collector takes 999; raise agents.max-report"; m.GetReason() != want {
				t.Errorf("reason %q, want %q", m.GetReason(), want)
			}
			break
		}
	}
	if st := a.Status(); st.Buffered != 3000 {
		t.Errorf("status %+v", st)
	}
}

// Settings reach their role; the outcome has the generation, and the reason of a refusal.
func TestSettingsOutcomes(t *testing.T) {
	c := newCollector(t)
	path := &fakePath{size: 1}
	c.start(path, nil)
	s := c.accept(&hostv1.Welcome{MaxReportBytes: 1 << 20})
	for _, tt := range []struct {
		settings  *hostv1.Settings
		refuse    error
		outcome   string
		remaining string
	}{
		{&hostv1.Settings{Role: "r", Generation: 1, Data: []byte("one")}, nil, "", "one"},
		{&hostv1.Settings{Role: "r", Generation: 2, Data: []byte("two")}, errors.New("no memory"), "no memory", "one"},
		{&hostv1.Settings{Role: "q", Generation: 3}, nil, `this agent has no role "q"; it has: r`, "one"},
		{&hostv1.Settings{Role: "r", Generation: 4, Data: []byte("1 "), Tail: 3}, nil, "", "1 two"},
		{&hostv1.Settings{Role: "r", Generation: 5, Tail: 4}, nil, "", " two"},
		{&hostv1.Settings{Role: "r", Generation: 6, Tail: 5}, nil,
			"they end with 5 bytes of the settings before, which have 4", " two"},
		{&hostv1.Settings{Role: "r", Generation: 7, Remove: true, Data: []byte("x")}, nil, "", ""},
		{&hostv1.Settings{Role: "r", Generation: 8, Tail: 1}, nil,
			"they end with 1 bytes of the settings before, which have 0", ""},
	} {
		path.mu.Lock()
		path.err = tt.refuse
		path.mu.Unlock()
		s.send(&hostv1.CollectorMessage{Message: &hostv1.CollectorMessage_Settings{Settings: tt.settings}})
		got := s.receive().GetSettings()
		path.mu.Lock()
		settings := path.settings
		path.mu.Unlock()
		if got.GetGeneration() != tt.settings.Generation || got.GetError() != tt.outcome || settings != tt.remaining {
			t.Errorf("generation %d: %v, settings %q; want %q, %q", tt.settings.Generation, got, settings, tt.outcome,
				tt.remaining)
		}
	}
}

// A collector that violates the contract ends the session, with the reason in the log.
func TestBadCollector(t *testing.T) {
	c := newCollector(t)
	a, log := c.start(&fakePath{size: 1}, nil)
	s := <-c.sessions
	s.send(&hostv1.CollectorMessage{Message: &hostv1.CollectorMessage_Epoch{Epoch: &hostv1.EpochBegan{Epoch: 1}}})
	for _, tt := range []struct {
		send func(s *served)
		want string
	}{
		{func(s *served) { s.schedule(0) }, "the collector sent an epoch length of 0 ns"},
		{func(s *served) { s.done <- status.Error(codes.Aborted, "the host is no longer configured") },
			"the host is no longer configured"},
	} {
		s = c.accept(&hostv1.Welcome{MaxReportBytes: 1})
		testkit.Until(t, "the session", func() bool { return a.Status().Connected })
		tt.send(s)
		testkit.Until(t, tt.want, func() bool { return strings.Contains(a.Status().LastError, tt.want) })
	}
	if !strings.Contains(log.String(), "did not begin with Welcome") {
		t.Errorf("log:\n%s", log)
	}
}

// Over UDP the agent takes epochs that the collector signed for its session, and no others. Until
// it has one, its own epochs go over TCP.
func TestDatagrams(t *testing.T) {
	c := newCollector(t)
	a, _ := c.start(&fakePath{size: 1}, func(cfg *Config) { cfg.UDP = true })
	key := bytes.Repeat([]byte("k"), 32)
	s := c.accept(&hostv1.Welcome{MaxReportBytes: 1 << 20, Udp: &hostv1.UDP{
		Port: uint32(c.udp.LocalAddr().(*net.UDPAddr).Port), Session: 7, Key: key}})
	b := make([]byte, 100)
	n, from, err := c.udp.ReadFromUDPAddrPort(b)
	if err != nil {
		t.Fatal(err)
	}
	d, err := epoch.OpenDatagram(b[:n], func(uint64) []byte { return key })
	if err != nil || d.Session != 7 || d.Down || d.Epoch != 0 {
		t.Fatalf("%+v, %v; want the address of session 7", d, err)
	}
	testkit.Until(t, "the schedule", func() bool { return a.Status().Epoch == 10 })
	a.mu.Lock()
	current := a.session
	a.mu.Unlock()
	current.sendEpoch(11) // no datagram of the collector has arrived
	if m := s.receive().GetEpoch(); m.GetEpoch() != 11 {
		t.Errorf("message %v, want epoch 11 over TCP", m)
	}
	write := func(b []byte) {
		if _, err := c.udp.WriteToUDPAddrPort(b, from); err != nil {
			t.Fatal(err)
		}
	}
	good := epoch.Datagram{Session: 7, Down: true, Epoch: 12}
	forged := good
	forged.Epoch = 13
	write(forged.Append(nil, []byte("another key")))
	write(epoch.Datagram{Session: 8, Down: true, Epoch: 13}.Append(nil, key))
	write(epoch.Datagram{Session: 7, Epoch: 13}.Append(nil, key)) // an agent's
	write(forged.Append(nil, key)[:33])
	write(append(forged.Append(nil, key), 0))
	write(good.Append(nil, key))
	testkit.Until(t, "the epoch", func() bool { return a.Status().Epoch >= 12 })
	if e := a.Status().Epoch; e != 12 {
		t.Errorf("epoch %d, want 12", e)
	}
	current.sendEpoch(14)
	for {
		n, _, err := c.udp.ReadFromUDPAddrPort(b)
		if err != nil {
			t.Fatal(err)
		}
		if d, err = epoch.OpenDatagram(b[:n], func(uint64) []byte { return key }); err != nil {
			t.Fatal(err)
		}
		if d.Epoch == 14 {
			break
		}
	}
}

// plainRole counts packets that arrive.
type plainRole struct{ in int }

func (*plainRole) Name() string                { return "r" }
func (*plainRole) Apply([]byte) error          { return nil }
func (*plainRole) Out([]*packet.Frame)         {}
func (r *plainRole) In(frames []*packet.Frame) { r.in += len(frames) }
func (*plainRole) Seal(uint64) role.Report     { return nil }

// parallelRole counts the packets of its lanes.
type parallelRole struct {
	plainRole
	lanes []*countingLane
}

type countingLane struct{ packets int }

func (l *countingLane) In(frames []*packet.Frame) { l.packets += len(frames) }

func (r *parallelRole) NewLane() role.Lane {
	r.lanes = append(r.lanes, new(countingLane))
	return r.lanes[len(r.lanes)-1]
}

// TestLanes: lanes of a path use lanes of its role, also after the role was created again. Lanes of
// a role without lanes use the role.
func TestLanes(t *testing.T) {
	var created []*parallelRole
	p := NewRolePath(func(*epoch.Clock) role.Role {
		created = append(created, new(parallelRole))
		return created[len(created)-1]
	})
	frames := make([]*packet.Frame, 3)
	a, b := p.Lane(), p.Lane()
	a.In(frames)
	b.In(frames[:2])
	a.In(frames)
	if err := p.Reset(5); err != nil {
		t.Fatal(err)
	}
	a.In(frames[:1])
	if n := len(created); n != 2 || len(created[0].lanes) != 2 || created[0].lanes[0].packets != 6 ||
		created[0].lanes[1].packets != 2 || len(created[1].lanes) != 1 || created[1].lanes[0].packets != 1 {
		t.Errorf("%d roles, %+v", n, created)
	}
	single := new(plainRole)
	NewRolePath(func(*epoch.Clock) role.Role { return single }).Lane().In(frames)
	if single.in != 3 {
		t.Errorf("the role received %d packets, want 3", single.in)
	}
}

// scheduledPath is a data path that advances by a clock of its own.
type scheduledPath struct {
	fakePath
	zero time.Time
}

func (p *scheduledPath) Schedule(zero time.Time, _, _ time.Duration) { p.zero = zero }

// stoppedClock is a time of day.
type stoppedClock struct {
	manualClock
	now time.Time
}

func (c *stoppedClock) Now() time.Time { return c.now }

// TestScheduleOfAClockThatIsAhead: a data path that advances without the agent does not follow a
// clock that the agent does not follow, neither with the collector nor without.
func TestScheduleOfAClockThatIsAhead(t *testing.T) {
	path := &scheduledPath{fakePath: fakePath{clock: epoch.NewClock(0, 0)}}
	clock := &stoppedClock{now: time.Unix(1000, 0)}
	a, err := New(Config{DataPaths: []DataPath{path}}, Dependencies{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	defer a.stopClock()
	s := schedule{length: time.Second, zero: time.Unix(0, 0)}
	expect := func(what string, epoch uint64) {
		t.Helper()
		if got := (schedule{s.length, path.zero}).at(clock.Now()); got != epoch {
			t.Errorf("%s: the clock of the data path is in epoch %d, want %d", what, got, epoch)
		}
	}
	if err := a.setSchedule(s, 990); err != nil {
		t.Fatal(err)
	}
	expect("ten epochs ahead from the start", 990)
	if a.Tick(); path.Epoch() != 990 { // without a session
		t.Errorf("without the collector, the data path is in epoch %d, want 990", path.Epoch())
	}
	if err := a.setSchedule(s, 1000); err != nil {
		t.Fatal(err)
	}
	expect("as the collector", 1000)
	a.hold(7)
	expect("seven epochs ahead", 993)
	a.hold(8) // the collector's newest epoch is on its way
	expect("eight epochs ahead for a moment", 993)
	a.correct(0)
	expect("repaired", 1000)
}

// TestExcluded: a host that the collector refuses again and again measures nothing any more, says
// so once, and measures again with the settings of the next session.
func TestExcluded(t *testing.T) {
	c := newCollector(t)
	path := &fakePath{}
	_, log := c.start(path, nil)
	settings := func() string {
		path.mu.Lock()
		defer path.mu.Unlock()
		return path.settings
	}
	set := func(s *served, generation uint64) {
		t.Helper()
		s.send(&hostv1.CollectorMessage{Message: &hostv1.CollectorMessage_Settings{Settings: &hostv1.Settings{
			Role: "r", Generation: generation, Data: []byte("measure")}}})
		testkit.Until(t, "settings", func() bool { return settings() == "measure" })
	}
	s := c.accept(&hostv1.Welcome{MaxReportBytes: 1 << 20})
	set(s, 1)
	s.done <- status.Error(codes.Unavailable, "the collector stops")
	s = c.accept(&hostv1.Welcome{MaxReportBytes: 1 << 20})
	if settings() != "measure" {
		t.Error("a session that ended has ended the measurement")
	}
	s.done <- status.Error(codes.Aborted, "the host is no longer configured with an agent")
	refuse := func(times int) {
		for range times { // no answer before Welcome
			(<-c.sessions).done <- status.Error(codes.PermissionDenied, "host \"h1\" is not configured with an agent")
		}
	}
	refuse(maxRefusals - 1)
	s = c.accept(&hostv1.Welcome{MaxReportBytes: 1 << 20}) // the collector has learned of the host
	if settings() != "measure" {
		t.Error("some refusals have ended the measurement")
	}
	s.done <- status.Error(codes.Aborted, "the host is no longer configured with an agent")
	refuse(maxRefusals + 2)
	testkit.Until(t, "the end of the measurement", func() bool { return settings() == "" })
	if n := strings.Count(log.String(), "the collector refuses this host"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log)
	}
	set(c.accept(&hostv1.Welcome{MaxReportBytes: 1 << 20}), 1)
}
