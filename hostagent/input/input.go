// SPDX-License-Identifier: Apache-2.0

// Package input brings packets to roles in Go: from two network interfaces between which it
// forwards, or from a capture file.
package input

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/hostagent/role"
)

// ErrUnsupported is the error of systems without AF_PACKET.
var ErrUnsupported = errors.New("forwarding between interfaces needs Linux")

// batch is the largest count of packets that a role receives at a time.
const batch = 64

// Path receives packets in their order, and may change or drop them. agent.RolePath implements it.
type Path interface {
	Out(frames []*packet.Frame)
	In(frames []*packet.Frame)
	// Lane returns a receiver of packets that arrive, for one goroutine.
	Lane() role.Lane
}

// Transmitter is implemented by paths that send packets of their own, which leave a bridge as they
// are. agent.RolePath implements it.
type Transmitter interface {
	// OnTransmit passes packets to f; nil: the caller sends none.
	OnTransmit(f func(frame []byte))
}

// paths passes packets through the roles of a host: outgoing packets in the order of the roles,
// arriving packets in the reverse order.
type paths []Path

func (p paths) out(frames []*packet.Frame) {
	for _, x := range p {
		x.Out(frames)
	}
}

// lane returns a function that passes arriving packets through a lane of each role.
func (p paths) lane() func(frames []*packet.Frame) {
	var lanes []role.Lane
	for _, x := range slices.Backward(p) {
		lanes = append(lanes, x.Lane())
	}
	return func(frames []*packet.Frame) {
		for _, l := range lanes {
			l.In(frames)
		}
	}
}

func (p paths) in(frames []*packet.Frame) {
	for i := len(p) - 1; i >= 0; i-- {
		p[i].In(frames)
	}
}

// Bridge forwards between two interfaces: packets from Inside leave the host, packets from Outside
// arrive. Neither interface may have an address.
type Bridge struct {
	Inside, Outside string
	// Sockets is the count of sockets, and of goroutines, that receive packets from Outside. The
	// kernel distributes them by addresses and ports. 0 stands for 1.
	Sockets int
	Logger  *slog.Logger // nil disables logging
}

// Stats counts the packets of a bridge.
type Stats struct {
	// Out and In were forwarded.
	Out, In uint64
	// Unsent could not be sent: the kernel refused them, as it does with frames beyond the MTU.
	Unsent uint64
	// Lost were dropped by the kernel before they were read.
	Lost uint64
	// Truncated were longer than 512 KiB, and were not forwarded.
	Truncated uint64
	// Unsplit were merged by the kernel or a device in a way that cannot be undone, and were not
	// forwarded.
	Unsplit uint64
	// Outages is how many times an interface went down, so that nothing was forwarded until both
	// were up.
	Outages uint64
}

// logEvery is the time between two lines of the log about packets that are not forwarded.
const logEvery = 10 * time.Second

// counts are the counters of a bridge, which logs packets that it does not forward while it runs.
type counts struct {
	logger *slog.Logger

	mu      sync.Mutex
	stats   Stats
	reasons map[string]uint64 // Unsent by reason
	logged  time.Time
	failed  uint64 // number of failures that were logged
}

func newCounts(logger *slog.Logger) *counts {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &counts{logger: logger, reasons: map[string]uint64{}}
}

// add changes the counts.
func (c *counts) add(f func(s *Stats)) {
	c.mu.Lock()
	f(&c.stats)
	c.mu.Unlock()
	c.log(false)
}

// log logs the packets that were not forwarded, if there are more than before, at most once in
// logEvery unless it is the last time.
func (c *counts) log(last bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	failed := c.stats.Unsent + c.stats.Truncated + c.stats.Unsplit
	if failed == c.failed || !last && time.Since(c.logged) < logEvery {
		return
	}
	c.failed, c.logged = failed, time.Now()
	c.logger.Warn("packets are not forwarded", "unsent", c.stats.Unsent, "reasons", c.reasons,
		"truncated", c.stats.Truncated, "unsplit", c.stats.Unsplit)
}

// Capture plays a capture file at the pace of its dates.
type Capture struct {
	// File is the name of a pcap file.
	File string
	// Addresses are the host's: packets from them leave it, others arrive.
	Addresses []netip.Prefix
	// Logger receives the differences between the played packets and the file's; it may be nil.
	Logger *slog.Logger
}

// pace waits until a packet is due.
type pace struct {
	first, began time.Time
}

func (p *pace) wait(ctx context.Context, date time.Time) error {
	if p.first.IsZero() {
		p.first, p.began = date, time.Now()
	}
	left := time.Until(p.began.Add(date.Sub(p.first)))
	if left <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leaves reports whether a frame is from one of the addresses.
func leaves(frame []byte, addresses []netip.Prefix) bool {
	link, err := packet.ParseLink(frame)
	if err != nil {
		return false
	}
	source := link.Source(frame)
	for _, p := range addresses {
		if p.Contains(source) {
			return true
		}
	}
	return false
}
