// SPDX-License-Identifier: Apache-2.0

package p4rt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

// Desired is what one owner wants on a switch.
type Desired struct {
	// Entries by names, built for the program on the switch whenever they are applied.
	Entries []Entry
	// Entities are anything else that is inserted: action profile members and groups, multicast groups, clone sessions, digests;
	// table entries too.
	Entities []*p4v1.Entity
	// Tables are the tables that are the owner's alone: whatever entries it does not want there are deleted, those of an earlier
	// process included.
	Tables []string
}

// desiredState is what all owners want, by owner.
type desiredState map[string]Desired

// Desire makes d what the owner wants on the switch, in place of what it wanted before; an empty Desired wants nothing any more. The
// switch is compared with it and made to agree: now if the session is Ready, and in every later session before it is. It returns nil
// when there is no session yet. On an error the wish stands, and the next session tries again.
func (c *Client) Desire(ctx context.Context, owner string, d Desired) error {
	c.applying.Lock()
	defer c.applying.Unlock()
	c.mu.Lock()
	before := c.desired[owner]
	if len(d.Entries)+len(d.Entities)+len(d.Tables) == 0 {
		delete(c.desired, owner)
	} else {
		c.desired[owner] = d
	}
	c.mu.Unlock()
	s, err := c.use(Ready)
	if errors.Is(err, ErrNotReady) {
		return nil
	}
	if err != nil {
		return err
	}
	return s.apply(ctx, d, before)
}

// reconcile makes the switch hold what all owners want.
func (s *session) reconcile() (step, error) {
	s.enter(Reconciling)
	s.c.applying.Lock()
	defer s.c.applying.Unlock()
	s.c.mu.Lock()
	owners := maps.Clone(s.c.desired)
	s.c.mu.Unlock()
	s.refused = nil
	for _, owner := range slices.Sorted(maps.Keys(owners)) {
		if err := s.apply(s.ctx, owners[owner], Desired{}); err != nil {
			if errors.Is(err, ErrNotPrimary) && s.ctx.Err() == nil {
				return s.await, nil
			}
			var refused *WriteError
			if errors.As(err, &refused) && refused.Cause == nil {
				// The switch works and some entries do not fit it: say so, and let the rest of the network run.
				s.log.Error("reconcile", "owner", owner, "error", err)
				s.refused = errors.Join(s.refused, fmt.Errorf("desired by %s: %w", owner, err))
				continue
			}
			return nil, fmt.Errorf("reconcile %s: %w", owner, err)
		}
	}
	return s.ready, nil
}

// apply makes the switch hold what an owner wants. What it wanted before and does not want any more is deleted.
func (s *session) apply(ctx context.Context, want, before Desired) error {
	cat := s.program().catalog
	wanted, err := want.build(cat)
	if err != nil {
		return fmt.Errorf("p4rt %s: %w", s.c.cfg.Target, err)
	}
	old, err := before.build(cat)
	if err != nil {
		old = nil // made for another program: it is not on the switch
	}
	own := map[uint32]bool{}
	for _, name := range want.Tables {
		t, err := cat.Tables.Name(name)
		if err != nil {
			return fmt.Errorf("p4rt %s: %w", s.c.cfg.Target, err)
		}
		own[t.ID] = true
	}
	have, err := s.readLike(ctx, cat, append(slices.Clone(wanted), old...), own)
	if err != nil {
		return err
	}
	return s.write(ctx, difference(cat, wanted, old, have, own))
}

