// SPDX-License-Identifier: Apache-2.0

// Package southbound is a switch's gNMI session: what the collector learns of a switch
// besides what P4Runtime tells, and republishes.
//
// A Session subscribes to what discovery needs (ports with their P4Runtime numbers, LLDP
// neighbours, P4Runtime device ids, the host name) and to the paths of the configuration.
// Everything that fits the collector's schema is mirrored into the store under the
// switch's name as target, for as long as the session lasts: as openconfig/gnmi's
// collector does, a lost session takes its values away. Facts outlive it, so that a
// management network that flaps does not change what is known of the topology.
//
// All is asked for in one stream. Where a switch refuses that, each subscription gets a
// stream of its own, so that a path which the switch does not serve costs that path only.
// Sessions are made again with jittered, growing waits.
//
// Concurrency: a Session's methods may be called from any goroutine. It has one goroutine
// that owns mirror and store, and one for each stream; Close waits for all of them.
package southbound

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	gpb "github.com/openconfig/gnmi/proto/gnmi"

	"github.com/netsketch/netsketch/collector/store"
	"github.com/netsketch/netsketch/yang"
)

// Mode is how a subscription is served.
type Mode string

// The modes of a subscription, as gNMI has them.
const (
	OnChange      Mode = "on-change"
	Sample        Mode = "sample"
	TargetDefined Mode = "target-defined"
)

// Subscription is one path to subscribe to.
type Subscription struct {
	Path *gpb.Path
	Mode Mode
	// SampleInterval is for Sample; 0 is the lowest that the switch has.
	SampleInterval time.Duration
}

// Config says which switch it is and what to ask of it. Name, Address, Schema and Publish
// are required.
type Config struct {
	// Name is the switch's name: the target that its leaves are published under.
	Name string
	// Address is its gNMI server, host:port.
	Address string
	// TLS secures the session; nil is plaintext.
	TLS *tls.Config
	// Username and Password are sent with every call, as metadata of these names, when
	// Username is not empty.
	Username, Password string
	// Subscriptions are republished besides what discovery needs; nil means the default
	// ones: interfaces with counters, components and the system.
	Subscriptions []Subscription
	// Schema returns the schema of now: leaves outside of it are dropped and counted.
	Schema func() *yang.Schema
	// Publish is the store's.
	Publish func(store.Batch) error
	// OnChange, when set, is called when the state of the session or its facts have
	// changed, one call at a time. It must not call Close.
	OnChange func(*Session)
	// Logger hears of changes of the session; nil discards.
	Logger *slog.Logger

	// CallTimeout bounds one unary call and the wait for the connection; 5 s when 0.
	CallTimeout time.Duration
	// SyncTimeout is how long a switch may take to send all of its state; 30 s when 0.
	SyncTimeout time.Duration
	// BackoffBase and BackoffMax bound the waits between sessions; 500 ms and 60 s when 0.
	BackoffBase, BackoffMax time.Duration
	// MaxLeaves bounds what is kept of a switch; 200,000 when 0.
	MaxLeaves int
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// State is that of a session.
type State string

// The states of a session, as the collector's model names them.
const (
	Connecting State = "connecting"
	Syncing    State = "syncing"
	Synced     State = "synced"
	Down       State = "down"
)

// Stats count since the session was started.
type Stats struct {
	Reconnects    uint64 // sessions lost
	Notifications uint64 // received
	Updates       uint64 // leaves taken over, deleted ones among them
	Unknown       uint64 // leaves that the schema does not have
	Refused       uint64 // leaves whose value is not one, or over the bound
}

// Status is a snapshot for state leaves.
type Status struct {
	State     State
	LastError string
	Stats
}

// Session is a switch's gNMI session. Make it with New.
type Session struct {
	cfg Config
	log *slog.Logger

	mu     sync.Mutex
	status Status
	facts  Facts
	cancel context.CancelFunc
	done   chan struct{}

	// The rest belongs to run's goroutine.
	mirror   *mirror
	logged   string          // state and reason that were logged last
	grumbled map[string]bool // streams and leaves that were logged as refused
}

// New returns a session that is not started.
func New(c Config) (*Session, error) {
	if c.Name == "" || c.Address == "" || c.Schema == nil || c.Publish == nil {
		return nil, errors.New("southbound: a session needs a name, an address, a schema and somewhere to publish")
	}
	setDefault(&c.CallTimeout, 5*time.Second)
	setDefault(&c.SyncTimeout, 30*time.Second)
	setDefault(&c.BackoffBase, 500*time.Millisecond)
	setDefault(&c.BackoffMax, time.Minute)
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
	s := &Session{cfg: c, log: c.Logger.With("device", c.Name), status: Status{State: Down}, grumbled: map[string]bool{}}
	s.mirror = newMirror(c.Name, c.MaxLeaves, c.Subscriptions)
	return s, nil
}

func setDefault(d *time.Duration, v time.Duration) {
	if *d <= 0 {
		*d = v
	}
}

// Name is the switch's name.
func (s *Session) Name() string { return s.cfg.Name }

// Address is that of the switch's gNMI server.
func (s *Session) Address() string { return s.cfg.Address }

// Start begins the session, which lasts until ctx ends or Close. It is called once.
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

// Close ends the session, takes back what it published, and waits.
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

// Status returns the snapshot.
func (s *Session) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// Facts returns what was learned of the switch the last time that it was synced. It must
// not be changed.
func (s *Session) Facts() Facts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.facts
}

