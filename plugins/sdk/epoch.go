// SPDX-License-Identifier: Apache-2.0

// An epoch: the data that devices and hosts recorded between two boundaries.

package sdk

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/netsketch/netsketch/yang/table"
)

// Status is the status of an epoch. The YANG modules publish its text.
type Status uint8

// Statuses of an epoch.
const (
	// StatusComplete: all expected devices and hosts delivered all their data.
	StatusComplete Status = iota + 1
	// StatusPartial: some data is missing; Epoch.Missing lists it.
	StatusPartial
	// StatusLost: no usable data arrived. The plugin receives the epoch nevertheless, so that a
	// comparison of consecutive epochs detects the gap.
	StatusLost
)

// String returns "COMPLETE", "PARTIAL" or "LOST".
func (s Status) String() string {
	switch s {
	case StatusComplete:
		return "COMPLETE"
	case StatusPartial:
		return "PARTIAL"
	case StatusLost:
		return "LOST"
	}
	return fmt.Sprintf("status(%d)", uint8(s))
}

// Epoch is one sealed epoch.
type Epoch struct {
	// Number increases by at least one from epoch to epoch.
	Number uint64
	// Open is the epoch that was open when this one was delivered. It is the next one unless the
	// network drains for whole epochs; 0: not known, as in most tests.
	Open uint64
	// Start is the first instant of the epoch and End the first one after it. End is the timestamp
	// of the results.
	Start, End time.Time
	// Status says whether data is missing.
	Status Status
	// Expected and ExpectedHosts are the names of the devices and hosts to collect from, sorted.
	Expected, ExpectedHosts []string
	// Missing lists devices and hosts whose data is missing or incomplete.
	Missing []Missing
	// Devices holds the cells by device, sorted by name. A device without any data has no entry.
	Devices []DeviceData
	// Hosts holds the reports of hosts, sorted by host and role. A role that reports parts before the
	// epoch ends has several reports: the parts in the order of their arrival, and then the rest.
	Hosts []HostReport
	// Late holds reports of earlier epochs that arrived after those epochs were delivered, in order
	// of arrival. A report is at most four epochs late.
	Late []LateReport
	// Watched lists the rows of watchable lists to publish in addition to the usual rows, sorted.
	Watched []RowKey
	// BankShift is the offset between epoch numbers and banks: see BankOf. It is constant while the
	// collector runs.
	BankShift uint64
	// Skew is the time between the first and the last device's flip at the end of the epoch.
	Skew time.Duration
	// Deviation is the time between the first and the last host to begin the next epoch, as the
	// collector estimates it from the times of requests and reports; 0 if it is not known.
	Deviation time.Duration
	// AccuracyWarnings are reasons why the epoch may contain packets of another epoch, or lack
	// packets of its own, although all data has arrived. Results that compare devices may then be
	// inexact.
	AccuracyWarnings []AccuracyWarning
	// LateWarnings are accuracy warnings for epochs that were already delivered.
	LateWarnings []LateWarning
	// States holds the plan under which each expected device measured, sorted by device. It is empty
	// if the caller does not track plans, as in most tests.
	States []DeviceState
	// Plans holds the outcomes of this plugin's plans since the previous epoch that it received.
	Plans []PlanOutcome
}

// Range returns the range from one epoch to another. Their times are computed from the times of
// this epoch, as if all epochs had its length.
func (e *Epoch) Range(first, last uint64) Range {
	length := e.End.Sub(e.Start)
	return Range{First: first, Last: last, Start: e.Start.Add(-time.Duration(e.Number-first) * length),
		End: e.End.Add(-time.Duration(e.Number-last) * length)}
}

