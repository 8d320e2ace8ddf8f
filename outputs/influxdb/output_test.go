// SPDX-License-Identifier: Apache-2.0

package influxdb

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/netsketch/netsketch/internal/certs"
	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/outputs"
	"github.com/netsketch/netsketch/settings"
	"github.com/netsketch/netsketch/yang/table"
)

// running is an output that runs in a test.
type running struct {
	*Output
	t      testing.TB
	store  *store.Store
	cancel context.CancelFunc
	ended  chan error
	pauses chan time.Duration // duration of each pause in production
}

// run starts an output on a store. A pause lasts a millisecond or, if hold is set, until hold is
// closed.
func run(t testing.TB, s *store.Store, c Config, hold chan time.Time) *running {
	t.Helper()
	o, err := New("influx", c, certs.New(certs.Options{}), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	r := &running{Output: o, t: t, store: s, ended: make(chan error, 1), pauses: make(chan time.Duration, 100_000)}
	o.after = func(d time.Duration) <-chan time.Time {
		select {
		case r.pauses <- d:
		default:
		}
		if hold != nil {
			return hold
		}
		return time.After(time.Millisecond)
	}
	if err := o.Start(s); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() { r.ended <- o.Run(ctx) }()
	t.Cleanup(func() { r.stop() })
	return r
}

// stop ends the output and waits. A second call has no effect.
func (r *running) stop() {
	r.t.Helper()
	if r.cancel == nil {
		return
	}
	r.cancel()
	r.cancel = nil
	if err := <-r.ended; err != nil {
		r.t.Error(err)
	}
}

// until waits until a state fulfills a condition.
func (r *running) until(what string, ok func(outputs.State) bool) outputs.State {
	r.t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for {
		s := r.State()
		if ok(s) {
			return s
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("timeout: %s; %+v", what, s)
		}
		time.Sleep(time.Millisecond)
	}
}

// drained waits until this number of points is delivered or dropped.
func (r *running) drained(points int) outputs.State {
	r.t.Helper()
	return r.until(fmt.Sprintf("%d points are done with", points), func(s outputs.State) bool {
		return s.Sent+s.Dropped == uint64(points) && s.Queued == 0 && s.Status == outputs.Up
	})
}

func newStore(t testing.TB) *store.Store {
	s := store.New(store.Options{})
	t.Cleanup(s.Close)
	return s
}

func publish(t testing.TB, s *store.Store, at time.Time, tables ...*table.Table) {
	t.Helper()
	b := store.Batch{Time: at}
	for _, tab := range tables {
		b.Tables = append(b.Tables, store.Publication{Table: tab, Replace: true})
	}
	if err := s.Publish(b); err != nil {
		t.Fatal(err)
	}
}

func spoolConfig(t testing.TB, url string) Config {
	c := testConfig(url)
	c.Spool.Dir = filepath.Join(t.TempDir(), "spool")
	c.Spool.MaxAge = 0 // the points of these tests have a fixed date
	return c
}

func TestOutage(t *testing.T) {
	d := newDatabase(t)
	d.set(status(http.StatusServiceUnavailable, "away"))
	s := newStore(t)
	c := spoolConfig(t, d.URL)
	c.BatchPoints = 30
	o := run(t, s, c, nil)
	const epochs, rows = 40, 100
	for i := range epochs {
		publish(t, s, epoch.Add(time.Duration(i)*time.Second), flows(rows, 0))
	}
	st := o.until("all points are queued", func(s outputs.State) bool {
		return s.Queued == epochs*rows && s.Spooled > 0 && s.Status == outputs.Down
	})
	if !strings.Contains(st.LastError, "503 Service Unavailable: away") {
		t.Errorf("%+v", st)
	}
	d.set(nil)
	st = o.drained(epochs * rows)
	if st.Sent != epochs*rows || st.Dropped != 0 || st.LastError != "" || st.Spooled != 0 {
		t.Errorf("%+v", st)
	}
	got := d.lines()
	if len(got) != epochs*rows {
		t.Fatalf("%d points", len(got))
	}
	last := ""
	for _, l := range got { // in order
		if at := l[strings.LastIndexByte(l, ' '):]; at < last {
			t.Fatalf("a point of %s after one of %s", at, last)
		} else {
			last = at
		}
	}
	publish(t, s, epoch.Add(time.Hour), flows(1, 0)) // now through memory again
	o.until("a row and the ends of the others are sent", func(s outputs.State) bool { return s.Sent == (epochs+1)*rows })
}

// An output that is stopped while the database is unreachable keeps its points for the next start.
func TestStopDuringOutage(t *testing.T) {
	d := newDatabase(t)
	d.set(status(http.StatusServiceUnavailable, "away"))
	s := newStore(t)
	c := spoolConfig(t, d.URL)
	hold := make(chan time.Time)
	o := run(t, s, c, hold)
	publish(t, s, epoch, flows(100, 0))
	<-o.pauses
	publish(t, s, epoch.Add(time.Second), flows(100, 0))
	o.stop()
	if st := o.State(); st.Status != outputs.Stopped {
		t.Errorf("%+v", st)
	}
	d.set(nil)
	o = run(t, s, c, nil)
	const points = 100 + 100 + 100 // with the ends of the rows
	if st := o.drained(points); st.Sent != points {
		t.Errorf("%+v", st)
	}
	if len(d.lines()) != points {
		t.Errorf("%d points", len(d.lines()))
	}
}

// Points published before the stop are delivered before the output ends.
func TestStopDelivers(t *testing.T) {
	d := newDatabase(t)
	s := newStore(t)
	c := spoolConfig(t, d.URL)
	c.FlushInterval = time.Hour
	o := run(t, s, c, nil)
	for i := range 50 {
		publish(t, s, epoch.Add(time.Duration(i)*time.Second), flows(10, 0))
	}
	o.stop()
	const points = 50*10 + 10 // with the ends of the rows
	if n := len(d.lines()); n != points {
		t.Errorf("%d points", n)
	}
	if st := o.State(); st.Queued != 0 || st.Sent != points {
		t.Errorf("%+v", st)
	}
}

// With a slow database, the spool bounds the memory, and the request in flight is neither lost nor
// counted twice.
func TestSlowDatabase(t *testing.T) {
	d := newDatabase(t)
	gate := make(chan struct{})
	d.set(func([]string, *http.Request) (int, map[string]string, string) {
		<-gate
		return http.StatusNoContent, nil, ""
	})
	s := newStore(t)
	c := spoolConfig(t, d.URL)
	c.BatchPoints = 10
	c.Timeout = time.Minute
	o := run(t, s, c, nil)
	const rows = 100 * memoryChunks
	publish(t, s, epoch, flows(rows, 0))
	o.until("the spool is used", func(s outputs.State) bool { return s.Spooled > 0 && s.Queued == rows })
	close(gate)
	if st := o.drained(rows); st.Sent != rows || st.Dropped != 0 {
		t.Errorf("%+v", st)
	}
	if n := len(d.lines()); n != rows {
		t.Errorf("%d points", n)
	}
}

func TestRefused(t *testing.T) {
	d := newDatabase(t)
	d.set(status(http.StatusUnauthorized, "unauthorized access"))
	s := newStore(t)
	o := run(t, s, spoolConfig(t, d.URL), nil)
	publish(t, s, epoch, flows(100, 0))
	st := o.until("the status is refused", func(s outputs.State) bool { return s.Status == outputs.Refused })
	if !strings.Contains(st.LastError, "401 Unauthorized: unauthorized access") || st.Queued != 100 || st.Dropped != 0 {
		t.Errorf("%+v", st)
	}
	for try := 1; try <= 2*sameFailures; try++ {
		// while lines of the batch may be the reason, the batch is sent again soon
		if p := <-o.pauses; (p == refusedPause) != (try >= sameFailures) || p > refusedPause {
			t.Errorf("try %d: tried again after %v", try, p)
		}
	}
	d.set(nil) // the token was allowed in the meantime
	if st := o.drained(100); st.Sent != 100 {
		t.Errorf("%+v", st)
	}
}

func TestRetryAfter(t *testing.T) {
	d := newDatabase(t)
	d.set(func([]string, *http.Request) (int, map[string]string, string) {
		return http.StatusTooManyRequests, map[string]string{"Retry-After": "100"}, ""
	})
	s := newStore(t)
	o := run(t, s, spoolConfig(t, d.URL), nil)
	publish(t, s, epoch, flows(1, 0))
	for range 3 {
		if p := <-o.pauses; p < 100*time.Second || p > 137*time.Second {
			t.Errorf("pause of %v", p)
		}
	}
	d.set(status(http.StatusBadGateway, "x"))
	var longest time.Duration
	for range 20 {
		longest = max(longest, <-o.pauses)
	}
	if longest < longestPause*4/5 || longest > 137*time.Second {
		t.Errorf("longest pause %v", longest)
	}
	d.set(nil)
	o.drained(1)
}

// Invalid points are dropped and counted, with the reason in the state; other points arrive.
func TestBadPoints(t *testing.T) {
	d := newDatabase(t)
	d.set(func(lines []string, _ *http.Request) (int, map[string]string, string) {
		for _, l := range lines {
			if strings.Contains(l, "flow=10.1.0.7") {
				return http.StatusBadRequest, nil, `{"error":"unable to parse 'line': bad"}`
			}
		}
		return http.StatusNoContent, nil, ""
	})
	s := newStore(t)
	o := run(t, s, spoolConfig(t, d.URL), nil)
	publish(t, s, epoch, flows(100, 0))
	st := o.drained(100)
	bad := uint64(0)
	for i := range 100 {
		if strings.HasPrefix(fmt.Sprintf("10.1.0.%d", i), "10.1.0.7") {
			bad++
		}
	}
	if st.Dropped != bad || st.Sent != 100-bad || o.dropped != bad || uint64(len(d.lines())) != 100-bad {
		t.Errorf("%+v, %d bad points", st, bad)
	}
	reason := fmt.Sprintf("InfluxDB rejected %d of 100 points; the last reason: univmon/heavy-hitter", bad)
	if !strings.HasPrefix(st.LastError, reason) || !strings.Contains(st.LastError, "unable to parse 'line': bad") {
		t.Errorf("last error %q, want %q", st.LastError, reason)
	}
	publish(t, s, epoch.Add(time.Second), &table.Table{List: "/m:other", // a later delivery does not clear the reason
		Values: []table.Column{table.Uint64s("state/n", []uint64{1})}})
	if st := o.drained(101); !strings.HasPrefix(st.LastError, reason) {
		t.Errorf("last error %q after a delivery, want %q", st.LastError, reason)
	}
}

// Beyond the spool's bound, the oldest points are dropped and counted.
func TestSpoolBound(t *testing.T) {
	d := newDatabase(t)
	d.set(status(http.StatusServiceUnavailable, "away"))
	s := newStore(t)
	c := spoolConfig(t, d.URL)
	c.BatchBytes, c.Spool.MaxBytes = 16<<10, 256<<10
	o := run(t, s, c, nil)
	const epochs, rows = 60, 100
	for i := range epochs {
		publish(t, s, epoch.Add(time.Duration(i)*time.Second), flows(rows, 0))
	}
	st := o.until("all points are accounted "+
		"for", func(s outputs.State) bool { return s.Queued+s.Dropped == epochs*rows && o.enc.pending.Load() == 0 })
	if st.Spooled > uint64(c.Spool.MaxBytes) || st.Dropped == 0 || o.spool.Stats().DroppedSize != st.Dropped {
		t.Errorf("%+v %+v", st, o.spool.Stats())
	}
	d.set(nil)
	st = o.drained(epochs * rows)
	got := d.lines()
	if uint64(len(got)) != st.Sent || st.Sent+st.Dropped != epochs*rows {
		t.Errorf("%d points, %+v", len(got), st)
	}
	if want := fmt.Sprint(epoch.Add((epochs - 1) * time.Second).UnixNano()); !strings.HasSuffix(got[len(got)-1], want) {
		t.Errorf("the newest is %s", got[len(got)-1])
	}
}

func TestStartRefuses(t *testing.T) {
	s := newStore(t)
	c := spoolConfig(t, "http://127.0.0.1:1")
	o := run(t, s, c, nil)
	second, err := New("second", c, certs.New(certs.Options{}), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Start(s); err == nil || !strings.Contains(err.Error(), c.Spool.Dir) {
		t.Errorf("two outputs share a spool: %v", err)
	}
	o.stop()
	if err := second.Run(t.Context()); err == nil {
		t.Error("Run without Start")
	}
	second.writer.close()
}

func TestSpoolDir(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", "/state")
	c := settings.Default[Config]()
	if got, err := c.spoolDir("a/../b"); err != nil || got != "/state/netsketch/spool/influxdb-a_.._b" {
		t.Error(got, err)
	}
	t.Setenv("XDG_STATE_HOME", "")
	t.Setenv("HOME", "")
	if _, err := c.spoolDir("x"); err == nil || !strings.Contains(err.Error(), "spool.dir") {
		t.Error(err)
	}
}

// TestPoisonedBatch: lines that InfluxDB refuses with an error that does not name lines are set
// aside after several attempts, and later lines are delivered. A server that refuses every write
// this way loses no points.
func TestPoisonedBatch(t *testing.T) {
	const internal = `{"code":"internal error","message":"an internal error has occurred: panic"}`
	seven := func(l string) bool { return strings.Contains(l, "packets=7000i") }
	for _, tt := range []struct {
		name   string
		poison func(line string) bool
		rows   int
		aside  int
		reply  string
		code   int // status of a refusal; 0 means 500, -1 closes the connection, -2 does both in turn
	}{
		{"one line", seven, 40, 1, internal, 0},
		{"some lines", func(l string) bool { return strings.Contains(l, "packets=1") }, 20, 11, internal, 0},
		{"all lines", func(l string) bool { return strings.Contains(l, "packets") }, 8, 8, internal, 0},
		{"any line", func(string) bool { return true }, 8, 0, internal, 0},
		{"a panic", seven, 40, 1, "panic serving request\n", 0},
		{"replies that differ", seven, 40, 1,
			`{"error":"panic in request %d"}`, 0},
		{"a failing proxy", func(string) bool { return true }, 8, 0, "<html>Internal Server Error</html>", 0},
		{"a firewall for requests", seven, 40, 1, "<html>Request panic blocked</html>", 403},
		{"a proxy that fails", seven, 40, 1, "<html>panic</html>", 502},
		{"a proxy without its server", seven, 40, 1, "panic", 503},
		{"a form that is not known", seven, 40, 1, `{"code":"invalid","message":"panic"}`, 400},
		{"one line is too large", seven, 40, 1, "<html>panic: request entity too large</html>", 413},
		{"a closed connection", seven, 40, 1, "", -1},
		{"overload", seven, 40, 1, `{"error":"panic: timeout"}`, 0},
		{"a proxy's own page", seven, 40, 1, "<html>panic: 503 Service Unavailable</html>", 503},
		{"too many requests", seven, 40, 1, `{"code":"too many requests","message":"panic"}`, 429},
		{"a disk that is full", seven, 40, 1, "panic", 507},
		{"in turn", seven, 40, 1, "panic", -2},
		{"no token", func(string) bool { return true }, 8, 0, `{"code":"unauthorized","message":"panic"}`, 401},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDatabase(t)
			var requests atomic.Int64
			d.set(func(lines []string, _ *http.Request) (int, map[string]string, string) {
				n := requests.Add(1)
				if slices.ContainsFunc(lines, tt.poison) {
					if tt.code == -1 || tt.code == -2 && n%2 == 0 {
						panic(http.ErrAbortHandler)
					}
					return cmp.Or(max(tt.code, 0), 500), nil, strings.ReplaceAll(tt.reply, "%d", fmt.Sprint(n))
				}
				return http.StatusNoContent, nil, ""
			})
			s := newStore(t)
			c := spoolConfig(t, d.URL)
			o := run(t, s, c, nil)
			publish(t, s, epoch, flows(tt.rows, 0))
			if tt.aside == 0 {
				for range 3 * sameFailures {
					<-o.pauses
				}
				if n, most := requests.Load(), int64(4*(sameFailures+1)); n > most {
					t.Errorf("%d requests to a server that is down; expected at most %d", n, most)
				}
				if st := o.State(); st.Dropped != 0 || st.Queued != uint64(tt.rows) || st.Status == outputs.Up {
					t.Errorf("a server that is down: %+v", st)
				}
				return
			}
			st := o.drained(tt.rows)
			if st.Dropped != uint64(tt.aside) || st.Sent != uint64(tt.rows-tt.aside) ||
				tt.code >= 0 && !strings.Contains(st.LastError, "panic") {
				t.Errorf("%+v", st)
			}
			kept, err := os.ReadFile(filepath.Join(c.Spool.Dir, rejectedFile))
			if n := strings.Count(string(kept), "\n"); err != nil || n != tt.aside {
				t.Errorf("%d lines set aside, %v:\n%s", n, err, kept)
			}
		})
	}
}

