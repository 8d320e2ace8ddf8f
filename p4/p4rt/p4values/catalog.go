// SPDX-License-Identifier: Apache-2.0

package p4values

import (
	"fmt"
	"sort"
	"strings"

	p4configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	"google.golang.org/protobuf/proto"
)

// Names of the controller headers, from the specification.
const (
	PacketInHeader  = "packet_in"
	PacketOutHeader = "packet_out"
)

// Catalog holds a program's objects, by full name, alias and id. A full name takes precedence over
// an alias. An alias that several objects of a kind share finds none of them.
type Catalog struct {
	info *p4configv1.P4Info

	Tables    *Index[*Table]
	Actions   *Index[*Action]
	Profiles  *Index[*ActionProfile]
	Counters  *Index[*Counter] // indirect and direct ones
	Meters    *Index[*Meter]   // indirect and direct ones
	Registers *Index[*Register]
	Digests   *Index[*Digest]
	ValueSets *Index[*ValueSet]

	PacketIn  *Header // nil if the program has no such header
	PacketOut *Header // nil if the program has no such header
}

// NewCatalog makes a catalog of a P4Info. It fails for ids that are used twice and references to
// objects that do not exist.
func NewCatalog(info *p4configv1.P4Info) (*Catalog, error) {
	b := &builder{
		info: info, ids: map[uint32]string{},
		cat: &Catalog{
			info:   info,
			Tables: newIndex[*Table]("table"), Actions: newIndex[*Action]("action"),
			Profiles: newIndex[*ActionProfile]("action profile"),
			Counters: newIndex[*Counter]("counter"), Meters: newIndex[*Meter]("meter"),
			Registers: newIndex[*Register]("register"),
			Digests:   newIndex[*Digest]("digest"), ValueSets: newIndex[*ValueSet]("value set"),
		},
	}
	for _, step := range []func() error{b.actions, b.profiles, b.tables, b.counters, b.meters, b.registers, b.digests,
		b.valueSets, b.headers} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("P4Info: %w", err)
		}
	}
	return b.cat, nil
}

// P4Info returns the P4Info of the catalog. It must not be changed.
func (c *Catalog) P4Info() *p4configv1.P4Info { return c.info }

// Readouts returns the registers that can be read by packet, by object number.
func (c *Catalog) Readouts() []*Register {
	var out []*Register
	for _, r := range c.Registers.All() {
		if r.Readout != nil {
			out = append(out, r)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Readout.Object < out[j].Readout.Object })
	return out
}

// Annotated returns the tables that carry the annotation.
func (c *Catalog) Annotated(annotation string) []*Table {
	var out []*Table
	for _, t := range c.Tables.All() {
		if _, ok := t.Annotations.Find(annotation); ok {
			out = append(out, t)
		}
	}
	return out
}

// object is the method that Index needs of its elements.
type object interface{ object() *Object }

func (o *Object) object() *Object { return o }

// Index holds the objects of one kind.
type Index[T object] struct {
	kind   string
	all    []T
	byName map[string]T
	alias  map[string][]T
	byID   map[uint32]T
}

func newIndex[T object](kind string) *Index[T] {
	return &Index[T]{kind: kind, byName: map[string]T{}, alias: map[string][]T{}, byID: map[uint32]T{}}
}

func (x *Index[T]) add(v T) error {
	o := v.object()
	if _, dup := x.byName[o.Name]; dup {
		return fmt.Errorf("two %ss are named %q", x.kind, o.Name)
	}
	x.all = append(x.all, v)
	x.byName[o.Name], x.byID[o.ID] = v, v
	if o.Alias != "" {
		x.alias[o.Alias] = append(x.alias[o.Alias], v)
	}
	return nil
}

// All returns the objects in P4Info's order. The slice must not be changed.
func (x *Index[T]) All() []T { return x.all }

// ID finds an object by id.
func (x *Index[T]) ID(id uint32) (T, bool) {
	v, ok := x.byID[id]
	return v, ok
}

// NameOf returns the full name of the object with this id.
func (x *Index[T]) NameOf(id uint32) (string, bool) {
	if v, ok := x.byID[id]; ok {
		return v.object().Name, true
	}
	return "", false
}

// Name finds an object by full name or unique alias; the error lists the names that exist.
func (x *Index[T]) Name(name string) (T, error) {
	if v, ok := x.byName[name]; ok {
		return v, nil
	}
	var none T
	switch hits := x.alias[name]; len(hits) {
	case 1:
		return hits[0], nil
	case 0:
		return none, fmt.Errorf("the program has no %s %q; it has %s", x.kind, name, x.names(x.all))
	default:
		return none, fmt.Errorf("%s %q is ambiguous: it could be %s", x.kind, name, x.names(hits))
	}
}

