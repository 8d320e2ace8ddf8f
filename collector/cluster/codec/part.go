// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/collector/cluster/clusterv1"
	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/plugins/sdk/pluginv1"
)

// Part is one collector's measurements of an epoch.
type Part struct {
	Epoch uint64
	// Fence is the fence of the collector's lease.
	Fence   uint64
	Sources []Source
	// Flips are the earliest and the latest flip of the collector's switches; nil if none was flipped.
	Flips *epoch.Flips
	// Warnings are the accuracy warnings that concern all sources of the collector.
	Warnings []string
	// Late are late reports of the collector's hosts on earlier epochs.
	Late []sdk.LateReport
}

// Source is the outcome of an epoch at a device or host.
type Source struct {
	Name string
	Host bool
	// Result is the source's result; it has no reading if Err is set.
	Result epoch.Result
	// Err says why the reading is missing.
	Err error
}

// Missing names a source that another collector could not read, and the reason.
type Missing struct {
	Reason string
	Joined bool // whether the reason wraps epoch.ErrJoining
}

// Error implements error.
func (m *Missing) Error() string { return m.Reason }

// Unwrap returns epoch.ErrJoining if the source joined during the epoch.
func (m *Missing) Unwrap() error {
	if m.Joined {
		return epoch.ErrJoining
	}
	return nil
}

// Merged are the registers that a plugin merged; they are sent instead of the registers that the
// plugin reads.
type Merged struct {
	Plugin string
	Epoch  *sdk.Epoch // the devices in Expected are merged
}

// WritePart encodes the measurements of this collector in an epoch, with the fence of its lease.
// wanted selects the registers to send in addition to the merged ones. WritePart takes the readings
// out of ep.Sources and releases the registers of each device when they are written. If cells and
// reports have more than limit bytes, WritePart writes nothing and returns an error that wraps
// ErrTooLarge.
func WritePart(w io.Writer, ep *epoch.Epoch, fence uint64, limit int, wanted func(device, object string) bool,
	merged ...Merged,
) error {
	out := &sdk.Epoch{Number: ep.Number, Start: ep.Start, End: ep.End, Status: sdk.StatusComplete}
	head := &clusterv1.Part{Epoch: ep.Number, Fence: fence}
	if f := ep.Timings.Flips; f != nil {
		head.Flips = &clusterv1.Flips{FirstNs: int64(f.First), LastNs: int64(f.Last)}
	}
	for i, o := range ep.Sources {
		ep.Sources[i].Reading = nil
		s := &clusterv1.Source{Name: o.Name, Host: o.Sealing.IsHost()}
		if !o.Began.IsZero() {
			s.BeganUnixNs = o.Began.UnixNano()
		}
		head.Sources = append(head.Sources, s)
		if o.Err != nil {
			out.Missing = append(out.Missing, sdk.Missing{Name: o.Name, Reason: o.Err.Error(), Host: s.GetHost(),
				Joined: errors.Is(o.Err, epoch.ErrJoining)})
			continue
		}
		put(out, s, o.Reading, wanted)
	}
	for _, m := range merged {
		head.Merged = append(head.Merged, &clusterv1.Merged{Plugin: m.Plugin, Devices: m.Epoch.Expected})
		for _, d := range m.Epoch.Devices {
			for _, cells := range d.Objects {
				out.Put(d.Name, cells)
			}
		}
	}
	out.Late = ep.Late
	for _, w := range ep.Warnings {
		out.AccuracyWarnings = append(out.AccuracyWarnings, sdk.AccuracyWarning{Device: w.Source, Reason: w.Reason})
	}
	for _, w := range ep.LateWarnings {
		out.LateWarnings = append(out.LateWarnings, sdk.LateWarning{Epoch: w.Epoch,
			AccuracyWarning: sdk.AccuracyWarning{Device: w.Source, Reason: w.Reason}})
	}
	if err := checkSize(out, limit); err != nil {
		return fmt.Errorf("part of epoch %d: %w", ep.Number, err)
	}
	var buf []byte // buffer that all messages share
	write := func(m proto.Message) (err error) {
		if buf, err = (proto.MarshalOptions{}).MarshalAppend(buf[:0], m); err != nil {
			return err
		}
		if _, err = w.Write(protowire.AppendVarint(nil, uint64(len(buf)))); err == nil {
			_, err = w.Write(buf)
		}
		return err
	}
	if err := write(head); err != nil {
		return err
	}
	devices := out.Devices // devices that are still to be sent, the current one first
	return out.Send(func(m *pluginv1.EpochPart) error {
		if chunk := m.GetDevice(); chunk != nil {
			for devices[0].Name != chunk.GetDevice() { // registers of the devices before have been sent
				devices[0].Objects = nil
				devices = devices[1:]
			}
		}
		return write(m)
	}, 0)
}

