// SPDX-License-Identifier: Apache-2.0

package p4rt

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

// Client is the supervised session with one switch in one role. Make one with [Dial].
type Client struct {
	cfg    Config
	cancel context.CancelFunc
	done   chan struct{} // closed when the supervisor has ended

	mu       sync.Mutex // guards the fields below
	status   Status
	watchers map[chan Status]func() bool // watchers, each with the function that detaches it from its context
	current  *session                    // nil without a session

	stats counters
	// the client was the primary once: an earlier session of its own may still use the election id
	elected atomic.Bool
	seq     seqSource
}

// Dial checks the configuration and starts the session with the switch. It does not wait for the
// switch: see [Client.WaitReady] and [Client.Watch]. The client runs until ctx ends or
// [Client.Close].
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
		status: Status{State: Connecting, Since: cfg.Clock.Now()},
	}
	c.seq.n.Store(rand.Uint32())
	go c.supervise(ctx)
	return c, nil
}

// Close ends the session and waits for its goroutines. It is safe to call more than once.
func (c *Client) Close() error {
	c.cancel()
	<-c.done
	return nil
}

// supervise runs one session after another until ctx ends.
func (c *Client) supervise(ctx context.Context) {
	defer close(c.done)
	bid, yields := c.cfg.ElectionID, c.cfg.Yields
	waits := c.cfg.Backoff.waits()
	for n := uint64(1); ; n++ {
		s := &session{c: c, bid: bid, yields: yields, number: n,
			log: c.cfg.Logger.With("target", c.cfg.Target, "device-id", c.cfg.DeviceID)}
		err := s.run(ctx)
		begins := s.yields && !yields
		bid, yields = s.bid, s.yields
		if ctx.Err() != nil {
			break
		}
		if begins {
			s.log.Info("the election id is in use; the next session is a backup", "error", err)
			continue
		}
		if s.settled {
			c.stats.sessionsLost.Add(1) // a session that was never usable does not count as lost
			waits.Reset()
		}
		wait := waits.NextBackOff()
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
}

// use returns the session if it is in one of the states, otherwise the reason why it is not.
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

// Catalog returns the objects of the program on the switch. It fails with [ErrNotReady] before the
// session has read them.
func (c *Client) Catalog() (*p4values.Catalog, error) {
	s, err := c.useToRead()
	if err != nil {
		return nil, err
	}
	return s.program().catalog, nil
}

// Capabilities are the capabilities of a switch and its program.
type Capabilities struct {
	Version       string // P4Runtime version; "1.0" for a switch without the Capabilities call
	PacketReadout bool   // the program has the read-out control
	Registers     bool   // RegisterEntry reads work
	RegisterError error  // reason for which RegisterEntry reads do not work
}

// Capabilities returns the capabilities that the session has probed.
func (c *Client) Capabilities() (Capabilities, error) {
	s, err := c.useToRead()
	if err != nil {
		return Capabilities{}, err
	}
	p := s.program()
	return Capabilities{
		Version: s.version, PacketReadout: p.readout != nil, Registers: p.registerErr == nil,
		RegisterError: p.registerErr,
	}, nil
}

// lost wraps the error of a call during which the session ended.
func (s *session) lost(err error) error {
	if cause := context.Cause(s.ctx); cause != nil && !errors.Is(err, ErrSessionLost) {
		return fmt.Errorf("%w: %w", ErrSessionLost, cause)
	}
	return err
}
