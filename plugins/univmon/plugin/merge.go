// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"slices"

	"github.com/netsketch/netsketch/plugins/sdk"
	"github.com/netsketch/netsketch/sketch/universal"
)

// Merged cells of a sketch are 32-bit words in cells of 8 bits: the term of the switch in the sum
// of the network, the packets by level if the switch counts them, and, for one switch of each term
// and dimension, the sums of the counters of all these switches, modulo 2^32. A switch with another
// term than termNone also has its heavy keys, in the form of universal.AppendCells: the size from
// which a flow was kept follows from their counts, and differs from switch to switch.
const mergedWidth = 8

// term says how a switch's counters enter the network's sum.
type term uint32

const (
	termNone     term = iota // the weight of the switch is 0
	termAdd                  // 1
	termSubtract             // subtracted from the network's sum
)

// mergeable reports whether the plugin publishes only sums over switches, each over the same
// switches in all epochs.
func (c *Configuration) mergeable() bool {
	return !c.Switches && c.Network.Enabled && c.Network.Scheme == SchemeWeights
}

// term returns whether a switch's counters are added to the network's sum, subtracted or skipped.
func (p *plan) term(device, dimension string) term {
	for i := range p.views {
		v := &p.views[i]
		if v.dimension != dimension {
			continue
		}
		if _, ok := slices.BinarySearch(v.plus, device); ok {
			return termAdd
		}
		if _, ok := slices.BinarySearch(v.minus, device); ok {
			return termSubtract
		}
	}
	return termNone
}

// Merge implements sdk.Merger: the counters of all switches that the network's sum adds are merged
// into the counters of one switch, and likewise the counters of all switches that it subtracts.
func (p *Plugin) Merge(ctx context.Context, part *sdk.Epoch) (*sdk.Epoch, error) {
	p.mu.Lock()
	plan := p.plan
	p.mu.Unlock()
	if !plan.settings.Merge {
		return part, nil
	}
	type group struct {
		dimension string
		term      term
	}
	type sum struct {
		device, object string
		words          []uint32 // the term, the packets by level, and then the counters
	}
	sums := make(map[group]*sum)
	merged := *part
	merged.Devices = make([]sdk.DeviceData, len(part.Devices))
	for i := range part.Devices {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("univmon: %w", err)
		}
		data := &part.Devices[i]
		merged.Devices[i].Name = data.Name
		if u := plan.unparsed[data.Name]; u != nil {
			if c := data.Object(u.object); c != nil {
				merged.Put(data.Name, *c)
			}
		}
		for dimension, in := range plan.instances[data.Name] {
			cells, err := in.open(data)
			if err != nil { // Analyze reports the error
				for _, object := range []string{in.counters, in.heavy} {
					if c := data.Object(object); c != nil {
						merged.Put(data.Name, *c)
					}
				}
				continue
			}
			g := group{dimension, plan.term(data.Name, dimension)}
			words := append([]uint32{uint32(g.term)}, cells.packets...)
			if g.term != termNone {
				merged.Put(data.Name, sdk.CellsOf(in.heavy, universal.AppendCells(nil, cells.heavy)))
			}
			if own := sums[g]; own != nil || g.term == termNone {
				merged.Put(data.Name, pack(in.counters, words))
			} else {
				sums[g] = &sum{data.Name, in.counters, append(words, make([]uint32, len(cells.counters))...)}
			}
			if s := sums[g]; s != nil {
				counters := s.words[len(words):]
				for k, n := range cells.counters {
					counters[k] += n
				}
			}
		}
	}
	for _, s := range sums {
		merged.Put(s.device, pack(s.object, s.words))
	}
	return &merged, nil
}

func pack(object string, words []uint32) sdk.Cells {
	c := sdk.CellsOf(object, words)
	c.Width = mergedWidth
	return c
}

func unpack(c *sdk.Cells) []uint32 {
	return sdk.Cells{Object: c.Object, Width: 32, Packed: c.Packed[:len(c.Packed)/4*4]}.Uint32s()
}

// merged returns the merged cells of a sketch. zeros are the counters of a switch whose counts
// were merged into another switch.
func (in *instance) merged(d *sdk.DeviceData, c *sdk.Cells, zeros []uint32) (*sealed, error) {
	values := unpack(c)
	levels := 0
	if in.packets >= 0 {
		levels = in.layout.Levels
	}
	if n := len(values) - 1 - levels; n != 0 && n != in.layout.CounterCells() {
		return nil, fmt.Errorf("%s: %d merged cells delivered, expected %d, or %d more", in.counters, len(values),
			1+levels, in.layout.CounterCells())
	}
	s := &sealed{layout: in.layout, counters: zeros, merged: true}
	if levels > 0 {
		s.packets = values[1 : 1+levels]
	}
	if sum := values[1+levels:]; len(sum) > 0 {
		s.counters = sum
	}
	s.heavy = make([]uint32, in.layout.HeavyCells())
	if term(values[0]) == termNone {
		return s, nil
	}
	heavy := d.Object(in.heavy)
	if heavy == nil || heavy.Width != mergedWidth {
		return nil, fmt.Errorf("%s was not merged", in.heavy)
	}
	rest, err := universal.ReadCells(s.heavy, heavy.Packed)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%d bytes too many", len(rest))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", in.heavy, err)
	}
	return s, nil
}

// opener opens the sketches of an epoch.
type opener struct {
	plan    *plan
	zeros   map[string][]uint32 // zeros by dimension, of merged sketches
	refused map[string]error    // why merged cells of a dimension cannot be used
}

// newOpener looks for merged cells in an epoch. It refuses all merged cells of a dimension if one
// of them was merged with another term than here, because the sums then belong to another network
// model.
func newOpener(p *plan, e *sdk.Epoch) *opener {
	o := &opener{p, make(map[string][]uint32), make(map[string]error)}
	for i := range e.Devices {
		d := &e.Devices[i]
		for dimension, in := range p.instances[d.Name] {
			c := d.Object(in.counters)
			if c == nil || c.Width != mergedWidth {
				continue
			}
			if o.zeros[dimension] == nil {
				o.zeros[dimension] = make([]uint32, in.layout.CounterCells())
			}
			words := unpack(c)
			fits := len(words) > 0 && term(words[0]) == p.term(d.Name, dimension) &&
				len(o.zeros[dimension]) == in.layout.CounterCells()
			switch {
			case !p.settings.Merge:
				o.refused[dimension] = fmt.Errorf("another collector merged the sketches for the network; here, results of "+
					"switches are configured (%s)", d.Name)
			case !fits:
				o.refused[dimension] = fmt.Errorf("another collector merged the sketches for another network model (%s)", d.Name)
			}
		}
	}
	return o
}

// open returns the cells that a device delivered for an instance.
func (o *opener) open(in *instance, d *sdk.DeviceData) (*sealed, error) {
	c := d.Object(in.counters)
	if c == nil || c.Width != mergedWidth {
		return in.open(d)
	}
	if err := o.refused[in.dimension]; err != nil {
		return nil, err
	}
	return in.merged(d, c, o.zeros[in.dimension])
}
