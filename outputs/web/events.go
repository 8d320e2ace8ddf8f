// SPDX-License-Identifier: Apache-2.0

// gNMI notifications as server-sent events.

package web

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/yang"
)

const (
	flushSize  = 32 << 10             // bytes of events from which they are sent at once
	flushDelay = 5 * time.Millisecond // the longest that a smaller number of bytes waits for more
	keepAlive  = 15 * time.Second     // between two signs of life of a stream without changes
)

// stream is a Subscribe call of a browser, as the gNMI server sees it: one request, no more.
type stream struct {
	grpc.ServerStream // stays nil: Subscribe uses only the methods below

	ctx    context.Context
	first  *gpb.SubscribeRequest // request, until it has been received
	events *events
}

// Context implements gpb.GNMI_SubscribeServer.
func (s *stream) Context() context.Context { return s.ctx }

// Recv returns the request, and io.EOF from the second call on.
func (s *stream) Recv() (*gpb.SubscribeRequest, error) {
	if first := s.first; first != nil {
		s.first = nil
		return first, nil
	}
	return nil, io.EOF
}

// Send sends one response. It waits for a browser that does not read, and the store then coalesces
// what changes.
func (s *stream) Send(r *gpb.SubscribeResponse) error {
	// The messages of the server hold encoded fields: the round trip makes them readable.
	raw, err := proto.Marshal(r)
	if err != nil {
		return err
	}
	decoded := new(gpb.SubscribeResponse)
	if err := proto.Unmarshal(raw, decoded); err != nil {
		return err
	}
	return s.events.send(decoded)
}

// events writes server-sent events. Several small ones are sent together.
type events struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration

	mu    sync.Mutex
	began bool // the header has been sent
	buf   []byte
	err   error // error of the first failed write
	slow  bool  // whether the write failed because the browser did not read

	wake, stop chan struct{}
	runs       sync.WaitGroup
}

func newEvents(w http.ResponseWriter, timeout time.Duration) *events {
	return &events{w: w, control: http.NewResponseController(w), timeout: timeout,
		wake: make(chan struct{}, 1), stop: make(chan struct{})}
}

// send adds a response. The first response begins the answer to the browser, so that an error of
// the call before it has a status of its own.
func (e *events) send(r *gpb.SubscribeResponse) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.began {
		e.begin()
	}
	if e.err != nil {
		return e.err
	}
	if n := r.GetUpdate(); n != nil {
		e.buf = append(appendNotification(append(e.buf, "data: "...), n), "\n\n"...)
	} else {
		e.buf = append(e.buf, "event: sync\ndata: {}\n\n"...)
	}
	if len(e.buf) >= flushSize {
		return e.flush()
	}
	select {
	case e.wake <- struct{}{}:
	default:
	}
	return nil
}

// begin sends the header. e.mu is held.
func (e *events) begin() {
	e.began = true
	h := e.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // a proxy must not hold the answer back until its end
	// Removes the read deadline of requests, at which net/http would end this handler.
	if e.err = e.control.SetReadDeadline(time.Time{}); e.err == nil {
		e.w.WriteHeader(http.StatusOK)
		e.runs.Go(e.run)
	}
}

// run sends the waiting responses, and signs of life.
func (e *events) run() {
	alive := time.NewTicker(keepAlive)
	defer alive.Stop()
	for {
		select {
		case <-e.stop:
			return
		case <-e.wake:
			select {
			case <-e.stop:
				return
			case <-time.After(flushDelay):
			}
			e.mu.Lock()
		case <-alive.C:
			e.mu.Lock()
			e.buf = append(e.buf, ":\n\n"...)
		}
		_ = e.flush() // the next send returns the error
		e.mu.Unlock()
	}
}

// flush writes the events that wait. e.mu is held.
func (e *events) flush() error {
	if e.err != nil || len(e.buf) == 0 {
		return e.err
	}
	deadline := time.Now().Add(e.timeout)
	if e.err = e.control.SetWriteDeadline(deadline); e.err != nil {
		return e.err
	}
	if _, e.err = e.w.Write(e.buf); e.err == nil {
		e.buf = e.buf[:0]
		e.err = e.control.Flush()
	}
	e.slow = e.err != nil && !time.Now().Before(deadline) // not by the error, which depends on HTTP
	return e.err
}

// close sends the remaining responses, and reports whether the stream ended because the browser did
// not read.
func (e *events) close() (slow bool) {
	close(e.stop)
	e.runs.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	_ = e.flush()
	return e.slow
}

// appendNotification appends a notification as one line of JSON:
//
//	{"time": nanoseconds since 1970 as text, "target": "leaf1",
//	 "delete": [path, …], "set": [[entry, {leaf: value, …}], …]}
//
// An entry is a path up to its last key, or without keys up to the container of the leaf; a leaf is
// the remaining path. Values are encoded as in JSON_IETF. A delete removes the node and everything
// below it before values are set.
func appendNotification(b []byte, n *gpb.Notification) []byte {
	b = append(b, `{"time":"`...)
	b = strconv.AppendInt(b, n.GetTimestamp(), 10)
	b = append(b, `","target":`...)
	b = appendText(b, n.GetPrefix().GetTarget())
	prefix := n.GetPrefix().GetElem()
	deletes := n.GetDelete()
	for i, d := range deletes {
		b = append(b, separator(i, `,"delete":[`)...)
		b = appendText(b, yang.PathString(join(prefix, d.GetElem())))
	}
	if len(deletes) > 0 {
		b = append(b, ']')
	}
	last := ""
	for i, u := range n.GetUpdate() {
		entry, leaf := divide(join(prefix, u.GetPath().GetElem()))
		switch {
		case i == 0:
			b = append(b, `,"set":[[`...)
		case entry == last:
			b = append(b, ',')
		default:
			b = append(b, `}],[`...)
		}
		if i == 0 || entry != last {
			b = append(appendText(b, entry), `,{`...)
		}
		last = entry
		b = append(appendText(b, leaf), ':')
		b = append(b, u.GetVal().GetJsonIetfVal()...)
	}
	if len(n.GetUpdate()) > 0 {
		b = append(b, `}]]`...)
	}
	return append(b, '}')
}

func separator(i int, first string) string {
	if i == 0 {
		return first
	}
	return ","
}

func join(a, b []*gpb.PathElem) []*gpb.PathElem {
	return append(a[:len(a):len(a)], b...)
}

// divide divides the path of a leaf: see appendNotification.
func divide(elems []*gpb.PathElem) (entry, leaf string) {
	at := max(len(elems)-1, 0)
	for i, e := range elems {
		if len(e.GetKey()) > 0 {
			at = i + 1
		}
	}
	for i, e := range elems[at:] {
		if i > 0 {
			leaf += "/"
		}
		leaf += e.GetName()
	}
	return yang.PathString(elems[:at]), leaf
}

// appendText appends a JSON string.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, err := json.Marshal(s)
			if err != nil {
				panic(fmt.Sprintf("web: a string is not JSON: %v", err)) // json.Marshal takes every string
			}
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}
