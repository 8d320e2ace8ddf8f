// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"fmt"
	"math/big"

	"github.com/netsketch/netsketch/p4/softswitch/bmv2json"
)

// Parser errors as packet.perr has them: the core error's place below, plus one. Errors of the program's own verify() statements
// lie above errBase.
const (
	errTooShort = 1 + iota
	errNoMatch
	errStackBounds
	errHeaderTooShort
	errTimeout
	errInvalidArgument
	errBase = 16
)

var coreErrors = map[int]string{
	errTooShort: "PacketTooShort", errNoMatch: "NoMatch", errStackBounds: "StackOutOfBounds", errHeaderTooShort: "HeaderTooShort",
	errTimeout: "ParserTimeout", errInvalidArgument: "ParserInvalidArgument",
}

// errorCode translates packet.perr to the program's number of the error.
func (p *packet) errorCode() uint64 {
	switch {
	case p.perr == 0:
		return p.prog.noError
	case p.perr >= errBase:
		return uint64(p.perr - errBase)
	}
	return p.prog.coreError[p.perr]
}

// parser makes the code of the parser: its states, then the verification of checksums.
func (b *builder) parser() error {
	var def *bmv2json.Parser
	for i := range b.file.Parsers {
		if b.file.Parsers[i].Name == "parser" {
			def = &b.file.Parsers[i]
		}
	}
	if def == nil {
		return refuse("program", nil, "has no parser named \"parser\"")
	}
	b.noRegisters = true
	defer func() { b.noRegisters = false }()
	states := map[string]uint32{}
	for i := range def.States {
		if _, dup := states[def.States[i].Name]; dup {
			return refuse(fmt.Sprintf("parse state %q", def.States[i].Name), nil, "is declared twice")
		}
		states[def.States[i].Name] = 0
	}
	b.prog.parserPC = b.here()
	var toAccept []int // instructions whose d is the parser's end
	var gotos []fixup
	gotos = append(gotos, fixup{at: b.emit(instr{op: opJmp}), name: def.Init})
	type selectFix struct {
		sel  *selectOp
		next []string
		def  string
	}
	var sels []selectFix
	for i := range def.States {
		s := &def.States[i]
		states[s.Name] = b.here()
		b.what, b.src = fmt.Sprintf("parse state %q", s.Name), nil
		toAccept = append(toAccept, b.emit(instr{op: opState}))
		for j := range s.Ops {
			o := &s.Ops[j]
			b.what, b.src = fmt.Sprintf("parse state %q, statement %d (%s)", s.Name, j, o.Op), o.Source
			b.freeTemps()
			toAccept = append(toAccept, b.parserOp(o)...)
			if b.err != nil {
				return b.err
			}
		}
		b.what, b.src = fmt.Sprintf("parse state %q, select", s.Name), nil
		b.freeTemps()
		sel, next, dflt, jumps := b.selectOf(s)
		toAccept = append(toAccept, jumps...)
		if b.err != nil {
			return b.err
		}
		for _, n := range append([]string{dflt}, next...) {
			if _, ok := states[n]; n != "" && !ok {
				return refuse(b.what, nil, "next state %q is not declared", n)
			}
		}
		if sel == nil {
			gotos = append(gotos, fixup{at: b.emit(instr{op: opJmp}), name: dflt})
			continue
		}
		b.prog.selects = append(b.prog.selects, sel)
		b.emit(instr{op: opSelect, a: uint32(len(b.prog.selects) - 1)})
		sels = append(sels, selectFix{sel, next, dflt})
	}
	accept := b.here()
	b.patch(toAccept)
	where := func(n string) uint32 {
		if n == "" {
			return accept
		}
		return states[n]
	}
	if _, ok := states[def.Init]; def.Init != "" && !ok {
		return refuse("parser", nil, "first state %q is not declared", def.Init)
	}
	for _, g := range gotos {
		b.code[g.at].d = where(g.name)
	}
	for _, s := range sels {
		for i := range s.sel.cases {
			s.sel.cases[i].next = where(s.next[i])
		}
		s.sel.def = where(s.def)
	}
	return b.checksums(true)
}

// fixup is a jump whose target is known by name only.
type fixup struct {
	at   int
	name string
}

