// SPDX-License-Identifier: Apache-2.0

// Conversion of epochs to a stream of messages and back.

package sdk

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/netsketch/netsketch/plugins/sdk/pluginv1"
)

// Send splits the epoch into messages, which share the epoch's memory, and passes them to send in
// the order of the contract. It does not send Watched. budget is the time for the analysis; 0 means
// no limit. Send returns the first error of send.
func (e *Epoch) Send(send func(*pluginv1.EpochPart) error, budget time.Duration) error {
	err := send(&pluginv1.EpochPart{Message: &pluginv1.EpochPart_Begin{Begin: &pluginv1.EpochBegin{
		Epoch: e.Number, Open: e.Open, StartUnixNs: e.Start.UnixNano(), EndUnixNs: e.End.UnixNano(),
		ExpectedDevices: e.Expected, ExpectedHosts: e.ExpectedHosts, BudgetNs: int64(budget), BankShift: e.BankShift,
		Devices: toProto(e.States, func(s DeviceState) *pluginv1.DeviceState {
			return &pluginv1.DeviceState{Device: s.Device, Plan: s.Plan, Mixed: s.Mixed}
		}),
		Plans: toProto(e.Plans, func(o PlanOutcome) *pluginv1.PlanOutcome {
			return &pluginv1.PlanOutcome{
				Plan: o.Plan, FromEpoch: o.FromEpoch, Device: o.Device, Status: pluginv1.PlanStatus(o.Status),
				Reason: o.Reason,
			}
		}),
	}}})
	if err != nil {
		return err
	}
	for i := range e.Devices {
		for _, cells := range e.Devices[i].Objects {
			if err := sendCells(send, e.Devices[i].Name, cells); err != nil {
				return err
			}
		}
	}
	for i := range e.Hosts {
		if err := sendReport(send, &e.Hosts[i], 0); err != nil {
			return err
		}
	}
	for i := range e.Late {
		if err := sendReport(send, &e.Late[i].HostReport, e.Late[i].Epoch); err != nil {
			return err
		}
	}
	return send(&pluginv1.EpochPart{Message: &pluginv1.EpochPart_End{End: &pluginv1.EpochEnd{
		Epoch: e.Number, Status: pluginv1.EpochStatus(e.Status),
		Missing: toProto(e.Missing, func(m Missing) *pluginv1.Missing {
			return &pluginv1.Missing{Name: m.Name, Reason: m.Reason, Host: m.Host, Joined: m.Joined}
		}),
		AccuracyWarnings: toProto(e.AccuracyWarnings, func(d AccuracyWarning) *pluginv1.AccuracyWarning {
			return &pluginv1.AccuracyWarning{Device: d.Device, Reason: d.Reason}
		}),
		LateWarnings: toProto(e.LateWarnings, func(w LateWarning) *pluginv1.LateWarning {
			return &pluginv1.LateWarning{Epoch: w.Epoch, Device: w.Device, Reason: w.Reason}
		}),
		SkewNs: int64(e.Skew), DeviationNs: int64(e.Deviation),
	}}})
}

func sendCells(send func(*pluginv1.EpochPart) error, device string, cells Cells) error {
	if err := cells.Check(); err != nil {
		return fmt.Errorf("device %s: %w", device, err)
	}
	total, size := uint64(cells.Len()), cells.Width/8
	for at := 0; ; {
		zeros, next := chunk(cells.Packed, at)
		err := send(&pluginv1.EpochPart{Message: &pluginv1.EpochPart_Device{Device: &pluginv1.DeviceChunk{
			Device: device, Object: cells.Object, WidthBits: uint32(cells.Width),
			TotalCells: total, FirstCell: uint64(at / size), Data: cells.Packed[at:zeros],
			ZeroCells: uint64((next - zeros) / size),
		}}})
		if at = next; err != nil || at == len(cells.Packed) {
			return err
		}
	}
}

// zeroBlock is the unit in which zeros are omitted.
var zeroBlock [4096]byte

// chunk returns where the zeros at the end of the chunk begin, and where the next chunk begins.
func chunk(packed []byte, at int) (zeros, next int) {
	end := func(from int) int { return min(from+len(zeroBlock), len(packed)) }
	empty := func(from int) bool { return bytes.Equal(packed[from:end(from)], zeroBlock[:end(from)-from]) }
	zeros = at
	for zeros < len(packed) && zeros-at < MaxChunk && !empty(zeros) {
		zeros = end(zeros)
	}
	for next = zeros; next < len(packed) && empty(next); {
		next = end(next)
	}
	return zeros, next
}

