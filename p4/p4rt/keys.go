// SPDX-License-Identifier: Apache-2.0

package p4rt

import (
	"bytes"
	"slices"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/protobuf/proto"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
)

// Ranks of entities that depend on one another: members come before groups, groups before the entries that use them, and for
// deletions the other way round.
const (
	rankNone = iota
	rankMember
	rankGroup
	rankIndirect
)

func entityRank(cat *p4values.Catalog, e *p4v1.Entity) int {
	switch e := e.GetEntity().(type) {
	case *p4v1.Entity_ActionProfileMember:
		return rankMember
	case *p4v1.Entity_ActionProfileGroup:
		return rankGroup
	case *p4v1.Entity_TableEntry:
		if t, ok := cat.Tables.ID(e.TableEntry.GetTableId()); ok && t.Profile != nil {
			return rankIndirect
		}
	}
	return rankNone
}

// entityKey returns what identifies an entity on the switch, the same for every way of writing it. Direct counters and meters have
// the key of their entry.
func entityKey(cat *p4values.Catalog, e *p4v1.Entity) string {
	var k *p4v1.Entity
	switch e := e.GetEntity().(type) {
	case *p4v1.Entity_TableEntry:
		k = tableKey(cat, e.TableEntry)
	case *p4v1.Entity_DirectCounterEntry:
		k = tableKey(cat, e.DirectCounterEntry.GetTableEntry())
	case *p4v1.Entity_DirectMeterEntry:
		k = tableKey(cat, e.DirectMeterEntry.GetTableEntry())
	case *p4v1.Entity_ActionProfileMember:
		m := e.ActionProfileMember
		k = &p4v1.Entity{Entity: &p4v1.Entity_ActionProfileMember{ActionProfileMember: &p4v1.ActionProfileMember{ActionProfileId: m.GetActionProfileId(), MemberId: m.GetMemberId()}}}
	case *p4v1.Entity_ActionProfileGroup:
		g := e.ActionProfileGroup
		k = &p4v1.Entity{Entity: &p4v1.Entity_ActionProfileGroup{ActionProfileGroup: &p4v1.ActionProfileGroup{ActionProfileId: g.GetActionProfileId(), GroupId: g.GetGroupId()}}}
	case *p4v1.Entity_MeterEntry:
		k = &p4v1.Entity{Entity: &p4v1.Entity_MeterEntry{MeterEntry: &p4v1.MeterEntry{MeterId: e.MeterEntry.GetMeterId(), Index: e.MeterEntry.GetIndex()}}}
	case *p4v1.Entity_CounterEntry:
		k = &p4v1.Entity{Entity: &p4v1.Entity_CounterEntry{CounterEntry: &p4v1.CounterEntry{CounterId: e.CounterEntry.GetCounterId(), Index: e.CounterEntry.GetIndex()}}}
	case *p4v1.Entity_RegisterEntry:
		k = &p4v1.Entity{Entity: &p4v1.Entity_RegisterEntry{RegisterEntry: &p4v1.RegisterEntry{RegisterId: e.RegisterEntry.GetRegisterId(), Index: e.RegisterEntry.GetIndex()}}}
	case *p4v1.Entity_ValueSetEntry:
		k = &p4v1.Entity{Entity: &p4v1.Entity_ValueSetEntry{ValueSetEntry: &p4v1.ValueSetEntry{ValueSetId: e.ValueSetEntry.GetValueSetId()}}}
	case *p4v1.Entity_DigestEntry:
		k = &p4v1.Entity{Entity: &p4v1.Entity_DigestEntry{DigestEntry: &p4v1.DigestEntry{DigestId: e.DigestEntry.GetDigestId()}}}
	case *p4v1.Entity_PacketReplicationEngineEntry:
		k = preKey(e.PacketReplicationEngineEntry)
	default:
		k = &p4v1.Entity{Entity: e}
	}
	return marshal(k)
}

