// SPDX-License-Identifier: Apache-2.0

// Package wire defines what a host that runs the role univmon and the UnivMon plugin exchange: the
// settings that the plugin sends, and the report of one epoch that the host returns. The collector
// passes both on as bytes.
package wire

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/netsketch/netsketch/hostagent/varint"
	"github.com/netsketch/netsketch/sketch/flow"
	"github.com/netsketch/netsketch/sketch/universal"
)

// Role is the name of the host role.
const Role = "univmon"

// Packets states which packets are counted, and by which of their headers.
type Packets struct {
	// Sent selects packets that leave the host, Received packets that arrive. At least one of the two
	// is set.
	Sent     bool `json:"sent,omitempty"`
	Received bool `json:"received,omitempty"`
	// Encapsulation selects the IP header whose flow a packet has; empty: EncapsulationSwitch.
	Encapsulation Encapsulation `json:"encapsulation,omitempty"`
}

// Settings configure the role UnivMon at one host.
type Settings struct {
	Packets
	// Sketches are the shapes of the sketches, 1 to MaxSketches, each with another key.
	Sketches []universal.Layout `json:"sketches"`
}

// Encapsulation selects one of a packet's IP headers.
type Encapsulation string

// The encapsulations. EncapsulationSwitch selects the IP header that the P4 programs measure, which
// may follow a few VLAN tags and MPLS labels or a PPPoE session. EncapsulationOuter selects the
// first IP header behind any number of these, EncapsulationInner the last one, also in tunnels, and
// EncapsulationSwitchInner the one that the P4 programs measure if they measure inner flows.
// docs/univmon.md has the rules.
const (
	EncapsulationSwitch      Encapsulation = "switch"
	EncapsulationOuter       Encapsulation = "outer"
	EncapsulationInner       Encapsulation = "inner"
	EncapsulationSwitchInner Encapsulation = "switch-inner"
)

// Encapsulations lists all encapsulations.
var Encapsulations = []Encapsulation{EncapsulationSwitch, EncapsulationOuter, EncapsulationInner,
	EncapsulationSwitchInner}

// MaxSketches is the largest count of sketches.
const MaxSketches = 8

// maxBytes bounds the cells of all sketches.
const maxBytes = 64 << 20

// Sketch returns the shape of a host's sketch in a network whose switches have no sketch of the
// key: the shape of the key in the P4 program univmon, and for other keys the shape of its
// 5-tuples.
func Sketch(key flow.Fields) universal.Layout {
	l := universal.Layout{Key: key, Levels: 16, Rows: 3, Columns: 2048, Ways: 4, Slots: 128}
	switch key {
	case flow.Src:
		l.Slots = 64
	case flow.Dst:
		l.Columns, l.Slots = 896, 64
	}
	return l
}

// Sketches returns the shapes of the sketches of the P4 program univmon.
func Sketches() []universal.Layout {
	return []universal.Layout{Sketch(flow.Src), Sketch(flow.Dst), Sketch(flow.FiveTuple)}
}

// ParseSettings decodes and checks settings.
func ParseSettings(data []byte) (*Settings, error) {
	s := new(Settings)
	err := json.Unmarshal(data, s)
	if err == nil && !s.Sent && !s.Received {
		err = errors.New("neither sent nor received packets are counted")
	}
	if s.Encapsulation == "" {
		s.Encapsulation = EncapsulationSwitch
	}
	if err == nil && !slices.Contains(Encapsulations, s.Encapsulation) {
		err = fmt.Errorf("encapsulation %q; expected one of %v", s.Encapsulation, Encapsulations)
	}
	if err == nil {
		err = check(s.Sketches)
	}
	if err != nil {
		return nil, fmt.Errorf("settings of role %s: %w", Role, err)
	}
	return s, nil
}

// check returns why these are not the sketches of a host.
func check(sketches []universal.Layout) error {
	if n := len(sketches); n < 1 || n > MaxSketches {
		return fmt.Errorf("%d sketches; expected 1 to %d", n, MaxSketches)
	}
	bytes, seen := 0, map[flow.Fields]bool{}
	for _, l := range sketches {
		if err := l.Validate(); err != nil {
			return err
		}
		if seen[l.Key] {
			return fmt.Errorf("two sketches of %v; expected one", l.Key)
		}
		seen[l.Key] = true
		if bytes += l.Bytes(); bytes > maxBytes {
			return fmt.Errorf("sketches of more than %d bytes", maxBytes)
		}
	}
	return nil
}

// Append appends the encoded settings.
func (s *Settings) Append(b []byte) ([]byte, error) {
	data, err := json.Marshal(s)
	return append(b, data...), err
}

