// SPDX-License-Identifier: Apache-2.0

// Package afport gives a soft switch ports on network interfaces of the machine: one end of a veth
// pair, or a network card. A port receives every frame of the interface and sends the packets of
// the switch, over an AF_PACKET socket with a TPACKET_V3 ring. It requires Linux and CAP_NET_RAW
// (root has it).
//
// The kernel uses the interface as well: give it no address, otherwise the kernel replies next to
// the switch. The switch gets frames as they are on the wire: a port splits packets that the kernel
// merged when they arrived, or that a sender at the other end of a veth pair left for a device to
// segment, and completes checksums.
//
// A port goes down and up with its interface. It may be used from any goroutine; received packets
// run through the switch in its own goroutine.
package afport

import (
	"errors"
	"fmt"
	"log/slog"
)

// ErrUnsupported is the error of systems without AF_PACKET.
var ErrUnsupported = errors.New("AF_PACKET ports need Linux")

// Config is the configuration of a port.
type Config struct {
	Interface string // interface of this machine, in the network namespace of the caller's thread
	Name      string // name of the port; "" takes the interface's name
	RingBytes int    // buffer for received frames, at least 4 MiB; 0: 8 MiB
	// Watch makes a port that only observes the machine's own traffic: it receives the frames that
	// this machine sends, too, without promiscuous mode, and sends nothing. On a loopback interface
	// each frame is received once.
	Watch  bool
	Logger *slog.Logger // nil: discards
}

// Stats count the frames of a port.
type Stats struct {
	Received  uint64 // frames that were received and injected
	Truncated uint64 // received, longer than a block of the ring (128 KiB), and not injected
	Unsplit   uint64 // merged in a way that cannot be undone, and not injected
	Lost      uint64 // frames that the kernel lost because the ring was full
	Sent      uint64
	Unsent    uint64 // the kernel refused them: longer than the MTU, interface down; or a port with Watch
}

const (
	// The kernel hands over a block after a millisecond, even with one frame, so the count of blocks
	// is the time in milliseconds for which a port may wait for a processor without losing frames.
	blockBytes       = 128 << 10
	leastRingBytes   = 32 * blockBytes
	defaultRingBytes = 8 << 20
)

// withDefaults checks the configuration and sets defaults.
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