// checkSize fails if the cells and reports of an epoch have more than limit bytes.
func checkSize(e *sdk.Epoch, limit int) error {
	sizes, sum, largest := map[string]int{}, 0, ""
	add := func(name string, size int) {
		sum += size
		if sizes[name] += size; sizes[name] > sizes[largest] {
			largest = name
		}
	}
	for _, d := range e.Devices {
		for _, cells := range d.Objects {
			add(d.Name, len(cells.Packed))
		}
	}
	for _, h := range e.Hosts {
		add(h.Host, len(h.Data))
	}
	for _, l := range e.Late {
		add(l.Host, len(l.Data))
	}
	if sum <= limit {
		return nil
	}
	return fmt.Errorf("%w: %d bytes of cells and reports, of which %s has %d; at most %d are sent: start more "+
		"collectors, or make the registers smaller", ErrTooLarge, sum, largest, sizes[largest], limit)
}

// put adds a reading.
func put(out *sdk.Epoch, s *clusterv1.Source, r *epoch.Reading, wanted func(device, object string) bool) {
	for _, cells := range r.Objects {
		if wanted(s.GetName(), cells.Object) {
			out.Put(s.GetName(), cells)
		}
	}
	out.Hosts = append(out.Hosts, r.Hosts...)
	for role, err := range r.MissingRoles {
		if s.MissingRoles == nil {
			s.MissingRoles = map[string]string{}
		}
		s.MissingRoles[role] = err.Error()
	}
}

// maxMessage bounds a message of a part in bytes.
const maxMessage = 4 << 20

// PartDecoder decodes a part while it arrives. It belongs to one goroutine and cannot be used after
// an error.
type PartDecoder struct {
	rest    []byte // beginning of a message that has not arrived as a whole
	head    *clusterv1.Part
	decoder *sdk.EpochDecoder
	epoch   *sdk.Epoch // nil until the end of the epoch has arrived
}

// NewPartDecoder returns a decoder of a part with at most limit bytes of cells and reports.
func NewPartDecoder(limit int) *PartDecoder {
	d := &PartDecoder{}
	d.decoder = sdk.NewEpochDecoder(limit, func(e *sdk.Epoch, _ time.Duration) error {
		d.epoch = e
		return nil
	})
	return d
}

// Write implements io.Writer: it takes the next bytes of the part.
func (d *PartDecoder) Write(data []byte) (int, error) {
	d.rest = append(d.rest, data...)
	at := 0
	for {
		message, n := protowire.ConsumeBytes(d.rest[at:])
		if n < 0 {
			break
		}
		if err := d.take(message); err != nil {
			return 0, d.place(err)
		}
		at += n
	}
	d.rest = append(d.rest[:0], d.rest[at:]...)
	if size, n := protowire.ConsumeVarint(d.rest); n >= 0 && size > maxMessage || len(d.rest) > maxMessage+16 {
		return 0, d.place(fmt.Errorf("a message of %d bytes; at most %d are taken", size, maxMessage))
	}
	return len(data), nil
}

// place adds the epoch to an error.
func (d *PartDecoder) place(err error) error {
	if d.head == nil {
		return fmt.Errorf("part: %w", err)
	}
	return fmt.Errorf("part of epoch %d: %w", d.head.GetEpoch(), err)
}

// take takes the next message.
func (d *PartDecoder) take(message []byte) error {
	if d.head == nil {
		var head clusterv1.Part
		if err := clusterv1.Unmarshal(message, &head); err != nil {
			return err
		}
		d.head = &head
		return nil
	}
	if d.epoch != nil {
		return errors.New("a message after its end")
	}
	var m pluginv1.EpochPart
	if err := clusterv1.Unmarshal(message, &m); err != nil {
		return err
	}
	return d.decoder.Take(&m)
}

