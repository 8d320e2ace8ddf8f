// SPDX-License-Identifier: Apache-2.0

package entities

import (
	"bytes"
	"encoding/binary"
	"time"

	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
	"github.com/netsketch/netsketch/p4/softswitch"
)

// keyOf converts the key of an entry: its match and priority. It rejects keys that violate the
// section "Match Format" of the specification.
func (d *Device) keyOf(t *table, e *p4v1.TableEntry) (softswitch.Entry, error) {
	out := softswitch.Entry{Priority: e.GetPriority()}
	switch {
	case t.NeedsPriority && e.GetPriority() <= 0:
		return out, invalid("table %s has ternary, range or optional fields: an entry needs a priority above 0, not %d",
			t.Name, e.GetPriority())
	case !t.NeedsPriority && e.GetPriority() != 0:
		return out, invalid("table %s has no ternary, range or optional field: an entry's priority must be 0, not %d",
			t.Name, e.GetPriority())
	}
	match, err := matchOf(t.Name, t.Match, e.GetMatch())
	if err != nil {
		return out, err
	}
	for i, m := range match {
		if t.ternary[i] && m.Kind == softswitch.MatchOptional {
			match[i].Kind, match[i].Mask = softswitch.MatchTernary, p4values.Ones(t.Match[i].Width)
		}
	}
	out.Match = match
	out.Priority += t.base
	return out, nil
}

// matchOf converts matches of tables and value sets to the order of the fields.
func matchOf(what string, fields []p4values.Field, given []*p4v1.FieldMatch) ([]softswitch.Match, error) {
	out := make([]softswitch.Match, len(fields))
	seen := make([]bool, len(fields))
	for _, m := range given {
		i := -1
		for j := range fields {
			if fields[j].ID == m.GetFieldId() {
				i = j
			}
		}
		if i < 0 {
			return nil, invalid("%s has no key field with id %d", what, m.GetFieldId())
		}
		f := &fields[i]
		if seen[i] {
			return nil, invalid("%s: key field %q is given twice", what, f.Name)
		}
		seen[i] = true
		sm, err := fieldMatch(f, m)
		if err != nil {
			return nil, invalid("%s: key field %q: %v", what, f.Name, status.Convert(err).Message())
		}
		out[i] = sm
	}
	for i, f := range fields {
		if !seen[i] && f.Kind == p4values.Exact {
			return nil, invalid("%s: exact key field %q is missing", what, f.Name)
		}
	}
	return out, nil
}

func fieldMatch(f *p4values.Field, m *p4v1.FieldMatch) (softswitch.Match, error) {
	var none softswitch.Match
	wrong := func(given p4values.MatchKind) error { return invalid("it is %v, not %v", f.Kind, given) }
	number := func(name string, b []byte) ([]byte, error) {
		v, err := p4values.Pad(b, f.Width)
		if err != nil {
			return nil, invalid("%s: %v", name, err)
		}
		return v, nil
	}
	switch m := m.GetFieldMatchType().(type) {
	case *p4v1.FieldMatch_Exact_:
		if f.Kind != p4values.Exact {
			return none, wrong(p4values.Exact)
		}
		v, err := number("value", m.Exact.GetValue())
		return softswitch.Match{Kind: softswitch.MatchExact, Value: v}, err
	case *p4v1.FieldMatch_Optional_:
		if f.Kind != p4values.Optional {
			return none, wrong(p4values.Optional)
		}
		v, err := number("value", m.Optional.GetValue())
		return softswitch.Match{Kind: softswitch.MatchOptional, Value: v}, err
	case *p4v1.FieldMatch_Lpm:
		if f.Kind != p4values.LPM {
			return none, wrong(p4values.LPM)
		}
		v, err := number("value", m.Lpm.GetValue())
		if err != nil {
			return none, err
		}
		p := int(m.Lpm.GetPrefixLen())
		switch {
		case p <= 0:
			return none, invalid("a prefix of %d bits matches everything: leave the field out", p)
		case p > f.Width:
			return none, invalid("a prefix of %d bits does not fit %d bits", p, f.Width)
		case !bytes.Equal(p4values.And(v, p4values.Mask(p, f.Width)), v):
			return none, invalid("value %#x has bits beyond its prefix of %d bits", v, p)
		}
		return softswitch.Match{Kind: softswitch.MatchLPM, Value: v, PrefixLen: p}, nil
	case *p4v1.FieldMatch_Ternary_:
		if f.Kind != p4values.Ternary {
			return none, wrong(p4values.Ternary)
		}
		return ternaryMatch(f, m.Ternary, number)
	case *p4v1.FieldMatch_Range_:
		if f.Kind != p4values.Range {
			return none, wrong(p4values.Range)
		}
		return rangeMatch(f, m.Range, number)
	case *p4v1.FieldMatch_Other:
		return none, invalid("v1model has no architecture-specific match kind")
	}
	return none, invalid("no match is given")
}

