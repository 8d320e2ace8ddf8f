// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"math/big"

	"github.com/netsketch/netsketch/p4/softswitch/bmv2json"
	"github.com/netsketch/netsketch/p4/softswitch/control"
	"github.com/netsketch/netsketch/p4/softswitch/program"
	"github.com/netsketch/netsketch/p4/softswitch/wide"
)

// flow generates the code of one pipeline.
type flow struct {
	b      *builder
	def    *bmv2json.Pipeline
	tables map[string]*bmv2json.Table
	conds  map[string]*bmv2json.Conditional
	calls  map[string]*bmv2json.ActionCall
	at     map[string]uint32 // nodes that have code, with its place
	gotos  []fixup
	fix    []func() error // steps that need the places of nodes
}

// pipeline generates the code of "ingress" or "egress" and returns its first instruction.
func (b *builder) pipeline(name string) (uint32, error) {
	var def *bmv2json.Pipeline
	for i := range b.file.Pipelines {
		if b.file.Pipelines[i].Name == name {
			def = &b.file.Pipelines[i]
		}
	}
	if def == nil {
		return 0, refuse("program", nil, "has no pipeline named %q: it is not compiled for v1model", name)
	}
	f := &flow{b: b, def: def, tables: map[string]*bmv2json.Table{}, conds: map[string]*bmv2json.Conditional{},
		calls: map[string]*bmv2json.ActionCall{}, at: map[string]uint32{}}
	names := map[string]bool{}
	declare := func(n, kind string, src *bmv2json.Source) error {
		if names[n] || n == "" {
			return refuse(fmt.Sprintf("%s %q", kind, n), src, "is declared twice")
		}
		names[n] = true
		return nil
	}
	for i := range def.Tables {
		t := &def.Tables[i]
		if err := declare(t.Name, "table", t.Source); err != nil {
			return 0, err
		}
		f.tables[t.Name] = t
	}
	for i := range def.Conditionals {
		c := &def.Conditionals[i]
		if err := declare(c.Name, "condition", c.Source); err != nil {
			return 0, err
		}
		f.conds[c.Name] = c
	}
	for i := range def.ActionCalls {
		c := &def.ActionCalls[i]
		if err := declare(c.Name, "action call", c.Source); err != nil {
			return 0, err
		}
		f.calls[c.Name] = c
	}
	if err := f.acyclic(); err != nil {
		return 0, err
	}
	start := b.Here()
	f.gotos = append(f.gotos, fixup{at: b.Emit(program.Instr{Op: program.OpJmp}), name: def.Init})
	// Nodes are laid out depth first, so that most of them fall through to the next.
	todo := []string{def.Init}
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if _, done := f.at[n]; done || n == "" {
			continue
		}
		f.at[n] = b.Here()
		more, err := f.node(n)
		if err != nil {
			return 0, err
		}
		if b.err != nil {
			return 0, b.err
		}
		todo = append(todo, more...)
	}
	for _, g := range f.gotos {
		b.Code[g.at].D = f.pc(g.name)
	}
	for _, g := range f.fix {
		if err := g(); err != nil {
			return 0, err
		}
	}
	return start, nil
}

// pc returns the first instruction of a node; the pipeline's end is the OpEnd at 0.
func (f *flow) pc(name string) uint32 {
	if name == "" {
		return 0
	}
	return f.at[name]
}

func (f *flow) nexts(n string) []string {
	switch {
	case f.tables[n] != nil:
		var out []string
		for _, v := range f.tables[n].Next {
			out = append(out, v)
		}
		return append(out, f.tables[n].BaseDefault)
	case f.conds[n] != nil:
		return []string{f.conds[n].TrueNext, f.conds[n].FalseNext}
	}
	return []string{f.calls[n].Next}
}

