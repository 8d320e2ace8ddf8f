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

// Mode says whether a client controls a switch.
type Mode uint8

const (
	// Primary bids to be the role's primary controller: it writes, reads and exchanges packets.
	Primary Mode = iota
	// Backup never bids: it only reads, next to another controller that writes.
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
	Name         string             // name in messages
	DeviceConfig []byte             // target's format; for BMv2 and the soft switch the BMv2 JSON
	P4Info       *p4configv1.P4Info //
	Cookie       uint64             // 0 derives the cookie from the two fields above
}

// Same reports whether two programs have the same contents. nil, which keeps the switch's program,
// equals only nil.
func (p *Program) Same(other *Program) bool {
	if p == nil || other == nil || p == other {
		return p == other
	}
	return bytes.Equal(p.DeviceConfig, other.DeviceConfig) && proto.Equal(p.P4Info, other.P4Info)
}

// Backoff bounds the waits between sessions: Min at first, twice as long after each failure, at
// most Max. Each wait is shortened by a random part of up to half.
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

// Config names the switch and how to drive it. Target and DeviceID are required; for other fields,
// zero selects the default.
type Config struct {
	Target     string     // host:port, or any gRPC target
	DeviceID   uint64     // P4Runtime's number of the switch, not 0
	Mode       Mode       //
	ElectionID ElectionID // first bid of a Primary; zero means 1
	// Bid returns a Primary's bid after the switch has reported the highest election id, and false
	// for no bid. vacant reports that there is no primary. With nil, a Primary bids only if there is
	// no primary: the higher one of the highest id and its own.
	Bid     func(highest ElectionID, vacant bool) (bid ElectionID, ok bool)
	Role    string      // "" is the default role, which has no restrictions
	Yields  bool        // a Primary bids only if there is no primary, until it has been the primary once
	TLS     *tls.Config // nil: plaintext; mutual TLS if it has a certificate
	Program *Program    // nil keeps the switch's pipeline and reads its P4Info

	CallTimeout     time.Duration // each unary call, default 10 s
	PipelineTimeout time.Duration // pushing a pipeline, default 60 s
	ReadTimeout     time.Duration // a whole streamed read, default 60 s
	// time after which a read-out request without a reply counts as lost; default 2 s
	ReadoutTimeout time.Duration
	// interval at which a client that is not the primary checks for a new pipeline; default 2 s
	PipelinePoll time.Duration
	Backoff      Backoff // default 100 ms to 10 s

	MaxBatchBytes int // bytes of a Write request, default 3.5 MB; targets refuse 4 MiB

	// Reconcile corrects the entries on the switch with [Client.Reconcile]. It is called in each
	// session of a Primary when the pipeline is known and before the session is Ready. After
	// [ErrRefused], the session becomes Ready nevertheless, and the error is its status's reason; any
	// other error ends the session. nil leaves the entries as they are.
	Reconcile func(ctx context.Context, c *Client) error

	DialOptions []grpc.DialOption // options of the connection, applied after the client's own

	Logger *slog.Logger // nil disables logging
	Clock  Clock        // nil: the wall clock

	claims bool // ElectionID was given: the client bids no other id while another client uses it
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
