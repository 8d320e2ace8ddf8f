// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// MergeParts merges the parts of one epoch that several collectors collected. A Merger calls it. If
// two parts have the same object of a device, add returns the sum of their cells. A device that
// measured under different plans in two parts is Mixed. The parts are not changed and share their
// cells with the result.
func MergeParts(parts []*Epoch, add func(device string, a, b Cells) (Cells, error)) (*Epoch, error) {
	if len(parts) == 0 {
		return nil, errors.New("no parts to merge")
	}
	first := parts[0]
	out := &Epoch{Number: first.Number, Start: first.Start, End: first.End, BankShift: first.BankShift,
		Status: StatusComplete}
	for _, part := range parts {
		if part.Number != first.Number {
			return nil, fmt.Errorf("parts of epochs %d and %d cannot be merged", first.Number, part.Number)
		}
		if part.Start.Before(out.Start) {
			out.Start = part.Start
		}
		if part.End.After(out.End) {
			out.End = part.End
		}
		if part.Status > StatusComplete || len(part.Missing) > 0 {
			out.Status = StatusPartial
		}
		out.Skew, out.Deviation = max(out.Skew, part.Skew), max(out.Deviation, part.Deviation)
		out.Expected = append(out.Expected, part.Expected...)
		out.ExpectedHosts = append(out.ExpectedHosts, part.ExpectedHosts...)
		out.Missing = append(out.Missing, part.Missing...)
		out.Hosts = append(out.Hosts, part.Hosts...)
		out.Late = append(out.Late, part.Late...)
		out.AccuracyWarnings = append(out.AccuracyWarnings, part.AccuracyWarnings...)
		out.LateWarnings = append(out.LateWarnings, part.LateWarnings...)
		out.States = append(out.States, part.States...)
		out.Plans = append(out.Plans, part.Plans...)
		if err := out.put(part.Devices, add); err != nil {
			return nil, err
		}
	}
	if len(out.Devices) == 0 && len(out.Hosts) == 0 {
		out.Status = StatusLost
	}
	slices.Sort(out.Expected)
	out.Expected = slices.Compact(out.Expected)
	slices.Sort(out.ExpectedHosts)
	out.ExpectedHosts = slices.Compact(out.ExpectedHosts)
	slices.SortFunc(out.Missing, func(a, b Missing) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Reason, b.Reason))
	})
	slices.SortStableFunc(out.Hosts, func(a, b HostReport) int { // parts of a report keep their order
		return cmp.Or(strings.Compare(a.Host, b.Host), strings.Compare(a.Role, b.Role))
	})
	slices.SortStableFunc(out.States, func(a, b DeviceState) int { return strings.Compare(a.Device, b.Device) })
	out.States = oneState(out.States)
	return out, nil
}

// put adds the cells of devices.
func (e *Epoch) put(devices []DeviceData, add func(device string, a, b Cells) (Cells, error)) error {
	for _, d := range devices {
		for _, c := range d.Objects {
			if known := e.Device(d.Name); known != nil && known.Object(c.Object) != nil {
				sum, err := add(d.Name, *known.Object(c.Object), c)
				if err != nil {
					return fmt.Errorf("epoch %d: switch %s: %w", e.Number, d.Name, err)
				}
				c = sum
			}
			e.Put(d.Name, c)
		}
	}
	return nil
}

// oneState merges the states of the same device.
func oneState(states []DeviceState) []DeviceState {
	var out []DeviceState
	for _, s := range states {
		if n := len(out); n > 0 && out[n-1].Device == s.Device {
			out[n-1].Mixed = out[n-1].Mixed || s.Mixed || out[n-1].Plan != s.Plan
			continue
		}
		out = append(out, s)
	}
	return out
}
