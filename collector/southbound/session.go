// SPDX-License-Identifier: Apache-2.0

package southbound

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	gpb "github.com/openconfig/gnmi/proto/gnmi"
	"google.golang.org/grpc"

	"github.com/netsketch/netsketch/internal/store"
	"github.com/netsketch/netsketch/yang"
	"github.com/netsketch/netsketch/yang/bindings"
)

// Mode is the mode of a subscription.
type Mode string

// The modes of a subscription (gNMI specification, section 3.5.1.5.2).
const (
	OnChange      Mode = "on-change"
	Sample        Mode = "sample"
	TargetDefined Mode = "target-defined"
)

// Subscription is one path to subscribe to.
type Subscription struct {
	Path *gpb.Path
	Mode Mode
	// SampleInterval is used by Sample; 0 requests the shortest interval that the switch supports.
	SampleInterval time.Duration
}

// SessionConfig configures a Session. Name, Address, Schema and Publish are required.
type SessionConfig struct {
	// Name is the switch's name and the target that its leaves are published under.
	Name string
	// Endpoint is the switch's gNMI server.
	Endpoint
	// DialOptions are options of the connection, applied after Endpoint's own.
	DialOptions []grpc.DialOption
	// Subscriptions are republished in addition to what discovery needs; nil selects
	// DefaultSubscriptions.
	Subscriptions []Subscription
	// Schema returns the current schema: leaves outside of it are dropped and counted.
	Schema func() *yang.Schema
	// Publish passes a batch to the store.
	Publish func(store.Batch) error
	// OnChange, when set, is called when the state of the session or its facts have changed, one
	// call at a time. It must not call Close.
	OnChange func(*Session)
	// Logger receives state changes; nil disables logging.
	Logger *slog.Logger

	// CallTimeout bounds a unary call and the wait for the connection; 5 s when 0.
	CallTimeout time.Duration
	// SyncTimeout bounds the wait for sync_response; 30 s when 0.
	SyncTimeout time.Duration
	// BackoffBase and BackoffMax bound the waits between sessions, and between the attempts to open a
	// stream; 500 ms and 60 s when 0.
	BackoffBase, BackoffMax time.Duration
	// Lasting is how long a session or a stream must serve so that its waits start anew; 1 min when 0.
	Lasting time.Duration
	// MaxLeaves bounds the leaves cached of the switch; 200,000 when 0.
	MaxLeaves int
	// Now returns the time of day; nil is time.Now.
	Now func() time.Time
}

// State is the state of a session.
type State = bindings.E_Gnmi_Connection

// The states of a session, as module netsketch-collector names them.
const (
	Connecting = bindings.Gnmi_Connection_CONNECTING
	Syncing    = bindings.Gnmi_Connection_SYNCING
	Synced     = bindings.Gnmi_Connection_SYNCED
	NoData     = bindings.Gnmi_Connection_NO_DATA
	Down       = bindings.Gnmi_Connection_DOWN
)

// Stats are counters since the start of the session.
type Stats struct {
	Reconnects    uint64 // number of sessions that were lost
	Notifications uint64 // received
	Updates       uint64 // leaves accepted, deleted leaves included
	Unknown       uint64 // leaves that the schema does not have
	Refused       uint64 // leaves with an invalid value or over a bound
	Stale         uint64 // leaves that are older than the session's value
}

// Status is a snapshot for state leaves.
type Status struct {
	State     State
	LastError string
	// Missing is the number of subscriptions without a stream, because the switch refuses them, has
	// no stream left or ended it.
	Missing int
	Stats
}

// Session is a switch's gNMI session. Create it with NewSession.
type Session struct {
	cfg SessionConfig
	log *slog.Logger

	mu     sync.Mutex
	status Status
	facts  Facts
	form   Form // form in which the switch sent values last
	proven bool // whether the switch has sent values in form
	cancel context.CancelFunc
	done   chan struct{}

	// The fields below are only used by run's goroutine.
	cache  *cache
	logged string    // state and reason that were logged last
	synced time.Time // since when the session is synced; zero if it is not
	// refusals is 0, or counts the sessions since the switch refused all forms of requests.
	refusals int
	flaps    bool            // the previous session did not last, so this one is logged only once it has lasted
	warned   map[string]bool // keys of lines that are logged once
}

