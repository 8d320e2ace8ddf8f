// SPDX-License-Identifier: Apache-2.0

// Package afport gives a soft switch ports on network interfaces of the machine: one
// end of a veth pair, or a network card. It takes every frame that arrives there and
// sends what leaves the switch, over an AF_PACKET socket with a TPACKET_V3 ring. That
// needs Linux, and CAP_NET_RAW (root has it).
//
// The interface belongs to the kernel as well: give it no address, or the kernel
// answers beside the switch. A kernel that sends into the other end of a veth pair
// leaves checksums and segmentation to the card that is not there; on that end switch
// them off:
//
//	ethtool -K veth1 tx off tso off gso off
//
// A port goes down with its interface, and up again with it. It may be used from any
// goroutine; it has one of its own, in which packets that arrive run through the
// switch.
package afport

import (
	"errors"
	"fmt"
	"log/slog"
)

// ErrUnsupported: there is no AF_PACKET on this system.
var ErrUnsupported = errors.New("AF_PACKET ports need Linux")

// Config says what a port is made of.
type Config struct {
	Interface string       // of this machine, in the network namespace of the caller's thread
	Name      string       // of the port; "": the interface's
	RingBytes int          // room for frames that have arrived and wait, 4 MiB at least; 0: 8 MiB
	Logger    *slog.Logger // nil: discards
}

// Stats count the frames of a port.
type Stats struct {
	Received  uint64 // and injected
	Truncated uint64 // received, longer than a block of the ring (1 MiB), and not injected
	Lost      uint64 // by the kernel: the ring was full
	Sent      uint64
	Unsent    uint64 // the kernel refused them: longer than the interface's MTU, interface down
}

const (
	blockBytes       = 1 << 20
	leastRingBytes   = 4 * blockBytes // the kernel fills one block while another is read
	defaultRingBytes = 8 << 20
)

// withDefaults checks the configuration and fills it in.
func (c Config) withDefaults() (Config, error) {
	if c.Interface == "" {
		return c, errors.New("no interface is named")
	}
	if c.Name == "" {
		c.Name = c.Interface
	}
	switch {
	case c.RingBytes == 0:
		c.RingBytes = defaultRingBytes
	case c.RingBytes < leastRingBytes:
		return c, fmt.Errorf("a ring of %d bytes: %d are the least", c.RingBytes, leastRingBytes)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}
