// SPDX-License-Identifier: Apache-2.0

package p4rt_test

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"sync"
	"testing"
	"time"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/netsketch/netsketch/p4/compiled"
	"github.com/netsketch/netsketch/p4/p4rt"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for an event that must happen.
const patience = 2 * time.Minute

// program loads a compiled program.
func program(t testing.TB, name string) *p4rt.Program {
	t.Helper()
	p, err := compiled.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return &p4rt.Program{Name: name, DeviceConfig: p.JSON, P4Info: p.P4Info}
}

// dial starts a client that is closed with the test. Unless the test sets one, the backoff is
// short.
func dial(t testing.TB, cfg p4rt.Config) *p4rt.Client {
	t.Helper()
	if cfg.Backoff == (p4rt.Backoff{}) {
		cfg.Backoff = p4rt.Backoff{Min: 5 * time.Millisecond, Max: 50 * time.Millisecond}
	}
	c, err := p4rt.Dial(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func waitReady(t testing.TB, c *p4rt.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
}

// waitState waits until the session is in a state, and returns its status.
func waitState(t testing.TB, c *p4rt.Client, want p4rt.State) p4rt.Status {
	t.Helper()
	return waitStatus(t, c, want.String(), func(st p4rt.Status) bool { return st.State == want })
}

func waitStatus(t testing.TB, c *p4rt.Client, what string, ok func(p4rt.Status) bool) p4rt.Status {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for st := range c.Watch(ctx) {
		if ok(st) {
			return st
		}
	}
	t.Fatalf("the session never was %s; it is %+v", what, c.Status())
	return p4rt.Status{}
}

// entriesOn reads the entries of a table of the switch at an address, without the default entry.
func entriesOn(t testing.TB, addr string, p *p4rt.Program, table string) []*p4v1.TableEntry {
	t.Helper()
	id, err := catalogOf(t, p).Tables.Name(table)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := p4v1.NewP4RuntimeClient(conn).Read(t.Context(),
		&p4v1.ReadRequest{DeviceId: 1, Entities: []*p4v1.Entity{
			{Entity: &p4v1.Entity_TableEntry{TableEntry: &p4v1.TableEntry{TableId: id.ID}}},
		}})
	if err != nil {
		t.Fatal(err)
	}
	var out []*p4v1.TableEntry
	for {
		answer, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range answer.GetEntities() {
			out = append(out, e.GetTableEntry())
		}
	}
}

// release overwrites and releases cells: no later read may return the overwritten contents.
func release(cells ...*p4rt.Cells) {
	for _, c := range cells {
		for i := range c.Data {
			c.Data[i] = 0xa5
		}
		c.Release()
	}
}

// readBank reads one bank of one register.
func readBank(ctx context.Context, c *p4rt.Client, register string, bank int) (*p4rt.Cells, error) {
	cells, err := c.ReadBanks(ctx, bank, register)
	if len(cells) == 0 {
		return nil, err
	}
	return cells[0], err
}

func mustPrefix(t testing.TB, s string) netip.Prefix {
	t.Helper()
	p, err := netip.ParsePrefix(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// fakeClock is a clock that only advance moves.
type fakeClock struct {
	mu     sync.Mutex
	now    time.Time
	waits  []fakeWait
	waited chan time.Duration // one value for each wait that begins
}

type fakeWait struct {
	at time.Time
	c  chan time.Time
}

func newFakeClock() *fakeClock {
	return &fakeClock{now: time.Unix(1_000_000, 0), waited: make(chan time.Duration, 1000)}
}

func (f *fakeClock) Now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

func (f *fakeClock) After(d time.Duration) (<-chan time.Time, func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := fakeWait{at: f.now.Add(d), c: make(chan time.Time, 1)}
	f.waits = append(f.waits, w)
	f.waited <- d
	return w.c, func() {}
}

// advance moves the clock and ends the waits that have passed.
func (f *fakeClock) advance(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = f.now.Add(d)
	var left []fakeWait
	for _, w := range f.waits {
		if w.at.After(f.now) {
			left = append(left, w)
			continue
		}
		w.c <- f.now
	}
	f.waits = left
}
