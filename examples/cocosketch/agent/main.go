// SPDX-License-Identifier: Apache-2.0

// Command hostagent-cocosketch is a host agent with a role of its own: it counts the packets that
// arrive at the host in the slots of p4/own.p4.
package main

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/netsketch/netsketch/hostagent/command"
	"github.com/netsketch/netsketch/hostagent/epoch"
	"github.com/netsketch/netsketch/hostagent/packet"
	"github.com/netsketch/netsketch/hostagent/role"
	"github.com/netsketch/netsketch/sketch/flow"

	"example.com/netsketch-plugin-cocosketch/slots"
)

func main() { command.Main("0.1.0", command.Role{Name: "cocosketch", New: newRole}) }

func newRole(clock *epoch.Clock) role.Role {
	return &receiver{clock: clock, epochs: map[uint64]*slots.Sketch{}}
}

// receiver counts by the epoch of the clock.
type receiver struct {
	clock  *epoch.Clock
	slots  int // of one array; 0 without settings
	epochs map[uint64]*slots.Sketch
	key    flow.Key
}

func (r *receiver) Name() string { return "cocosketch" }

// maxSlots bounds the settings.
const maxSlots = 1 << 20

// Apply receives the number of slots of an array.
func (r *receiver) Apply(settings []byte) error {
	n, err := strconv.Atoi(string(settings))
	if err != nil || n < 1 || n > maxSlots {
		return fmt.Errorf("%q is not a number of slots from 1 to %d", settings, maxSlots)
	}
	r.slots = n
	clear(r.epochs)
	return nil
}

func (r *receiver) In(frames []*packet.Frame) {
	if r.slots == 0 {
		return
	}
	sketch := r.at(r.clock.Current())
	for _, f := range frames {
		if packet.Flow(&r.key, f.Bytes()) == nil {
			sketch.Count(&r.key)
		}
	}
}

func (r *receiver) Out([]*packet.Frame) {}

// Observes states that In and Out change no packet (role.Observer). Remove it if they do.
func (r *receiver) Observes() {}

// at returns the sketch of an epoch.
func (r *receiver) at(e uint64) *slots.Sketch {
	if r.epochs[e] == nil {
		r.epochs[e] = slots.New(r.slots, e)
	}
	return r.epochs[e]
}

// kept bounds the epochs that the collector has not requested.
const kept = 4

func (r *receiver) Seal(e uint64) role.Report {
	if e >= r.clock.Current() || r.slots == 0 {
		return nil
	}
	sketch := r.at(e)
	for old := range r.epochs {
		if old == e || old+kept < e {
			delete(r.epochs, old)
		}
	}
	return report{sketch}
}

type report struct{ *slots.Sketch }

// Append appends the cells, little-endian.
func (r report) Append(b []byte) []byte {
	for _, cell := range r.Cells {
		b = binary.LittleEndian.AppendUint32(b, cell)
	}
	return b
}

func (report) Release() {}
