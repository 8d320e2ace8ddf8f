// SPDX-License-Identifier: Apache-2.0

// Package remote runs a role in another process, on its standard input and output: a scenario plays
// the roles of agents that are programs of their own. Only the methods of role.Role are passed on.
package remote

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/hostagent/role"
)

// Command is the hidden command of an agent's program that serves a role.
const Command = "serve-role"

// request is one call of a method of a role.
type request struct {
	Method  string // name, apply, out, in or seal
	Current uint64 // the epoch of the host's clock
	Frames  [][]byte
	Data    []byte // settings
	Epoch   uint64 // of seal
}

// reply is the result of a request.
type reply struct {
	Frames []frame
	Data   []byte // name, or report
	None   bool   // there is no report
	Err    string
	// Observes answers name: the role is a role.Observer, and packets have no reply.
	Observes bool
}

// frame is a frame after the role has seen it.
type frame struct {
	Data    []byte // the frame as the role returned it; nil if it has not changed
	Dropped bool
}

// Serve serves the role that create returns until in ends.
func Serve(in io.Reader, out io.Writer, create func(*epoch.Clock) role.Role) error {
	clock := epoch.NewClock(0, 0)
	r := create(clock)
	_, observes := r.(role.Observer)
	decoder, encoder := gob.NewDecoder(in), gob.NewEncoder(out)
	for {
		var q request
		if err := decoder.Decode(&q); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		clock.Advance(q.Current)
		a := answer(r, &q)
		if packets := q.Method == "out" || q.Method == "in"; packets && observes {
			if slices.ContainsFunc(a.Frames, func(f frame) bool { return f.Data != nil || f.Dropped }) {
				err := errors.New("the role implements role.Observer, but has changed or dropped a packet")
				return errors.Join(err, encoder.Encode(reply{Err: err.Error()}))
			}
			continue
		}
		if err := encoder.Encode(a); err != nil {
			return err
		}
	}
}

func answer(r role.Role, q *request) (a reply) {
	switch q.Method {
	case "name":
		a.Data = []byte(r.Name())
		_, a.Observes = r.(role.Observer)
	case "apply":
		if err := r.Apply(q.Data); err != nil {
			a.Err = err.Error()
		}
	case "seal":
		report := r.Seal(q.Epoch)
		if a.None = report == nil; !a.None {
			a.Data = report.Append(nil)
			report.Release()
		}
	default:
		frames := make([]*packet.Frame, len(q.Frames))
		for i, data := range q.Frames {
			frames[i] = packet.NewFrame(data)
		}
		if q.Method == "out" {
			r.Out(frames)
		} else {
			r.In(frames)
		}
		a.Frames = make([]frame, len(frames))
		for i, f := range frames {
			if a.Frames[i].Dropped = f.Dropped(); string(f.Bytes()) != string(q.Frames[i]) {
				a.Frames[i].Data = f.Bytes()
			}
		}
	}
	return a
}

// Role is the role of another process.
type Role struct {
	clock   *epoch.Clock
	encoder *gob.Encoder
	decoder *gob.Decoder
	name    string
	failed  func(error) // receives the error with which the process has ended
	// observes is set if the role does not change packets: waiting has those that it has not received
	// yet, of one method and epoch.
	observes bool
	waiting  request
}

// maxWaiting is the number of packets that are sent to an observer at once.
const maxWaiting = 256

// startTimeout bounds the time until a program has named its role. A program that has sent
// something else has exitGrace to end by itself, so that its exit status is known.
const startTimeout, exitGrace = 10 * time.Second, time.Second

// Start starts an agent's program that serves its role, until ctx ends. failed receives the error
// of a program that serves no role, or that ends before; packets then pass unchanged, and no epoch
// has a report.
func Start(ctx context.Context, path string, clock *epoch.Clock, failed func(error)) *Role {
	r := &Role{clock: clock}
	process, kill := context.WithCancelCause(ctx)
	cmd := exec.CommandContext(process, path, Command)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		kill(err)
		failed(err)
		return r
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		kill(err)
		failed(err)
		return r
	}
	wait := sync.OnceValue(cmd.Wait)
	context.AfterFunc(process, func() { _ = wait() }) // the process was killed
	r.encoder, r.decoder = gob.NewEncoder(in), gob.NewDecoder(out)
	r.failed = func(err error) {
		_ = in.Close()
		grace := time.AfterFunc(exitGrace, func() { kill(err) })
		defer grace.Stop()
		exit := wait()
		if ctx.Err() != nil {
			return
		}
		if cause := context.Cause(process); cause != nil { // killed here: its exit status says nothing
			err = cause
		} else if exit != nil {
			err = fmt.Errorf("it ended: %w: %w", exit, err)
		}
		failed(fmt.Errorf("agent %s: %w; expected a program whose main calls command.Main with one role", path, err))
	}
	silent := time.AfterFunc(startTimeout, func() { kill(fmt.Errorf("it names no role within %v", startTimeout)) })
	defer silent.Stop()
	a, _ := r.call(request{Method: "name"})
	r.name, r.observes = string(a.Data), a.Observes
	return r
}

