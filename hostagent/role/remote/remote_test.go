// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/hostagent/role"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Command {
		create := func(c *epoch.Clock) role.Role { return &echo{clock: c} }
		if os.Getenv("OBSERVER") != "" {
			create = func(c *epoch.Clock) role.Role { return &observer{clock: c} }
		}
		if err := Serve(os.Stdin, os.Stdout, create); err != nil {
			os.Exit(4)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// echo is a role that changes what is sent and drops what arrives.
type echo struct {
	clock    *epoch.Clock
	settings string
}

func (e *echo) Name() string { return "echo" }

func (e *echo) Apply(settings []byte) error {
	if string(settings) == "exit" {
		os.Exit(5)
	}
	if len(settings) == 0 {
		return errors.New("expected settings")
	}
	e.settings = string(settings)
	return nil
}

func (e *echo) Out(frames []*packet.Frame) { copy(frames[0].Insert(0, 2), "<<") }
func (e *echo) In(frames []*packet.Frame)  { frames[1].Drop() }

func (e *echo) Seal(number uint64) role.Report {
	if number >= e.clock.Current() {
		return nil
	}
	return report(e.settings)
}

// A role of another process measures and changes packets as one of this process.
func TestRole(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	clock := epoch.NewClock(0, 7)
	var failed error
	r := Start(t.Context(), self, clock, func(err error) { failed = err })
	if failed != nil || r.Name() != "echo" {
		t.Fatal(failed, r.Name())
	}
	if err := r.Apply(nil); err == nil || err.Error() != "expected settings" {
		t.Error(err)
	}
	if err := r.Apply([]byte("some")); err != nil {
		t.Error(err)
	}
	frames := []*packet.Frame{packet.NewFrame([]byte("ab")), packet.NewFrame([]byte("cd"))}
	r.Out(frames)
	r.In(frames)
	if string(frames[0].Bytes()) != "<<ab" || frames[0].Dropped() || !frames[1].Dropped() {
		t.Errorf("frames %q, %t; %q, %t", frames[0].Bytes(), frames[0].Dropped(), frames[1].Bytes(), frames[1].Dropped())
	}
	if x := r.Seal(7); x != nil {
		t.Error("a report of the current epoch")
	}
	clock.Advance(8)
	if x := r.Seal(7); x == nil || string(x.Append(nil)) != "some" {
		t.Errorf("report %v", x)
	}
	if err := r.Apply([]byte("exit")); err == nil || failed == nil || !strings.Contains(failed.Error(), "exit status 5") {
		t.Errorf("%v; the run fails with %v", err, failed)
	}
	frames = []*packet.Frame{packet.NewFrame([]byte("ab"))}
	r.Out(frames)
	if r.Seal(7) != nil || string(frames[0].Bytes()) != "ab" {
		t.Error("a role measures after its end")
	}
}

// observer lists what it has received: direction, epoch and packet.
type observer struct {
	clock *epoch.Clock
	list  []string
}

func (o *observer) Name() string               { return "observer" }
func (o *observer) Observes()                  {}
func (o *observer) Apply([]byte) error         { return nil }
func (o *observer) Out(frames []*packet.Frame) { o.add("out", frames) }
func (o *observer) In(frames []*packet.Frame)  { o.add("in", frames) }
func (o *observer) Seal(uint64) role.Report    { return report(strings.Join(o.list, " ")) }

func (o *observer) add(direction string, frames []*packet.Frame) {
	for _, f := range frames {
		o.list = append(o.list, fmt.Sprint(direction, o.clock.Current(), string(f.Bytes())))
		if string(f.Bytes()) == "drop" {
			f.Drop()
		}
	}
}

// A role that does not change packets receives all of them in their order and epoch, before its
// epoch is sealed. If it does change one, the run fails with the reason.
func TestObserver(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("OBSERVER", "1")
	clock := epoch.NewClock(0, 7)
	var failed error
	r := Start(t.Context(), self, clock, func(err error) { failed = err })
	var want []string
	pass := func(direction, text string) {
		frame := packet.NewFrame([]byte(text))
		if direction == "out" {
			r.Out([]*packet.Frame{frame})
		} else {
			r.In([]*packet.Frame{frame})
		}
		copy(frame.Bytes(), "~~~~") // the frame is used again
		want = append(want, fmt.Sprint(direction, clock.Current(), text))
	}
	for i := range 2*maxWaiting + 1 {
		pass("out", strconv.Itoa(i))
	}
	pass("in", "a")
	pass("out", "b")
	clock.Advance(8)
	pass("out", "c")
	if x := r.Seal(7); x == nil || string(x.Append(nil)) != strings.Join(want, " ") {
		t.Errorf("received %v, want %v", x, want)
	}
	pass("in", "drop")
	if failed != nil {
		t.Error(failed)
	}
	const changed = "the role implements role.Observer, but has changed or dropped a packet"
	if r.Seal(8); failed == nil || !strings.Contains(failed.Error(), changed) {
		t.Errorf("the run fails with %v", failed)
	}
	pass("in", "after the end")

	failed = nil
	r = Start(t.Context(), self, clock, func(err error) { failed = err })
	for range 1000 { // the process has ended when the last packets are sent
		if pass("in", "drop"); failed != nil {
			break
		}
		pass("out", "x")
	}
	if failed == nil || !strings.Contains(failed.Error(), changed) {
		t.Errorf("the run fails with %v", failed)
	}
}

// A program that serves no role is named.
func TestNoRole(t *testing.T) {
	for _, path := range []string{"/bin/true", "/nonexistent"} {
		var failed error
		r := Start(t.Context(), path, epoch.NewClock(0, 0), func(err error) { failed = err })
		if failed == nil || !strings.Contains(failed.Error(), path) || r.Name() != "" {
			t.Errorf("%s: %v", path, failed)
		}
	}
}

// TestOtherPrograms: a program that does not end by itself is ended, and the error says what it
// did.
func TestOtherPrograms(t *testing.T) {
	for name, tc := range map[string]struct{ script, want string }{
		"silent":   {"exec sleep 300", "it names no role within 10s"},
		"text":     {"echo some text; sleep 15 2>&- & exec sleep 300", "it names no role within 10s"},
		"a flood":  {"head -c 3000000 /dev/zero; exec sleep 300", "expected a program"},
		"status 7": {"exit 7", "exit status 7"},
		"killed":   {"kill -KILL $$", "signal: killed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "agent")
			if err := os.WriteFile(path, []byte("#!/bin/sh\n"+tc.script+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			_, err := Name(t.Context(), path)
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v, want %q", err, tc.want)
			}
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("after %v", took)
			}
		})
	}
}
