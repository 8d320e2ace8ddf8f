// SPDX-License-Identifier: Apache-2.0

// Merging registers before they are sent to the collector that runs the plugin, and checking them
// there.

package analysis

import (
	"context"
	"fmt"
	"slices"

	"github.com/netsketch/netsketch/collector/epoch"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// errTorn says that another collector merged a switch's cells without the plugin's bindings.
var errTorn = fmt.Errorf("its collector merged it with another switch, which has other data here: %w", epoch.ErrLate)

// Merge returns the registers that a plugin reads, from all switches with a reading in the epoch,
// after the plugin has merged them. It returns nil if the plugin does not merge. Field Expected of
// the result lists these switches.
func (c *Component) Merge(ctx context.Context, plugin string, ep *epoch.Epoch) (*sdk.Epoch, error) {
	p := c.plugin(plugin)
	if p == nil {
		return nil, nil
	}
	p.mu.Lock()
	merge := p.settings.Merge
	p.mu.Unlock()
	if !merge || !p.inst.Describe().Capabilities.Merge {
		return nil, nil
	}
	bound := p.bindings()
	part := &sdk.Epoch{Number: ep.Number, Start: ep.Start, End: ep.End, Status: sdk.StatusComplete}
	for _, o := range ep.Sources {
		if len(bound[o.Name]) == 0 || o.Err != nil {
			continue
		}
		part.Expected = append(part.Expected, o.Name)
		for _, cells := range o.Reading.Objects {
			if bound[o.Name][cells.Object] {
				part.Put(o.Name, cells)
			}
		}
	}
	if len(part.Devices) < 2 {
		return nil, nil
	}
	merged, err := p.inst.Merge(ctx, part)
	if err != nil {
		return nil, err
	}
	out := &sdk.Epoch{Number: ep.Number, Expected: part.Expected}
	for _, d := range merged.Devices {
		for _, cells := range d.Objects {
			if bound[d.Name][cells.Object] && part.Device(d.Name) != nil {
				out.Put(d.Name, cells)
			}
		}
	}
	return out, nil
}

// torn returns the switches whose registers cannot be used because they were merged with a switch
// that has other data in this epoch: either two collectors read that switch, or a part came too
// late.
func (p *plugin) torn(ep *epoch.Epoch) map[string]bool {
	var torn map[string]bool
	arrived := map[*epoch.Merged]int{}
	for _, o := range ep.Sources {
		if o.Err == nil {
			for _, m := range o.Reading.Merged {
				arrived[m]++
			}
		}
	}
	for m, n := range arrived {
		if m.Plugin != p.name || n == len(m.Devices) {
			continue
		}
		if torn == nil {
			torn = map[string]bool{}
		}
		for _, o := range ep.Sources {
			if o.Err == nil && slices.Contains(o.Reading.Merged, m) {
				torn[o.Name] = true
			}
		}
	}
	return torn
}