func (x *Index[T]) names(of []T) string {
	if len(of) == 0 {
		return "none"
	}
	var list []string
	for _, v := range of {
		list = append(list, v.object().Name)
	}
	sort.Strings(list)
	if len(list) > 12 {
		list = append(list[:12], fmt.Sprintf("and %d more", len(list)-12))
	}
	return strings.Join(list, ", ")
}

// builder fills a catalog.
type builder struct {
	info *p4configv1.P4Info
	cat  *Catalog
	ids  map[uint32]string
}

// preamble reads the part that all objects have in common. It fails for an id that is zero or in
// use.
func (b *builder) preamble(kind string, p *p4configv1.Preamble) (Object, error) {
	if p.GetName() == "" {
		return Object{}, fmt.Errorf("a %s with id %#x has no name", kind, p.GetId())
	}
	what := fmt.Sprintf("%s %q", kind, p.GetName())
	if p.GetId() == 0 {
		return Object{}, fmt.Errorf("%s has no id", what)
	}
	if other, used := b.ids[p.GetId()]; used {
		return Object{}, fmt.Errorf("%s and %s have the same id %#x", other, what, p.GetId())
	}
	b.ids[p.GetId()] = what
	o := Object{ID: p.GetId(), Name: p.GetName(), Alias: p.GetAlias(),
		Annotations: parseAnnotations(p.GetAnnotations(), p.GetStructuredAnnotations())}
	if err := o.Annotations.check(kind); err != nil {
		return Object{}, fmt.Errorf("%s: %w", what, err)
	}
	return o, nil
}

// translated reports whether the controller sees values of a named type as strings.
func (b *builder) translated(t *p4configv1.P4NamedType) bool {
	spec := b.info.GetTypeInfo().GetNewTypes()[t.GetName()]
	_, str := spec.GetTranslatedType().GetSdnType().(*p4configv1.P4NewTypeTranslation_SdnString_)
	return str
}

// width returns a field's width: P4Info's own or, for a translated type without a width, the width
// of the translation.
func (b *builder) width(bits int32, t *p4configv1.P4NamedType) int {
	if bits == 0 {
		bits = b.info.GetTypeInfo().GetNewTypes()[t.GetName()].GetTranslatedType().GetSdnBitwidth()
	}
	return int(max(bits, 0))
}

