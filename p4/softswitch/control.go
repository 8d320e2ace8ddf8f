// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"fmt"
	"math/big"

	"github.com/netsketch/netsketch/p4/softswitch/bmv2json"
)

// flow makes the code of one pipeline.
type flow struct {
	b      *builder
	def    *bmv2json.Pipeline
	tables map[string]*bmv2json.Table
	conds  map[string]*bmv2json.Conditional
	calls  map[string]*bmv2json.ActionCall
	at     map[string]uint32 // nodes that have code
	gotos  []fixup
	fix    []func() error // what needs to know where nodes are
}

// pipeline makes the code of "ingress" or "egress" and returns where it begins.
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
	f := &flow{b: b, def: def, tables: map[string]*bmv2json.Table{}, conds: map[string]*bmv2json.Conditional{}, calls: map[string]*bmv2json.ActionCall{}, at: map[string]uint32{}}
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
	start := b.here()
	f.gotos = append(f.gotos, fixup{at: b.emit(instr{op: opJmp}), name: def.Init})
	// Nodes are laid out depth first, so that most of the time the next one follows.
	todo := []string{def.Init}
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if _, done := f.at[n]; done || n == "" {
			continue
		}
		f.at[n] = b.here()
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
		b.code[g.at].d = f.pc(g.name)
	}
	for _, g := range f.fix {
		if err := g(); err != nil {
			return 0, err
		}
	}
	return start, nil
}

// pc is where a node's code is; the pipeline's end is the opEnd at 0.
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

// acyclic refuses control flow with a cycle, and nodes that are not declared.
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
			return refuse(fmt.Sprintf("pipeline %q", f.def.Name), nil, "node %q leads back to itself by way of %q", n, from)
		}
		if f.tables[n] == nil && f.conds[n] == nil && f.calls[n] == nil {
			return refuse(fmt.Sprintf("pipeline %q", f.def.Name), nil, "node %q, which follows %q, is not declared", n, from)
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
	// Nodes out of reach still have to be known to the control plane; their own links are not followed.
	return nil
}

// goTo continues at a node: by falling through, if it comes next, else with a jump that is fixed later.
func (f *flow) goTo(name string) {
	f.gotos = append(f.gotos, fixup{at: f.b.emit(instr{op: opJmp}), name: name})
}

func (f *flow) node(n string) ([]string, error) {
	b := f.b
	b.freeTemps()
	if c := f.conds[n]; c != nil {
		b.what, b.src = fmt.Sprintf("condition %q", c.Name), c.Source
		b.noRegisters = true
		no := b.jumpIfFalse(c.Expr)
		b.noRegisters = false
		for _, at := range no {
			f.gotos = append(f.gotos, fixup{at: at, name: c.FalseNext})
		}
		f.goTo(c.TrueNext)
		return []string{c.FalseNext, c.TrueNext}, nil
	}
	if c := f.calls[n]; c != nil {
		a := b.actionByID[c.ActionID]
		if a == nil || len(a.info.Params) > 0 {
			return nil, refuse(fmt.Sprintf("action call %q", c.Name), c.Source, "action id %d is not declared or takes parameters", c.ActionID)
		}
		b.body(a, nil)
		if a.exits {
			b.emit(instr{op: opExitTest})
		}
		f.goTo(c.Next)
		return []string{c.Next}, nil
	}
	t := f.tables[n]
	d := b.prog.tables[b.tables[n]]
	if next, ok := f.inline(t, d); ok {
		return []string{next}, nil
	}
	b.emit(instr{op: opTable, a: uint32(d.index)})
	f.fix = append(f.fix, func() error {
		d.hitMiss = t.HitMiss
		d.onHit, d.onMiss = f.pc(t.Next["__HIT__"]), f.pc(t.Next["__MISS__"])
		d.missPC = f.pc(t.BaseDefault)
		if t.HitMiss {
			d.missPC = d.onMiss
		}
		for id := range d.actions {
			if !t.HitMiss {
				next, ok := t.Next[b.actionByID[id].name]
				if !ok {
					return refuse(fmt.Sprintf("table %q", t.Name), t.Source, "next_tables has no action %q", b.actionByID[id].name)
				}
				d.next[id] = f.pc(next)
			}
		}
		if d.profile < 0 {
			return nil
		}
		// Tables that share a profile have copies of its actions: members call one of them, wherever they are hit.
		for name, a := range b.prog.profiles[d.profile].actions {
			if own := d.byName[name]; own != nil && !t.HitMiss {
				d.next[a.id] = d.next[own.id]
			}
		}
		return nil
	})
	return f.nexts(n), nil
}