// NewSession returns a session that is not started.
func NewSession(c SessionConfig) (*Session, error) {
	if c.Name == "" || c.Address == "" || c.Schema == nil || c.Publish == nil {
		return nil, errors.New("southbound: a session needs Name, Address, Schema and Publish")
	}
	setDefault(&c.CallTimeout, 5*time.Second)
	setDefault(&c.SyncTimeout, 30*time.Second)
	setDefault(&c.BackoffBase, 500*time.Millisecond)
	setDefault(&c.BackoffMax, time.Minute)
	setDefault(&c.Lasting, time.Minute)
	if c.MaxLeaves <= 0 {
		c.MaxLeaves = 200_000
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Subscriptions == nil {
		c.Subscriptions = DefaultSubscriptions()
	}
	s := &Session{cfg: c, log: c.Logger.With("device", c.Name), status: Status{State: Down}, form: forms[0],
		warned: map[string]bool{}}
	s.cache = newCache(c.Name, c.MaxLeaves, c.Subscriptions)
	return s, nil
}

// Check subscribes to a switch and returns nil when the switch has sent values. Otherwise the error
// has the failure that the session reports, or says that ctx has ended before.
func Check(ctx context.Context, c SessionConfig) error {
	changed := make(chan struct{}, 1)
	c.Publish = func(store.Batch) error { return nil }
	c.OnChange = func(*Session) {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	s, err := NewSession(c)
	if err != nil {
		return err
	}
	s.Start(ctx)
	defer s.Close()
	for {
		switch st := s.Status(); {
		case st.State == Synced:
			return nil
		case (st.State == Down || st.State == NoData) && st.LastError != "":
			return fmt.Errorf("device %s: gNMI: %s", c.Name, st.LastError)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("device %s: gNMI: the session is still %v: %w", c.Name, s.Status().State, ctx.Err())
		}
	}
}

func setDefault(d *time.Duration, v time.Duration) {
	if *d <= 0 {
		*d = v
	}
}

// Name returns the switch's name.
func (s *Session) Name() string { return s.cfg.Name }

// Address returns the address of the switch's gNMI server.
func (s *Session) Address() string { return s.cfg.Address }

// Start runs the session until ctx ends or Close. It is called once.
func (s *Session) Start(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	s.cancel, s.done = cancel, make(chan struct{})
	s.mu.Unlock()
	go func() {
		defer close(s.done)
		s.run(ctx)
	}()
}

// Close ends the session, withdraws its published leaves, and waits.
func (s *Session) Close() {
	s.mu.Lock()
	cancel, done := s.cancel, s.done
	s.mu.Unlock()
	if cancel == nil {
		return
	}
	cancel()
	<-done
}

// Status returns the current state and counters.
func (s *Session) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// Facts returns the switch's facts as of the latest synced session. The result must not be changed.
func (s *Session) Facts() Facts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.facts
}

// Form returns the form of requests in which the switch sent values, and true; or the form that the
// session tries first, and false. Switches take paths of Get and Set in the same form.
func (s *Session) Form() (Form, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.form, s.proven
}

// knows records that the switch sends values in a form.
func (s *Session) knows(f Form) {
	s.mu.Lock()
	first := !s.proven || s.form != f
	s.form, s.proven = f, true
	s.mu.Unlock()
	if first {
		s.log.Debug("device answers requests in this form", "form", f.String())
	}
}

// run opens one session after another until ctx ends.
func (s *Session) run(ctx context.Context) {
	wait := newBackOff(s.cfg.BackoffBase, s.cfg.BackoffMax)
	var waited time.Duration // the wait before the current session
	for {
		if s.Status().State != NoData {
			s.set(Connecting, nil)
		}
		s.synced = time.Time{}
		err := s.session(ctx)
		s.withdraw()
		if ctx.Err() != nil {
			s.set(Down, nil)
			return
		}
		if errors.Is(err, errNoData) {
			continue // after a wait of at least BackoffMax: try all forms again
		}
		if !s.synced.IsZero() {
			s.mu.Lock()
			s.status.Reconnects++
			s.mu.Unlock()
			lasted := time.Since(s.synced)
			if s.flaps = lasted < s.cfg.Lasting; !s.flaps || lasted > max(s.cfg.Lasting/60, 4*waited) {
				wait.Reset() // some switches close every connection after some time: this is no failure
			}
		}
		s.set(Down, err)
		if waited = wait.NextBackOff(); !sleep(ctx, waited) {
			s.set(Down, nil)
			return
		}
	}
}

// newBackOff returns waits that are random between a quarter of a bound and the bound, which starts
// at base and doubles up to limit: many sessions neither reconnect at once nor spin.
func newBackOff(base, limit time.Duration) *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = base*5/8, limit*5/8
	b.Multiplier, b.RandomizationFactor = 2, 0.6
	b.Reset()
	return b
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// set changes the state, logs each new reason once, and reports the change.
func (s *Session) set(state State, err error) {
	s.mu.Lock()
	changed := s.status.State != state
	s.status.State = state
	if err != nil {
		changed = changed || s.status.LastError != err.Error()
		s.status.LastError = err.Error()
	}
	s.mu.Unlock()
	if !changed {
		return
	}
	if state == Synced && s.synced.IsZero() {
		s.synced = time.Now()
	}
	line := state.String()
	if state == Down && err != nil || state == NoData {
		line += err.Error()
	}
	switch {
	case s.logged == line:
	case state == Synced:
		if !s.flaps {
			s.steady()
		}
	case state == NoData:
		s.log.Warn("device sends no values over gNMI", "address", s.cfg.Address, "reason", err)
		s.logged = line
	case state == Down && err != nil:
		s.log.Warn("gNMI session is down", "address", s.cfg.Address, "reason", err)
		s.logged = line
	}
	s.notify()
}

// lastsAt returns the time at which a session that is not logged yet will have lasted; zero without
// such a session.
func (s *Session) lastsAt() time.Time {
	if !s.flaps || s.synced.IsZero() {
		return time.Time{}
	}
	return s.synced.Add(s.cfg.Lasting)
}

// steady logs that the session is up.
func (s *Session) steady() {
	s.flaps = false
	s.logged = Synced.String()
	s.log.Info("gNMI session is up", "address", s.cfg.Address)
}

// degraded records the number of subscriptions without a stream.
func (s *Session) degraded(missing int) {
	s.mu.Lock()
	changed := s.status.Missing != missing
	s.status.Missing = missing
	s.mu.Unlock()
	if changed {
		s.notify()
	}
}

func (s *Session) notify() {
	if s.cfg.OnChange != nil {
		s.cfg.OnChange(s)
	}
}

// count adds to the counters.
func (s *Session) count(add Stats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Notifications += add.Notifications
	s.status.Updates += add.Updates
	s.status.Unknown += add.Unknown
	s.status.Refused += add.Refused
	s.status.Stale += add.Stale
}

// warnOnce logs a fault of the switch once per key.
func (s *Session) warnOnce(key, message string, args ...any) {
	s.logOnce(slog.LevelWarn, key, message, args...)
}

// logOnce logs a line once per key. It logs a bounded number of lines.
func (s *Session) logOnce(level slog.Level, key, message string, args ...any) {
	const most = 256
	switch {
	case s.warned[key] || len(s.warned) > most:
		return
	case len(s.warned) == most:
		level, message, args = slog.LevelWarn, "further faults of the device are only counted", nil
	}
	s.warned[key] = true
	s.log.Log(context.Background(), level, message, args...)
}

// publish passes batches to the store.
func (s *Session) publish(batches []store.Batch) {
	for _, b := range batches {
		if err := s.cfg.Publish(b); err != nil && !errors.Is(err, store.ErrClosed) {
			s.warnOnce("publish", "updates of the device cannot be published", "error", err)
			s.count(Stats{Refused: 1})
		}
	}
}

// withdraw deletes the published leaves of an ended session.
func (s *Session) withdraw() {
	s.publish(s.cache.clear(s.cfg.Now()))
}