// run makes sessions until ctx ends.
func (s *Session) run(ctx context.Context) {
	failures := 0
	for {
		s.set(Connecting, nil)
		synced, err := s.session(ctx)
		s.withdraw()
		if ctx.Err() != nil {
			s.set(Down, nil)
			return
		}
		s.mu.Lock()
		if synced {
			s.status.Reconnects++
			failures = 0
		}
		s.mu.Unlock()
		s.set(Down, err)
		if !sleep(ctx, s.wait(failures)) {
			s.set(Down, nil)
			return
		}
		failures++
	}
}

// wait is a random time up to a bound that doubles with each failure, and at least a
// quarter of it, so that many sessions do not come back at once nor spin.
func (s *Session) wait(failures int) time.Duration {
	bound := s.cfg.BackoffMax
	if failures < 30 {
		bound = min(bound, s.cfg.BackoffBase<<failures)
	}
	return bound/4 + rand.N(bound*3/4+1)
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

// set changes the state, logs what an operator wants to know once, and tells.
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
	line := string(state)
	if err != nil {
		line += err.Error()
	}
	switch {
	case state == Synced && s.logged != line:
		s.log.Info("gNMI session is up", "address", s.cfg.Address)
		s.logged = line
	case state == Down && err != nil && s.logged != line:
		s.log.Warn("gNMI session is down", "address", s.cfg.Address, "reason", err)
		s.logged = line
	}
	s.tell()
}

func (s *Session) tell() {
	if s.cfg.OnChange != nil {
		s.cfg.OnChange(s)
	}
}

// note counts what a batch of notifications came to.
func (s *Session) note(add Stats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Notifications += add.Notifications
	s.status.Updates += add.Updates
	s.status.Unknown += add.Unknown
	s.status.Refused += add.Refused
}

// grumble logs something that a switch does wrong, once.
func (s *Session) grumble(key, message string, args ...any) {
	if len(s.grumbled) < 64 && !s.grumbled[key] {
		s.grumbled[key] = true
		s.log.Warn(message, args...)
	}
}

// publish hands batches to the store.
func (s *Session) publish(batches []store.Batch) {
	for _, b := range batches {
		if err := s.cfg.Publish(b); err != nil && !errors.Is(err, store.ErrClosed) {
			s.grumble("publish", "what a device sends cannot be published", "error", err)
			s.note(Stats{Refused: 1})
		}
	}
}

// withdraw takes back what was published of a session that is over.
func (s *Session) withdraw() {
	s.publish(s.mirror.clear(s.cfg.Now()))
}