func preKey(e *p4v1.PacketReplicationEngineEntry) *p4v1.Entity {
	out := &p4v1.PacketReplicationEngineEntry{}
	if c := e.GetCloneSessionEntry(); c != nil {
		out.Type = &p4v1.PacketReplicationEngineEntry_CloneSessionEntry{CloneSessionEntry: &p4v1.CloneSessionEntry{SessionId: c.GetSessionId()}}
	} else {
		id := e.GetMulticastGroupEntry().GetMulticastGroupId()
		out.Type = &p4v1.PacketReplicationEngineEntry_MulticastGroupEntry{MulticastGroupEntry: &p4v1.MulticastGroupEntry{MulticastGroupId: id}}
	}
	return &p4v1.Entity{Entity: &p4v1.Entity_PacketReplicationEngineEntry{PacketReplicationEngineEntry: out}}
}

func tableKey(cat *p4values.Catalog, e *p4v1.TableEntry) *p4v1.Entity {
	return &p4v1.Entity{Entity: &p4v1.Entity_TableEntry{TableEntry: &p4v1.TableEntry{
		TableId: e.GetTableId(), Match: canonicalMatch(cat, e), Priority: e.GetPriority(), IsDefaultAction: e.GetIsDefaultAction(),
	}}}
}

// marshal makes a string of a message that is equal for equal messages.
func marshal(m proto.Message) string {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return "" // only invalid UTF-8 in a string field does that, and no key has one
	}
	return string(b)
}

// canonicalMatch brings a match in one form: numbers shortest, fields in the order of their ids.
func canonicalMatch(cat *p4values.Catalog, e *p4v1.TableEntry) []*p4v1.FieldMatch {
	t, _ := cat.Tables.ID(e.GetTableId())
	out := make([]*p4v1.FieldMatch, 0, len(e.GetMatch()))
	sorted := true
	for i, m := range e.GetMatch() {
		out = append(out, canonicalField(t, m))
		sorted = sorted && (i == 0 || m.GetFieldId() > e.GetMatch()[i-1].GetFieldId())
	}
	if !sorted {
		slices.SortStableFunc(out, func(a, b *p4v1.FieldMatch) int { return int(a.GetFieldId()) - int(b.GetFieldId()) })
	}
	return out
}

func canonicalField(t *p4values.Table, m *p4v1.FieldMatch) *p4v1.FieldMatch {
	if t != nil {
		if i := t.FieldByID(m.GetFieldId()); i >= 0 && t.Match[i].String {
			return m
		}
	}
	out := &p4v1.FieldMatch{FieldId: m.GetFieldId()}
	switch m := m.GetFieldMatchType().(type) {
	case *p4v1.FieldMatch_Exact_:
		out.FieldMatchType = &p4v1.FieldMatch_Exact_{Exact: &p4v1.FieldMatch_Exact{Value: p4values.Canonical(m.Exact.GetValue())}}
	case *p4v1.FieldMatch_Lpm:
		out.FieldMatchType = &p4v1.FieldMatch_Lpm{Lpm: &p4v1.FieldMatch_LPM{Value: p4values.Canonical(m.Lpm.GetValue()), PrefixLen: m.Lpm.GetPrefixLen()}}
	case *p4v1.FieldMatch_Ternary_:
		out.FieldMatchType = &p4v1.FieldMatch_Ternary_{Ternary: &p4v1.FieldMatch_Ternary{Value: p4values.Canonical(m.Ternary.GetValue()), Mask: p4values.Canonical(m.Ternary.GetMask())}}
	case *p4v1.FieldMatch_Range_:
		out.FieldMatchType = &p4v1.FieldMatch_Range_{Range: &p4v1.FieldMatch_Range{Low: p4values.Canonical(m.Range.GetLow()), High: p4values.Canonical(m.Range.GetHigh())}}
	case *p4v1.FieldMatch_Optional_:
		out.FieldMatchType = &p4v1.FieldMatch_Optional_{Optional: &p4v1.FieldMatch_Optional{Value: p4values.Canonical(m.Optional.GetValue())}}
	default:
		out.FieldMatchType = m
	}
	return out
}