func sendReport(send func(*pluginv1.EpochPart) error, report *HostReport, late uint64) error {
	for at := 0; ; at += MaxChunk {
		end := min(at+MaxChunk, len(report.Data))
		err := send(&pluginv1.EpochPart{Message: &pluginv1.EpochPart_Host{Host: &pluginv1.HostChunk{
			Host: report.Host, Role: report.Role, TotalBytes: uint64(len(report.Data)), Offset: uint64(at),
			Data: report.Data[at:end], LateEpoch: late,
		}}})
		if err != nil || end == len(report.Data) {
			return err
		}
	}
}

// RunRequestOf returns a part of an epoch as a message of a Run stream.
func RunRequestOf(part *pluginv1.EpochPart) *pluginv1.RunRequest {
	switch m := part.GetMessage().(type) {
	case *pluginv1.EpochPart_Begin:
		return &pluginv1.RunRequest{Message: &pluginv1.RunRequest_Begin{Begin: m.Begin}}
	case *pluginv1.EpochPart_Device:
		return &pluginv1.RunRequest{Message: &pluginv1.RunRequest_Device{Device: m.Device}}
	case *pluginv1.EpochPart_Host:
		return &pluginv1.RunRequest{Message: &pluginv1.RunRequest_Host{Host: m.Host}}
	}
	return &pluginv1.RunRequest{Message: &pluginv1.RunRequest_End{End: part.GetEnd()}}
}

// EpochDecoder assembles epochs from messages, and passes each sealed epoch to the function given
// to NewEpochDecoder. The epochs share the memory of the messages. Only one
// goroutine may use a decoder, which cannot be used after an error.
type EpochDecoder struct {
	limit  int
	sealed func(epoch *Epoch, budget time.Duration) error

	epoch  *Epoch // open; nil between two epochs
	budget time.Duration
	bytes  int // bytes announced so far for the open epoch
	// filling is the array in progress; filled of its wanted bytes have arrived.
	filling        *[]byte
	filled, wanted int
	device, what   string
}

// ErrEpochTooLarge is wrapped if an epoch has more data than the limit.
var ErrEpochTooLarge = errors.New("more data than the limit")

// NewEpochDecoder returns a decoder that passes each sealed epoch to sealed. An epoch with more
// than limit bytes of cells and reports is an error.
func NewEpochDecoder(limit int, sealed func(epoch *Epoch, budget time.Duration) error) *EpochDecoder {
	return &EpochDecoder{limit: limit, sealed: sealed}
}

// EpochMessage is a message that may contain a part of an epoch: RunRequest or EpochPart.
type EpochMessage interface {
	GetBegin() *pluginv1.EpochBegin
	GetDevice() *pluginv1.DeviceChunk
	GetHost() *pluginv1.HostChunk
	GetEnd() *pluginv1.EpochEnd
}

// Take decodes the part of an epoch in a message. It ignores a message without one.
func (d *EpochDecoder) Take(m EpochMessage) error {
	if begin := m.GetBegin(); begin != nil {
		return d.open(begin)
	}
	if chunk := m.GetDevice(); chunk != nil {
		return d.addCells(chunk)
	}
	if chunk := m.GetHost(); chunk != nil {
		return d.addReport(chunk)
	}
	if end := m.GetEnd(); end != nil {
		return d.seal(end)
	}
	return nil
}

