// SPDX-License-Identifier: Apache-2.0

package analysis

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/netsketch/netsketch/plugins/sdk"
)

// Merge implements sdk.Merger: it combines the epochs that several collectors read from their own
// switches. If two have cells of the same register, because the read-out was divided or the switch
// changed its collector during the epoch, the cells are added as the pipeline adds: classifiers
// saturate at their limit, encoder sums are modulo the prime.
func (p *Plugin) Merge(_ context.Context, parts []*sdk.Epoch) (*sdk.Epoch, error) {
	p.mu.Lock()
	edges := p.binding.edges
	p.mu.Unlock()
	for _, part := range parts {
		if a, b := parts[0].BankOf(part.Number, 2), part.BankOf(part.Number, 2); a != b {
			return nil, fmt.Errorf("parts of epoch %d in banks %d and %d cannot be merged", part.Number, a, b)
		}
	}
	return sdk.MergeParts(parts, func(device string, a, b sdk.Cells) (sdk.Cells,
		error) {
		return addCells(edges, device, a, b)
	})
}

// addCells adds the cells of a register of an edge switch.
func addCells(edges []edge, device string, a, b sdk.Cells) (sdk.Cells, error) {
	i := slices.IndexFunc(edges, func(e edge) bool { return e.name == device })
	if i < 0 {
		return sdk.Cells{}, fmt.Errorf("%s was delivered twice, and %s is not an edge switch, so its cells cannot be added",
			a.Object, device)
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