// Part returns the part when it has arrived as a whole.
func (d *PartDecoder) Part() (*Part, error) {
	switch {
	case d.epoch == nil || len(d.rest) > 0:
		return nil, d.place(io.ErrUnexpectedEOF)
	case d.epoch.Number != d.head.GetEpoch():
		return nil, d.place(fmt.Errorf("it holds epoch %d", d.epoch.Number))
	}
	return newPart(d.head, d.epoch)
}

// newPart divides an epoch among its sources.
func newPart(head *clusterv1.Part, in *sdk.Epoch) (*Part, error) {
	p := &Part{Epoch: head.GetEpoch(), Fence: head.GetFence()}
	if f := head.GetFlips(); f != nil {
		p.Flips = &epoch.Flips{First: time.Duration(f.GetFirstNs()), Last: time.Duration(f.GetLastNs())}
	}
	at := map[string]int{}
	for _, s := range head.GetSources() {
		if _, twice := at[s.GetName()]; twice || s.GetName() == "" {
			return nil, fmt.Errorf("part of epoch %d: source %q is in it twice or has no name", p.Epoch, s.GetName())
		}
		at[s.GetName()] = len(p.Sources)
		out := Source{Name: s.GetName(), Host: s.GetHost(), Result: epoch.Result{Reading: &epoch.Reading{}}}
		if ns := s.GetBeganUnixNs(); ns != 0 {
			out.Result.Began = time.Unix(0, ns)
		}
		for role, reason := range s.GetMissingRoles() {
			if out.Result.Reading.MissingRoles == nil {
				out.Result.Reading.MissingRoles = map[string]error{}
			}
			out.Result.Reading.MissingRoles[role] = errors.New(reason)
		}
		p.Sources = append(p.Sources, out)
	}
	// of returns the source of some data. It fails if the header does not name the source.
	var unknown error
	of := func(name string) *Source {
		i, ok := at[name]
		if !ok {
			unknown = fmt.Errorf("part of epoch %d: data of %q, which is not among its sources", p.Epoch, name)
			return &Source{Result: epoch.Result{Reading: &epoch.Reading{}}}
		}
		return &p.Sources[i]
	}
	for _, m := range head.GetMerged() {
		set := &epoch.Merged{Plugin: m.GetPlugin(), Devices: m.GetDevices()}
		for _, name := range set.Devices {
			r := of(name).Result.Reading
			if slices.Contains(r.Merged, set) {
				return nil, fmt.Errorf("part of epoch %d: device %s is merged twice", p.Epoch, name)
			}
			r.Merged = append(r.Merged, set)
		}
	}
	for _, d := range in.Devices {
		of(d.Name).Result.Reading.Objects = d.Objects
	}
	for _, h := range in.Hosts {
		r := of(h.Host).Result.Reading
		r.Hosts = append(r.Hosts, h)
	}
	for _, l := range in.Late {
		of(l.Host)
	}
	p.Late = in.Late
	for _, w := range in.AccuracyWarnings {
		if w.Device == "" {
			p.Warnings = append(p.Warnings, w.Reason)
			continue
		}
		r := &of(w.Device).Result
		r.Warnings = append(r.Warnings, w.Reason)
	}
	for _, w := range in.LateWarnings {
		if w.Device == "" {
			continue
		}
		r := &of(w.Device).Result
		r.LateWarnings = append(r.LateWarnings, epoch.LateWarning{Epoch: w.Epoch,
			AccuracyWarning: epoch.AccuracyWarning{Source: w.Device, Reason: w.Reason}})
	}
	for _, m := range in.Missing {
		s := of(m.Name)
		if r := s.Result.Reading; r != nil && len(r.Merged) > 0 {
			return nil, fmt.Errorf("part of epoch %d: device %s is merged and missing", p.Epoch, m.Name)
		}
		s.Err, s.Result.Reading = &Missing{Reason: m.Reason, Joined: m.Joined}, nil
	}
	for i := range p.Sources {
		if r := p.Sources[i].Result.Reading; r != nil {
			slices.SortStableFunc(r.Hosts, func(a, b sdk.HostReport) int { return strings.Compare(a.Role, b.Role) })
		}
	}
	return p, unknown
}