func ternaryMatch(_ *p4values.Field, m *p4v1.FieldMatch_Ternary,
	number func(string, []byte) ([]byte, error)) (softswitch.Match, error) {
	v, err := number("value", m.GetValue())
	if err != nil {
		return softswitch.Match{}, err
	}
	mask, err := number("mask", m.GetMask())
	if err != nil {
		return softswitch.Match{}, err
	}
	switch {
	case p4values.IsZero(mask):
		return softswitch.Match{}, invalid("a mask of zeros matches everything: leave the field out")
	case !bytes.Equal(p4values.And(v, mask), v):
		return softswitch.Match{}, invalid("value %#x has bits outside of its mask %#x", v, mask)
	}
	return softswitch.Match{Kind: softswitch.MatchTernary, Value: v, Mask: mask}, nil
}

func rangeMatch(f *p4values.Field, m *p4v1.FieldMatch_Range,
	number func(string, []byte) ([]byte, error)) (softswitch.Match, error) {
	low, err := number("low end", m.GetLow())
	if err != nil {
		return softswitch.Match{}, err
	}
	high, err := number("high end", m.GetHigh())
	if err != nil {
		return softswitch.Match{}, err
	}
	switch {
	case bytes.Compare(low, high) > 0:
		return softswitch.Match{}, invalid("the range from %#x to %#x is empty", low, high)
	case p4values.IsZero(low) && bytes.Equal(high, p4values.Ones(f.Width)):
		return softswitch.Match{}, invalid("the range is of all values: leave the field out")
	}
	return softswitch.Match{Kind: softswitch.MatchRange, Value: low, Mask: high}, nil
}

// protoMatch is the inverse of matchOf: canonical values, don't-care fields left out.
func protoMatch(fields []p4values.Field, match []softswitch.Match) []*p4v1.FieldMatch {
	var out []*p4v1.FieldMatch
	for i, m := range match {
		if i >= len(fields) || m.Kind == softswitch.MatchDontCare {
			continue
		}
		fm := &p4v1.FieldMatch{FieldId: fields[i].ID}
		v := p4values.Canonical(m.Value)
		kind := m.Kind
		if fields[i].Kind == p4values.Optional {
			kind = softswitch.MatchOptional // see table.ternary
		}
		switch kind {
		case softswitch.MatchExact:
			fm.FieldMatchType = &p4v1.FieldMatch_Exact_{Exact: &p4v1.FieldMatch_Exact{Value: v}}
		case softswitch.MatchOptional:
			fm.FieldMatchType = &p4v1.FieldMatch_Optional_{Optional: &p4v1.FieldMatch_Optional{Value: v}}
		case softswitch.MatchLPM:
			if m.PrefixLen == 0 {
				continue
			}
			fm.FieldMatchType = &p4v1.FieldMatch_Lpm{Lpm: &p4v1.FieldMatch_LPM{Value: v, PrefixLen: int32(m.PrefixLen)}}
		case softswitch.MatchTernary:
			if p4values.IsZero(m.Mask) {
				continue
			}
			fm.FieldMatchType = &p4v1.FieldMatch_Ternary_{Ternary: &p4v1.FieldMatch_Ternary{Value: v,
				Mask: p4values.Canonical(m.Mask)}}
		case softswitch.MatchRange:
			if p4values.IsZero(m.Value) && p4values.Equal(m.Mask, p4values.Ones(fields[i].Width)) {
				continue
			}
			fm.FieldMatchType = &p4v1.FieldMatch_Range_{Range: &p4v1.FieldMatch_Range{Low: v,
				High: p4values.Canonical(m.Mask)}}
		}
		out = append(out, fm)
	}
	return out
}

