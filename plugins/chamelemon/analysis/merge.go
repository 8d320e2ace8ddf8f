// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// Merge implements sdk.Merger: the epochs that several collectors gathered, each from its own
// switches, become one. Where two have recorded of the same register, as when its read-out was
// shared out or a switch changed hands in the midst of an epoch, cells add up as the program would have added
// them: classifiers without passing their limit, counts, and sums modulo the prime.
func (p *Plugin) Merge(_ context.Context, parts []*sdk.Epoch) (*sdk.Epoch, error) {
	if len(parts) == 0 {
		return nil, errors.New("no parts to merge")
	}
	p.mu.Lock()
	edges := p.binding.edges
	p.mu.Unlock()
	first := parts[0]
	out := &sdk.Epoch{Number: first.Number, Start: first.Start, End: first.End, BankShift: first.BankShift}
	merged := make(map[[2]string]bool)
	for _, part := range parts {
		if part.Number != first.Number || part.BankShift%2 != first.BankShift%2 {
			return nil, fmt.Errorf("parts of epochs %d and %d, in banks %d and %d, cannot be merged",
				first.Number, part.Number, first.BankOf(first.Number, 2), part.BankOf(part.Number, 2))
		}
		if part.Start.Before(out.Start) {
			out.Start = part.Start
		}
		if part.End.After(out.End) {
			out.End = part.End
		}
		// Parts of other times than their neighbours' are out of step, and nobody saw all flips.
		out.Skew = max(out.Skew, part.Skew)
		out.Expected = append(out.Expected, part.Expected...)
		out.ExpectedHosts = append(out.ExpectedHosts, part.ExpectedHosts...)
		out.Missing = append(out.Missing, part.Missing...)
		out.Hosts = append(out.Hosts, part.Hosts...)
		out.Watched = append(out.Watched, part.Watched...)
		out.Doubts = append(out.Doubts, part.Doubts...)
		out.States = append(out.States, part.States...)
		out.Plans = append(out.Plans, part.Plans...)
		for _, d := range part.Devices {
			for _, c := range d.Objects {
				at := [2]string{d.Name, c.Object}
				if !merged[at] {
					merged[at] = true
					out.Put(d.Name, c)
					continue
				}
				sum, err := addCells(edges, d.Name, *out.Device(d.Name).Object(c.Object), c)
				if err != nil {
					return nil, fmt.Errorf("switch %s: %w", d.Name, err)
				}
				out.Put(d.Name, sum)
			}
		}
	}
	slices.Sort(out.Expected)
	out.Expected = slices.Compact(out.Expected)
	slices.Sort(out.ExpectedHosts)
	out.ExpectedHosts = slices.Compact(out.ExpectedHosts)
	slices.SortFunc(out.Missing, func(a, b sdk.Missing) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Reason, b.Reason))
	})
	slices.SortFunc(out.Hosts, func(a, b sdk.HostReport) int {
		return cmp.Or(strings.Compare(a.Host, b.Host), strings.Compare(a.Role, b.Role))
	})
	slices.SortStableFunc(out.States, func(a, b sdk.DeviceState) int { return strings.Compare(a.Device, b.Device) })
	out.States = oneState(out.States)
	out.Status = statusOf(out)
	return out, nil
}

// oneState joins what parts say of the same switch: under two plans it was under none.
func oneState(states []sdk.DeviceState) []sdk.DeviceState {
	var out []sdk.DeviceState
	for _, s := range states {
		if n := len(out); n > 0 && out[n-1].Device == s.Device {
			out[n-1].Mixed = out[n-1].Mixed || s.Mixed || out[n-1].Plan != s.Plan
			continue
		}
		out = append(out, s)
	}
	return out
}

func statusOf(e *sdk.Epoch) sdk.Status {
	switch {
	case len(e.Devices) == 0 && len(e.Hosts) == 0:
		return sdk.StatusLost
	case len(e.Missing) > 0:
		return sdk.StatusPartial
	}
	return sdk.StatusComplete
}

// addCells adds the cells of a register of an edge switch.
func addCells(edges []edge, device string, a, b sdk.Cells) (sdk.Cells, error) {
	i := slices.IndexFunc(edges, func(e edge) bool { return e.name == device })
	if i < 0 {
		return sdk.Cells{}, fmt.Errorf("%s was delivered twice, and it is not known how its cells add up", a.Object)
	}
	e := &edges[i]
	if err := cmp.Or(a.Check(), b.Check()); err != nil {
		return sdk.Cells{}, err
	}
	if a.Len() != b.Len() {
		return sdk.Cells{}, fmt.Errorf("%s was delivered with %d and with %d cells", a.Object, a.Len(), b.Len())
	}
	x, y := a.Uint32s(), b.Uint32s()
	sum := make([]uint32, len(x))
	words, limit := 0, uint64(math.MaxUint32)
	for row, name := range e.classifier {
		if name == a.Object {
			limit = 1<<e.layout.bits[row] - 1
		}
	}
	for f := range families {
		if e.up[f] == a.Object || e.down[f] == a.Object {
			words = e.layout.words[f]
		}
	}
	for i := range sum {
		v := uint64(x[i]) + uint64(y[i])
		if words > 0 && i%words != 0 && x[i] < prime && y[i] < prime {
			v %= prime
		}
		sum[i] = uint32(min(v, limit))
	}
	return sdk.CellsOf(a.Object, sum), nil
}