// open opens an epoch.
func (d *EpochDecoder) open(m *pluginv1.EpochBegin) error {
	if d.epoch != nil {
		return fmt.Errorf("epoch %d begins inside of epoch %d", m.GetEpoch(), d.epoch.Number)
	}
	if m.GetEndUnixNs() <= m.GetStartUnixNs() {
		return fmt.Errorf("epoch %d ends at %d ns, not after its start at %d ns", m.GetEpoch(), m.GetEndUnixNs(),
			m.GetStartUnixNs())
	}
	d.epoch = &Epoch{
		Number: m.GetEpoch(), Start: time.Unix(0, m.GetStartUnixNs()).UTC(), End: time.Unix(0, m.GetEndUnixNs()).UTC(),
		Open: m.GetOpen(), Expected: m.GetExpectedDevices(), ExpectedHosts: m.GetExpectedHosts(), BankShift: m.GetBankShift(),
		States: toProto(m.GetDevices(), func(s *pluginv1.DeviceState) DeviceState {
			return DeviceState{Device: s.GetDevice(), Plan: s.GetPlan(), Mixed: s.GetMixed()}
		}),
		Plans: toProto(m.GetPlans(), func(o *pluginv1.PlanOutcome) PlanOutcome {
			return PlanOutcome{
				Plan: o.GetPlan(), FromEpoch: o.GetFromEpoch(), Device: o.GetDevice(),
				Status: PlanStatus(o.GetStatus()), Reason: o.GetReason(),
			}
		}),
	}
	for _, o := range d.epoch.Plans {
		if o.Status < PlanApplied || o.Status > PlanFailed {
			return fmt.Errorf("epoch %d: plan %d has the unknown status %d", m.GetEpoch(), o.Plan, o.Status)
		}
	}
	slices.SortStableFunc(d.epoch.States, func(a, b DeviceState) int { return strings.Compare(a.Device, b.Device) })
	d.budget, d.bytes = time.Duration(max(m.GetBudgetNs(), 0)), 0
	return nil
}

// addCells adds cells to the open epoch.
func (d *EpochDecoder) addCells(m *pluginv1.DeviceChunk) error {
	if d.epoch == nil {
		return fmt.Errorf("cells of device %s outside of an epoch", m.GetDevice())
	}
	cells := Cells{Object: m.GetObject(), Width: int(m.GetWidthBits()), Packed: m.GetData()}
	if err := cells.Check(); err != nil {
		return fmt.Errorf("epoch %d: device %s: %w", d.epoch.Number, m.GetDevice(), err)
	}
	size := uint64(cells.Width / 8)
	if m.GetTotalCells() > uint64(d.limit)/size || max(m.GetFirstCell(), m.GetZeroCells()) > m.GetTotalCells() {
		return fmt.Errorf("epoch %d: device %s: object %s: cell %d of %d: %w (%d bytes)",
			d.epoch.Number, m.GetDevice(), m.GetObject(), m.GetFirstCell(), m.GetTotalCells(), ErrEpochTooLarge, d.limit)
	}
	if m.GetFirstCell() == 0 && d.filling == nil {
		if err := d.begin(m.GetDevice(), m.GetObject(), int(m.GetTotalCells()*size)); err != nil {
			return err
		}
		if dev := d.epoch.Device(m.GetDevice()); dev != nil && dev.Object(m.GetObject()) != nil {
			return fmt.Errorf("epoch %d: device %s: object %s is sent twice", d.epoch.Number, m.GetDevice(),
				m.GetObject())
		}
		d.epoch.Put(m.GetDevice(), cells)
		d.filling = &d.epoch.Device(m.GetDevice()).Object(m.GetObject()).Packed
	} else if d.filling != nil && d.device == m.GetDevice() && d.what == m.GetObject() {
		if have := d.epoch.Device(m.GetDevice()).Object(m.GetObject()).Width; have != cells.Width {
			return fmt.Errorf("epoch %d: device %s: object %s changes its width from %d to %d bits", d.epoch.Number,
				m.GetDevice(), m.GetObject(), have, cells.Width)
		}
	}
	return d.fill(m.GetDevice(), m.GetObject(), int(m.GetFirstCell()*size), int(m.GetTotalCells()*size), m.GetData(),
		int(m.GetZeroCells()*size))
}

// addReport adds a piece of a report to the open epoch.
func (d *EpochDecoder) addReport(m *pluginv1.HostChunk) error {
	if d.epoch == nil {
		return fmt.Errorf("report of host %s outside of an epoch", m.GetHost())
	}
	if m.GetTotalBytes() > uint64(d.limit) || m.GetOffset() > m.GetTotalBytes() {
		return fmt.Errorf("epoch %d: host %s: byte %d of %d: %w (%d bytes)",
			d.epoch.Number, m.GetHost(), m.GetOffset(), m.GetTotalBytes(), ErrEpochTooLarge, d.limit)
	}
	if m.GetOffset() == 0 && d.filling == nil {
		if err := d.begin(m.GetHost(), m.GetRole(), int(m.GetTotalBytes())); err != nil {
			return err
		}
		report := HostReport{Host: m.GetHost(), Role: m.GetRole()}
		switch late := m.GetLateEpoch(); {
		case late == 0:
			d.epoch.Hosts = append(d.epoch.Hosts, report)
			d.filling = &d.epoch.Hosts[len(d.epoch.Hosts)-1].Data
		case late >= d.epoch.Number:
			return fmt.Errorf("epoch %d: host %s: a late report of epoch %d", d.epoch.Number, m.GetHost(), late)
		default:
			d.epoch.Late = append(d.epoch.Late, LateReport{late, report})
			d.filling = &d.epoch.Late[len(d.epoch.Late)-1].Data
		}
	}
	return d.fill(m.GetHost(), m.GetRole(), int(m.GetOffset()), int(m.GetTotalBytes()), m.GetData(), 0)
}