// Name returns the name of the role that an agent's program serves.
func Name(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var err error
	r := Start(ctx, path, epoch.NewClock(0, 0), func(e error) { err = e })
	return r.Name(), err
}

func (r *Role) exchange(q request) (a reply, err error) {
	q.Current = r.clock.Current()
	if err = r.send(); err == nil {
		err = r.encoder.Encode(q)
	}
	if err == nil {
		err = r.decoder.Decode(&a)
	}
	if err == nil && a.Err != "" && q.Method != "apply" {
		err = errors.New(a.Err)
	}
	return a, err
}

// send sends the waiting packets. The error is that of the process, if it has ended with one.
func (r *Role) send() error {
	if len(r.waiting.Frames) == 0 {
		return nil
	}
	err := r.encoder.Encode(r.waiting)
	var a reply
	if err != nil && r.decoder.Decode(&a) == nil && a.Err != "" {
		err = errors.New(a.Err)
	}
	clear(r.waiting.Frames)
	r.waiting.Frames = r.waiting.Frames[:0]
	return err
}

// observe sends packets later, as the role of another process does not change them.
func (r *Role) observe(method string, frames []*packet.Frame) {
	if r.failed == nil {
		return
	}
	current := r.clock.Current()
	var err error
	if r.waiting.Method != method || r.waiting.Current != current || len(r.waiting.Frames) >= maxWaiting {
		err = r.send()
	}
	r.waiting.Method, r.waiting.Current = method, current
	for _, f := range frames {
		r.waiting.Frames = append(r.waiting.Frames, slices.Clone(f.Bytes()))
	}
	r.end(err)
}

// end passes the first error to failed; after it, the process is not used.
func (r *Role) end(err error) {
	if err != nil {
		r.failed(err)
		r.failed = nil
	}
}

// call exchanges a request and its reply. The first error is passed to failed; after it, call does
// nothing and returns false.
func (r *Role) call(q request) (a reply, ok bool) {
	if r.failed == nil {
		return a, false
	}
	a, err := r.exchange(q)
	r.end(err)
	return a, err == nil
}

// Name implements role.Role.
func (r *Role) Name() string { return r.name }

// Apply implements role.Role.
func (r *Role) Apply(settings []byte) error {
	a, ok := r.call(request{Method: "apply", Data: settings})
	switch {
	case !ok:
		return errors.New("the role's process has ended")
	case a.Err != "":
		return errors.New(a.Err)
	}
	return nil
}

// Out implements role.Role.
func (r *Role) Out(frames []*packet.Frame) { r.pass("out", frames) }

// In implements role.Role.
func (r *Role) In(frames []*packet.Frame) { r.pass("in", frames) }

func (r *Role) pass(method string, frames []*packet.Frame) {
	if r.observes {
		r.observe(method, frames)
		return
	}
	q := request{Method: method, Frames: make([][]byte, len(frames))}
	for i, f := range frames {
		q.Frames[i] = f.Bytes()
	}
	a, _ := r.call(q)
	for i := range min(len(a.Frames), len(frames)) {
		if a.Frames[i].Data != nil {
			frames[i].Set(a.Frames[i].Data)
		}
		if a.Frames[i].Dropped {
			frames[i].Drop()
		}
	}
}

// Seal implements role.Role.
func (r *Role) Seal(epoch uint64) role.Report {
	a, ok := r.call(request{Method: "seal", Epoch: epoch})
	if !ok || a.None {
		return nil
	}
	return report(a.Data)
}

// report is an encoded report.
type report []byte

func (r report) Append(b []byte) []byte { return append(b, r...) }
func (report) Release()                 {}