// callP emits a step that may set packet.perr; it returns the place to patch with the parser's end.
func (b *builder) callP(f func(*packet)) int {
	b.fns = append(b.fns, f)
	return b.emit(instr{op: opCallP, a: uint32(len(b.fns) - 1)})
}

func (b *builder) parserOp(o *bmv2json.ParserOp) []int {
	switch o.Op {
	case "extract", "extract_VL":
		return b.extractOp(o)
	case "set":
		if len(o.Params) != 2 || o.Params[0].Type != "field" {
			b.failf("takes a field and a value")
			return nil
		}
		if o.Params[1].Type == "lookahead" {
			return b.setLookahead(o)
		}
		if h, f, ok := b.fieldAt(o.Params[0]); ok && h.t.vl >= 0 && f == &h.t.fields[h.t.vl] {
			b.assignVL(o.Params[0], o.Params[1])
			return nil
		}
		b.assign(o.Params[0], o.Params[1])
	case "verify":
		if len(o.Params) != 2 {
			b.failf("takes a condition and an error")
			return nil
		}
		skip := b.jumpIfTrue(o.Params[0])
		v := b.value(o.Params[1], 1)
		at := b.callP(func(p *packet) { p.perr = errBase + int(p.f[v.slot]&0xffff) })
		b.use(using(slot1(v.slot)))
		b.patch(skip)
		return []int{at}
	case "shift", "advance":
		if len(o.Params) != 1 {
			b.failf("takes one parameter")
			return nil
		}
		n := b.index(o.Params[0])
		inBytes := o.Op == "shift"
		at := b.callP(func(p *packet) {
			v := p.f[n]
			if !inBytes {
				if v%8 != 0 {
					p.perr = errInvalidArgument
					return
				}
				v /= 8
			}
			if v > uint64(len(p.data)-p.off) {
				p.perr = errTooShort
				return
			}
			p.off += int(v)
		})
		b.use(using(slot1(n)))
		return []int{at}
	case "primitive":
		b.primitive(o.Primitive)
	}
	return nil
}

func (b *builder) extractOp(o *bmv2json.ParserOp) []int {
	what := o.Params[0]
	var bitsOf func(*packet) int
	length := uint32(0)
	if o.Op == "extract_VL" {
		v := b.exact(o.Params[1])
		if v.nw != 1 || v.lo.Sign() < 0 {
			b.unsupportedf("a length that is signed or longer than 64 bits")
			return nil
		}
		length = v.slot
		bitsOf = func(p *packet) int { return int(min(p.f[v.slot], maxHeaderBits*16)) }
	}
	check := func(t *headerLayout) bool {
		if (t.vl >= 0) != (bitsOf != nil) {
			b.failf("header type %q and the kind of extract do not fit: a header with a variable-length field is extracted with a length", t.name)
			return false
		}
		return true
	}
	take := func(p *packet, h *header) {
		if bitsOf != nil {
			p.perr = p.extractVL(h, bitsOf(p))
		} else if !p.extract(h) {
			p.perr = errTooShort
		}
	}
	switch what.Type {
	case "regular":
		h := b.headerNamed[what.Name]
		if h == nil || h.metadata {
			b.failf("header %q is not declared", what.Name)
			return nil
		}
		if !check(h.t) {
			return nil
		}
		if bitsOf == nil {
			return []int{b.emit(instr{op: opExtract, a: uint32(h.index)})}
		}
		at := b.callP(func(p *packet) { take(p, h) })
		b.use(using(slot1(length)))
		return []int{at}
	case "stack":
		s := b.stacks[what.Name]
		if s == nil {
			b.failf("header stack %q is not declared", what.Name)
			return nil
		}
		if !check(s.t) {
			return nil
		}
		return []int{b.callP(func(p *packet) {
			n := p.f[s.next]
			if n >= uint64(len(s.elems)) {
				p.perr = errStackBounds
				return
			}
			if take(p, s.elems[n]); p.perr == 0 {
				p.f[s.next] = n + 1
			}
		})}
	}
	s := b.unionStacks[what.Name]
	if s == nil {
		b.failf("header union stack %q is not declared", what.Name)
		return nil
	}
	member := -1
	for i, n := range s.elems[0].names {
		if n == what.Member {
			member = i
		}
	}
	if member < 0 {
		b.failf("header union stack %q has no member %q", what.Name, what.Member)
		return nil
	}
	if !check(s.elems[0].members[member].t) {
		return nil
	}
	return []int{b.callP(func(p *packet) {
		n := p.f[s.next]
		if n >= uint64(len(s.elems)) {
			p.perr = errStackBounds
			return
		}
		if take(p, s.elems[n].members[member]); p.perr == 0 {
			p.f[s.next] = n + 1
		}
	})}
}