// begin announces an array of total bytes.
func (d *EpochDecoder) begin(node, what string, total int) error {
	if d.bytes += total; d.bytes > d.limit {
		return fmt.Errorf("epoch %d: %s, %s: %w (%d bytes)", d.epoch.Number, node, what, ErrEpochTooLarge, d.limit)
	}
	d.device, d.what, d.filled, d.wanted = node, what, 0, total
	return nil
}

// fill appends data and zeros to the array in progress. An array that arrives in one piece shares
// the memory of its message. The memory of a larger array grows as data and zeros arrive, so that a
// false length allocates no memory.
func (d *EpochDecoder) fill(node, what string, at, total int, data []byte, zeros int) error {
	switch {
	case d.filling == nil || d.device != node || d.what != what || at != d.filled || total != d.wanted:
		return fmt.Errorf("epoch %d: %s, %s: bytes from %d of %d do not follow what came before (%s, %s: %d of %d)",
			d.epoch.Number, node, what, at, total, d.device, d.what, d.filled, d.wanted)
	case at+len(data)+zeros > total:
		return fmt.Errorf("epoch %d: %s, %s: %d bytes from %d exceed the announced %d", d.epoch.Number, node, what,
			len(data)+zeros, at, total)
	case len(data)+zeros == 0 && total > 0:
		return fmt.Errorf("epoch %d: %s, %s: an empty piece", d.epoch.Number, node, what)
	}
	switch {
	case len(data) == total:
		*d.filling = data
	case at == 0:
		*d.filling = append(make([]byte, 0, min(total, 64*(len(data)+zeros))), data...)
	default:
		*d.filling = append(*d.filling, data...)
	}
	*d.filling = append(*d.filling, make([]byte, zeros)...)
	if d.filled += len(data) + zeros; d.filled == total {
		d.filling = nil
	}
	return nil
}

// seal seals the open epoch and passes it to the function given to NewEpochDecoder.
func (d *EpochDecoder) seal(m *pluginv1.EpochEnd) error {
	switch {
	case d.epoch == nil || d.epoch.Number != m.GetEpoch():
		return fmt.Errorf("end of epoch %d, which is not open", m.GetEpoch())
	case d.filling != nil:
		return fmt.Errorf("epoch %d ends in the middle of %s, %s (%d of %d bytes)", d.epoch.Number, d.device, d.what,
			d.filled, d.wanted)
	case m.GetStatus() < pluginv1.EpochStatus_EPOCH_STATUS_COMPLETE ||
		m.GetStatus() > pluginv1.EpochStatus_EPOCH_STATUS_LOST:
		return fmt.Errorf("epoch %d has the unknown status %d", d.epoch.Number, m.GetStatus())
	}
	epoch := d.epoch
	epoch.Status = Status(m.GetStatus())
	epoch.Missing = toProto(m.GetMissing(), func(m *pluginv1.Missing) Missing {
		return Missing{Name: m.GetName(), Reason: m.GetReason(), Host: m.GetHost(), Joined: m.GetJoined()}
	})
	epoch.Skew, epoch.Deviation = time.Duration(m.GetSkewNs()), time.Duration(m.GetDeviationNs())
	epoch.AccuracyWarnings = toProto(m.GetAccuracyWarnings(), func(d *pluginv1.AccuracyWarning) AccuracyWarning {
		return AccuracyWarning{Device: d.GetDevice(), Reason: d.GetReason()}
	})
	epoch.LateWarnings = toProto(m.GetLateWarnings(), func(w *pluginv1.LateWarning) LateWarning {
		return LateWarning{w.GetEpoch(), AccuracyWarning{Device: w.GetDevice(), Reason: w.GetReason()}}
	})
	slices.SortStableFunc(epoch.Hosts, func(a, b HostReport) int {
		if c := strings.Compare(a.Host, b.Host); c != 0 {
			return c
		}
		return strings.Compare(a.Role, b.Role)
	})
	d.epoch = nil
	return d.sealed(epoch, d.budget)
}