// inline runs the action of a table that can have no other: no key, and a constant default. p4c makes one for each
// statement outside of actions.
func (f *flow) inline(t *bmv2json.Table, d *tableDef) (string, bool) {
	if len(t.Key) > 0 || d.def == nil || !d.def.konst || d.count || d.age || d.meter != nil || d.profile >= 0 || len(d.entries) > 0 {
		return "", false
	}
	b, a := f.b, d.def.action
	next, ok := t.Next[a.name]
	if t.HitMiss {
		next, ok = t.Next["__MISS__"], true
	}
	if !ok {
		return "", false
	}
	var locals []operand
	at := 0
	for _, p := range a.info.Params {
		w := (p.Width + 63) / 64
		v := wideBig(d.def.params[at : at+w])
		locals = append(locals, operand{b.constant(v, w), w, v, v})
		at += w
	}
	b.body(a, locals)
	if a.exits {
		b.emit(instr{op: opExitTest})
	}
	f.goTo(next)
	return next, true
}

// declareTables makes the definitions of all tables.
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
	p := &profileDef{ProfileInfo: ProfileInfo{Name: d.Name, Size: d.Size, Selector: d.Selector != nil}, actions: map[string]*action{}}
	if d.Selector != nil {
		c, err := b.calculation(d.Name, d.Selector.Algo, d.Selector.Inputs, d.Source)
		if err != nil {
			return err
		}
		p.calc = c
	}
	b.profiles[d.Name] = len(b.prog.profiles)
	b.prog.profiles = append(b.prog.profiles, p)
	return nil
}

func (b *builder) declareTable(t *bmv2json.Table) error {
	what := fmt.Sprintf("table %q", t.Name)
	if _, dup := b.tables[t.Name]; dup {
		return refuse(what, t.Source, "is declared twice")
	}
	d := &tableDef{
		TableInfo: TableInfo{Name: t.Name, Size: t.MaxSize, IdleTimeout: t.SupportTimeout, DirectCounter: t.WithCounters, DirectMeter: t.DirectMeter},
		index:     len(b.prog.tables), actions: map[int]bool{}, byName: map[string]*action{}, next: map[int]uint32{}, profile: -1, lpm: -1,
		count: t.WithCounters, age: t.SupportTimeout,
	}
	for _, id := range t.ActionIDs {
		a := b.actionByID[id]
		if a == nil {
			return refuse(what, t.Source, "action id %d is not declared", id)
		}
		if d.actions[id] {
			continue
		}
		d.actions[id] = true
		if d.byName[a.name] == nil {
			d.byName[a.name] = a
			d.Actions = append(d.Actions, a.name)
		}
	}
	if t.Type != "simple" {
		i, ok := b.profiles[t.Profile]
		if !ok {
			return refuse(what, t.Source, "action profile %q is not declared", t.Profile)
		}
		pr := b.prog.profiles[i]
		if t.Type == "indirect_ws" && !pr.Selector {
			return refuse(what, t.Source, "action profile %q has no selector", t.Profile)
		}
		d.profile, d.Implementation, d.Selector = i, t.Profile, pr.Selector
		pr.Tables = append(pr.Tables, t.Name)
		for n, a := range d.byName {
			pr.actions[n] = a
		}
	}
	if t.DirectMeter != "" {
		if d.meter = b.directMtr[t.DirectMeter]; d.meter == nil {
			return refuse(what, t.Source, "direct meter %q is not declared", t.DirectMeter)
		}
		b.prog.info.meters[d.meter.info].Table = t.Name
		b.prog.info.meters[d.meter.info].Size = t.MaxSize
	}
	if err := b.tableKey(d, t, what); err != nil {
		return err
	}
	if err := b.tableSeeds(d, t, what); err != nil {
		return err
	}
	b.tables[t.Name] = d.index
	b.prog.tables = append(b.prog.tables, d)
	return nil
}

