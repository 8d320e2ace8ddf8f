// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/netsketch/netsketch/internal/test/testkit"
	"github.com/netsketch/netsketch/plugins/sdk/pluginv1"
)

// fakeStream is a Run stream without a network.
type fakeStream struct {
	grpc.ServerStream
	ctx  context.Context
	in   chan *pluginv1.RunRequest
	mu   sync.Mutex
	out  []*pluginv1.RunResponse
	sent chan struct{}
}

func newStream(ctx context.Context) *fakeStream {
	return &fakeStream{ctx: ctx, in: make(chan *pluginv1.RunRequest, 100), sent: make(chan struct{}, 100)}
}

func (s *fakeStream) Context() context.Context { return s.ctx }

func (s *fakeStream) Recv() (*pluginv1.RunRequest, error) {
	m, ok := <-s.in
	if !ok {
		return nil, io.EOF
	}
	return m, nil
}

func (s *fakeStream) Send(m *pluginv1.RunResponse) error {
	s.mu.Lock()
	s.out = append(s.out, m)
	s.mu.Unlock()
	s.sent <- struct{}{}
	return nil
}

func (s *fakeStream) epoch(number uint64) {
	s.in <- &pluginv1.RunRequest{Message: &pluginv1.RunRequest_Begin{Begin: &pluginv1.EpochBegin{Epoch: number,
		EndUnixNs: 1}}}
	s.in <- &pluginv1.RunRequest{Message: &pluginv1.RunRequest_End{End: &pluginv1.EpochEnd{Epoch: number, Status: 1}}}
}

// step is a plugin whose Analyze the test controls step by step.
type step struct {
	began  chan uint64
	finish chan error
}

func newStep() *step { return &step{began: make(chan uint64, 10), finish: make(chan error, 10)} }

func (*step) Describe() Description {
	return Description{Name: "step", Version: "0.1", Summary: "waits",
		Lists: []List{{Path: "/m:l", Summary: "nothing"}}}
}

func (*step) Configure(context.Context, Config, Network) (Settings, error) {
	return Settings{}, errors.New("no")
}

func (s *step) Analyze(ctx context.Context, e *Epoch) (*Results, error) {
	s.began <- e.Number
	select {
	case err := <-s.finish:
		return nil, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func TestRunStream(t *testing.T) {
	p := newStep()
	server := NewServer(p)
	stream := newStream(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(stream) }()

	cancel := func(number uint64) {
		stream.in <- &pluginv1.RunRequest{Message: &pluginv1.RunRequest_Cancel{Cancel: &pluginv1.EpochCancel{Epoch: number}}}
	}
	stream.epoch(1)
	<-p.began
	if err := server.Run(newStream(t.Context())); err == nil {
		t.Error("two streams at a time")
	}
	cancel(1)
	<-stream.sent
	cancel(2) // cancels the epoch before its analysis begins
	stream.epoch(2)
	<-stream.sent
	stream.epoch(3)
	<-p.began
	p.finish <- nil
	<-stream.sent
	stream.epoch(4)
	<-p.began
	p.finish <- errors.New("the plugin's own")
	<-stream.sent

	stream.epoch(5)
	<-p.began
	drained := make(chan error, 1)
	go func() {
		_, err := server.Drain(context.Background(), &pluginv1.DrainRequest{BudgetNs: int64(time.Minute)})
		drained <- err
	}()
	testkit.Until(t, "Drain has begun", func() bool {
		server.mu.Lock()
		defer server.mu.Unlock()
		return server.draining
	})
	stream.epoch(6)
	p.finish <- nil
	<-stream.sent
	<-stream.sent
	if err := <-drained; err != nil {
		t.Error(err)
	}
	close(stream.in)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	var got []string
	for _, m := range stream.out {
		got = append(got, m.GetDone().GetError())
	}
	want := "the collector canceled the epoch, the collector canceled the epoch, , the plugin's own, , the plugin is " +
		"being stopped"
	if strings.Join(got, ", ") != want {
		t.Errorf("%q", got)
	}
}

func TestDrainGivesUp(t *testing.T) {
	p := newStep()
	server := NewServer(p)
	ctx, cancel := context.WithCancel(t.Context())
	stream := newStream(ctx)
	ended := make(chan error, 1)
	go func() { ended <- server.Run(stream) }()
	stream.epoch(1)
	<-p.began
	if _, err := server.Drain(t.Context(), &pluginv1.DrainRequest{BudgetNs: 1}); err == nil {
		t.Error("drained in the middle of an epoch")
	}
	cancel()
	close(stream.in)
	<-ended
}

func TestNonsenseEndsTheStream(t *testing.T) {
	stream := newStream(t.Context())
	stream.in <- &pluginv1.RunRequest{Message: &pluginv1.RunRequest_End{End: &pluginv1.EpochEnd{Epoch: 1}}}
	if err := NewServer(newStep()).Run(stream); err == nil || !strings.Contains(err.Error(), "epoch 1") {
		t.Error(err)
	}
}

func TestConfigureErrors(t *testing.T) {
	m, err := NewServer(newStep()).Configure(t.Context(), &pluginv1.ConfigureRequest{})
	if err != nil || len(m.GetErrors()) != 1 || m.GetErrors()[0].GetMessage() != "no" {
		t.Error(m, err)
	}
}

func TestByHand(t *testing.T) {
	none := func(string) string { return "" }
	var out, errs bytes.Buffer
	if status := serve(newStep(), []string{"./step"}, none, &out, &errs); status != 2 || out.Len() != 0 {
		t.Errorf("status %d, %q", status, out.String())
	}
	for _, want := range []string{"step 0.1 is a netsketch plugin: waits", "/m:l  nothing", "./step --describe"} {
		if !strings.Contains(errs.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, errs.String())
		}
	}
	if status := serve(newStep(), []string{"step", "--describe"}, none, &out, io.Discard); status != 0 {
		t.Errorf("status %d", status)
	}
	var d Description
	if err := json.Unmarshal(out.Bytes(), &d); err != nil || d.Name != "step" || d.SDK != sdkName ||
		d.Capabilities.Drain {
		t.Errorf("%v: %+v", err, d)
	}
}

func TestLogLines(t *testing.T) {
	var b bytes.Buffer
	log := slog.New(newLogHandler(&b, "warn"))
	log.Info("not this")
	log.With("k", 1).WithGroup("g").Warn("this", "msg", "x")
	var line map[string]any
	if err := json.Unmarshal(b.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	if line[LogKeyMessage] != "this" || line[LogKeyLevel] != "warn" || line["k"] != 1.0 || line[LogKeyTime] == nil ||
		line["g"].(map[string]any)["msg"] != "x" {
		t.Errorf("%v", line)
	}
}

// When the collector cancels an epoch, the plugin sends no more of its tables.
func TestCanceledEpochIsNotSent(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stream := newStream(ctx)
	results := &Results{}
	results.Add(rows(60_000, false), nil)
	go func() {
		<-stream.sent
		cancel(errCanceled)
	}()
	err := (&run{stream: &unbuffered{stream}}).send(ctx, 1, results, &Stats{})
	if !errors.Is(err, errCanceled) || len(stream.out) != 1 {
		t.Errorf("error %v after %d messages", err, len(stream.out))
	}
}

// unbuffered is a stream whose Send returns after the test has canceled the epoch.
type unbuffered struct{ *fakeStream }

func (s *unbuffered) Send(m *pluginv1.RunResponse) error {
	err := s.fakeStream.Send(m)
	<-s.ctx.Done()
	return err
}