// TestExplicitSchema: a bucket refuses measurements that its schema does not have. One bad line
// does not block later lines there, either.
func TestExplicitSchema(t *testing.T) {
	d := newDatabase(t)
	d.set(func(lines []string, _ *http.Request) (int, map[string]string, string) {
		for _, l := range lines {
			if strings.HasPrefix(l, writeCheck) || strings.Contains(l, "packets=7000i") {
				return 422, nil, `{"code":"unprocessable entity","message":"not in the schema"}`
			}
		}
		return http.StatusNoContent, nil, ""
	})
	s := newStore(t)
	o := run(t, s, spoolConfig(t, d.URL), nil)
	publish(t, s, epoch, flows(5, 0))
	o.drained(5)
	publish(t, s, epoch.Add(time.Second), flows(40, 0))
	if st := o.drained(45); st.Dropped != 1 || st.Sent != 44 {
		t.Errorf("%+v", st)
	}
}

// A line that fails only now and then is not set aside.
func TestFlakyServer(t *testing.T) {
	d := newDatabase(t)
	failures := map[string]int{}
	d.set(func(lines []string, _ *http.Request) (int, map[string]string, string) {
		check := strings.HasPrefix(lines[0], "netsketch-write-check")
		if !check && (len(lines) > 1 || failures[lines[0]] < 2) {
			failures[lines[0]]++
			return http.StatusBadGateway, nil, "<html>Bad Gateway</html>"
		}
		return http.StatusNoContent, nil, ""
	})
	s := newStore(t)
	o := run(t, s, spoolConfig(t, d.URL), nil)
	publish(t, s, epoch, flows(40, 0))
	if st := o.drained(40); st.Dropped != 0 || st.Sent != 40 {
		t.Errorf("%+v", st)
	}
}

