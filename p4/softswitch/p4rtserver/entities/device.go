// SPDX-License-Identifier: Apache-2.0

package entities

import (
	"fmt"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/netsketch/netsketch/p4/p4rt/p4values"
	"github.com/netsketch/netsketch/p4/softswitch"
)

// Device is a pipeline and the switch that holds its state: the live switch, or a shadow for a
// pipeline that is saved and not committed. It is not safe for concurrent use. Create it with New.
type Device struct {
	// OnDigest receives the configuration of a digest when it changes; nil if the digest is
	// disabled.
	OnDigest func(*p4values.Digest, *p4v1.DigestEntry_Config)

	sw      *softswitch.Switch
	cfg     *p4v1.ForwardingPipelineConfig
	cat     *p4values.Catalog
	prog    *softswitch.Program
	tables  map[uint32]*table // tables by P4Info id
	digests map[uint32]*p4v1.DigestEntry_Config
	oneShot map[uint32]int // number of entries with one-shot groups, by action profile id

	defaultMeta map[uint32][]byte // metadata of default entries, by table id
	defaultSet  map[uint32]bool   // tables whose default action was written
	log         []*p4v1.Update    // updates that a shadow applied
	shadow      bool
}

// table joins P4Info's description of a table with the switch's.
type table struct {
	*p4values.Table
	// base is added to the priorities of constant entries, because the specification counts them from
	// 1.
	base int32
	// ternary marks the key fields that are optional in P4 and ternary in the switch, as p4c
	// compiles them for BMv2.
	ternary []bool
}

// New checks and compiles a pipeline and joins P4Info with the program, which is not loaded yet.
// Errors are INVALID_ARGUMENT and name the problem.
func New(cfg *p4v1.ForwardingPipelineConfig, compile func([]byte) (*softswitch.Program, error)) (*Device, error) {
	if cfg.GetP4Info() == nil {
		return nil, invalid("the configuration has no P4Info")
	}
	if len(cfg.GetP4DeviceConfig()) == 0 {
		return nil, invalid(
			"the configuration has no p4_device_config; this switch takes BMv2 JSON, as p4c-bm2-ss writes it")
	}
	cat, err := p4values.NewCatalog(cfg.GetP4Info())
	if err != nil {
		return nil, invalid("%v", err)
	}
	prog, err := compile(cfg.GetP4DeviceConfig())
	if err != nil {
		return nil, invalid("p4_device_config: %v", err)
	}
	d := &Device{
		cfg: cfg, cat: cat, prog: prog, tables: map[uint32]*table{},
		digests: map[uint32]*p4v1.DigestEntry_Config{}, oneShot: map[uint32]int{}, defaultMeta: map[uint32][]byte{},
		defaultSet: map[uint32]bool{},
	}
	if err := d.match(); err != nil {
		return nil, invalid("P4Info and p4_device_config are not of the same program: %v", err)
	}
	return d, nil
}

// Config is the pipeline as it was pushed.
func (d *Device) Config() *p4v1.ForwardingPipelineConfig { return d.cfg }

// Catalog describes the pipeline's objects.
func (d *Device) Catalog() *p4values.Catalog { return d.cat }

// Applied returns the updates that a shadow has applied.
func (d *Device) Applied() []*p4v1.Update { return d.log }

// LoadShadow loads the program into a switch of its own, without ports: reads and writes of a
// pipeline that is not committed are checked there. The caller closes the device.
func (d *Device) LoadShadow(name string) error {
	sw := softswitch.New(softswitch.Config{Name: name})
	d.shadow = true
	if err := d.Load(sw); err != nil {
		sw.Close()
		return err
	}
	return nil
}

// Close closes the switch that LoadShadow made.
func (d *Device) Close() { d.sw.Close() }