// callOf converts an action call of an entry, a member or a default entry.
func (d *Device) callOf(t *p4values.Table, a *p4v1.Action, asDefault bool) (name string, params [][]byte, err error) {
	ref, ok := t.Action(a.GetActionId())
	if !ok {
		return "", nil, invalid("table %s has no action with id %#x", t.Name, a.GetActionId())
	}
	if asDefault && ref.Scope == p4configv1.ActionRef_TABLE_ONLY {
		return "", nil, status.Errorf(codes.PermissionDenied,
			"table %s: action %s cannot be its default action (@tableonly)", t.Name, ref.Name)
	}
	if !asDefault && ref.Scope == p4configv1.ActionRef_DEFAULT_ONLY {
		return "", nil, status.Errorf(codes.PermissionDenied,
			"table %s: action %s can only be its default action (@defaultonly)", t.Name, ref.Name)
	}
	params = make([][]byte, len(ref.Params))
	for _, p := range a.GetParams() {
		i := ref.ParamByID(p.GetParamId())
		if i < 0 {
			return "", nil, invalid("action %s has no parameter with id %d", ref.Name, p.GetParamId())
		}
		if params[i] != nil {
			return "", nil, invalid("action %s: parameter %q is given twice", ref.Name, ref.Params[i].Name)
		}
		if params[i], err = p4values.Pad(p.GetValue(), ref.Params[i].Width); err != nil {
			return "", nil, invalid("action %s: parameter %q: %v", ref.Name, ref.Params[i].Name, err)
		}
	}
	for i, p := range params {
		if p == nil {
			return "", nil, invalid("action %s: parameter %q is missing", ref.Name, ref.Params[i].Name)
		}
	}
	return ref.Name, params, nil
}

// protoCall is the inverse of callOf.
func (d *Device) protoCall(name string, params [][]byte) *p4v1.Action {
	a, err := d.cat.Actions.Name(name)
	if err != nil {
		return &p4v1.Action{} // an action generated by p4c that is not in P4Info
	}
	out := &p4v1.Action{ActionId: a.ID}
	for i, p := range params {
		if i < len(a.Params) {
			out.Params = append(out.Params, &p4v1.Action_Param{ParamId: a.Params[i].ID, Value: p4values.Canonical(p)})
		}
	}
	return out
}

// protoAction encodes an entry's action.
func (d *Device) protoAction(t *table, a softswitch.Action) *p4v1.TableAction {
	switch a.Kind {
	case softswitch.ActionMember:
		return &p4v1.TableAction{Type: &p4v1.TableAction_ActionProfileMemberId{ActionProfileMemberId: a.Member}}
	case softswitch.ActionGroup:
		return &p4v1.TableAction{Type: &p4v1.TableAction_ActionProfileGroupId{ActionProfileGroupId: a.Group}}
	case softswitch.ActionSet:
		set := &p4v1.ActionProfileActionSet{
			ActionSelectionMode: p4v1.ActionProfileActionSet_ActionSelectionMode(a.Tag & 0xff),
			SizeSemantics:       p4v1.ActionProfileActionSet_SizeSemantics(a.Tag >> 8),
		}
		for _, w := range a.Set {
			pa := &p4v1.ActionProfileAction{Action: d.protoCall(w.Name, w.Params),
				Weight: protoWeight(t.Profile, w.Weight)}
			if w.Watch.Set {
				pa.WatchKind = &p4v1.ActionProfileAction_WatchPort{WatchPort: p4values.Uint(uint64(w.Watch.Port))}
			}
			set.ActionProfileActions = append(set.ActionProfileActions, pa)
		}
		return &p4v1.TableAction{Type: &p4v1.TableAction_ActionProfileActionSet{ActionProfileActionSet: set}}
	}
	return &p4v1.TableAction{Type: &p4v1.TableAction_Action{Action: d.protoCall(a.Name, a.Params)}}
}