// sameEntity reports whether a switch holds what is wanted: values compared as numbers, what the data plane changes left out.
func sameEntity(cat *p4values.Catalog, want, have *p4v1.Entity) bool {
	return marshal(comparableForm(cat, want)) == marshal(comparableForm(cat, have))
}

// comparableForm brings an entity in the form in which two of them are compared.
func comparableForm(cat *p4values.Catalog, e *p4v1.Entity) *p4v1.Entity {
	e = proto.Clone(e).(*p4v1.Entity)
	switch e := e.GetEntity().(type) {
	case *p4v1.Entity_TableEntry:
		t := e.TableEntry
		t.Match = canonicalMatch(cat, t)
		t.CounterData, t.MeterCounterData, t.TimeSinceLastHit, t.IsConst = nil, nil, nil, false
		canonicalAction(cat, t.GetAction().GetAction())
		for _, a := range t.GetAction().GetActionProfileActionSet().GetActionProfileActions() {
			canonicalAction(cat, a.GetAction())
			if w, ok := a.GetWatchKind().(*p4v1.ActionProfileAction_WatchPort); ok {
				w.WatchPort = p4values.Canonical(w.WatchPort)
			}
		}
	case *p4v1.Entity_ActionProfileMember:
		canonicalAction(cat, e.ActionProfileMember.GetAction())
	case *p4v1.Entity_ActionProfileGroup:
		slices.SortStableFunc(e.ActionProfileGroup.Members, func(a, b *p4v1.ActionProfileGroup_Member) int {
			return int(int64(a.GetMemberId()) - int64(b.GetMemberId()))
		})
		for _, m := range e.ActionProfileGroup.Members {
			if w, ok := m.GetWatchKind().(*p4v1.ActionProfileGroup_Member_WatchPort); ok {
				w.WatchPort = p4values.Canonical(w.WatchPort)
			}
		}
	case *p4v1.Entity_PacketReplicationEngineEntry:
		pre := e.PacketReplicationEngineEntry
		canonicalReplicas(pre.GetMulticastGroupEntry().GetReplicas())
		canonicalReplicas(pre.GetCloneSessionEntry().GetReplicas())
	}
	return e
}

func canonicalAction(cat *p4values.Catalog, a *p4v1.Action) {
	act, _ := cat.Actions.ID(a.GetActionId())
	for _, p := range a.GetParams() {
		if act != nil {
			if i := act.ParamByID(p.GetParamId()); i >= 0 && act.Params[i].String {
				continue
			}
		}
		p.Value = p4values.Canonical(p.GetValue())
	}
	slices.SortStableFunc(a.GetParams(), func(x, y *p4v1.Action_Param) int { return int(x.GetParamId()) - int(y.GetParamId()) })
}

// canonicalReplicas makes replicas comparable: the deprecated port number becomes the byte string, and order does not count.
func canonicalReplicas(rs []*p4v1.Replica) {
	for _, r := range rs {
		r.PortKind = &p4v1.Replica_Port{Port: replicaPort(r)}
	}
	slices.SortStableFunc(rs, func(a, b *p4v1.Replica) int {
		if c := bytes.Compare(a.GetPort(), b.GetPort()); c != 0 {
			return c
		}
		return int(int64(a.GetInstance()) - int64(b.GetInstance()))
	})
}

func replicaPort(r *p4v1.Replica) []byte {
	if p, ok := r.GetPortKind().(*p4v1.Replica_EgressPort); ok {
		return p4values.Uint(uint64(p.EgressPort)) //nolint:staticcheck // deprecated, and older switches still send it
	}
	return p4values.Canonical(r.GetPort())
}
