// SPDX-License-Identifier: Apache-2.0

// Package wire defines the sketchlets that LightGuardian's hosts remove from packets, and what a
// host exchanges with a plugin: the settings that the plugin sends, and the report of one epoch
// that the host returns. The collector passes both on as bytes.
package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/netsketch/netsketch/hostagent/varint"
	"github.com/netsketch/netsketch/sketch/flow"
)

// Role is the name of the host role.
const Role = "lightguardian"

// Settings configure the role LightGuardian at one host.
type Settings struct {
	// Devices are the switches whose sketchlets are kept.
	Devices []Device `json:"devices"`
	// Kept bounds the bytes of the sketchlets that the report of an epoch has; at most 2^30.
	Kept int `json:"kept"`
	// Flows bounds the flows that the report of an epoch has; at most MaxFlows. 0: it has none.
	Flows int `json:"flows"`
	// Interval is the count of epochs of an interval of the devices, 1 to MaxInterval; 0 is 1.
	Interval int `json:"interval,omitempty"`
	// Sketch is the shape of the sketches of all devices, with which a host can answer queries by
	// itself; nil: it cannot.
	Sketch *Sketch `json:"sketch,omitempty"`
}

// Sketch is the shape of the sketches of switches, as the compiled program has it.
type Sketch struct {
	Rows int `json:"rows"`
	// Delays are the lowest delays of the ranges after the first one, in µs.
	Delays []uint32 `json:"delays"`
	Sizes  bool     `json:"sizes"` // cells of flow sizes
	Gaps   bool     `json:"gaps"`  // cells of inter-arrival times
	// Unit is the exponent of the unit of times: 2^Unit µs.
	Unit int `json:"unit"`
}

// words is the count of cells of a sketchlet.
func (s *Sketch) words() int {
	n := len(s.Delays) + 1
	if s.Sizes {
		n++
	}
	if s.Gaps {
		n += 2
	}
	return n * s.Rows
}

// Device is a switch and the shape of its sketch.
type Device struct {
	ID      uint16 `json:"id"`
	Name    string `json:"name,omitempty"` // name of the switch in answers of the host
	Seed    uint32 `json:"seed"`           // factor of the hashes of its sketch, odd
	Columns int    `json:"columns"`
	Words   int    `json:"words"` // cells of a sketchlet
}

// MaxFlows is the largest value of Settings.Flows, MaxInterval of Settings.Interval, MaxDevices of
// the length of Flow.Devices.
const (
	MaxFlows    = 1 << 20
	MaxInterval = 64
	MaxDevices  = 32
)

// maxColumns is the largest number of columns, maxKept the largest value of Kept.
const (
	maxColumns = 1 << 16
	maxWords   = 255
	maxKept    = 1 << 30
	maxUnit    = 16
)

// ParseSettings decodes and checks settings.
func ParseSettings(data []byte) (*Settings, error) {
	s := new(Settings)
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("settings of role %s: %w", Role, err)
	}
	var errs []error
	fail := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("settings of role %s: "+format, append([]any{Role}, args...)...))
	}
	if s.Kept < 0 || s.Kept > maxKept {
		fail("kept: %d bytes; expected 0 to %d", s.Kept, maxKept)
	}
	if s.Flows < 0 || s.Flows > MaxFlows {
		fail("flows: %d; expected 0 to %d", s.Flows, MaxFlows)
	}
	if s.Interval < 0 || s.Interval > MaxInterval {
		fail("interval: %d epochs; expected 1 to %d", s.Interval, MaxInterval)
	}
	if k := s.Sketch; k != nil {
		if k.Rows < 1 || k.Rows > 4 || len(k.Delays) < 1 || len(k.Delays) > 7 || !slices.IsSorted(k.Delays) {
			fail("sketch: %d rows, delays %v; expected 1 to 4 rows, 1 to 7 ascending delays", k.Rows, k.Delays)
		}
		if k.Unit < 0 || k.Unit > maxUnit {
			fail("sketch: unit %d; expected 0 to %d", k.Unit, maxUnit)
		}
	}
	seen := map[uint16]bool{}
	for i, d := range s.Devices {
		if d.Columns < 1 || d.Columns > maxColumns {
			fail("devices[%d]: %d columns; expected 1 to %d", i, d.Columns, maxColumns)
		}
		if d.Words < 1 || d.Words > maxWords {
			fail("devices[%d]: %d words; expected 1 to %d", i, d.Words, maxWords)
		}
		if k := s.Sketch; k != nil && d.Words != k.words() {
			fail("devices[%d]: %d words; the sketch has %d", i, d.Words, k.words())
		}
		if d.Seed != 0 && d.Seed%2 == 0 {
			fail("devices[%d]: seed %d; expected an odd number, or 0 for none", i, d.Seed)
		}
		if seen[d.ID] {
			fail("devices[%d]: device %d is there twice", i, d.ID)
		}
		seen[d.ID] = true
	}
	return s, errors.Join(errs...)
}