// protoEntry encodes an entry of the switch with the direct resources that like requests.
func (d *Device) protoEntry(t *table, e softswitch.Entry, like *p4v1.TableEntry) *p4v1.TableEntry {
	out := &p4v1.TableEntry{
		TableId: t.ID, Match: protoMatch(t.Match, e.Match), Priority: e.Priority - t.base,
		Action:        d.protoAction(t, e.Action),
		IdleTimeoutNs: e.IdleTimeout.Nanoseconds(), IsConst: e.Const,
	}
	cookie, metadata := splitMetadata(e.Metadata)
	setCookie(out, cookie)
	out.Metadata = metadata
	d.addDirect(out, t, like, e)
	if like.GetTimeSinceLastHit() != nil && t.IdleTimeout {
		out.TimeSinceLastHit = &p4v1.TableEntry_IdleTimeout{ElapsedNs: e.SinceLastHit.Nanoseconds()}
	}
	return out
}

// cookieMark begins metadata that contains a controller_metadata.
var cookieMark = []byte("\xffp4rt-cookie\x00")

// joinMetadata encodes an entry's two kinds of metadata as one.
func joinMetadata(cookie uint64, metadata []byte) []byte {
	if cookie == 0 && !bytes.HasPrefix(metadata, cookieMark) {
		return metadata
	}
	out := binary.BigEndian.AppendUint64(bytes.Clone(cookieMark), cookie)
	return append(out, metadata...)
}

func splitMetadata(kept []byte) (cookie uint64, metadata []byte) {
	if rest, ok := bytes.CutPrefix(kept, cookieMark); ok && len(rest) >= 8 {
		if len(rest) > 8 {
			metadata = rest[8:]
		}
		return binary.BigEndian.Uint64(rest), metadata
	}
	return 0, kept
}

// counterOf converts a counter's value; both counts are unsigned.
func counterOf(c *p4v1.CounterData) (softswitch.CounterData, error) {
	if c.GetByteCount() < 0 || c.GetPacketCount() < 0 {
		return softswitch.CounterData{}, invalid("a counter cannot be negative: %d bytes, %d packets", c.GetByteCount(),
			c.GetPacketCount())
	}
	return softswitch.CounterData{Packets: uint64(c.GetPacketCount()), Bytes: uint64(c.GetByteCount())}, nil
}

// protoCounter encodes a counter without the count that its unit does not have.
func protoCounter(u p4values.Unit, c softswitch.CounterData) *p4v1.CounterData {
	out := &p4v1.CounterData{}
	if u != p4configv1.CounterSpec_PACKETS {
		out.ByteCount = int64(c.Bytes)
	}
	if u != p4configv1.CounterSpec_BYTES {
		out.PacketCount = int64(c.Packets)
	}
	return out
}

// meterOf converts a meter's configuration; nil is the default, green for all packets.
func meterOf(m *p4values.Meter, c *p4v1.MeterConfig) (*softswitch.MeterConfig, error) {
	if c == nil {
		return nil, nil
	}
	for _, v := range []int64{c.GetCir(), c.GetCburst(), c.GetPir(), c.GetPburst(), c.GetEburst()} {
		if v < 0 {
			return nil, invalid("meter %s: rates and bursts cannot be negative", m.Name)
		}
	}
	if c.GetEburst() != 0 {
		return nil, invalid("meter %s is a two-rate meter and has no excess burst", m.Name)
	}
	return &softswitch.MeterConfig{CIR: uint64(c.GetCir()), CBurst: uint64(c.GetCburst()), PIR: uint64(c.GetPir()),
		PBurst: uint64(c.GetPburst())}, nil
}

func protoMeter(m *softswitch.MeterConfig) *p4v1.MeterConfig {
	if m == nil {
		return nil
	}
	return &p4v1.MeterConfig{Cir: int64(m.CIR), Cburst: int64(m.CBurst), Pir: int64(m.PIR), Pburst: int64(m.PBurst)}
}

func idleTimeout(ns int64) time.Duration { return time.Duration(ns) }
