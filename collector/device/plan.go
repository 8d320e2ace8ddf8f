// SPDX-License-Identifier: Apache-2.0

package device

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"

	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/p4/p4rt/p4values"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// Apply carries out a plugin's writes in their order. What they leave behind is written again when
// the switch comes back without its tables. The error names the writes that were refused; the others
// were carried out.
func (d *Device) Apply(ctx context.Context, writes []sdk.DeviceWrite) error {
	d.mu.Lock()
	s := d.session
	d.mu.Unlock()
	if s == nil {
		return fmt.Errorf("device %s: %w", d.cfg.Name, ErrNotStarted)
	}
	cat, err := s.Catalog()
	if err != nil {
		return fmt.Errorf("device %s: %w", d.cfg.Name, err)
	}
	var errs []error
	var updates []*p4v1.Update
	kept := map[string]*p4rt.Entry{}
	for i, w := range writes {
		entry, err := planEntry(cat, w)
		if err == nil {
			var u *p4v1.Update
			key := planKey(entry)
			if u, err = planUpdate(cat, d.known(w.Op, key), entry); err == nil {
				updates = append(updates, u)
				kept[key] = &entry
				if w.Op == sdk.Delete {
					kept[key] = nil
				}
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("write %d of %d: %w", i+1, len(writes), err))
		}
	}
	if len(updates) > 0 {
		if err := s.Write(ctx, updates...); err != nil {
			errs = append(errs, err)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, entry := range kept {
		if entry == nil {
			delete(d.planned, key)
		} else {
			d.planned[key] = *entry
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("device %s: %w", d.cfg.Name, err)
	}
	return nil
}

// known turns an insertion of what a plan has inserted before into a modification: a plugin that was
// restarted plans from the beginning.
func (d *Device) known(op sdk.WriteOp, key string) sdk.WriteOp {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, there := d.planned[key]; there && op == sdk.Insert {
		return sdk.Modify
	}
	return op
}

// replan writes again what plans left on the switch, after a push cleared it.
func (d *Device) replan(ctx context.Context) error {
	d.mu.Lock()
	s := d.session
	planned := maps.Clone(d.planned)
	d.mu.Unlock()
	if len(planned) == 0 {
		return nil
	}
	cat, err := s.Catalog()
	if err != nil {
		return err
	}
	var updates []*p4v1.Update
	for _, key := range slices.Sorted(maps.Keys(planned)) {
		entry := planned[key]
		op := sdk.Insert
		if entry.Default {
			op = sdk.SetDefault
		}
		u, err := planUpdate(cat, op, entry)
		if err != nil {
			return err
		}
		updates = append(updates, u)
	}
	return s.Write(ctx, updates...)
}

func planUpdate(cat *p4values.Catalog, op sdk.WriteOp, entry p4rt.Entry) (*p4v1.Update, error) {
	if op == sdk.Delete && entry.Action == "" {
		// Only the key counts; the build wants some action all the same.
		t, err := cat.Tables.Name(entry.Table)
		if err != nil {
			return nil, err
		}
		e, err := keyOnly(cat, t, entry)
		if err != nil {
			return nil, err
		}
		return p4rt.Delete(e), nil
	}
	e, err := entry.Build(cat)
	if err != nil {
		return nil, err
	}
	switch op {
	case sdk.Insert:
		return p4rt.Insert(e), nil
	case sdk.Modify, sdk.SetDefault:
		return p4rt.Modify(e), nil
	case sdk.Delete:
		e.GetTableEntry().Action = nil
		return p4rt.Delete(e), nil
	}
	return nil, fmt.Errorf("unknown kind of write %d", op)
}

// keyOnly builds an entry without an action, by giving it one and taking it away.
func keyOnly(cat *p4values.Catalog, t *p4values.Table, entry p4rt.Entry) (*p4v1.Entity, error) {
	if t.Profile != nil {
		entry.Member = 1
	} else if len(t.Actions) > 0 {
		entry.Action = t.Actions[0].Name
		for _, p := range t.Actions[0].Params {
			entry.Params = append(entry.Params, p4rt.Param{Name: p.Name, Value: []byte{0}})
		}
	}
	e, err := entry.Build(cat)
	if err != nil {
		return nil, err
	}
	e.GetTableEntry().Action = nil
	return e, nil
}

// planEntry gives a plugin's entry the kinds of match that the table has.
func planEntry(cat *p4values.Catalog, w sdk.DeviceWrite) (p4rt.Entry, error) {
	e := p4rt.Entry{Table: w.Entry.Table, Priority: w.Entry.Priority, Action: w.Entry.Action, Default: w.Op == sdk.SetDefault}
	t, err := cat.Tables.Name(w.Entry.Table)
	if err != nil {
		return e, err
	}
	e.Table = t.Name
	for _, p := range w.Entry.Params {
		e.Params = append(e.Params, p4rt.Param{Name: p.Name, Value: p.Value})
	}
	if e.Default {
		return e, nil
	}
	for _, m := range w.Entry.Matches {
		f, ok := t.Field(m.Field)
		if !ok {
			return e, fmt.Errorf("table %s: there is no key field %q", t.Name, m.Field)
		}
		match := p4rt.Match{Field: m.Field, Kind: f.Kind, Value: m.Value, Mask: m.Mask, PrefixLen: m.PrefixLen}
		if f.Kind == p4values.Range {
			match.Mask = m.High
		}
		e.Match = append(e.Match, match)
	}
	return e, nil
}

// planKey identifies an entry within its switch.
func planKey(e p4rt.Entry) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %t %d", e.Table, e.Default, e.Priority)
	matches := slices.Clone(e.Match)
	slices.SortFunc(matches, func(x, y p4rt.Match) int { return strings.Compare(x.Field, y.Field) })
	for _, m := range matches {
		fmt.Fprintf(&b, " %s=%x/%x/%d", m.Field, p4values.Canonical(m.Value), m.Mask, m.PrefixLen)
	}
	return b.String()
}
