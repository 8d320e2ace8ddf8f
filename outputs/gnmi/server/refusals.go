// SPDX-License-Identifier: Apache-2.0

package server

import (
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc/status"
)

// refusalInterval is the time between two log lines about refusals of the same kind.
const refusalInterval = 10 * time.Second

// Kind is a kind of refusal.
type Kind string

// The kinds of refusals, as the log names them.
const (
	Login      Kind = "login"
	Connection Kind = "connection"
	Stream     Kind = "stream"
	Get        Kind = "get"
	Path       Kind = "path" // the user may not read the path
)

// refusals logs and counts refused clients. It logs the first refusal of each kind at once, and
// then at most one line per interval, with the number of refusals in that interval.
type refusals struct {
	logger *slog.Logger
	mu     sync.Mutex
	kinds  map[Kind]*refusal
	closed bool
}

type refusal struct {
	total      uint64
	timer      *time.Timer // nil if the next refusal is logged at once
	suppressed uint64      // refusals since the latest line
	client     string      // client of the latest refusal
	err        error
}

// add counts a refusal and logs it, at once or together with later ones.
func (r *refusals) add(kind Kind, client string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.kinds[kind]
	if x == nil {
		x = &refusal{}
		r.kinds[kind] = x
	}
	x.total++
	x.client, x.err = client, err
	if x.timer != nil {
		x.suppressed++
		return
	}
	r.log(kind, x)
}

// log writes a line about the latest refusal, and starts the next interval. The caller holds r.mu.
func (r *refusals) log(kind Kind, x *refusal) {
	r.logger.Warn("gNMI client is refused", "kind", string(kind), "client", x.client, "suppressed", x.suppressed,
		"error", status.Convert(x.err).Message())
	x.suppressed = 0
	if r.closed {
		return
	}
	x.timer = time.AfterFunc(refusalInterval, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		x.timer = nil
		if x.suppressed > 0 && !r.closed {
			r.log(kind, x)
		}
	})
}

// count returns the number of refusals of a kind.
func (r *refusals) count(kind Kind) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if x := r.kinds[kind]; x != nil {
		return x.total
	}
	return 0
}

// close logs refusals that have not been logged yet.
func (r *refusals) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for kind, x := range r.kinds {
		if x.timer != nil {
			x.timer.Stop()
		}
		if x.suppressed > 0 {
			r.log(kind, x)
		}
	}
}

// Refused counts and logs a client that the caller has refused, at a bounded rate.
func (s *Server) Refused(kind Kind, client string, err error) { s.refusals.add(kind, client, err) }