// acyclic returns an error for control flow with a cycle and for nodes that are not declared.
func (f *flow) acyclic() error {
	const (
		active = 1
		done   = 2
	)
	state := map[string]int{}
	type frame struct {
		n    string
		rest []string
	}
	var path []frame
	enter := func(n, from string) error {
		if n == "" || state[n] == done {
			return nil
		}
		if state[n] == active {
			return refuse(fmt.Sprintf("pipeline %q", f.def.Name), nil, "node %q leads back to itself by way of %q", n,
				from)
		}
		if f.tables[n] == nil && f.conds[n] == nil && f.calls[n] == nil {
			return refuse(fmt.Sprintf("pipeline %q", f.def.Name), nil, "node %q, which follows %q, is not declared", n,
				from)
		}
		state[n] = active
		path = append(path, frame{n, f.nexts(n)})
		return nil
	}
	if err := enter(f.def.Init, "init_table"); err != nil {
		return err
	}
	for len(path) > 0 {
		top := &path[len(path)-1]
		if len(top.rest) == 0 {
			state[top.n] = done
			path = path[:len(path)-1]
			continue
		}
		n := top.rest[0]
		top.rest = top.rest[1:]
		if err := enter(n, top.n); err != nil {
			return err
		}
	}
	// Unreachable nodes are still visible to the control plane; their own links are not followed.
	return nil
}

// goTo continues at a node with a jump that is patched later.
func (f *flow) goTo(name string) {
	f.gotos = append(f.gotos, fixup{at: f.b.Emit(program.Instr{Op: program.OpJmp}), name: name})
}

func (f *flow) node(n string) ([]string, error) {
	b := f.b
	b.FreeTemps()
	if c := f.conds[n]; c != nil {
		b.what, b.src = fmt.Sprintf("condition %q", c.Name), c.Source
		b.noRegisters = true
		no := b.jumpIf(c.Expr, false)
		b.noRegisters = false
		for _, at := range no {
			f.gotos = append(f.gotos, fixup{at: at, name: c.FalseNext})
		}
		f.goTo(c.TrueNext)
		return []string{c.FalseNext, c.TrueNext}, nil
	}
	if c := f.calls[n]; c != nil {
		a := b.actionByID[c.ActionID]
		if a == nil || len(a.Info.Params) > 0 {
			return nil, refuse(fmt.Sprintf("action call %q", c.Name), c.Source,
				"action id %d is not declared or takes parameters", c.ActionID)
		}
		b.body(a, nil)
		if a.exits {
			b.Emit(program.Instr{Op: program.OpExitTest})
		}
		f.goTo(c.Next)
		return []string{c.Next}, nil
	}
	t := f.tables[n]
	d := b.Prog.Tables[b.tables[n]]
	if next, ok := f.inline(t, d); ok {
		return []string{next}, nil
	}
	b.Emit(program.Instr{Op: program.OpTable, A: uint32(d.Index)})
	f.fix = append(f.fix, func() error {
		d.HitMiss = t.HitMiss
		d.OnHit, d.OnMiss = f.pc(t.Next["__HIT__"]), f.pc(t.Next["__MISS__"])
		d.MissPC = f.pc(t.BaseDefault)
		if t.HitMiss {
			d.MissPC = d.OnMiss
		}
		for id, a := range d.ActionByID {
			if !t.HitMiss {
				next, ok := t.Next[a.Name]
				if !ok {
					return refuse(fmt.Sprintf("table %q", t.Name), t.Source, "next_tables has no action %q", a.Name)
				}
				d.Next[id] = f.pc(next)
			}
		}
		if d.Profile < 0 {
			return nil
		}
		// Tables that share a profile have copies of its actions: a member calls one of the copies
		// in every table.
		for name, a := range b.Prog.Profiles[d.Profile].Actions {
			if own := d.ByName[name]; own != nil && !t.HitMiss {
				d.Next[a.ID] = d.Next[own.ID]
			}
		}
		return nil
	})
	return f.nexts(n), nil
}

// inline compiles the action of a table that can run no other: it has no key and a constant
// default. p4c generates this table for each statement outside of actions.
func (f *flow) inline(t *bmv2json.Table, d *program.Table) (string, bool) {
	if len(t.Key) > 0 || d.Default == nil || !d.Default.Const || d.Counts || d.Ages || d.Meter != nil ||
		d.Profile >= 0 || len(d.Seeds) > 0 {
		return "", false
	}
	b, a := f.b, f.b.actionByID[d.Default.Action.ID]
	next, ok := t.Next[a.Name]
	if t.HitMiss {
		next, ok = t.Next["__MISS__"], true
	}
	if !ok {
		return "", false
	}
	var locals []operand
	at := 0
	for _, p := range a.Info.Params {
		w := (p.Width + 63) / 64
		v := wide.BigInt(d.Default.Params[at : at+w])
		locals = append(locals, operand{b.Constant(v, w), w, v, v})
		at += w
	}
	b.body(a, locals)
	if a.exits {
		b.Emit(program.Instr{Op: program.OpExitTest})
	}
	f.goTo(next)
	return next, true
}