// TestPoisonInEveryBatch: the database always refuses the points of one source, with an error text
// that the output does not know. Only the first batch is delayed, and the queue does not grow.
func TestPoisonInEveryBatch(t *testing.T) {
	d := newDatabase(t)
	var requests atomic.Int64
	d.set(func(lines []string, _ *http.Request) (int, map[string]string, string) {
		requests.Add(1)
		for _, l := range lines {
			if strings.Contains(l, "packets=7000i") {
				return 500, nil, `{"code":"internal error","message":"the column does not fit"}`
			}
		}
		return http.StatusNoContent, nil, ""
	})
	s := newStore(t)
	o := run(t, s, spoolConfig(t, d.URL), nil)
	for i := range 20 {
		if i == 1 {
			requests.Store(0)
		}
		publish(t, s, epoch.Add(time.Duration(i)*time.Second), flows(40, 0))
		o.drained(40 * (i + 1))
	}
	// Requests of a batch: the whole batch, a check, the other lines, the refused line, and a
	// check.
	if n := requests.Load(); n != 19*5 {
		t.Errorf("%d requests for 19 batches", n)
	}
	if st := o.State(); st.Dropped != 20 || st.Sent != 20*39 {
		t.Errorf("%+v", st)
	}
	if n := len(o.pauses); n != sameFailures-1 {
		t.Errorf("%d pauses; expected %d", n, sameFailures-1)
	}
	// A server that fails for a while is not mistaken for a server that refuses some points. The
	// output makes the usual attempts and one check, and another check when the batch failed often.
	requests.Store(0)
	d.set(func([]string, *http.Request) (int, map[string]string, string) {
		requests.Add(1)
		return 500, nil, `{"code":"internal error","message":"an internal error has occurred"}`
	})
	publish(t, s, epoch.Add(time.Minute), flows(40, 0))
	for range 2*sameFailures - len(o.pauses) + sameFailures - 1 {
		<-o.pauses
	}
	if st := o.State(); st.Dropped != 20 || st.Queued != 40 {
		t.Errorf("%+v", st)
	}
	if n := requests.Load(); n > 6*sameFailures {
		t.Errorf("%d requests to a server that fails", n)
	}
}

// TestExplicitSchemaAfterStart: after a restart no line was accepted yet, so that the output looks
// for one in the batch that fails.
func TestExplicitSchemaAfterStart(t *testing.T) {
	d := newDatabase(t)
	d.set(func(lines []string, _ *http.Request) (int, map[string]string, string) {
		for _, l := range lines {
			if strings.HasPrefix(l, writeCheck) || strings.Contains(l, "packets=1") {
				return 422, nil, `{"code":"unprocessable entity","message":"not in the schema"}`
			}
		}
		return http.StatusNoContent, nil, ""
	})
	s := newStore(t)
	o := run(t, s, spoolConfig(t, d.URL), nil)
	publish(t, s, epoch, flows(20, 0))
	if st := o.drained(20); st.Dropped != 11 || st.Sent != 9 {
		t.Errorf("%+v", st)
	}
}