// Counter counts packets of an epoch in the directions that settings name.
type Counter int

// The counters. Packets from NotIP to TooDeep are in no sketch.
const (
	Sent        Counter = iota // packets that left the host
	Received                   // packets that arrived at the host
	NotIP                      // neither IPv4 nor IPv6 behind the headers that Encapsulation follows
	Truncated                  // a header is cut off
	BadVersion                 // the IP version differs from the EtherType
	BadLength                  // an IPv4 header shorter than 20 bytes
	BadChecksum                // packets with a bad checksum in an IPv4 header
	TooDeep                    // packets with headers of more than 256 bytes, or more headers than switches parse
	Missed                     // epochs whose report was not requested in time
	Counters
)

var counterNames = [Counters]string{"sent", "received", "not-ip", "truncated", "bad-version", "bad-length",
	"bad-checksum", "too-deep", "missed-epochs"}

// String returns the name of a counter, such as "bad-checksum".
func (c Counter) String() string { return counterNames[c] }

// Report is a host's report of an epoch.
type Report struct {
	Epoch    uint64
	Packets  Packets // selection of packets in the settings
	Counters [Counters]uint64
	// Sketches are in the order of the settings.
	Sketches []*universal.Sketch
}

// A report is
//
//	version   byte
//	epoch
//	packets   bit 0 sent, bit 1 received, from bit 2 the place in Encapsulations
//	counters  a count, then counters
//	sketches  a count, then sketches: key, levels, rows, columns, ways, slots, and then its counters,
//	          heavy-key slots and packets by level as universal.AppendCells appends them
//
// Integers are unsigned varints.
const version = 2

// Append appends the encoded report.
func (r *Report) Append(b []byte) []byte {
	packets := uint64(max(0, slices.Index(Encapsulations, r.Packets.Encapsulation))) << 2
	if r.Packets.Sent {
		packets |= 1
	}
	if r.Packets.Received {
		packets |= 2
	}
	b = varint.AppendCounters(varint.Append(append(b, version), r.Epoch, packets), r.Counters[:])
	b = varint.Append(b, uint64(len(r.Sketches)))
	for _, s := range r.Sketches {
		l := s.Layout()
		for _, n := range []int{int(l.Key), l.Levels, l.Rows, l.Columns, l.Ways, l.Slots} {
			b = varint.Append(b, uint64(n))
		}
	}
	for _, s := range r.Sketches {
		for _, cells := range [][]uint32{s.Counters(), s.Heavy(), s.Packets()} {
			b = universal.AppendCells(b, cells)
		}
	}
	return b
}

// ParseReport decodes and checks a report.
func ParseReport(b []byte) (*Report, error) {
	r, err := parseReport(b)
	if err != nil {
		return nil, fmt.Errorf("report of role %s: %w", Role, err)
	}
	return r, nil
}

func parseReport(b []byte) (*Report, error) {
	if len(b) == 0 || b[0] != version {
		return nil, fmt.Errorf("%.1x is no version of it; expected %d", b, version)
	}
	p := &varint.Reader{Rest: b[1:]}
	r := &Report{Epoch: p.U64()}
	packets := p.U64()
	if packets>>2 >= uint64(len(Encapsulations)) {
		return nil, fmt.Errorf("no encapsulation has the number %d; expected one below %d", packets>>2, len(Encapsulations))
	}
	r.Packets = Packets{Sent: packets&1 != 0, Received: packets&2 != 0, Encapsulation: Encapsulations[packets>>2]}
	p.Counters(r.Counters[:])
	n := p.U64()
	if n > MaxSketches {
		return nil, fmt.Errorf("%d sketches; expected 1 to %d", n, MaxSketches)
	}
	layouts := make([]universal.Layout, n)
	for i := range layouts {
		l := &layouts[i]
		l.Key = flow.Fields(min(p.U64(), 0xff))
		for _, to := range []*int{&l.Levels, &l.Rows, &l.Columns, &l.Ways, &l.Slots} {
			*to = int(min(p.U64(), maxBytes))
		}
	}
	if err := cmp.Or(p.Err(), check(layouts)); err != nil {
		return nil, err
	}
	for _, l := range layouts {
		s, err := universal.New(l)
		if err != nil {
			return nil, err
		}
		for _, cells := range [][]uint32{s.Counters(), s.Heavy(), s.Packets()} {
			if p.Rest, err = universal.ReadCells(cells, p.Rest); err != nil {
				return nil, fmt.Errorf("sketch of %v: %w", l.Key, err)
			}
		}
		r.Sketches = append(r.Sketches, s)
	}
	p.End()
	return r, p.Err()
}
