// SPDX-License-Identifier: Apache-2.0

// Command hostagent-hello is a host agent with a role of its own: it counts the packets and bytes
// that the host sends and receives in each epoch.
package main

import (
	"fmt"

	"github.com/netsketch/netsketch/hostagent/command"
	"github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/hostagent/role"
)

func main() {
	command.Main("1.0", command.Role{Name: "hello", New: newCounter})
}

func newCounter(clock *epoch.Clock) role.Role {
	return &counter{clock: clock, epochs: map[uint64]counts{}}
}

// counts are the packets and bytes of one epoch.
type counts struct{ packetsOut, bytesOut, packetsIn, bytesIn int }

// counter counts by the epoch of the clock.
type counter struct {
	clock  *epoch.Clock
	epochs map[uint64]counts
}

func (c *counter) Name() string       { return "hello" }
func (c *counter) Apply([]byte) error { return nil }

func (c *counter) Out(frames []*packet.Frame) {
	n := c.epochs[c.clock.Current()]
	for _, f := range frames {
		n.packetsOut++
		n.bytesOut += len(f.Bytes())
	}
	c.epochs[c.clock.Current()] = n
}

func (c *counter) In(frames []*packet.Frame) {
	n := c.epochs[c.clock.Current()]
	for _, f := range frames {
		n.packetsIn++
		n.bytesIn += len(f.Bytes())
	}
	c.epochs[c.clock.Current()] = n
}

// Observes states that In and Out change no packet (role.Observer). Remove it if they do.
func (c *counter) Observes() {}

// kept bounds the epochs that the collector has not requested.
const kept = 16

func (c *counter) Seal(e uint64) role.Report {
	if e >= c.clock.Current() {
		return nil
	}
	n := c.epochs[e]
	for old := range c.epochs {
		if old == e || old+kept < e {
			delete(c.epochs, old)
		}
	}
	return report{n}
}

type report struct{ counts }

// Append writes JSON; the role and its plugin define the format.
func (r report) Append(b []byte) []byte {
	return fmt.Appendf(b, `{"packetsOut":%d,"bytesOut":%d,"packetsIn":%d,"bytesIn":%d}`,
		r.packetsOut, r.bytesOut, r.packetsIn, r.bytesIn)
}

func (report) Release() {}
