// SPDX-License-Identifier: Apache-2.0

package all_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/openconfig/ygot/ygot"
	"go.uber.org/goleak"

	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/outputs"
	"github.com/netsketch/netsketch/yang/bindings"
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
		LastError: "it broke"}
}

func TestGroup(t *testing.T) {
	s := store.New(store.Options{})
	defer s.Close()
	changed := make(chan struct{}, 16)
	a, b := &fake{name: "a", end: make(chan error, 1)}, &fake{name: "b", end: make(chan error, 1)}
	g, err := outputs.NewGroup(s, slog.New(slog.DiscardHandler), func() { changed <- struct{}{} }, b, a)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Start(); err != nil || a.started != s || b.started != s {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error)
	go func() { ran <- g.Run(ctx) }()
	<-changed
	first := g.Declare()["a"]
	want := &bindings.Collector_Output{
		Name: ygot.String("a"), Type: ygot.String("fake"), Status: outputs.Down, Sent: ygot.Uint64(1),
		Dropped: ygot.Uint64(2), Queued: ygot.Uint64(3), Spooled: ygot.Uint64(4), LastError: ygot.String("it broke"),
	}
	if diff := cmp.Diff(want, first); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
	b.end <- errors.New("port on fire") // a continues
	<-changed
	second := g.Declare()
	if second["a"].Status != outputs.Down || second["b"].Status != outputs.Stopped ||
		*second["b"].LastError != "port on fire" {
		t.Errorf("states %v and %v, error %s", second["a"].Status, second["b"].Status, *second["b"].LastError)
	}
	cancel()
	if err := <-ran; err == nil || !strings.Contains(err.Error(), "output b: port on fire") ||
		strings.Contains(err.Error(), "output a") {
		t.Errorf("got %v", err)
	}
}

// A change is reported within a second, and nothing else is.
func TestGroupReportsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store.New(store.Options{})
		defer s.Close()
		changed := make(chan struct{}, 16)
		a := &fake{name: "a"}
		g, err := outputs.NewGroup(s, slog.New(slog.DiscardHandler), func() { changed <- struct{}{} }, a)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error)
		go func() { ran <- g.Run(ctx) }()
		<-changed
		time.Sleep(time.Hour)
		if len(changed) > 0 {
			t.Error("a report without a change")
		}
		a.sent.Add(1)
		before := time.Now()
		<-changed
		if got := *g.Declare()["a"].Sent; got != 2 || time.Since(before) > time.Second {
			t.Errorf("sent %d, reported after %v", got, time.Since(before))
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
	if _, err := outputs.NewGroup(s, nil, func() {}, &fake{name: "x"}, &fake{name: "x"}); err == nil ||
		!strings.Contains(err.Error(), `"x"`) {
		t.Error(err)
	}
	g, err := outputs.NewGroup(s, nil, func() {}, &fake{name: "x", startErr: errors.New("port taken")})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Start(); err == nil || err.Error() != "output x: port taken" {
		t.Error(err)
	}
	first := &fake{name: "a"}
	g, err = outputs.NewGroup(s, nil, func() {}, &fake{name: "x", startErr: errors.New("port taken")}, first)
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
