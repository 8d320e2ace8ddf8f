// SPDX-License-Identifier: Apache-2.0

package outputs_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/netsketch/netsketch/collector/store"
	"github.com/netsketch/netsketch/outputs"
	"github.com/netsketch/netsketch/yang/yangtest"
)

func TestMain(m *testing.M) {
	// ygot imports glog, which starts a goroutine.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/golang/glog.(*fileSink).flushDaemon"))
}

// fake is an output that ends on request.
type fake struct {
	name     string
	startErr error
	end      chan error
	started  *store.Store
	ran      bool
	sent     atomic.Uint64
}

func (f *fake) Name() string { return f.name }
func (f *fake) Type() string { return "fake" }
func (f *fake) Start(s *store.Store) error {
	f.started = s
	return f.startErr
}
func (f *fake) Run(ctx context.Context) error {
	f.ran = true
	select {
	case <-ctx.Done():
		return nil
	case err := <-f.end:
		return err
	}
}
func (f *fake) State() outputs.State {
	return outputs.State{Status: outputs.Down, Sent: 1 + f.sent.Load(), Dropped: 2, Queued: 3, Spooled: 4,
		LastError: "it broke\n\xff"}
}

func TestGroup(t *testing.T) {
	s := store.New(store.Options{})
	defer s.Close()
	tap := s.Tap(16)
	a, b := &fake{name: "a", end: make(chan error, 1)}, &fake{name: "b", end: make(chan error, 1)}
	g, err := outputs.NewGroup(s, slog.New(slog.DiscardHandler), time.Hour, b, a)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Start(); err != nil || a.started != s || b.started != s {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error)
	go func() { ran <- g.Run(ctx) }()
	first := <-tap.C()
	yangtest.Check(t, first.Tables[0].Table)
	if got := first.Tables[0].Table.Column("state/last-error").Text(0); got != "it broke ?" {
		t.Errorf("last error %q", got)
	}
	b.end <- errors.New("port on fire") // a goes on
	second := (<-tap.C()).Tables[0].Table
	yangtest.Check(t, second)
	if x, y := second.Column("state/status").Text(0), second.Column("state/status").Text(1); x != "down" ||
		y != "stopped" {
		t.Errorf("states %s and %s", x, y)
	}
	if got := second.Column("state/last-error").Text(1); got != "port on fire" {
		t.Errorf("last error %q", got)
	}
	cancel()
	if err := <-ran; err == nil || !strings.Contains(err.Error(), "output b: port on fire") ||
		strings.Contains(err.Error(), "output a") {
		t.Errorf("got %v", err)
	}
}

// Counters are published within an interval after a change, and only then.
func TestGroupPublishesChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.New(store.Options{})
		defer s.Close()
		tap := s.Tap(16)
		a := &fake{name: "a"}
		g, err := outputs.NewGroup(s, slog.New(slog.DiscardHandler), 0, a)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error)
		go func() { ran <- g.Run(ctx) }()
		<-tap.C()
		time.Sleep(time.Hour)
		if len(tap.C()) > 0 {
			t.Error("published, and nothing had changed")
		}
		a.sent.Add(1)
		before := time.Now()
		if got := (<-tap.C()).Tables[0].Table.Column("state/sent").Uint64(0); got != 2 ||
			time.Since(before) > time.Second {
			t.Errorf("sent %d, published after %v", got, time.Since(before))
		}
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
}

func TestGroupRefuses(t *testing.T) {
	s := store.New(store.Options{})
	defer s.Close()
	if _, err := outputs.NewGroup(s, nil, 0, &fake{name: "x"}, &fake{name: "x"}); err == nil ||
		!strings.Contains(err.Error(), `"x"`) {
		t.Error(err)
	}
	g, err := outputs.NewGroup(s, nil, 0, &fake{name: "x", startErr: errors.New("port taken")})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Start(); err == nil || err.Error() != "output x: port taken" {
		t.Error(err)
	}
	first := &fake{name: "a"}
	g, err = outputs.NewGroup(s, nil, 0, &fake{name: "x", startErr: errors.New("port taken")}, first)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Start(); err == nil || err.Error() != "output x: port taken" {
		t.Error(err)
	}
	if first.started == nil || !first.ran {
		t.Error("an output that had started was not stopped")
	}
}