func (b *builder) actions() error {
	for _, a := range b.info.GetActions() {
		o, err := b.preamble("action", a.GetPreamble())
		if err != nil {
			return err
		}
		act := &Action{Object: o}
		for _, p := range a.GetParams() {
			act.Params = append(act.Params, Param{ID: p.GetId(), Name: p.GetName(),
				Width: b.width(p.GetBitwidth(), p.GetTypeName()), String: b.translated(p.GetTypeName())})
		}
		if err := b.cat.Actions.add(act); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) profiles() error {
	for _, p := range b.info.GetActionProfiles() {
		o, err := b.preamble("action profile", p.GetPreamble())
		if err != nil {
			return err
		}
		_, members := p.GetSelectorSizeSemantics().(*p4configv1.ActionProfile_SumOfMembers_)
		err = b.cat.Profiles.add(&ActionProfile{
			Object: o, Selector: p.GetWithSelector(), Size: p.GetSize(), MaxGroupSize: p.GetMaxGroupSize(),
			SumOfMembers: members, MaxMemberWeight: p.GetSumOfMembers().GetMaxMemberWeight(),
			WeightsDisallowed: p.GetWeightsDisallowed(),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) fields(in []*p4configv1.MatchField) []Field {
	var out []Field
	for _, f := range in {
		out = append(out, Field{ID: f.GetId(), Name: f.GetName(), Width: b.width(f.GetBitwidth(), f.GetTypeName()),
			Kind: f.GetMatchType(), String: b.translated(f.GetTypeName())})
	}
	return out
}

func (b *builder) tables() error {
	for _, t := range b.info.GetTables() {
		o, err := b.preamble("table", t.GetPreamble())
		if err != nil {
			return err
		}
		tab := &Table{
			Object: o, Match: b.fields(t.GetMatchFields()), Size: t.GetSize(),
			ConstDefault: t.GetConstDefaultActionId() != 0,
			Const:        t.GetIsConstTable(), IdleTimeout: t.GetIdleTimeoutBehavior() != p4configv1.Table_NO_TIMEOUT, info: t,
		}
		for _, f := range tab.Match {
			tab.NeedsPriority = tab.NeedsPriority || f.Kind == Ternary || f.Kind == Range || f.Kind == Optional
		}
		for _, r := range t.GetActionRefs() {
			a, ok := b.cat.Actions.ID(r.GetId())
			if !ok {
				return fmt.Errorf("table %q uses action %#x, which the program lacks", o.Name, r.GetId())
			}
			tab.Actions = append(tab.Actions, ActionRef{Action: a, Scope: r.GetScope()})
		}
		if id := t.GetImplementationId(); id != 0 {
			p, ok := b.cat.Profiles.ID(id)
			if !ok {
				return fmt.Errorf("table %q uses action profile %#x, which the program lacks", o.Name, id)
			}
			tab.Profile = p
			p.Tables = append(p.Tables, tab)
		}
		if err := b.cat.Tables.add(tab); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) counters() error {
	for _, c := range b.info.GetCounters() {
		o, err := b.preamble("counter", c.GetPreamble())
		if err != nil {
			return err
		}
		if err := b.cat.Counters.add(&Counter{Object: o, Unit: c.GetSpec().GetUnit(), Size: c.GetSize()}); err != nil {
			return err
		}
	}
	for _, c := range b.info.GetDirectCounters() {
		o, err := b.preamble("direct counter", c.GetPreamble())
		if err != nil {
			return err
		}
		t, ok := b.cat.Tables.ID(c.GetDirectTableId())
		if !ok {
			return fmt.Errorf("direct counter %q belongs to table %#x, which the program lacks", o.Name, c.GetDirectTableId())
		}
		t.DirectCounter = &Counter{Object: o, Unit: c.GetSpec().GetUnit(), Table: t}
		if err := b.cat.Counters.add(t.DirectCounter); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) meters() error {
	for _, m := range b.info.GetMeters() {
		o, err := b.preamble("meter", m.GetPreamble())
		if err != nil {
			return err
		}
		if err := b.cat.Meters.add(&Meter{Object: o, Spec: m.GetSpec(), Size: m.GetSize()}); err != nil {
			return err
		}
	}
	for _, m := range b.info.GetDirectMeters() {
		o, err := b.preamble("direct meter", m.GetPreamble())
		if err != nil {
			return err
		}
		t, ok := b.cat.Tables.ID(m.GetDirectTableId())
		if !ok {
			return fmt.Errorf("direct meter %q belongs to table %#x, which the program lacks", o.Name, m.GetDirectTableId())
		}
		t.DirectMeter = &Meter{Object: o, Spec: m.GetSpec(), Table: t}
		if err := b.cat.Meters.add(t.DirectMeter); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) digests() error {
	for _, d := range b.info.GetDigests() {
		o, err := b.preamble("digest", d.GetPreamble())
		if err != nil {
			return err
		}
		if err := b.cat.Digests.add(&Digest{Object: o, Type: d.GetTypeSpec()}); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) valueSets() error {
	for _, v := range b.info.GetValueSets() {
		o, err := b.preamble("value set", v.GetPreamble())
		if err != nil {
			return err
		}
		if err := b.cat.ValueSets.add(&ValueSet{Object: o, Match: b.fields(v.GetMatch()),
			Size: v.GetSize()}); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) headers() error {
	for _, h := range b.info.GetControllerPacketMetadata() {
		o, err := b.preamble("controller header", h.GetPreamble())
		if err != nil {
			return err
		}
		var fields []HeaderField
		seen := map[uint32]bool{}
		for _, m := range h.GetMetadata() {
			if m.GetId() == 0 || seen[m.GetId()] {
				return fmt.Errorf("controller header %q: metadata %q has id %d, which is zero or used twice", o.Name,
					m.GetName(), m.GetId())
			}
			seen[m.GetId()] = true
			fields = append(fields, HeaderField{ID: m.GetId(), Name: m.GetName(),
				Width: b.width(m.GetBitwidth(), m.GetTypeName()), String: b.translated(m.GetTypeName())})
		}
		switch o.Name {
		case PacketInHeader:
			b.cat.PacketIn = newHeader(o, fields)
		case PacketOutHeader:
			b.cat.PacketOut = newHeader(o, fields)
		}
	}
	return nil
}

// Cookie derives a pipeline's cookie from its device configuration and P4Info: the same inputs
// give the same cookie in every process.
func Cookie(deviceConfig []byte, info *p4configv1.P4Info) (uint64, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(info)
	if err != nil {
		return 0, fmt.Errorf("cookie of the P4Info: %w", err)
	}
	return hash64(deviceConfig, b), nil
}