var matchKinds = map[string]MatchKind{"exact": MatchExact, "valid": MatchExact, "lpm": MatchLPM, "ternary": MatchTernary, "range": MatchRange}

// tableKey lays the key out in words.
func (b *builder) tableKey(d *tableDef, t *bmv2json.Table, what string) error {
	b.what, b.src = what, t.Source
	ranges := false
	for i := range t.Key {
		k := &t.Key[i]
		kd := keyDef{KeyInfo: KeyInfo{Name: k.Name, Kind: matchKinds[k.MatchType]}, valid: k.MatchType == "valid"}
		ranges = ranges || kd.Kind == MatchRange
		words := 0
		if kd.valid || k.Target.Field == validField {
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
			if h.t.vl >= 0 && f == &h.t.fields[h.t.vl] {
				return unsupported(what, t.Source, "a key with a variable-length field")
			}
			words, kd.Width = f.words, f.width
		}
		kd.words = words
		kd.mask = wordsOf(ones(kd.Width), words)
		if k.Mask != nil {
			m, ok := wordsFrom(k.Mask, maxHeaderBits)
			if !ok {
				return refuse(what, t.Source, "mask of key field %q is too long", k.Name)
			}
			for j := range kd.mask {
				if j < len(m) {
					kd.mask[j] &= m[j]
				} else {
					kd.mask[j] = 0
				}
			}
		}
		if kd.Kind == MatchLPM {
			if d.lpm >= 0 {
				return refuse(what, t.Source, "has two lpm key fields")
			}
			d.lpm = i
		}
		d.keys = append(d.keys, kd)
		d.Keys = append(d.Keys, kd.KeyInfo)
	}
	switch t.MatchType {
	case "exact", "lpm":
		d.lookup = MatchExact
		for _, k := range d.keys {
			if k.Kind != MatchExact && (k.Kind != MatchLPM || t.MatchType != "lpm") {
				return refuse(what, t.Source, "key field %q is %v in a table of match type %s", k.Name, k.Kind, t.MatchType)
			}
		}
		if d.lpm >= 0 {
			d.lookup = MatchLPM
		}
	default:
		d.lookup, d.WantsPriority = MatchTernary, true
		if ranges {
			d.lookup = MatchRange
		}
	}
	// Exact tables pack short fields together; the others keep each in words of its own.
	used := 0 // bits of the last word
	for i := range d.keys {
		k := &d.keys[i]
		if d.lookup == MatchExact && k.Width <= 64 && used > 0 && used+k.Width <= 64 {
			k.word, k.shift = d.words-1, used
			used += k.Width
		} else {
			k.word, k.shift = d.words, 0
			d.words += k.words
			used = k.Width
			if k.Width > 64 {
				used = 64
			}
		}
		slot := b.keySlot(t.Key[i].Target, k)
		for w := range k.words {
			d.pieces = append(d.pieces, keyPiece{slot: slot + uint32(w), word: uint32(k.word + w), shift: uint8(k.shift), mask: k.mask[w]})
		}
	}
	b.maxKey = max(b.maxKey, d.words)
	if d.words > maxHeaderBits/64 {
		return refuse(what, t.Source, "key of %d words is too long", d.words)
	}
	return nil
}

func (b *builder) keySlot(e *bmv2json.Expr, k *keyDef) uint32 {
	if k.valid || e.Field == validField {
		return b.validSlot(b.headerNamed[e.Name])
	}
	h, f, _ := b.fieldAt(e)
	return uint32(h.base + f.slot)
}