// Load loads the program into a switch, which clears it.
func (d *Device) Load(sw *softswitch.Switch) error {
	if err := sw.Load(d.prog); err != nil {
		return err
	}
	d.sw = sw
	for _, t := range d.tables {
		if !t.Const || !t.NeedsPriority {
			continue
		}
		es, err := sw.ReadEntries(t.Name)
		if err != nil {
			return err
		}
		for i, e := range es {
			if i == 0 || e.Priority-1 < t.base {
				t.base = e.Priority - 1
			}
		}
	}
	return nil
}

// match compares P4Info with the program, object by object, and joins the tables.
func (d *Device) match() error {
	for _, t := range d.cat.Tables.All() {
		if err := d.matchTable(t); err != nil {
			return fmt.Errorf("table %q: %w", t.Name, err)
		}
	}
	for _, a := range d.cat.Actions.All() {
		if err := d.matchAction(a); err != nil {
			return fmt.Errorf("action %q: %w", a.Name, err)
		}
	}
	regs := byName(d.prog.Info.Registers, func(r softswitch.RegisterInfo) string { return r.Name })
	for _, r := range d.cat.Registers.All() {
		p, ok := regs[r.Name]
		switch {
		case !ok:
			return fmt.Errorf("register %q is only in P4Info", r.Name)
		case p.Size != r.Size:
			return fmt.Errorf("register %q has %d cells in P4Info and %d in the program", r.Name, r.Size, p.Size)
		case r.Width != 0 && p.Width != r.Width:
			return fmt.Errorf("register %q has cells of %d bits in P4Info and of %d in the program", r.Name, r.Width,
				p.Width)
		}
	}
	counters := byName(d.prog.Info.Counters, func(c softswitch.CounterInfo) string { return c.Name })
	for _, c := range d.cat.Counters.All() {
		p, ok := counters[c.Name]
		if !ok && c.Table == nil {
			return fmt.Errorf("counter %q is only in P4Info", c.Name)
		}
		if c.Table == nil && int64(p.Size) != c.Size {
			return fmt.Errorf("counter %q has %d cells in P4Info and %d in the program", c.Name, c.Size, p.Size)
		}
	}
	meters := byName(d.prog.Info.Meters, func(m softswitch.MeterInfo) string { return m.Name })
	for _, m := range d.cat.Meters.All() {
		p, ok := meters[m.Name]
		if !ok {
			return fmt.Errorf("meter %q is only in P4Info", m.Name)
		}
		if m.Table == nil && int64(p.Size) != m.Size {
			return fmt.Errorf("meter %q has %d cells in P4Info and %d in the program", m.Name, m.Size, p.Size)
		}
	}
	return d.matchRest()
}

func (d *Device) matchRest() error {
	profiles := byName(d.prog.Info.Profiles, func(p softswitch.ProfileInfo) string { return p.Name })
	for _, p := range d.cat.Profiles.All() {
		have, ok := profiles[p.Name]
		if !ok {
			return fmt.Errorf("action profile %q is only in P4Info", p.Name)
		}
		if have.Selector != p.Selector {
			return fmt.Errorf("action profile %q: P4Info says selector %v and the program %v", p.Name, p.Selector,
				have.Selector)
		}
	}
	digests := byName(d.prog.Info.Digests, func(g softswitch.DigestInfo) string { return g.Name })
	for _, g := range d.cat.Digests.All() {
		if _, ok := digests[g.Name]; !ok {
			return fmt.Errorf("digest %q is only in P4Info", g.Name)
		}
	}
	sets := byName(d.prog.Info.ValueSets, func(v softswitch.ValueSetInfo) string { return v.Name })
	for _, v := range d.cat.ValueSets.All() {
		have, ok := sets[v.Name]
		if !ok {
			return fmt.Errorf("value set %q is only in P4Info", v.Name)
		}
		if len(have.Widths) != len(v.Match) {
			return fmt.Errorf("value set %q has %d fields in P4Info and %d in the program", v.Name, len(v.Match),
				len(have.Widths))
		}
	}
	for _, h := range []*p4values.Header{d.cat.PacketIn, d.cat.PacketOut} {
		if h == nil {
			continue
		}
		for _, f := range h.Fields {
			if f.String {
				return fmt.Errorf("metadata %q of %s is translated to a string, and this switch translates nothing",
					f.Name, h.Name)
			}
		}
	}
	return nil
}

