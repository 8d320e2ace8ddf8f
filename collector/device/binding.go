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
	b := &binding{table: t.Name, action: t.Actions[0].Name, param: t.Actions[0].Params[0].Name, banks: 2}
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
		b.objects = append(b.objects, sdk.Object{
			Name: r.Name, Alias: r.Alias, Cells: r.Readout.Cells, Width: r.Width, Banks: r.Readout.Banks, Annotations: r.Layout,
		})
	}
	slices.SortFunc(b.objects, func(x, y sdk.Object) int { return strings.Compare(x.Name, y.Name) })
	return b, nil
}

// readable lists the registers to read by full name; nil wanted means all.
func (b *binding) readable(wanted []string) []string {
	names := make([]string, 0, len(b.objects))
	for _, o := range b.objects {
		if wanted == nil || slices.Contains(wanted, o.Name) {
			names = append(names, o.Name)
		}
	}
	return names
}
