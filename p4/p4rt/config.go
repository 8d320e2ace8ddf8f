// SPDX-License-Identifier: Apache-2.0

package p4rt

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"
	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

// Mode is the part of a client in the control of a switch.
type Mode uint8

const (
	// Primary bids to be the role's primary controller: it writes, reads and exchanges packets.
	Primary Mode = iota
	// Backup never bids: it only reads, next to a controller that owns the forwarding.
	Backup
)

// String returns "primary" or "backup".
func (m Mode) String() string {
	if m == Backup {
		return "backup"
	}
	return "primary"
}

// Program is a pipeline to run on a switch.
type Program struct {
	Name         string             // for messages
	DeviceConfig []byte             // in the target's format; for BMv2 and the soft switch the BMv2 JSON
	P4Info       *p4configv1.P4Info //
	Cookie       uint64             // 0: derived from the two above
}

// Same reports that two programs have the same contents; nil, the program that a switch has anyway,
// is the same as nil alone.
func (p *Program) Same(other *Program) bool {
	if p == nil || other == nil || p == other {
		return p == other
	}
	return bytes.Equal(p.DeviceConfig, other.DeviceConfig) && proto.Equal(p.P4Info, other.P4Info)
}

// Backoff bounds the waits between sessions: Min at first, twice as long after each failure, at
// most Max. A random part of up to half is taken off each wait.
type Backoff struct{ Min, Max time.Duration }

// waits returns the sequence of waits.
func (b Backoff) waits() *backoff.ExponentialBackOff {
	return &backoff.ExponentialBackOff{
		InitialInterval: b.Min * 3 / 4, MaxInterval: b.Max * 3 / 4, Multiplier: 2, RandomizationFactor: 1.0 / 3,
	}
}

// Clock times the client's waits. Deadlines of calls are always on the wall clock.
type Clock interface {
	Now() time.Time
	// After returns a channel that receives a value after d, and a function that ends the wait.
	After(d time.Duration) (<-chan time.Time, func())
}

// Config names the switch and how to drive it. Target and DeviceID are required; other zero values
// stand for the default.
type Config struct {
	Target     string     // host:port, or any gRPC target
	DeviceID   uint64     // P4Runtime's number of the switch, not 0
	Mode       Mode       //
	ElectionID ElectionID // first bid of a Primary; zero stands for 1
	// Bid returns what a Primary bids after the switch has reported the highest election id, and
	// false if it does not bid; vacant: there is no primary. nil: only then, the highest id or its
	// own bid, whichever is higher.
	Bid     func(highest ElectionID, vacant bool) (bid ElectionID, ok bool)
	Role    string      // "": the default role, without restrictions
	Yields  bool        // a Primary bids only when there is no primary, until it was one
	TLS     *tls.Config // nil: plaintext; mutual TLS if it has a certificate
	Program *Program    // nil: the pipeline on the switch is kept and its P4Info read

	CallTimeout     time.Duration // each unary call, default 10 s
	PipelineTimeout time.Duration // pushing a pipeline, default 60 s
	ReadTimeout     time.Duration // a whole streamed read, default 60 s
	ReadoutTimeout  time.Duration // after which a read-out request without a reply is lost, default 2 s
	PipelinePoll    time.Duration // of a client that is not the primary, for a new pipeline; default 2 s
	Backoff         Backoff       // default 100 ms to 10 s

	MaxBatchBytes int // of a Write request, default 3.5 MB; targets refuse 4 MiB

	// Reconcile brings the entries on the switch up to date with [Client.Reconcile]. It is called
	// in each session of a Primary after the pipeline is known and before the session is Ready.
	// After [ErrRefused] the session becomes Ready all the same, with the error as the reason of
	// its status; any other error ends the session. nil: entries stay as they are.
	Reconcile func(ctx context.Context, c *Client) error

	DialOptions []grpc.DialOption // of the connection, after the client's own

	Logger *slog.Logger // nil disables logging
	Clock  Clock        // nil: the wall clock

	claims bool // ElectionID was given: no other one is bid while it is in use
}

// withDefaults checks the configuration and fills in defaults.
func (c Config) withDefaults() (Config, error) {
	if c.Target == "" {
		return c, errors.New("p4rt: no target (host:port of the switch's P4Runtime service)")
	}
	if c.DeviceID == 0 {
		return c, fmt.Errorf("p4rt %s: device id 0 is not valid in P4Runtime; configure the device id of the switch",
			c.Target)
	}
	c.claims = c.ElectionID != (ElectionID{})
	if c.Mode == Primary && !c.claims {
		c.ElectionID = ElectionID{Low: 1}
	}
	if c.Program != nil {
		p := *c.Program
		if p.P4Info == nil || len(p.DeviceConfig) == 0 {
			return c, fmt.Errorf("p4rt %s: program %q needs both P4Info and a device configuration", c.Target, p.Name)
		}
		if p.Cookie == 0 {
			var err error
			if p.Cookie, err = p4values.Cookie(p.DeviceConfig, p.P4Info); err != nil {
				return c, err
			}
		}
		c.Program = &p
	}
	setDefault(&c.CallTimeout, 10*time.Second)
	setDefault(&c.PipelineTimeout, 60*time.Second)
	setDefault(&c.ReadTimeout, 60*time.Second)
	setDefault(&c.ReadoutTimeout, 2*time.Second)
	setDefault(&c.PipelinePoll, 2*time.Second)
	setDefault(&c.Backoff.Min, 100*time.Millisecond)
	setDefault(&c.Backoff.Max, 10*time.Second)
	setDefault(&c.MaxBatchBytes, 3_500_000)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Clock == nil {
		c.Clock = wallClock{}
	}
	return c, nil
}

func setDefault[T int | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// wallClock is the system clock.
type wallClock struct{}

func (wallClock) Now() time.Time { return time.Now() }

func (wallClock) After(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}
