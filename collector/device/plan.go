// SPDX-License-Identifier: Apache-2.0

package device

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"

	"github.com/netsketch/netsketch/p4/p4rt"
	"github.com/netsketch/netsketch/p4/p4rt/p4values"
	"github.com/netsketch/netsketch/plugins/sdk"
)

// ErrHalfDone is wrapped when it is not known what a refused plan left on the switch.
var ErrHalfDone = errors.New("and it is not known what of it is on the switch")

// Apply carries out a plugin's writes in their order, all or none: when one is refused, those before are taken
// back. What they leave behind is written again when the switch comes back without its tables. An insertion of
// what is there, from an earlier life of the plugin or the collector, changes its action. undo takes the writes
// back later, as long as nothing else is applied. The error names the writes that were refused; it wraps
// ErrHalfDone when not all could be taken back.
func (d *Device) Apply(ctx context.Context, writes []sdk.DeviceWrite) (undo func(context.Context) error, err error) {
	d.mu.Lock()
	s := d.session
	d.mu.Unlock()
	if s == nil {
		return nil, fmt.Errorf("device %s: %w", d.cfg.Name, ErrNotStarted)
	}
	cat, err := s.Catalog()
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", d.cfg.Name, err)
	}
	d.applying.Lock()
	defer d.applying.Unlock()
	var errs []error
	changes := make([]change, 0, len(writes))
	for i, w := range writes {
		c, err := d.change(cat, w)
		if err != nil {
			errs = append(errs, fmt.Errorf("write %d of %d: %w", i+1, len(writes), err))
		}
		changes = append(changes, c)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("device %s: %w", d.cfg.Name, err)
	}
	done, err := send(ctx, s, changes)
	if err != nil {
		// Not ctx: it may be over, and what is half done must not stay.
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeBackTime)
		defer cancel()
		if back := takeBack(clean, s, cat, done); back != nil || ctx.Err() != nil {
			err = fmt.Errorf("%w, %w", err, ErrHalfDone)
		}
		return nil, fmt.Errorf("device %s: %w", d.cfg.Name, err)
	}
	d.keep(changes, func(c *change) *p4rt.Entry { return c.after })
	return func(ctx context.Context) error {
		d.applying.Lock()
		defer d.applying.Unlock()
		d.keep(changes, func(c *change) *p4rt.Entry { return c.before })
		if err := takeBack(ctx, s, cat, changes); err != nil {
			return fmt.Errorf("device %s: taking writes back: %w", d.cfg.Name, err)
		}
		return nil
	}, nil
}

// takeBackTime bounds the taking back of a plan that failed.
const takeBackTime = time.Second

// change is a write with what it changes.
type change struct {
	update        *p4v1.Update
	key           string
	before, after *p4rt.Entry // nil: none that a plan made
	insert        bool        // an entry that exists, or does not, is no mistake
}

// change looks up what a write changes.
func (d *Device) change(cat *p4values.Catalog, w sdk.DeviceWrite) (change, error) {
	entry, err := planEntry(cat, w)
	if err != nil {
		return change{}, err
	}
	c := change{key: planKey(entry), insert: w.Op == sdk.Insert}
	d.mu.Lock()
	if before, ok := d.planned[c.key]; ok {
		c.before = &before
	}
	d.mu.Unlock()
	op := w.Op
	if c.before != nil && op == sdk.Insert {
		op = sdk.Modify // a plugin that was restarted plans from the beginning
	}
	if w.Op != sdk.Delete {
		c.after = &entry
	}
	c.update, err = planUpdate(cat, op, entry)
	return c, err
}

// keep notes what is on the switch because of plans.
func (d *Device) keep(changes []change, of func(*change) *p4rt.Entry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range changes {
		c := &changes[i]
		if e := of(c); e == nil {
			delete(d.planned, c.key)
		} else {
			d.planned[c.key] = *e
		}
	}
}

// send writes changes. It returns those that may have been carried out.
func send(ctx context.Context, s session, changes []change) (done []change, err error) {
	if len(changes) == 0 {
		return nil, nil
	}
	updates := make([]*p4v1.Update, len(changes))
	for i := range changes {
		updates[i] = changes[i].update
	}
	err = s.Write(ctx, updates...)
	var refused *p4rt.WriteError
	if err == nil || !errors.As(err, &refused) {
		return changes, err
	}
	if refused.Cause != nil {
		return changes, err
	}
	done = slices.Clone(changes)
	var again []*p4v1.Update
	for _, f := range refused.Failed {
		c := &done[f.Index]
		switch {
		case c.insert && f.Code == codes.AlreadyExists:
			again = append(again, p4rt.Modify(f.Update.GetEntity()))
		case c.insert && f.Code == codes.NotFound:
			again = append(again, p4rt.Insert(f.Update.GetEntity()))
		default:
			c.update = nil
		}
	}
	if len(again) < len(refused.Failed) {
		return slices.DeleteFunc(done, func(c change) bool { return c.update == nil }), err
	}
	return changes, s.Write(ctx, again...)
}

// takeBack undoes changes, the newest first.
func takeBack(ctx context.Context, s session, cat *p4values.Catalog, changes []change) error {
	var back []change
	var unknown error
	for _, c := range slices.Backward(changes) {
		entry, op := c.before, sdk.Modify
		switch {
		case c.before == nil && !c.insert:
			unknown = fmt.Errorf("what %s was before no plan has said", c.key)
			continue
		case c.before == nil:
			entry, op = c.after, sdk.Delete
		case c.before.Default:
			op = sdk.SetDefault
		}
		u, err := planUpdate(cat, op, *entry)
		if err != nil {
			return err
		}
		back = append(back, change{update: u, insert: op == sdk.Modify})
	}
	_, err := send(ctx, s, back)
	var refused *p4rt.WriteError
	if errors.As(err, &refused) && refused.Cause == nil && !slices.ContainsFunc(refused.Failed, func(f *p4rt.UpdateError) bool {
		return f.Code != codes.NotFound
	}) {
		err = nil // what was to be removed is not there
	}
	return errors.Join(err, unknown)
}

// replan writes again what plans left on the switch, after a push cleared it. What is there already, because a plan was
// faster, is no mistake.
func (d *Device) replan(ctx context.Context) error {
	d.applying.Lock()
	defer d.applying.Unlock()
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
	var changes []change
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
		changes = append(changes, change{update: u, key: key, after: &entry, insert: true})
	}
	_, err = send(ctx, s, changes)
	return err
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