// lookahead emits the reading of bits ahead into words slots.
func (b *builder) lookahead(e *bmv2json.Expr, d uint32, words int) int {
	off, width := e.Index, e.Width
	at := b.callP(func(p *packet) {
		if (off+width+7)/8 > len(p.data)-p.off {
			p.perr = errTooShort
			return
		}
		readWide(p.f[d:int(d)+words], p.data[p.off:], off, width)
	})
	b.use(using().writing(slotSpan{d, words}))
	return at
}

func (b *builder) setLookahead(o *bmv2json.ParserOp) []int {
	_, f, ok := b.fieldTarget(o.Params[0])
	if !ok {
		return nil
	}
	e := o.Params[1]
	words := max((e.Width+63)/64, f.words)
	d := b.temp(words)
	at := b.lookahead(e, d, words)
	b.store(o.Params[0], func(f *fieldLayout) operand { return operand{d, f.words, bigZero, ones(e.Width)} })
	return []int{at}
}

// selectOf makes a state's transition. A state that does not choose has no select, only a default.
func (b *builder) selectOf(s *bmv2json.ParseState) (sel *selectOp, next []string, dflt string, jumps []int) {
	sel = &selectOp{}
	var widths []int
	var parts []operand
	for _, e := range s.Key {
		var o operand
		width := e.Width
		switch e.Type {
		case "lookahead":
			words := (e.Width + 63) / 64
			o = operand{b.temp(words), words, bigZero, ones(e.Width)}
			jumps = append(jumps, b.lookahead(e, o.slot, words))
		case "field":
			if e.Field == validField {
				h := b.headerNamed[e.Name]
				if h == nil {
					b.failf("header %q is not declared", e.Name)
					return nil, nil, "", nil
				}
				o, width = operand{b.validSlot(h), 1, bigZero, ones(1)}, 1
				break
			}
			h, f, ok := b.fieldAt(e)
			if !ok {
				return nil, nil, "", nil
			}
			o, width = operand{uint32(h.base + f.slot), f.words, bigZero, ones(f.width)}, f.width
		case "stack_field":
			st := b.stacks[e.Name]
			var f *fieldLayout
			ok := st != nil
			if ok {
				f, ok = st.t.field(e.Field)
			}
			if !ok {
				b.failf("header stack %q or its field %q is not declared", e.Name, e.Field)
				return nil, nil, "", nil
			}
			o, width = b.stackField(e, f.words), f.width
		case "union_stack_field":
			o, width = b.unionStackField(e)
		case "expression": // BMv2 takes none; p4c makes the one of lastIndex
			if e.Op != "last_stack_index" {
				b.unsupportedf("%s in a select", describe(e))
				return nil, nil, "", nil
			}
			o, width = b.value(e, 1), 32
		default:
			b.unsupportedf("%s in a select", describe(e))
			return nil, nil, "", nil
		}
		if b.err != nil {
			return nil, nil, "", nil
		}
		widths, parts = append(widths, width), append(parts, o)
	}
	for _, o := range parts {
		for i := range o.nw {
			sel.slots = append(sel.slots, o.slot+uint32(i))
		}
	}
	for i := range s.Transitions {
		t := &s.Transitions[i]
		if t.Type == "default" {
			dflt = t.Next
			continue
		}
		if len(parts) == 0 {
			b.failf("a case without a key")
			return nil, nil, "", nil
		}
		c := selectCase{set: -1}
		var ok bool
		switch t.Type {
		case "hexstr":
			if c.value, ok = b.keyWords(t.Value, widths); !ok {
				return nil, nil, "", nil
			}
			mask := t.Mask
			if mask == nil {
				mask = make([]byte, len(t.Value))
				for j := range mask {
					mask[j] = 0xff
				}
			}
			if c.mask, ok = b.keyWords(mask, widths); !ok {
				return nil, nil, "", nil
			}
			for j := range c.value {
				c.value[j] &= c.mask[j]
			}
		case "parse_vset":
			id, declared := b.vsets[t.Set]
			if !declared {
				b.failf("value set %q is not declared", t.Set)
				return nil, nil, "", nil
			}
			c.set = id
			if t.Mask != nil {
				if c.mask, ok = b.keyWords(t.Mask, widths); !ok {
					return nil, nil, "", nil
				}
			}
			if old, seen := b.vsetWidths[t.Set]; seen && fmt.Sprint(old) != fmt.Sprint(widths) {
				b.unsupportedf("value set %q used with keys of different widths", t.Set)
				return nil, nil, "", nil
			}
			b.vsetWidths[t.Set] = widths
		}
		sel.cases, next = append(sel.cases, c), append(next, t.Next)
	}
	if len(sel.cases) == 0 {
		return nil, nil, dflt, jumps
	}
	return sel, next, dflt, jumps
}

