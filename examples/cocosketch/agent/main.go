// SPDX-License-Identifier: Apache-2.0

// Command hostagent-cocosketch is a host agent with a role of its own: it counts the packets that
// the host sends in the slots of p4/own.p4.
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
	return &sender{clock: clock, epochs: map[uint64]*slots.Sketch{}}
}

// sender counts by the epoch of the clock.
type sender struct {
	clock  *epoch.Clock
	slots  int // of one array; 0 without settings
	epochs map[uint64]*slots.Sketch
	key    flow.Key
}

func (s *sender) Name() string { return "cocosketch" }

// maxSlots bounds the settings.
const maxSlots = 1 << 20

// Apply receives the number of slots of an array.
func (s *sender) Apply(settings []byte) error {
	n, err := strconv.Atoi(string(settings))
	if err != nil || n < 1 || n > maxSlots {
		return fmt.Errorf("%q is not a number of slots from 1 to %d", settings, maxSlots)
	}
	s.slots = n
	clear(s.epochs)
	return nil
}

func (s *sender) Out(frames []*packet.Frame) {
	if s.slots == 0 {
		return
	}
	sketch := s.at(s.clock.Current())
	for _, f := range frames {
		if packet.Flow(&s.key, f.Bytes()) == nil {
			sketch.Count(&s.key)
		}
	}
}

func (s *sender) In([]*packet.Frame) {}

// at returns the sketch of an epoch.
func (s *sender) at(e uint64) *slots.Sketch {
	if s.epochs[e] == nil {
		s.epochs[e] = slots.New(s.slots, e)
	}
	return s.epochs[e]
}

// kept bounds the epochs that the collector has not requested.
const kept = 4

func (s *sender) Seal(e uint64) role.Report {
	if e >= s.clock.Current() || s.slots == 0 {
		return nil
	}
	sketch := s.at(e)
	for old := range s.epochs {
		if old == e || old+kept < e {
			delete(s.epochs, old)
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