func bigBytes(v *big.Int) []byte {
	if v.Sign() == 0 {
		return []byte{0}
	}
	return v.Bytes()
}

// seedAction checks an action with constant parameters.
func (b *builder) seedAction(what string, src *bmv2json.Source, d *tableDef, id int, data []*big.Int) (seedAction, error) {
	a := b.actionByID[id]
	if a == nil {
		return seedAction{}, refuse(what, src, "action id %d is not declared", id)
	}
	if len(data) != len(a.info.Params) {
		return seedAction{}, refuse(what, src, "action %q takes %d parameters, has %d", a.name, len(a.info.Params), len(data))
	}
	s := seedAction{action: a}
	for i, v := range data {
		w := a.info.Params[i].Width
		if v.Sign() < 0 {
			v = new(big.Int).And(v, ones(w))
		}
		if v.BitLen() > w {
			return seedAction{}, refuse(what, src, "parameter %q of action %q: %v does not fit %d bits", a.info.Params[i].Name, a.name, v, w)
		}
		s.params = append(s.params, wordsOf(v, (w+63)/64)...)
	}
	d.actions[id] = true
	if d.byName[a.name] == nil {
		d.byName[a.name] = a
	}
	return s, nil
}

// maxPriority turns BMv2's priorities, where low wins, into P4Runtime's, where high wins; simple_switch_grpc does the same.
const maxPriority = 0xffffff

func (b *builder) tableSeeds(d *tableDef, t *bmv2json.Table, what string) error {
	if t.Default != nil {
		s, err := b.seedAction(what+", default entry", t.Source, d, t.Default.ActionID, t.Default.Data)
		if err != nil {
			return err
		}
		s.konst = t.Default.EntryConst
		d.def, d.ConstDefault = &s, t.Default.EntryConst || t.Default.ActionConst
		if d.profile >= 0 {
			return unsupported(what, t.Source, "a default entry in a table with an action profile")
		}
	}
	if !t.HasEntries {
		return nil
	}
	d.ConstEntries = true
	if d.profile >= 0 {
		return unsupported(what, t.Source, "const entries in a table with an action profile")
	}
	d.Size = max(d.Size, len(t.Entries))
	for i := range t.Entries {
		e := &t.Entries[i]
		at := fmt.Sprintf("%s, entry %d", what, i)
		if len(e.Match) != len(d.keys) {
			return refuse(at, e.Source, "has %d fields; the key has %d", len(e.Match), len(d.keys))
		}
		s, err := b.seedAction(at, e.Source, d, e.ActionID, e.Data)
		if err != nil {
			return err
		}
		seed := entrySeed{act: s, entry: Entry{Const: true, Action: Action{Name: s.action.name}}}
		if d.WantsPriority {
			seed.entry.Priority = int32(max(1, min(maxPriority, maxPriority-int64(e.Priority))))
		}
		for j, m := range e.Match {
			if matchKinds[m.MatchType] != d.keys[j].Kind {
				return refuse(at, e.Source, "field %q is %s; the key says %v", d.keys[j].Name, m.MatchType, d.keys[j].Kind)
			}
			if m.Key.Sign() < 0 || m.Mask != nil && m.Mask.Sign() < 0 {
				return refuse(at, e.Source, "field %q is negative", d.keys[j].Name)
			}
			mt := Match{Kind: d.keys[j].Kind, Value: bigBytes(m.Key), PrefixLen: m.Prefix}
			if m.Mask != nil {
				mt.Mask = bigBytes(m.Mask)
			}
			seed.entry.Match = append(seed.entry.Match, mt)
		}
		off := 0
		for _, p := range s.action.info.Params {
			w := (p.Width + 63) / 64
			seed.entry.Action.Params = append(seed.entry.Action.Params, bytesOf(s.params[off:off+w], p.Width))
			off += w
		}
		d.entries = append(d.entries, seed)
	}
	return nil
}
