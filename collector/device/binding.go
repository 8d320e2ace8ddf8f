// SPDX-License-Identifier: Apache-2.0

package device

import (
	"fmt"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// binding has the parts of a pipeline that the collector uses. Annotations identify them.
type binding struct {
	table, action, param string // of the bank
	banks                int
	objects              []sdk.Object    // sorted by name
	drained              map[string]bool // registers that packets in flight change
}

// bind finds the bank table and the registers of a pipeline.
func bind(cat *p4values.Catalog) (*binding, error) {
	tables := cat.Annotated(p4values.AnnotationBank)
	if len(tables) == 0 {
		return nil, ErrNoBanks
	}
	t := tables[0]
	if len(tables) > 1 || len(t.Match) > 0 || len(t.Actions) != 1 || len(t.Actions[0].Params) != 1 {
		return nil, fmt.Errorf("bank table %s: expected one table without keys whose only action has one parameter, "+
			"the bank", t.Name)
	}
	action := t.Actions[0]
	b := &binding{table: t.Name, action: action.Name, param: action.Params[0].Name, banks: 2,
		drained: map[string]bool{}}
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
			return nil, fmt.Errorf("register %s has %d banks and the bank table %s has %d", r.Name, r.Readout.Banks,
				t.Name, b.banks)
		}
		if r.Width < 1 || r.Width > 32 {
			return nil, fmt.Errorf("register %s has cells of %d bits; the read-out carries 1 to 32", r.Name, r.Width)
		}
		if v := r.Layout[drainKey]; v != "" && v != "0" {
			b.drained[r.Name] = true
		}
		b.objects = append(b.objects, sdk.Object{
			Name: r.Name, Alias: r.Alias, Cells: r.Readout.Cells, Width: r.Width, Banks: r.Readout.Banks,
			Annotations: r.Layout,
		})
	}
	slices.SortFunc(b.objects, func(x, y sdk.Object) int { return strings.Compare(x.Name, y.Name) })
	return b, nil
}

// drainKey is the key of the read-out annotation of registers that packets in flight change.
const drainKey = "drain"

// readable lists the registers to read by full name: early ones, and late ones that packets in
// flight change. nil selected means all.
func (b *binding) readable(selected []string) (early, late []string) {
	for _, o := range b.objects {
		switch {
		case selected != nil && !slices.Contains(selected, o.Name):
		case b.drained[o.Name]:
			late = append(late, o.Name)
		default:
			early = append(early, o.Name)
		}
	}
	return early, late
}