var kindOf = map[p4values.MatchKind]softswitch.MatchKind{
	p4values.Exact: softswitch.MatchExact, p4values.LPM: softswitch.MatchLPM, p4values.Ternary: softswitch.MatchTernary,
	p4values.Range: softswitch.MatchRange, p4values.Optional: softswitch.MatchOptional,
}

func (d *Device) matchTable(t *p4values.Table) error {
	info, ok := d.prog.Table(t.Name)
	if !ok {
		return fmt.Errorf("it is only in P4Info")
	}
	if len(info.Keys) != len(t.Match) {
		return fmt.Errorf("it has %d key fields in P4Info and %d in the program", len(t.Match), len(info.Keys))
	}
	joined := &table{Table: t}
	for i, k := range info.Keys {
		f := t.Match[i] // the same order in both, as p4c writes them
		joined.ternary = append(joined.ternary, f.Kind == p4values.Optional && k.Kind == softswitch.MatchTernary)
		switch {
		case !joined.ternary[i] && kindOf[f.Kind] != k.Kind:
			return fmt.Errorf("key field %q is %v in P4Info and %v in the program", f.Name, f.Kind, k.Kind)
		case f.String:
			return fmt.Errorf("key field %q is translated to a string, and this switch translates nothing", f.Name)
		case f.Width != k.Width:
			return fmt.Errorf("key field %q has %d bits in P4Info and %d in the program", f.Name, f.Width, k.Width)
		}
	}
	has := map[string]bool{}
	for _, a := range info.Actions {
		has[a] = true
	}
	for _, a := range t.Actions {
		if !has[a.Name] {
			return fmt.Errorf("P4Info gives it action %q and the program does not", a.Name)
		}
	}
	if impl := info.Implementation; (impl != "") != (t.Profile != nil) || t.Profile != nil && t.Profile.Name != impl {
		return fmt.Errorf("its action profile is %q in the program and another in P4Info", impl)
	}
	d.tables[t.ID] = joined
	return nil
}

func (d *Device) matchAction(a *p4values.Action) error {
	info, ok := d.prog.Action(a.Name)
	if !ok {
		return fmt.Errorf("it is only in P4Info")
	}
	if len(info.Params) != len(a.Params) {
		return fmt.Errorf("it has %d parameters in P4Info and %d in the program", len(a.Params), len(info.Params))
	}
	for i, p := range a.Params {
		if p.String {
			return fmt.Errorf("parameter %q is translated to a string, and this switch translates nothing", p.Name)
		}
		if p.Width != info.Params[i].Width {
			return fmt.Errorf("parameter %q has %d bits in P4Info and %d in the program", p.Name, p.Width,
				info.Params[i].Width)
		}
	}
	return nil
}

func byName[T any](all []T, name func(T) string) map[string]T {
	out := make(map[string]T, len(all))
	for _, v := range all {
		out[name(v)] = v
	}
	return out
}

// table finds a table by its id in P4Info.
func (d *Device) table(id uint32) (*table, error) {
	if id == 0 {
		return nil, invalid("no table id is given")
	}
	t, ok := d.tables[id]
	if !ok {
		return nil, notFound("the program has no table with id %#x", id)
	}
	return t, nil
}

// permits reports whether a role may write an object: an object with @p4runtime_role belongs to
// that role and to the default role, which may write everything.
func permits(role string, o p4values.Object) bool {
	a, ok := o.Annotations.Find("p4runtime_role")
	return !ok || role == "" || len(a.List) > 0 && a.List[0] == role
}

func checkRole(role string, o p4values.Object) error {
	if !permits(role, o) {
		return status.Errorf(codes.PermissionDenied, "%s is not of role %q", o.Name, role)
	}
	return nil
}