// declareTables creates the definitions of all tables.
func (b *builder) declareTables() error {
	for i := range b.file.Pipelines {
		pl := &b.file.Pipelines[i]
		for j := range pl.Profiles {
			if err := b.declareProfile(&pl.Profiles[j]); err != nil {
				return err
			}
		}
		for j := range pl.Tables {
			if err := b.declareTable(&pl.Tables[j]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *builder) declareProfile(d *bmv2json.Profile) error {
	what := fmt.Sprintf("action profile %q", d.Name)
	if _, dup := b.profiles[d.Name]; dup {
		return refuse(what, d.Source, "is declared twice")
	}
	p := &program.Profile{ProfileInfo: control.ProfileInfo{Name: d.Name, Size: d.Size, Selector: d.Selector != nil},
		Actions: map[string]*program.Action{}}
	if d.Selector != nil {
		c, err := b.calculation(d.Name, d.Selector.Algo, d.Selector.Inputs, d.Source)
		if err != nil {
			return err
		}
		p.Hash = c
	}
	b.profiles[d.Name] = len(b.Prog.Profiles)
	b.Prog.Profiles = append(b.Prog.Profiles, p)
	return nil
}

func (b *builder) declareTable(t *bmv2json.Table) error {
	what := fmt.Sprintf("table %q", t.Name)
	if _, dup := b.tables[t.Name]; dup {
		return refuse(what, t.Source, "is declared twice")
	}
	d := &program.Table{
		TableInfo: control.TableInfo{Name: t.Name, Size: t.MaxSize, IdleTimeout: t.SupportTimeout,
			DirectCounter: t.WithCounters, DirectMeter: t.DirectMeter},
		Index: len(b.Prog.Tables), ActionByID: map[int]*program.Action{}, ByName: map[string]*program.Action{},
		Next: map[int]uint32{}, Profile: -1, LPM: -1,
		Counts: t.WithCounters, Ages: t.SupportTimeout,
	}
	for _, id := range t.ActionIDs {
		a := b.actionByID[id]
		if a == nil {
			return refuse(what, t.Source, "action id %d is not declared", id)
		}
		if d.ActionByID[id] != nil {
			continue
		}
		d.ActionByID[id] = a.Action
		if d.ByName[a.Name] == nil {
			d.ByName[a.Name] = a.Action
			d.Actions = append(d.Actions, a.Name)
		}
	}
	if t.Type != "simple" {
		i, ok := b.profiles[t.Profile]
		if !ok {
			return refuse(what, t.Source, "action profile %q is not declared", t.Profile)
		}
		pr := b.Prog.Profiles[i]
		if t.Type == "indirect_ws" && !pr.Selector {
			return refuse(what, t.Source, "action profile %q has no selector", t.Profile)
		}
		d.Profile, d.Implementation, d.Selector = i, t.Profile, pr.Selector
		pr.Tables = append(pr.Tables, t.Name)
		for n, a := range d.ByName {
			pr.Actions[n] = a
		}
	}
	if t.DirectMeter != "" {
		if d.Meter = b.directMtr[t.DirectMeter]; d.Meter == nil {
			return refuse(what, t.Source, "direct meter %q is not declared", t.DirectMeter)
		}
		b.Prog.Info.Meters[d.Meter.Info].Table = t.Name
		b.Prog.Info.Meters[d.Meter.Info].Size = t.MaxSize
	}
	if err := b.tableKey(d, t, what); err != nil {
		return err
	}
	if err := b.tableSeeds(d, t, what); err != nil {
		return err
	}
	b.tables[t.Name] = d.Index
	b.Prog.Tables = append(b.Prog.Tables, d)
	return nil
}

var matchKinds = map[string]control.MatchKind{"exact": control.MatchExact, "valid": control.MatchExact,
	"lpm": control.MatchLPM, "ternary": control.MatchTernary, "range": control.MatchRange}

// tableKey lays out the key in words.
func (b *builder) tableKey(d *program.Table, t *bmv2json.Table, what string) error {
	b.what, b.src = what, t.Source
	ranges := false
	for i := range t.Key {
		k := &t.Key[i]
		kd := program.Key{KeyInfo: control.KeyInfo{Name: k.Name, Kind: matchKinds[k.MatchType]},
			Valid: k.MatchType == "valid"}
		ranges = ranges || kd.Kind == control.MatchRange
		words := 0
		if kd.Valid || k.Target.Field == validField {
			h := b.headerNamed[k.Target.Name]
			if h == nil {
				return refuse(what, t.Source, "header %q is not declared", k.Target.Name)
			}
			words, kd.Width = 1, 1
		} else {
			h, f, ok := b.fieldAt(k.Target)
			if !ok {
				return b.err
			}
			if h.Type.Variable >= 0 && f == &h.Type.Fields[h.Type.Variable] {
				return unsupported(what, t.Source, "a key with a variable-length field")
			}
			words, kd.Width = f.Words, f.Width
		}
		kd.Words = words
		kd.Mask = wide.Of(wide.Ones(kd.Width), words)
		if k.Mask != nil {
			m, ok := wide.Parse(k.Mask, program.MaxHeaderBits)
			if !ok {
				return refuse(what, t.Source, "mask of key field %q is too long", k.Name)
			}
			for j := range kd.Mask {
				if j < len(m) {
					kd.Mask[j] &= m[j]
				} else {
					kd.Mask[j] = 0
				}
			}
		}
		if kd.Kind == control.MatchLPM {
			if d.LPM >= 0 {
				return refuse(what, t.Source, "has two lpm key fields")
			}
			d.LPM = i
		}
		d.KeyFields = append(d.KeyFields, kd)
		d.Keys = append(d.Keys, kd.KeyInfo)
	}
	switch t.MatchType {
	case "exact", "lpm":
		d.Lookup = control.MatchExact
		for _, k := range d.KeyFields {
			if k.Kind != control.MatchExact && (k.Kind != control.MatchLPM || t.MatchType != "lpm") {
				return refuse(what, t.Source, "key field %q is %v in a table of match type %s", k.Name, k.Kind,
					t.MatchType)
			}
		}
		if d.LPM >= 0 {
			d.Lookup = control.MatchLPM
		}
	default:
		d.Lookup, d.WantsPriority = control.MatchTernary, true
		if ranges {
			d.Lookup = control.MatchRange
		}
	}
	// Exact tables pack short fields into one word; other tables use separate words for each field.
	used := 0 // bits of the last word
	for i := range d.KeyFields {
		k := &d.KeyFields[i]
		if d.Lookup == control.MatchExact && k.Width <= 64 && used > 0 && used+k.Width <= 64 {
			k.Word, k.Shift = d.Words-1, used
			used += k.Width
		} else {
			k.Word, k.Shift = d.Words, 0
			d.Words += k.Words
			used = k.Width
			if k.Width > 64 {
				used = 64
			}
		}
		slot := b.keySlot(t.Key[i].Target, k)
		for w := range k.Words {
			d.Pieces = append(d.Pieces, program.KeyPiece{Slot: slot + uint32(w), Word: uint32(k.Word + w),
				Shift: uint8(k.Shift), Mask: k.Mask[w]})
		}
	}
	b.MaxKey = max(b.MaxKey, d.Words)
	if d.Words > program.MaxHeaderBits/64 {
		return refuse(what, t.Source, "key of %d words is too long", d.Words)
	}
	return nil
}

func (b *builder) keySlot(e *bmv2json.Expr, k *program.Key) uint32 {
	if k.Valid || e.Field == validField {
		return b.validSlot(b.headerNamed[e.Name])
	}
	h, f, _ := b.fieldAt(e)
	return uint32(h.Base + f.Slot)
}

func bigBytes(v *big.Int) []byte {
	if v.Sign() == 0 {
		return []byte{0}
	}
	return v.Bytes()
}

// seedAction checks an action call with constant parameters.
func (b *builder) seedAction(what string, src *bmv2json.Source, d *program.Table, id int,
	data []*big.Int,
) (program.SeedAction, error) {
	a := b.actionByID[id]
	if a == nil {
		return program.SeedAction{}, refuse(what, src, "action id %d is not declared", id)
	}
	if len(data) != len(a.Info.Params) {
		return program.SeedAction{}, refuse(what, src, "action %q takes %d parameters, has %d", a.Name,
			len(a.Info.Params), len(data))
	}
	s := program.SeedAction{Action: a.Action}
	for i, v := range data {
		w := a.Info.Params[i].Width
		if v.Sign() < 0 {
			v = new(big.Int).And(v, wide.Ones(w))
		}
		if v.BitLen() > w {
			return program.SeedAction{}, refuse(what, src, "parameter %q of action %q: %v does not fit %d bits",
				a.Info.Params[i].Name, a.Name, v, w)
		}
		s.Params = append(s.Params, wide.Of(v, (w+63)/64)...)
	}
	d.ActionByID[id] = a.Action
	if d.ByName[a.Name] == nil {
		d.ByName[a.Name] = a.Action
	}
	return s, nil
}

// maxPriority converts BMv2's priorities, where the lowest wins, to P4Runtime's, where the highest
// wins, as simple_switch_grpc does.
const maxPriority = 0xffffff

func (b *builder) tableSeeds(d *program.Table, t *bmv2json.Table, what string) error {
	if t.Default != nil {
		s, err := b.seedAction(what+", default entry", t.Source, d, t.Default.ActionID, t.Default.Data)
		if err != nil {
			return err
		}
		s.Const = t.Default.EntryConst
		d.Default, d.ConstDefault = &s, t.Default.EntryConst || t.Default.ActionConst
		if d.Profile >= 0 {
			return unsupported(what, t.Source, "a default entry in a table with an action profile")
		}
	}
	if !t.HasEntries {
		return nil
	}
	d.ConstEntries = true
	if d.Profile >= 0 {
		return unsupported(what, t.Source, "const entries in a table with an action profile")
	}
	d.Size = max(d.Size, len(t.Entries))
	for i := range t.Entries {
		e := &t.Entries[i]
		at := fmt.Sprintf("%s, entry %d", what, i)
		if len(e.Match) != len(d.KeyFields) {
			return refuse(at, e.Source, "has %d fields; the key has %d", len(e.Match), len(d.KeyFields))
		}
		s, err := b.seedAction(at, e.Source, d, e.ActionID, e.Data)
		if err != nil {
			return err
		}
		seed := program.EntrySeed{Action: s, Entry: control.Entry{Const: true,
			Action: control.Action{Name: s.Action.Name}}}
		if d.WantsPriority {
			seed.Entry.Priority = int32(max(1, min(maxPriority, maxPriority-int64(e.Priority))))
		}
		for j, m := range e.Match {
			if matchKinds[m.MatchType] != d.KeyFields[j].Kind {
				return refuse(at, e.Source, "field %q is %s; the key has %v", d.KeyFields[j].Name, m.MatchType,
					d.KeyFields[j].Kind)
			}
			if m.Key.Sign() < 0 || m.Mask != nil && m.Mask.Sign() < 0 {
				return refuse(at, e.Source, "field %q is negative", d.KeyFields[j].Name)
			}
			mt := control.Match{Kind: d.KeyFields[j].Kind, Value: bigBytes(m.Key), PrefixLen: m.Prefix}
			if m.Mask != nil {
				mt.Mask = bigBytes(m.Mask)
			}
			seed.Entry.Match = append(seed.Entry.Match, mt)
		}
		off := 0
		for _, p := range s.Action.Info.Params {
			w := (p.Width + 63) / 64
			seed.Entry.Action.Params = append(seed.Entry.Action.Params, wide.Bytes(s.Params[off:off+w], p.Width))
			off += w
		}
		d.Seeds = append(d.Seeds, seed)
	}
	return nil
}