// Summary returns the table of a summary about this epoch alone: a container with the grouping
// range of the module netsketch-results.
func (e *Epoch) Summary(list string) (*table.Table, error) {
	b, of := table.NewBuilder(list), e.Range(e.Number, e.Number)
	of.Status = e.Status
	if len(e.Missing) > 0 {
		of.Reason = e.Missing[0].Condition()
		of.Problem = e.Missing[0].Name + ": " + e.Missing[0].Reason
	}
	of.Append(b)
	return b.Table()
}

// BankOf returns the bank, from 0 to banks-1, in which devices with this number of banks measure
// the given epoch. The bank is the same on all devices.
func (e *Epoch) BankOf(epoch uint64, banks int) int {
	if banks < 1 {
		return 0
	}
	return int((epoch + e.BankShift) % uint64(banks))
}

// AccuracyWarning is a reason why results of an epoch may be inexact.
type AccuracyWarning struct {
	Device string // the device that causes the warning; empty if all do
	Reason string
}

// LateWarning is an accuracy warning for an epoch that was already delivered.
type LateWarning struct {
	Epoch uint64
	AccuracyWarning
}

// DeviceState is the plan under which a device measured an epoch.
type DeviceState struct {
	Device string
	// Plan is Plan.ID of the newest plan for the epoch's bank that was applied on the device before
	// the epoch began; 0 if there was no plan of this plugin.
	Plan uint64
	// Mixed is set if the device did not measure under one plan for the whole epoch, because entries
	// changed during the epoch or the outcome of a plan is unknown.
	Mixed bool
}

// State returns the state of the device, or nil if it is unknown.
func (e *Epoch) State(device string) *DeviceState {
	i, ok := slices.BinarySearchFunc(e.States, device,
		func(s DeviceState, n string) int { return strings.Compare(s.Device, n) })
	if !ok {
		return nil
	}
	return &e.States[i]
}

// MissingHosts returns the missing hosts by name.
func (e *Epoch) MissingHosts() map[string]Missing {
	out := map[string]Missing{}
	for _, m := range e.Missing {
		if m.Host {
			out[m.Name] = m
		}
	}
	return out
}

// Missing is a device or host whose data is missing or incomplete.
type Missing struct {
	Name   string
	Reason string
	Host   bool // true for a host, false for a device
	Joined bool // the device or host joined during the epoch, and did not measure the whole epoch
}

// DeviceData is the data of one device.
type DeviceData struct {
	Name    string
	Objects []Cells // sorted by object
}

// HostReport is the report of one host, in the format that the host role defines.
type HostReport struct {
	Host string
	Role string
	Data []byte
}

// LateReport is a report that arrived after its epoch was delivered.
type LateReport struct {
	Epoch uint64
	HostReport
}

// Device returns the data of the device, or nil if the epoch has none.
func (e *Epoch) Device(name string) *DeviceData {
	i, ok := slices.BinarySearchFunc(e.Devices, name,
		func(d DeviceData, n string) int { return strings.Compare(d.Name, n) })
	if !ok {
		return nil
	}
	return &e.Devices[i]
}

// Object returns the cells of the object with a full P4Info name, or nil.
func (d *DeviceData) Object(name string) *Cells {
	i, ok := slices.BinarySearchFunc(d.Objects, name,
		func(c Cells, n string) int { return strings.Compare(c.Object, n) })
	if !ok {
		return nil
	}
	return &d.Objects[i]
}

// Put adds cells to a device's data in order; it replaces cells of the same object.
func (e *Epoch) Put(device string, cells Cells) {
	i, ok := slices.BinarySearchFunc(e.Devices, device,
		func(d DeviceData, n string) int { return strings.Compare(d.Name, n) })
	if !ok {
		e.Devices = slices.Insert(e.Devices, i, DeviceData{Name: device})
	}
	d := &e.Devices[i]
	j, ok := slices.BinarySearchFunc(d.Objects, cells.Object,
		func(c Cells, n string) int { return strings.Compare(c.Object, n) })
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
	for i := range e.Late {
		sum += len(e.Late[i].Data)
	}
	return sum
}