// Append appends the encoded settings.
func (s *Settings) Append(b []byte) ([]byte, error) {
	data, err := json.Marshal(s)
	return append(b, data...), err
}

// Counter counts packets and sketchlets of an epoch.
type Counter int

// The counters. Sketchlets from UnknownDevice to Full, and Stale ones, are removed from their
// packets and are not in the report.
const (
	Packets       Counter = iota // IP packets that arrived, with a sketchlet or without
	Sent                         // IP packets that left the host
	Sketchlets                   // sketchlets that were removed
	InBandBytes                  // bytes of the removed sketchlets
	Short                        // packets with the mark whose sketchlet would be longer than the packet
	BadCheck                     // packets with the mark whose check differs
	UnknownDevice                // sketchlets of devices that are not in the settings
	UnknownColumn                // sketchlets of columns that the device does not have
	WrongWords                   // sketchlets with another count of cells
	Duplicates                   // sketchlets that the report has already
	Full                         // sketchlets beyond Kept; in the kernel also beyond the memory for them
	FlowsFull                    // packets of flows beyond Flows; they are in no flow of the report
	Disagreeing                  // sketchlets that replaced other cells of the same column
	Missed                       // epochs whose report was not requested in time
	Stale                        // in the kernel: sketchlets that the agent did not read in time
	Unread                       // in the kernel: packets with the mark that it could not read or change
	NoFlow                       // IP packets whose headers have no valid flow key, if Flows is set
	DevicesFull                  // devices beyond MaxDevices of a flow
	Hidden                       // epochs in which another role hid the flows of packets
	Counters
)

var counterNames = [Counters]string{"packets", "sent", "sketchlets", "in-band-bytes", "short", "bad-check",
	"unknown-device", "unknown-column", "wrong-words", "duplicates", "full", "flows-full", "disagreeing", "missed-epochs",
	"stale", "unread", "no-flow", "devices-full", "hidden-epochs"}

// String returns the name of a counter, such as "bad-check".
func (c Counter) String() string { return counterNames[c] }

// Flow is a flow with packets at the host in an epoch. The switches' sketches hold no keys, so the
// collector queries them with these keys.
type Flow struct {
	// Key is the 5-tuple.
	Key flow.Key
	// Sent counts the packets that the host sent, Received the packets that arrived at it.
	Sent, Received uint64
	// SentGap and ReceivedGap are the longest times between two of these packets, in µs.
	SentGap, ReceivedGap uint64
	// Devices are the switches whose sketchlets arrived in packets of the flow, ascending.
	Devices []uint16
}

