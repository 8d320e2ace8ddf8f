// SPDX-License-Identifier: Apache-2.0

// Package wire defines the sketchlets that LightGuardian's hosts remove from packets, and what a
// host exchanges with a plugin: the settings that the plugin sends, and the report of one epoch
// that the host returns. The collector passes both on as bytes.
package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
)

// Role is the name of the host role.
const Role = "lightguardian"

// Settings configure the role at one host.
type Settings struct {
	// Devices are the switches whose sketchlets are kept.
	Devices []Device `json:"devices"`
	// Kept bounds the bytes of the sketchlets that the report of an epoch has.
	Kept int `json:"kept"`
}

// Device is a switch and the shape of its sketch.
type Device struct {
	ID      uint16 `json:"id"`
	Columns int    `json:"columns"`
	Words   int    `json:"words"` // cells of a sketchlet
}

// maxColumns is the largest count of columns, maxKept that of Kept.
const (
	maxColumns = 1 << 16
	maxWords   = 255
	maxKept    = 1 << 30
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
	seen := map[uint16]bool{}
	for i, d := range s.Devices {
		if d.Columns < 1 || d.Columns > maxColumns {
			fail("devices[%d]: %d columns; expected 1 to %d", i, d.Columns, maxColumns)
		}
		if d.Words < 1 || d.Words > maxWords {
			fail("devices[%d]: %d words; expected 1 to %d", i, d.Words, maxWords)
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

// The counters. Sketchlets from UnknownDevice to Full are removed from their packets and are not in
// the report.
const (
	Packets       Counter = iota // IP packets that arrived, with a sketchlet or without
	Sketchlets                   // sketchlets that were removed
	InBandBytes                  // their bytes
	Short                        // packets with the mark whose sketchlet would be longer than the packet
	BadCheck                     // packets with the mark whose check differs
	UnknownDevice                // sketchlets of devices that are not in the settings
	UnknownColumn                // sketchlets of columns that the device does not have
	WrongWords                   // sketchlets with another count of cells
	Duplicates                   // sketchlets that the report has already
	Full                         // sketchlets beyond Kept
	Disagreeing                  // sketchlets that replaced one of the same column with other cells
	Dropped                      // epochs whose report was not requested in time
	Counters
)

var counterNames = [Counters]string{"packets", "sketchlets", "in-band-bytes", "short", "bad-check", "unknown-device",
	"unknown-column", "wrong-words", "duplicates", "full", "disagreeing", "dropped"}

// String returns the name of a counter, such as "bad-check".
func (c Counter) String() string { return counterNames[c] }

// Report is what a host reports for an epoch: the sketchlets that arrived in it.
type Report struct {
	Epoch    uint64
	Counters [Counters]uint64
	// Sketchlets are encoded one behind another, in the order in which their columns first arrived.
	Sketchlets []byte
}

// A report is the version, the epoch, a count of counters, the counters, and the sketchlets to its
// end. Integers are unsigned varints.
const version = 1

// Append appends the encoded report.
func (r *Report) Append(b []byte) []byte {
	u := binary.AppendUvarint
	b = u(u(append(b, version), r.Epoch), uint64(Counters))
	for _, n := range r.Counters {
		b = u(b, n)
	}
	return append(b, r.Sketchlets...)
}

// ParseReport decodes and checks a report. It refers to b.
func ParseReport(b []byte) (*Report, error) {
	if len(b) == 0 || b[0] != version {
		return nil, fmt.Errorf("report of role %s: %.1x is no version of it; expected %d", Role, b, version)
	}
	b = b[1:]
	r := new(Report)
	numbers := [2 + Counters]uint64{}
	for i := range numbers {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, fmt.Errorf("report of role %s: ends within its counters", Role)
		}
		if i == 1 && v != uint64(Counters) {
			return nil, fmt.Errorf("report of role %s: %d counters; expected %d", Role, v, Counters)
		}
		numbers[i], b = v, b[n:]
	}
	r.Epoch = numbers[0]
	copy(r.Counters[:], numbers[2:])
	r.Sketchlets = b
	for len(b) > 0 {
		s, err := Find(b)
		if err != nil {
			return nil, fmt.Errorf("report of role %s: %d bytes before its end: %w", Role, len(b), err)
		}
		b = b[len(s):]
	}
	return r, nil
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
