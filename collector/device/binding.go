// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// binding is what of a program the collector uses, found by its annotations.
type binding struct {
	table, action, param string // the bank flip
	banks                int
	objects              []sdk.Object // sorted by name
	// drained are the registers that packets on their way through the network are counted in.
	drained map[string]bool
}

func bind(cat *p4values.Catalog) (*binding, error) {
	tables := cat.Annotated(p4values.AnnotationBank)
	if len(tables) == 0 {
		return nil, ErrNoBanks
	}
	t := tables[0]
	if len(tables) > 1 || len(t.Match) > 0 || len(t.Actions) != 1 || len(t.Actions[0].Params) != 1 {
		return nil, fmt.Errorf("bank table %s: expected one table without keys whose only action has one parameter, the bank", t.Name)
	}
	b := &binding{table: t.Name, action: t.Actions[0].Name, param: t.Actions[0].Params[0].Name, banks: 2, drained: map[string]bool{}}
	if a, ok := t.Annotations.Find(p4values.AnnotationBank); ok && a.Values["banks"] != "" {
		n, err := a.Int("banks")
		if err != nil {
			return nil, fmt.Errorf("bank table %s: %w", t.Name, err)
		}
		b.banks = int(n)
	}
	if b.banks < 2 || b.banks > 256 {
		return nil, fmt.Errorf("bank table %s: %d banks; expected 2 to 256", t.Name, b.banks)
	}
	for _, r := range cat.Readouts() {
		if r.Readout.Banks != b.banks {
			return nil, fmt.Errorf("register %s has %d banks and the bank table %s has %d", r.Name, r.Readout.Banks, t.Name, b.banks)
		}
		if r.Width < 1 || r.Width > 32 {
			return nil, fmt.Errorf("register %s has cells of %d bits; the read-out carries 1 to 32", r.Name, r.Width)
		}
		if v := r.Layout[drainKey]; v != "" && v != "0" {
			b.drained[r.Name] = true
		}
		b.objects = append(b.objects, sdk.Object{
			Name: r.Name, Alias: r.Alias, Cells: r.Readout.Cells, Width: r.Width, Banks: r.Readout.Banks, Annotations: r.Layout,
		})
	}
	slices.SortFunc(b.objects, func(x, y sdk.Object) int { return strings.Compare(x.Name, y.Name) })
	return b, nil
}

// drainKey is the key of the read-out annotation that says that packets on their way write to the register.
const drainKey = "drain"

// readable lists the registers to read by full name, those to read when the network has drained apart from the
// others; nil wanted means all.
func (b *binding) readable(wanted []string) (soon, drained []string) {
	for _, o := range b.objects {
		switch {
		case wanted != nil && !slices.Contains(wanted, o.Name):
		case b.drained[o.Name]:
			drained = append(drained, o.Name)
		default:
			soon = append(soon, o.Name)
		}
	}
	return soon, drained
}