// Report is a host's report of an epoch: the sketchlets and flows of the epoch, or a part of the
// sketchlets.
type Report struct {
	Epoch uint64
	// Part is the number of a part of the report that the host sends before the epoch ends, from 1 on;
	// it has only sketchlets. 0 is the rest of the report, when the epoch has ended.
	Part uint64
	// Parts is the number of parts that the host sent before, if this is the rest of the report.
	Parts    uint64
	Counters [Counters]uint64
	// Flows are in the order of their keys.
	Flows []Flow
	// Sketchlets are encoded one behind another, in the order in which their columns first arrived.
	Sketchlets []byte
}

// A report is
//
//	version     byte
//	epoch
//	part, and the count of parts
//	counters    a count, then counters
//	flows       a count, then rows: key, sent, received, their gaps, a count of devices, devices
//	sketchlets  to its end
//
// Integers are unsigned varints. A key is its length and its canonical bytes.
const version = 4

// Append appends the encoded report.
func (r *Report) Append(b []byte) []byte {
	u := varint.Append
	b = varint.AppendCounters(u(append(b, version), r.Epoch, r.Part, r.Parts), r.Counters[:])
	b = u(b, uint64(len(r.Flows)))
	for i := range r.Flows {
		f := &r.Flows[i]
		b = u(varint.AppendFlow(b, &f.Key), f.Sent, f.Received, f.SentGap, f.ReceivedGap, uint64(len(f.Devices)))
		for _, d := range f.Devices {
			b = u(b, uint64(d))
		}
	}
	return append(b, r.Sketchlets...)
}

// ParseReport decodes and checks a report. It refers to b.
func ParseReport(b []byte) (*Report, error) {
	if len(b) == 0 || b[0] != version {
		return nil, fmt.Errorf("report of role %s: %.1x is no version of it; expected %d", Role, b, version)
	}
	d := &varint.Reader{Rest: b[1:]}
	r := &Report{Epoch: d.U64(), Part: d.U64(), Parts: d.U64()}
	d.Counters(r.Counters[:])
	r.readFlows(d)
	if err := d.Err(); err != nil {
		return nil, fmt.Errorf("report of role %s: %w", Role, err)
	}
	r.Sketchlets = d.Rest
	for b := d.Rest; len(b) > 0; {
		s, err := Find(b)
		if err != nil {
			return nil, fmt.Errorf("report of role %s: %d bytes before its end: %w", Role, len(b), err)
		}
		b = b[len(s):]
	}
	return r, nil
}

// readFlows reads the flows.
func (r *Report) readFlows(d *varint.Reader) {
	n := d.U64()
	if n > MaxFlows {
		d.Fail("%d flows; expected at most %d", n, MaxFlows)
	}
	for i := 0; i < int(n) && d.Err() == nil; i++ {
		f := Flow{Key: d.Flow(), Sent: d.U64(), Received: d.U64(), SentGap: d.U64(), ReceivedGap: d.U64()}
		if i > 0 && r.Flows[i-1].Key.Compare(f.Key) >= 0 {
			d.Fail("flow %d is not behind the one before it", i)
		}
		devices := d.U64()
		if devices > MaxDevices {
			d.Fail("flow %d: %d devices; expected at most %d", i, devices, MaxDevices)
		}
		for k := 0; k < int(devices) && d.Err() == nil; k++ {
			id := d.U64()
			if id > 1<<16-1 || k > 0 && id <= uint64(f.Devices[k-1]) {
				d.Fail("flow %d: device %d is too large, or not behind the one before it", i, id)
			}
			f.Devices = append(f.Devices, uint16(id))
		}
		r.Flows = append(r.Flows, f)
	}
}

// Sort brings the flows of a report into its order.
func (r *Report) Sort() {
	slices.SortFunc(r.Flows, func(a, b Flow) int { return a.Key.Compare(b.Key) })
}

// All calls yield with the sketchlets of a report.
func (r *Report) All(yield func(Sketchlet) bool) {
	for b := r.Sketchlets; len(b) > 0; {
		n := HeaderBytes + cellBytes*int(b[wordsAt])
		if !yield(b[:n:n]) {
			return
		}
		b = b[n:]
	}
}
