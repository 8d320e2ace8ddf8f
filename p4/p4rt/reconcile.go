// SPDX-License-Identifier: Apache-2.0

package p4rt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

// Desired is a part of the state that a switch must have.
type Desired struct {
	// Entries are the part's table entries and default actions.
	Entries []Entry
	// Tables are owned by the part: Reconcile deletes every entry in them that no part contains,
	// including entries of an earlier process.
	Tables []string
	// Absent are entries that Reconcile deletes unless a part contains them. Only their keys are
	// used.
	Absent []Entry
}

// Reconcile reads the tables that the parts name, and makes the switch hold the parts' entries,
// one part after another. Entries may refer to entries of earlier parts, and replace earlier
// parts' entries with the same key. Reconcile writes only differences, and deletes from owned
// tables the entries that no part contains. Entries that the program or the switch refuses are
// skipped; the error is then [ErrRefused] and names them. Reconcile works in a session that is
// Ready, and during [Config].Reconcile.
func (c *Client) Reconcile(ctx context.Context, parts ...Desired) error {
	s, err := c.use(Ready, Reconciling)
	if err != nil {
		return err
	}
	return s.reconcileEntries(ctx, parts)
}

// reconcile calls Config.Reconcile to update the entries of a new session.
func (s *session) reconcile() (step, error) {
	s.enter(Reconciling)
	s.refused = nil
	if s.c.cfg.Reconcile == nil {
		return s.ready, nil
	}
	err := s.c.cfg.Reconcile(s.ctx, s.c)
	switch {
	case errors.Is(err, ErrNotPrimary) && s.ctx.Err() == nil:
		return s.await, nil
	case errors.Is(err, ErrRefused):
		// The switch works, but refuses some entries: the session continues, so that the rest of the
		// network works.
		s.log.Error("reconcile", "error", err)
		s.refused = err
	case err != nil:
		return nil, fmt.Errorf("reconcile: %w", err)
	}
	return s.ready, nil
}

// wantedPart is a Desired as P4Runtime messages.
type wantedPart struct {
	entries []*p4v1.Entity
	keys    []string // keys of entries
	owned   map[uint32]bool
	absent  map[string]*p4v1.Entity // entities that the switch lacks, by key
}

// reconcileEntries compares the switch with the parts and writes the differences.
func (s *session) reconcileEntries(ctx context.Context, parts []Desired) error {
	cat := s.program().catalog
	wanted := map[string]int{} // the keys, with the number of the last part that has each
	built := make([]wantedPart, len(parts))
	var refused []error
	for i, d := range slices.Backward(parts) {
		var err error
		built[i], err = d.build(cat, i, wanted)
		refused = append(refused, err)
	}
	have, err := s.readTables(ctx, cat, built)
	if err != nil {
		return err
	}
	for _, p := range built {
		err := s.write(ctx, p.difference(cat, wanted, have))
		var failed *WriteError
		if errors.As(err, &failed) && failed.Cause == nil {
			refused = append(refused, err)
		} else if err != nil {
			return err
		}
	}
	if err := errors.Join(refused...); err != nil {
		return fmt.Errorf("p4rt %s: %w: %w", s.c.cfg.Target, ErrRefused, err)
	}
	return nil
}

// build returns part number n as P4Runtime messages, and adds the keys of its entries to wanted.
// It leaves out entries that a later part replaces. It also leaves out entries that do not fit the
// program or occur twice, which the error names.
func (d Desired) build(cat *p4values.Catalog, n int, wanted map[string]int) (wantedPart, error) {
	p := wantedPart{owned: map[uint32]bool{}, absent: map[string]*p4v1.Entity{}}
	var errs []error
	for _, name := range d.Tables {
		t, err := cat.Tables.Name(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		p.owned[t.ID] = true
	}
	for _, e := range d.Entries {
		entity, err := e.Build(cat)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		key := entityKey(cat, entity)
		if of, ok := wanted[key]; ok {
			if of == n {
				errs = append(errs, fmt.Errorf("desired twice: %s", describeEntity(cat, entity)))
			}
			continue
		}
		wanted[key] = n
		p.entries, p.keys = append(p.entries, entity), append(p.keys, key)
	}
	for _, e := range d.Absent {
		entity, err := e.BuildKey(cat)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		p.absent[entityKey(cat, entity)] = entity
	}
	return p, errors.Join(errs...)
}

// held is an entry or clone session on the switch.
type held struct {
	*p4v1.Entity
	comparable string
}

// readTables reads the owned tables and the tables with wanted entries, wanted default actions,
// and clone sessions if any are wanted.
func (s *session) readTables(ctx context.Context, cat *p4values.Catalog, parts []wantedPart) (map[string]held, error) {
	type query struct {
		table     uint32
		isDefault bool
	}
	queries, sessions := map[query]bool{}, false
	for _, p := range parts {
		for id := range p.owned {
			queries[query{id, false}] = true
		}
		for _, e := range slices.AppendSeq(slices.Clone(p.entries), maps.Values(p.absent)) {
			if t := e.GetTableEntry(); t != nil {
				queries[query{t.GetTableId(), t.GetIsDefaultAction()}] = true
			} else {
				sessions = true
			}
		}
	}
	var entities []*p4v1.Entity
	for q := range queries {
		entities = append(entities, tableEntity(&p4v1.TableEntry{TableId: q.table, IsDefaultAction: q.isDefault}))
	}
	if sessions {
		entities = append(entities, sessionEntity(&p4v1.CloneSessionEntry{}))
	}
	have := map[string]held{}
	for _, entity := range entities {
		for e, err := range s.read(ctx, []*p4v1.Entity{entity}) {
			if err != nil {
				return nil, err
			}
			have[entityKey(cat, e)] = held{e, entityForm(cat, e)}
		}
	}
	return have, nil
}

// difference returns the updates that make the switch, which holds have, hold a part. Deletions
// come first, because they make room.
func (p wantedPart) difference(
	cat *p4values.Catalog, wanted map[string]int, have map[string]held,
) (updates []*p4v1.Update) {
	for _, key := range slices.Sorted(maps.Keys(have)) {
		e := have[key].GetTableEntry()
		entity := p.absent[key]
		if e != nil && p.owned[e.GetTableId()] {
			entity = tableEntity(&p4v1.TableEntry{TableId: e.GetTableId(), Match: canonicalMatch(cat, e),
				Priority: canonicalPriority(cat, e), IsDefaultAction: e.GetIsDefaultAction()})
		}
		_, keep := wanted[key]
		if entity != nil && !keep && !e.GetIsConst() && !e.GetIsDefaultAction() {
			updates = append(updates, &p4v1.Update{Type: p4v1.Update_DELETE, Entity: entity})
		}
	}
	for i, e := range p.entries {
		there, ok := have[p.keys[i]]
		switch {
		case ok && there.comparable == entityForm(cat, e):
		case ok || e.GetTableEntry().GetIsDefaultAction():
			updates = append(updates, &p4v1.Update{Type: p4v1.Update_MODIFY, Entity: e})
		default:
			updates = append(updates, &p4v1.Update{Type: p4v1.Update_INSERT, Entity: e})
		}
	}
	return updates
}
