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
	command.Main("1.0", command.Role{Name: "hello", New: newHello})
}

func newHello(clock *epoch.Clock) role.Role {
	return &hello{clock: clock, epochs: map[uint64]counts{}}
}

// counts are the packets and bytes of one epoch.
type counts struct{ packetsOut, bytesOut, packetsIn, bytesIn int }

// hello counts by the epoch of the clock.
type hello struct {
	clock  *epoch.Clock
	epochs map[uint64]counts
}

func (h *hello) Name() string       { return "hello" }
func (h *hello) Apply([]byte) error { return nil }

func (h *hello) Out(frames []*packet.Frame) {
	c := h.epochs[h.clock.Current()]
	for _, f := range frames {
		c.packetsOut++
		c.bytesOut += len(f.Bytes())
	}
	h.epochs[h.clock.Current()] = c
}

func (h *hello) In(frames []*packet.Frame) {
	c := h.epochs[h.clock.Current()]
	for _, f := range frames {
		c.packetsIn++
		c.bytesIn += len(f.Bytes())
	}
	h.epochs[h.clock.Current()] = c
}

// kept bounds the epochs that the collector has not requested.
const kept = 16

func (h *hello) Seal(e uint64) role.Report {
	if e >= h.clock.Current() {
		return nil
	}
	c := h.epochs[e]
	for old := range h.epochs {
		if old == e || old+kept < e {
			delete(h.epochs, old)
		}
	}
	return report{c}
}

type report struct{ counts }

// Append writes JSON; the role and its plugin define the format.
func (r report) Append(b []byte) []byte {
	return fmt.Appendf(b, `{"packetsOut":%d,"bytesOut":%d,"packetsIn":%d,"bytesIn":%d}`,
		r.packetsOut, r.bytesOut, r.packetsIn, r.bytesIn)
}

func (report) Release() {}
