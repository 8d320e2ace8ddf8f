// SPDX-License-Identifier: Apache-2.0

// An epoch: what devices and hosts recorded between two instants.

package sdk

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Status says how much of the network an epoch rests on. Its text is what the
// YANG models publish.
type Status uint8

// The states of an epoch.
const (
	// StatusComplete: everything that was expected arrived.
	StatusComplete Status = iota + 1
	// StatusPartial: some arrived; Epoch.Missing lists the rest.
	StatusPartial
	// StatusLost: nothing usable arrived. Such an epoch is delivered too, so
	// that comparing neighbours shows the gap.
	StatusLost
)

// String returns "complete", "partial" or "lost".
func (s Status) String() string {
	switch s {
	case StatusComplete:
		return "complete"
	case StatusPartial:
		return "partial"
	case StatusLost:
		return "lost"
	}
	return fmt.Sprintf("status(%d)", uint8(s))
}

// Epoch is one sealed epoch.
type Epoch struct {
	// Number grows by at least one from epoch to epoch.
	Number uint64
	// Start is its first instant, End the first one after it; End is the
	// timestamp of its results.
	Start, End time.Time
	// Status says whether all of the network is in it.
	Status Status
	// Expected and ExpectedHosts name who was asked, sorted.
	Expected, ExpectedHosts []string
	// Missing names who did not deliver, or not all.
	Missing []Missing
	// Devices holds the data, sorted by name; one entry per device that
	// delivered anything.
	Devices []DeviceData
	// Hosts holds the hosts' reports, sorted by host and role.
	Hosts []HostReport
	// Watched is the set of rows to publish besides the usual ones, sorted.
	Watched []Watch
	// BankShift tells banks: see BankOf. It stays as it is for as long as the
	// collector runs.
	BankShift uint64
	// Skew is the time from the first device's flip at the end of the epoch to the
	// last one's.
	Skew time.Duration
	// Doubts are reasons why packets of another epoch may be among those of this
	// one, or packets of this one missing, although all has arrived. What rests on
	// comparing devices is then not exact.
	Doubts []Doubt
	// States says what each expected device measured under, sorted by device. It is
	// empty where nobody keeps account of plans, as in a test.
	States []DeviceState
	// Plans says what became of this plugin's plans since the epoch before that it
	// was given.
	Plans []PlanOutcome
}

// BankOf returns the bank that devices with so many banks measure an epoch in. All
// devices agree on it; epoch may be this one or any other.
func (e *Epoch) BankOf(epoch uint64, banks int) int {
	if banks < 1 {
		return 0
	}
	return int((epoch + e.BankShift) % uint64(banks))
}

// Doubt is a reason not to take an epoch for exact although it has arrived.
type Doubt struct {
	Device string // that is behind it; empty: all of them
	Reason string
}

// DeviceState is what a device measured under in an epoch.
type DeviceState struct {
	Device string
	// Plan is Plan.ID of the newest plan that was carried out on the device before
	// the epoch began and concerns its bank; 0: none of this plugin's.
	Plan uint64
	// Mixed: entries changed while the epoch was open, or it is not known what became
	// of a plan. What the device counted was not under one plan.
	Mixed bool
}

// State returns what the device measured under, or nil when that is not known.
func (e *Epoch) State(device string) *DeviceState {
	i, ok := slices.BinarySearchFunc(e.States, device, func(s DeviceState, n string) int { return strings.Compare(s.Device, n) })
	if !ok {
		return nil
	}
	return &e.States[i]
}

// Missing is a device or host whose data is not, or not all, in an epoch.
type Missing struct {
	Name   string
	Reason string
	Host   bool // a host, not a device
}

// DeviceData is what one device recorded.
type DeviceData struct {
	Name    string
	Objects []Cells // sorted by object
}

// HostReport is what one host recorded, in the form that the plugin's host role
// writes.
type HostReport struct {
	Host string
	Role string
	Data []byte
}

// Device returns the data of the device, or nil when there is none.
func (e *Epoch) Device(name string) *DeviceData {
	i, ok := slices.BinarySearchFunc(e.Devices, name, func(d DeviceData, n string) int { return strings.Compare(d.Name, n) })
	if !ok {
		return nil
	}
	return &e.Devices[i]
}

// Object returns the cells of the object with that full name, or nil.
func (d *DeviceData) Object(name string) *Cells {
	i, ok := slices.BinarySearchFunc(d.Objects, name, func(c Cells, n string) int { return strings.Compare(c.Object, n) })
	if !ok {
		return nil
	}
	return &d.Objects[i]
}

// Put adds cells to a device's data, keeping the order, or replaces those of
// the same object.
func (e *Epoch) Put(device string, cells Cells) {
	i, ok := slices.BinarySearchFunc(e.Devices, device, func(d DeviceData, n string) int { return strings.Compare(d.Name, n) })
	if !ok {
		e.Devices = slices.Insert(e.Devices, i, DeviceData{Name: device})
	}
	d := &e.Devices[i]
	j, ok := slices.BinarySearchFunc(d.Objects, cells.Object, func(c Cells, n string) int { return strings.Compare(c.Object, n) })
	if ok {
		d.Objects[j] = cells
		return
	}
	d.Objects = slices.Insert(d.Objects, j, cells)
}

// Bytes returns the size of the epoch's cells and host reports in bytes.
func (e *Epoch) Bytes() int {
	sum := 0
	for i := range e.Devices {
		for j := range e.Devices[i].Objects {
			sum += len(e.Devices[i].Objects[j].Packed)
		}
	}
	for i := range e.Hosts {
		sum += len(e.Hosts[i].Data)
	}
	return sum
}
