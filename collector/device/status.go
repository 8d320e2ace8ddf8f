// SPDX-License-Identifier: Apache-2.0

package device

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/p4/p4rt"
)

// Stats describes the latest operations of a Device.
type Stats struct {
	// FlipTime and ReadTime are the durations of the latest flip and read-out.
	FlipTime, ReadTime time.Duration
	// LastError is the last error of the session, a flip, a read-out or a write. It is empty if the
	// session began, or a bank was read, after the last error.
	LastError string
}

// Status is a snapshot for state leaves.
type Status struct {
	// Session is the state of the P4Runtime session.
	Session p4rt.Status
	// Capabilities are the switch's capabilities, once the session has probed them.
	Capabilities p4rt.Capabilities
	// Counts are the counters of the session.
	Counts p4rt.Stats
	Stats
}

// Status returns the snapshot.
func (d *Device) Status() Status {
	d.mu.Lock()
	s, st := d.session, Status{Stats: d.stats}
	d.mu.Unlock()
	if s == nil {
		st.Session.State = p4rt.Down
		return st
	}
	st.Session, st.Counts = s.Status(), s.Stats()
	if c, err := s.Capabilities(); err == nil {
		st.Capabilities = c
	}
	return st
}

// setLastError sets the last error of the status.
func (d *Device) setLastError(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stats.LastError = text
}

// watch logs changes of the session and reports them to Dependencies.OnChange, until the session
// is closed.
func (d *Device) watch(changes <-chan p4rt.Status) {
	var logged p4rt.Status
	for st := range changes {
		if d.logChange(logged, st) {
			logged = st
		}
		if d.onChange != nil {
			d.onChange(d)
		}
	}
}

// logChange logs whether a session is usable, with the reason if it is not, and reports whether it
// logged. Repeated failures of the same kind are not logged.
func (d *Device) logChange(logged, st p4rt.Status) bool {
	reason := reasonOf(st)
	if reason != "" {
		d.setLastError(reason)
	}
	switch {
	case usable(st.State):
		if logged.State == st.State && logged.Session == st.Session && logged.Term == st.Term {
			return false
		}
		if logged.Session != 0 && logged.Session != st.Session && usable(logged.State) {
			// The session was down and is up again, but Watch skipped the states in between.
			d.log.Warn("session is down", "address", d.cfg.Session.Target, "reason", "lost; the next one is up already")
		}
		d.mu.Lock()
		unmeasured := d.bindErr
		d.mu.Unlock()
		d.log.Info("session is up", "address", d.cfg.Session.Target, "state", st.State.String(), "pushed", st.Pushed)
		switch {
		case reason != "":
			d.log.Error("switch does not hold all desired entries", "error", reason)
		case unmeasured != nil:
			reason = unmeasured.Error()
			d.log.Warn("switch is not measured", "reason", reason)
		}
		d.setLastError(reason)
		return true
	case st.State == p4rt.Down, st.State == p4rt.Standby:
		if logged.State == st.State && sameKind(logged.Reason, st.Reason) {
			return false
		}
		d.log.Warn("session is "+st.State.String(), "address", d.cfg.Session.Target, "reason", reason)
		return true
	}
	return false
}

func usable(s p4rt.State) bool { return s == p4rt.Ready || s == p4rt.ReadOnly }

// sameKind reports whether two reasons differ at most in their text: a lost and a refused
// connection are of the same kind, a refused pipeline is not.
func sameKind(a, b error) bool {
	return status.Code(a) == status.Code(b) &&
		errors.Is(a, p4rt.ErrPipelineRefused) == errors.Is(b, p4rt.ErrPipelineRefused)
}

func reasonOf(st p4rt.Status) string {
	if st.Reason == nil {
		return ""
	}
	return st.Reason.Error()
}

// debugOnly lowers a session's log records to debug, because this package logs what an operator
// needs.
type debugOnly struct{ slog.Handler }

// Enabled reports whether debug is enabled.
func (h debugOnly) Enabled(ctx context.Context, _ slog.Level) bool {
	return h.Handler.Enabled(ctx, slog.LevelDebug)
}

// Handle logs the record as debug.
func (h debugOnly) Handle(ctx context.Context, r slog.Record) error {
	r.Level = min(r.Level, slog.LevelDebug)
	return h.Handler.Handle(ctx, r)
}

// WithAttrs returns a debugOnly handler with the attributes.
func (h debugOnly) WithAttrs(attrs []slog.Attr) slog.Handler {
	return debugOnly{h.Handler.WithAttrs(attrs)}
}

// WithGroup returns a debugOnly handler with the group.
func (h debugOnly) WithGroup(name string) slog.Handler { return debugOnly{h.Handler.WithGroup(name)} }
