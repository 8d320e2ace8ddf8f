// SPDX-License-Identifier: Apache-2.0

package p4rt

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

// Mode is what a client is to a switch.
type Mode uint8

const (
	// Primary bids for being the role's primary controller: it writes, reads, and exchanges packets.
	Primary Mode = iota
	// Backup never bids: it reads only, beside a controller that owns the forwarding.
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
	DeviceConfig []byte             // what the target wants; BMv2 and the soft switch: the BMv2 JSON
	P4Info       *p4configv1.P4Info //
	Cookie       uint64             // 0: derived from the two above
}

// Backoff is how long a client waits before it connects again: Min doubled each time, at most Max, less a random part of up to half.
type Backoff struct{ Min, Max time.Duration }

// Clock is where the client takes waiting times from. Deadlines of calls are always the wall clock's.
type Clock interface {
	Now() time.Time
	// After returns a channel that gets a value after d, and a function that gives up waiting.
	After(d time.Duration) (<-chan time.Time, func())
}

// Config says which switch to drive and how. Target and DeviceID are required; a zero value elsewhere stands for the default.
type Config struct {
	Target     string      // host:port, or any gRPC target
	DeviceID   uint64      // the switch's number, not 0
	Mode       Mode        //
	ElectionID ElectionID  // the first bid of a Primary; zero stands for 1
	Yield      bool        // where another controller has the election id, wait until it is gone and do not bid higher
	Role       string      // "": the default role, which may do everything
	TLS        *tls.Config // nil: plaintext. With a certificate in it: mutual TLS
	Program    *Program    // nil: whatever runs on the switch is kept, and its P4Info read from it

	CallTimeout     time.Duration // each unary call, default 10 s
	PipelineTimeout time.Duration // pushing a pipeline, default 60 s
	ReadTimeout     time.Duration // a whole streamed read, default 60 s
	ReadoutTimeout  time.Duration // a read-out request without its reply is lost after so long; default 2 s
	PipelinePoll    time.Duration // how often a Backup, or a Primary in Standby, looks whether the pipeline is another; default 2 s
	Backoff         Backoff       // default 100 ms to 10 s

	MaxBatchBytes int // greatest Write request, default 3.5 MB; targets refuse 4 MiB

	Logger *slog.Logger // nil: discards
	Clock  Clock        // nil: the wall clock
	Rand   *rand.Rand   // jitter; nil: seeded from the system. The client uses it from one goroutine
}

// withDefaults checks the configuration and fills in what was left out.
func (c Config) withDefaults() (Config, error) {
	if c.Target == "" {
		return c, errors.New("p4rt: no target (host:port of the switch's P4Runtime service)")
	}
	if c.DeviceID == 0 {
		return c, fmt.Errorf("p4rt %s: device id 0 is not valid in P4Runtime; ask the switch's operator for its id", c.Target)
	}
	if c.Mode == Primary && c.ElectionID == (ElectionID{}) {
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
	if c.Rand == nil {
		c.Rand = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	return c, nil
}

func setDefault[T int | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// delay returns how long to wait before try number n, counted from 0.
func (b Backoff) delay(n int, r *rand.Rand) time.Duration {
	d := b.Max
	if n < 30 && b.Min<<n < b.Max && b.Min<<n > 0 {
		d = b.Min << n
	}
	return d - time.Duration(r.Int64N(int64(d)/2+1))
}

// wallClock is the clock on the wall.
type wallClock struct{}

func (wallClock) Now() time.Time { return time.Now() }

func (wallClock) After(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}
