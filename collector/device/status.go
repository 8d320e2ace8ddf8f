// SPDX-License-Identifier: Apache-2.0

package device

import (
	"context"
	"log/slog"
	"time"

	"github.com/netsketch/netsketch/p4/p4rt"
)

// Stats are what a Device remembers of its work.
type Stats struct {
	// FlipTime and ReadTime are those of the newest flip and read-out.
	FlipTime, ReadTime time.Duration
	// LastError is the newest error of session, flip, read-out or writes; empty when there was none since the
	// session began or a bank was read last.
	LastError string
}

// Status is a snapshot for state leaves.
type Status struct {
	// Session is the state of the P4Runtime session, its zero value before Start.
	Session p4rt.Status
	// Capabilities are what the session found out; only those of a session that got so far.
	Capabilities p4rt.Capabilities
	// Counts are the session's counters.
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

// watch follows the session until it is closed: it logs changes, once each, brings back what a push
// cleared, and tells who wants to know.
func (d *Device) watch(ctx context.Context, changes <-chan p4rt.Status) {
	var logged p4rt.Status
	var session uint64
	for st := range changes {
		d.logChange(&logged, st)
		if st.State == p4rt.Ready && st.Session != session {
			session = st.Session
			d.ready(ctx, st)
		}
		if d.cfg.OnChange != nil {
			d.cfg.OnChange(d)
		}
	}
}

// ready does what a new session needs beyond what the session itself brings back.
func (d *Device) ready(ctx context.Context, st p4rt.Status) {
	if st.Pushed {
		if err := d.replan(ctx); err != nil {
			d.note(err)
		}
	}
	if d.cfg.Session.Program == nil && d.cfg.Forwarding {
		d.mu.Lock()
		r := d.routes
		d.mu.Unlock()
		if err := d.SetRoutes(ctx, r); err != nil {
			d.note(err)
		}
	}
}

// logChange logs when the session becomes usable and when it ceases to be, and why; not each try in
// between, unless the reason is another one.
func (d *Device) logChange(logged *p4rt.Status, st p4rt.Status) {
	reason := ""
	if st.Reason != nil {
		reason = st.Reason.Error()
		d.mu.Lock()
		d.stats.LastError = reason
		d.mu.Unlock()
	}
	switch st.State {
	case p4rt.Ready, p4rt.ReadOnly:
		if logged.State != st.State || logged.Session != st.Session {
			d.mu.Lock()
			d.stats.LastError = ""
			d.mu.Unlock()
			d.log.Info("session is up", "address", d.cfg.Session.Target, "state", st.State.String(), "pushed", st.Pushed)
		}
	case p4rt.Down, p4rt.Standby:
		before := ""
		if logged.Reason != nil {
			before = logged.Reason.Error()
		}
		if logged.State == st.State && before == reason {
			return
		}
		d.log.Warn("session is "+st.State.String(), "address", d.cfg.Session.Target, "reason", reason)
	default:
		return
	}
	*logged = st
}

// quiet lets a session log for those who debug it only: this package says what an operator needs.
type quiet struct{ slog.Handler }

// Enabled asks whether debug is.
func (q quiet) Enabled(ctx context.Context, _ slog.Level) bool {
	return q.Handler.Enabled(ctx, slog.LevelDebug)
}

// Handle logs the record as debug.
func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	r.Level = min(r.Level, slog.LevelDebug)
	return q.Handler.Handle(ctx, r)
}

// WithAttrs keeps it quiet.
func (q quiet) WithAttrs(attrs []slog.Attr) slog.Handler { return quiet{q.Handler.WithAttrs(attrs)} }

// WithGroup keeps it quiet.
func (q quiet) WithGroup(name string) slog.Handler { return quiet{q.Handler.WithGroup(name)} }
