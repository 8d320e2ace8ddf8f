// SPDX-License-Identifier: Apache-2.0

package p4rt

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

// Client is the supervised session with one switch in one role. Make one with [Dial].
type Client struct {
	cfg    Config
	cancel context.CancelFunc
	done   chan struct{} // closed when the supervisor has ended

	mu       sync.Mutex // guards what follows
	status   Status
	watchers map[chan Status]func() bool // each with what stops its context from closing it
	current  *session                    // nil: none
	desired  desiredState

	applying sync.Mutex // held while desired state is compared and written, by one goroutine at a time
	subs     subscriptions
	stats    counters
	elected  atomic.Bool // was the primary once: whoever has its election id may be an earlier session of its own
	seq      seqSource
}

// Dial checks the configuration and starts the session with the switch. It does not wait for the switch: see [Client.WaitReady] and
// [Client.Watch]. The session lives until ctx ends or [Client.Close].
func Dial(ctx context.Context, cfg Config) (*Client, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if cfg.Program != nil {
		if _, err := p4values.NewCatalog(cfg.Program.P4Info); err != nil {
			return nil, fmt.Errorf("p4rt %s: program %q: %w", cfg.Target, cfg.Program.Name, err)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	c := &Client{
		cfg: cfg, cancel: cancel, done: make(chan struct{}), watchers: map[chan Status]func() bool{},
		status: Status{State: Connecting, Since: cfg.Clock.Now()}, desired: desiredState{},
	}
	c.seq.n.Store(cfg.Rand.Uint32())
	go c.supervise(ctx)
	return c, nil
}

// Close ends the session and waits for its goroutines. It is safe to call more than once.
func (c *Client) Close() error {
	c.cancel()
	<-c.done
	return nil
}

// Target returns the address the client was configured with.
func (c *Client) Target() string { return c.cfg.Target }

// supervise runs one session after another until ctx ends.
func (c *Client) supervise(ctx context.Context) {
	defer close(c.done)
	bid := c.cfg.ElectionID
	failures := 0
	for n := uint64(1); ; n++ {
		s := &session{c: c, bid: bid, number: n, log: c.cfg.Logger.With("target", c.cfg.Target, "device-id", c.cfg.DeviceID)}
		err := s.run(ctx)
		bid = s.bid
		if ctx.Err() != nil {
			break
		}
		if s.settled {
			c.stats.sessionsLost.Add(1) // one that never came about was not lost
			failures = 0
		}
		wait := c.cfg.Backoff.delay(failures, c.cfg.Rand)
		failures++
		s.log.Warn("session ended", "error", err, "retry-in", wait)
		c.setStatus(func(st *Status) { st.State, st.Reason = Down, err })
		again, stop := c.cfg.Clock.After(wait)
		select {
		case <-again:
		case <-ctx.Done():
		}
		stop()
		if ctx.Err() != nil {
			break
		}
	}
	c.setStatus(func(st *Status) { st.State, st.Reason = Closed, ErrClosed })
	c.subs.closeAll()
}

// use returns the session if it is in one of the states, else why not.
func (c *Client) use(states ...State) (*session, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, st := range states {
		if c.status.State == st && c.current != nil {
			return c.current, nil
		}
	}
	if c.status.State == Closed {
		return nil, fmt.Errorf("p4rt %s: %w", c.cfg.Target, ErrClosed)
	}
	return nil, &NotReadyError{Target: c.cfg.Target, Status: c.status}
}

// useToRead returns a session whose pipeline is known.
func (c *Client) useToRead() (*session, error) {
	s, err := c.use(Ready, Standby, ReadOnly, Reconciling)
	if err != nil {
		return nil, err
	}
	if s.program() == nil {
		return nil, fmt.Errorf("p4rt %s: %w: the switch has no pipeline yet", c.cfg.Target, ErrNotReady)
	}
	return s, nil
}

// Catalog returns the objects of the program on the switch, once the session knows it.
func (c *Client) Catalog() (*p4values.Catalog, error) {
	s, err := c.useToRead()
	if err != nil {
		return nil, err
	}
	return s.program().catalog, nil
}

// Capabilities are what was found out about the switch.
type Capabilities struct {
	Version       string // of P4Runtime; "1.0" where the switch knows no Capabilities
	PacketReadout bool   // the program carries the read-out control
	Registers     bool   // RegisterEntry reads work
	RegisterError error  // why not
}

// Capabilities returns what the session found out about the switch and its program.
func (c *Client) Capabilities() (Capabilities, error) {
	s, err := c.useToRead()
	if err != nil {
		return Capabilities{}, err
	}
	p := s.program()
	return Capabilities{Version: s.version, PacketReadout: p.readout != nil, Registers: p.registerErr == nil, RegisterError: p.registerErr}, nil
}

// lost wraps the error of a call whose session ended meanwhile.
func (s *session) lost(err error) error {
	if cause := context.Cause(s.ctx); cause != nil && !errors.Is(err, ErrSessionLost) {
		return fmt.Errorf("%w: %w", ErrSessionLost, cause)
	}
	return err
}