// build makes entities of all that is wanted, and refuses two of the same key.
func (d Desired) build(cat *p4values.Catalog) ([]*p4v1.Entity, error) {
	out := make([]*p4v1.Entity, 0, len(d.Entries)+len(d.Entities))
	for _, e := range d.Entries {
		b, err := e.Build(cat)
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	out = append(out, d.Entities...)
	seen := map[string]bool{}
	for _, e := range out {
		k := entityKey(cat, e)
		if seen[k] {
			return nil, fmt.Errorf("wanted twice: %s", DescribeEntity(cat, e))
		}
		seen[k] = true
	}
	return out, nil
}

// readLike reads from the switch everything of the kinds there are in like, and the tables in own.
func (s *session) readLike(ctx context.Context, cat *p4values.Catalog, like []*p4v1.Entity, own map[uint32]bool) (map[string]*p4v1.Entity, error) {
	queries := map[string]*p4v1.Entity{}
	add := func(q *p4v1.Entity) { queries[marshal(q)] = q }
	for id := range own {
		add(tableQuery(cat, id, false))
	}
	for _, e := range like {
		switch e := e.GetEntity().(type) {
		case *p4v1.Entity_TableEntry:
			add(tableQuery(cat, e.TableEntry.GetTableId(), e.TableEntry.GetIsDefaultAction()))
		case *p4v1.Entity_ActionProfileMember:
			add(&p4v1.Entity{Entity: &p4v1.Entity_ActionProfileMember{ActionProfileMember: &p4v1.ActionProfileMember{ActionProfileId: e.ActionProfileMember.GetActionProfileId()}}})
		case *p4v1.Entity_ActionProfileGroup:
			add(&p4v1.Entity{Entity: &p4v1.Entity_ActionProfileGroup{ActionProfileGroup: &p4v1.ActionProfileGroup{ActionProfileId: e.ActionProfileGroup.GetActionProfileId()}}})
		case *p4v1.Entity_PacketReplicationEngineEntry:
			q := preKey(e.PacketReplicationEngineEntry)
			if c := q.GetPacketReplicationEngineEntry().GetCloneSessionEntry(); c != nil {
				c.SessionId = 0
			} else {
				q.GetPacketReplicationEngineEntry().GetMulticastGroupEntry().MulticastGroupId = 0
			}
			add(q)
		case *p4v1.Entity_DigestEntry:
			add(&p4v1.Entity{Entity: &p4v1.Entity_DigestEntry{DigestEntry: &p4v1.DigestEntry{DigestId: e.DigestEntry.GetDigestId()}}})
		}
	}
	have := map[string]*p4v1.Entity{}
	for _, k := range slices.Sorted(maps.Keys(queries)) {
		for e, err := range s.read(ctx, []*p4v1.Entity{queries[k]}) {
			if status.Code(err) == codes.NotFound && queries[k].GetDigestEntry() != nil {
				break // BMv2's answer where a digest is not enabled
			}
			if err != nil {
				return nil, err
			}
			have[entityKey(cat, e)] = e
		}
	}
	return have, nil
}

// tableQuery asks for a table's entries or its default entry, with the meters' configurations where there are any.
func tableQuery(cat *p4values.Catalog, table uint32, isDefault bool) *p4v1.Entity {
	q := &p4v1.TableEntry{TableId: table, IsDefaultAction: isDefault}
	if t, ok := cat.Tables.ID(table); ok && t.DirectMeter != nil {
		q.MeterConfig = &p4v1.MeterConfig{}
	}
	return &p4v1.Entity{Entity: &p4v1.Entity_TableEntry{TableEntry: q}}
}

// difference returns the updates that make have what is wanted, in an order that respects what depends on what: new members, then
// groups, then entries; what goes away goes the other way round, and entries that go make room for those that come.
func difference(cat *p4values.Catalog, wanted, old []*p4v1.Entity, have map[string]*p4v1.Entity, own map[uint32]bool) []*p4v1.Update {
	var build, remove [rankIndirect + 1][]*p4v1.Update
	keep := map[string]bool{}
	for _, e := range wanted {
		key := entityKey(cat, e)
		keep[key] = true
		r := entityRank(cat, e)
		there, ok := have[key]
		switch {
		case ok && sameEntity(cat, e, there):
		case ok || e.GetTableEntry().GetIsDefaultAction():
			build[r] = append(build[r], Modify(e))
		default:
			build[r] = append(build[r], Insert(e))
		}
	}
	drop := func(key string, e *p4v1.Entity) {
		if keep[key] {
			return
		}
		keep[key] = true
		r := entityRank(cat, e)
		if t := e.GetTableEntry(); t.GetIsDefaultAction() {
			// A default action cannot be deleted: it goes back to the program's own.
			build[r] = append(build[r], Modify(&p4v1.Entity{Entity: &p4v1.Entity_TableEntry{TableEntry: &p4v1.TableEntry{TableId: t.GetTableId(), IsDefaultAction: true}}}))
			return
		}
		remove[r] = append(remove[r], Delete(e))
	}
	for _, e := range old {
		if key := entityKey(cat, e); have[key] != nil {
			drop(key, e)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(have)) {
		if t := have[key].GetTableEntry(); t != nil && own[t.GetTableId()] && !t.GetIsConst() && !t.GetIsDefaultAction() {
			drop(key, have[key])
		}
	}
	return slices.Concat(build[rankMember], build[rankGroup], remove[rankNone], remove[rankIndirect], build[rankNone], build[rankIndirect],
		remove[rankGroup], remove[rankMember])
}