// keyWords cuts a select's value, in which each element is padded to bytes, into the words of the key.
func (b *builder) keyWords(v []byte, widths []int) ([]uint64, bool) {
	var out []uint64
	for _, w := range widths {
		n := (w + 7) / 8
		if len(v) < n {
			b.failf("a value or mask is shorter than the key")
			return nil, false
		}
		x := new(big.Int).SetBytes(v[:n])
		out = append(out, wordsOf(x.And(x, ones(w)), (w+63)/64)...)
		v = v[n:]
	}
	if len(v) > 0 {
		b.failf("a value or mask is longer than the key")
		return nil, false
	}
	return out, true
}

func (b *builder) unionStackField(e *bmv2json.Expr) (operand, int) {
	s := b.unionStacks[e.Name]
	if s == nil {
		b.failf("header union stack %q is not declared", e.Name)
		return operand{}, 0
	}
	for i, n := range s.elems[0].names {
		if n != e.Member {
			continue
		}
		f, ok := s.elems[0].members[i].t.field(e.Field)
		if !ok {
			break
		}
		d, words, at := b.temp(f.words), f.words, f.slot
		b.call(func(p *packet) {
			clear(p.f[d : int(d)+words])
			if n := p.f[s.next]; n > 0 && n <= uint64(len(s.elems)) {
				copy(p.f[d:int(d)+words], p.f[s.elems[n-1].members[i].base+at:])
			}
		})
		return operand{d, words, bigZero, ones(f.width)}, f.width
	}
	b.failf("header union stack %q has no %s.%s", e.Name, e.Member, e.Field)
	return operand{}, 0
}

// checksums makes the code that verifies (after the parser) or updates (before the deparser) checksums, up to its opEnd.
func (b *builder) checksums(verify bool) error {
	for i := range b.file.Checksums {
		c := &b.file.Checksums[i]
		if verify && !c.Verify || !verify && !c.Update {
			continue
		}
		b.what, b.src = fmt.Sprintf("checksum %q", c.Name), c.Source
		if c.Type != "generic" {
			return unsupported(b.what, c.Source, "checksum type %q", c.Type)
		}
		b.freeTemps()
		calc := b.calcs[c.Calculation]
		if calc == nil {
			return refuse(b.what, c.Source, "calculation %q is not declared", c.Calculation)
		}
		h, f, ok := b.fieldTarget(c.Target)
		if !ok {
			return b.err
		}
		var skip []int
		if verify && !h.metadata {
			skip = append(skip, b.emit(instr{op: opJz, a: uint32(h.base)}))
		}
		if c.Cond != nil {
			skip = append(skip, b.jumpIfFalse(c.Cond)...)
		}
		t := b.temp(1)
		b.emit(instr{op: opHash, d: t, a: uint32(b.calcIndex(calc)), imm: ^uint64(0)})
		slot := uint32(h.base + f.slot)
		if verify {
			skip = append(skip, b.emit(instr{op: opJEq, a: t, b: slot}))
			b.callUsing(using(), func(p *packet) { p.badSum = true })
		} else {
			b.put(slot, b.extend(operand{t, 1, bigZero, ones(64)}, 64, false, f.words), f.width, f.words)
		}
		if b.err != nil {
			return b.err
		}
		b.patch(skip)
	}
	b.emit(instr{op: opEnd})
	return b.err
}
