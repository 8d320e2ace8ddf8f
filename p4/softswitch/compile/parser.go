// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"bytes"
	"fmt"
	"math/big"
	"slices"

	"github.com/netsketch/netsketch/p4/softswitch/bmv2json"
	"github.com/netsketch/netsketch/p4/softswitch/program"
	"github.com/netsketch/netsketch/p4/softswitch/wide"
)

var coreErrors = map[int]string{
	program.PacketTooShort: "PacketTooShort", program.NoMatch: "NoMatch", program.StackOutOfBounds: "StackOutOfBounds",
	program.HeaderTooShort: "HeaderTooShort",
	program.ParserTimeout:  "ParserTimeout", program.InvalidArgument: "ParserInvalidArgument",
}

// parser generates the code of the parser: its states, then the verification of checksums.
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
	b.Prog.ParserPC = b.Here()
	var toAccept []int // instructions whose D is the parser's end
	var gotos []fixup
	gotos = append(gotos, fixup{at: b.Emit(program.Instr{Op: program.OpJmp}), name: def.Init})
	type selectFix struct {
		sel  *program.Select
		next []string
		def  string
	}
	var sels []selectFix
	var counts []int                // instructions that count states
	follow := map[string][]string{} // next states of each state
	for i := range def.States {
		s := &def.States[i]
		states[s.Name] = b.Here()
		b.what, b.src = fmt.Sprintf("parse state %q", s.Name), nil
		counts = append(counts, b.Emit(program.Instr{Op: program.OpState}))
		for j := range s.Ops {
			o := &s.Ops[j]
			b.what, b.src = fmt.Sprintf("parse state %q, statement %d (%s)", s.Name, j, o.Op), o.Source
			b.FreeTemps()
			toAccept = append(toAccept, b.parserOp(o)...)
			if b.err != nil {
				return b.err
			}
		}
		b.what, b.src = fmt.Sprintf("parse state %q, select", s.Name), nil
		b.FreeTemps()
		sel, next, dflt, jumps := b.selectOf(s)
		toAccept = append(toAccept, jumps...)
		if b.err != nil {
			return b.err
		}
		follow[s.Name] = append([]string{dflt}, next...)
		for _, n := range follow[s.Name] {
			if _, ok := states[n]; n != "" && !ok {
				return refuse(b.what, nil, "next state %q is not declared", n)
			}
		}
		if sel == nil {
			gotos = append(gotos, fixup{at: b.Emit(program.Instr{Op: program.OpJmp}), name: dflt})
			continue
		}
		b.Prog.Selects = append(b.Prog.Selects, sel)
		b.Emit(program.Instr{Op: program.OpSelect, A: uint32(len(b.Prog.Selects) - 1)})
		sels = append(sels, selectFix{sel, next, dflt})
	}
	accept := b.Here()
	b.Patch(append(toAccept, counts...))
	if isAcyclic(follow) {
		for _, at := range counts {
			b.Code[at] = program.Instr{Op: program.OpJmp, D: uint32(at + 1)}
		}
	}
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
		b.Code[g.at].D = where(g.name)
	}
	for _, s := range sels {
		for i := range s.sel.Cases {
			s.sel.Cases[i].Next = where(s.next[i])
		}
		s.sel.Default = where(s.def)
	}
	return b.checksums(true)
}

// isAcyclic reports whether no parser state leads back to itself: then states need not be counted.
// The states that follow each one are given by name; "" is the end.
func isAcyclic(follow map[string][]string) bool {
	before := map[string]int{} // number of states that lead to a state and may be passed more than once
	for _, states := range follow {
		for _, s := range states {
			before[s]++
		}
	}
	var todo []string
	for s := range follow {
		if before[s] == 0 {
			todo = append(todo, s)
		}
	}
	passed := 0
	for ; len(todo) > 0; passed++ {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, n := range follow[s] {
			if before[n]--; before[n] == 0 && n != "" {
				todo = append(todo, n)
			}
		}
	}
	return passed == len(follow)
}

// fixup is a jump to a name.
type fixup struct {
	at   int
	name string
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
		if h, f, ok := b.fieldAt(o.Params[0]); ok && h.Type.Variable >= 0 && f == &h.Type.Fields[h.Type.Variable] {
			b.assignVL(o.Params[0], o.Params[1])
			return nil
		}
		b.assign(o.Params[0], o.Params[1])
	case "verify":
		if len(o.Params) != 2 {
			b.failf("takes a condition and an error")
			return nil
		}
		skip := b.jumpIf(o.Params[0], true)
		v := b.value(o.Params[1], 1)
		at := b.CallP(program.ParserError{Code: v.slot})
		b.Patch(skip)
		return []int{at}
	case "shift", "advance":
		if len(o.Params) != 1 {
			b.failf("takes one parameter")
			return nil
		}
		n := b.index(o.Params[0])
		return []int{b.CallP(program.Advance{Count: n, Bytes: o.Op == "shift"})}
	case "primitive":
		b.primitive(o.Primitive)
	}
	return nil
}

func (b *builder) extractOp(o *bmv2json.ParserOp) []int {
	what := o.Params[0]
	x := program.Extract{Variable: o.Op == "extract_VL"}
	if x.Variable {
		v := b.exact(o.Params[1])
		if v.nw != 1 || v.lo.Sign() < 0 {
			b.unsupportedf("a length that is signed or longer than 64 bits")
			return nil
		}
		x.Length = v.slot
	}
	check := func(t *program.HeaderType) bool {
		if (t.Variable >= 0) != x.Variable {
			b.failf("header type %q: a header with a variable-length field, and no other, is extracted with a length",
				t.Name)
			return false
		}
		return true
	}
	switch what.Type {
	case "regular":
		h := b.headerNamed[what.Name]
		if h == nil || h.Metadata {
			b.failf("header %q is not declared", what.Name)
			return nil
		}
		if !check(h.Type) {
			return nil
		}
		if !x.Variable {
			return []int{b.Emit(program.Instr{Op: program.OpExtract, A: uint32(h.Index)})}
		}
		x.Header = h
		return []int{b.CallP(x)}
	case "stack":
		s := b.stacks[what.Name]
		if s == nil {
			b.failf("header stack %q is not declared", what.Name)
			return nil
		}
		if !check(s.Type) {
			return nil
		}
		x.Stack = s
		return []int{b.CallP(x)}
	}
	s := b.unionStacks[what.Name]
	if s == nil {
		b.failf("header union stack %q is not declared", what.Name)
		return nil
	}
	x.Unions, x.Member = s, slices.Index(s.Elements[0].Names, what.Member)
	if x.Member < 0 {
		b.failf("header union stack %q has no member %q", what.Name, what.Member)
		return nil
	}
	if !check(s.Elements[0].Members[x.Member].Type) {
		return nil
	}
	return []int{b.CallP(x)}
}

// lookahead emits an operation that reads bits ahead into words slots.
func (b *builder) lookahead(e *bmv2json.Expr, d uint32, words int) int {
	return b.CallP(program.Lookahead{D: d, N: words, Offset: e.Index, Width: e.Width})
}

func (b *builder) setLookahead(o *bmv2json.ParserOp) []int {
	_, f, ok := b.fieldTarget(o.Params[0])
	if !ok {
		return nil
	}
	e := o.Params[1]
	words := max((e.Width+63)/64, f.Words)
	d := b.Temp(words)
	at := b.lookahead(e, d, words)
	b.store(o.Params[0], func(f *program.Field) operand { return operand{d, f.Words, wide.Zero, wide.Ones(e.Width)} })
	return []int{at}
}

// selectOf compiles a state's transition. A state without a choice has no select, only a default.
func (b *builder) selectOf(s *bmv2json.ParseState) (sel *program.Select, next []string, dflt string, jumps []int) {
	sel = &program.Select{}
	var widths []int
	for _, e := range s.Key {
		o, width, ok := b.selectKey(e, &jumps)
		if !ok || b.err != nil {
			return nil, nil, "", nil
		}
		widths = append(widths, width)
		for i := range o.nw {
			sel.Slots = append(sel.Slots, o.slot+uint32(i))
		}
	}
	for i := range s.Transitions {
		t := &s.Transitions[i]
		if t.Type == "default" {
			dflt = t.Next
			continue
		}
		if len(s.Key) == 0 {
			b.failf("a case without a key")
			return nil, nil, "", nil
		}
		c, ok := b.selectCase(t, widths)
		if !ok {
			return nil, nil, "", nil
		}
		sel.Cases, next = append(sel.Cases, c), append(next, t.Next)
	}
	if len(sel.Cases) == 0 {
		return nil, nil, dflt, jumps
	}
	return sel, next, dflt, jumps
}

// selectKey compiles a part of a select's key, and returns where its value is and its width in
// bits. It appends to jumps the instructions that leave the parser if the packet is too short.
func (b *builder) selectKey(e *bmv2json.Expr, jumps *[]int) (o operand, width int, ok bool) {
	switch e.Type {
	case "lookahead":
		words := (e.Width + 63) / 64
		o = operand{b.Temp(words), words, wide.Zero, wide.Ones(e.Width)}
		*jumps = append(*jumps, b.lookahead(e, o.slot, words))
		return o, e.Width, true
	case "field":
		if e.Field == validField {
			h := b.headerNamed[e.Name]
			if h == nil {
				b.failf("header %q is not declared", e.Name)
				return o, 0, false
			}
			return operand{b.validSlot(h), 1, wide.Zero, wide.Ones(1)}, 1, true
		}
		h, f, ok := b.fieldAt(e)
		if !ok {
			return o, 0, false
		}
		return operand{uint32(h.Base + f.Slot), f.Words, wide.Zero, wide.Ones(f.Width)}, f.Width, true
	case "stack_field":
		if st := b.stacks[e.Name]; st != nil {
			if f, ok := st.Type.Field(e.Field); ok {
				return b.stackField(e, f.Words), f.Width, true
			}
		}
		b.failf("header stack %q or its field %q is not declared", e.Name, e.Field)
		return o, 0, false
	case "union_stack_field":
		o, width = b.unionStackField(e)
		return o, width, true
	case "expression": // BMv2 accepts none but lastIndex
		if e.Op == "last_stack_index" {
			return b.value(e, 1), 32, true
		}
	}
	b.unsupportedf("%s in a select", describe(e))
	return o, 0, false
}

// selectCase compiles a case of a select whose key has parts of the given widths.
func (b *builder) selectCase(t *bmv2json.Transition, widths []int) (c program.SelectCase, ok bool) {
	c.Set = -1
	switch t.Type {
	case "hexstr":
		if c.Value, ok = b.keyWords(t.Value, widths); !ok {
			return c, false
		}
		mask := t.Mask
		if mask == nil {
			mask = bytes.Repeat([]byte{0xff}, len(t.Value))
		}
		if c.Mask, ok = b.keyWords(mask, widths); !ok {
			return c, false
		}
		for j := range c.Value {
			c.Value[j] &= c.Mask[j]
		}
	case "parse_vset":
		id, declared := b.vsets[t.Set]
		if !declared {
			b.failf("value set %q is not declared", t.Set)
			return c, false
		}
		c.Set = id
		if t.Mask != nil {
			if c.Mask, ok = b.keyWords(t.Mask, widths); !ok {
				return c, false
			}
		}
		if old, seen := b.vsetWidths[t.Set]; seen && !slices.Equal(old, widths) {
			b.unsupportedf("value set %q used with keys of different widths", t.Set)
			return c, false
		}
		b.vsetWidths[t.Set] = widths
	}
	return c, true
}

// keyWords splits a select's value, whose elements are padded to bytes, into the words of the key.
func (b *builder) keyWords(v []byte, widths []int) ([]uint64, bool) {
	var out []uint64
	for _, w := range widths {
		n := (w + 7) / 8
		if len(v) < n {
			b.failf("a value or mask is shorter than the key")
			return nil, false
		}
		x := new(big.Int).SetBytes(v[:n])
		out = append(out, wide.Of(x.And(x, wide.Ones(w)), (w+63)/64)...)
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
	for i, n := range s.Elements[0].Names {
		if n != e.Member {
			continue
		}
		f, ok := s.Elements[0].Members[i].Type.Field(e.Field)
		if !ok {
			break
		}
		d := b.Temp(f.Words)
		b.Call(program.LoadField{D: d, From: program.HeaderRef{Union: program.UnionRef{Stack: s, Last: true},
			Member: i}, Offset: f.Slot, N: f.Words})
		return operand{d, f.Words, wide.Zero, wide.Ones(f.Width)}, f.Width
	}
	b.failf("header union stack %q has no %s.%s", e.Name, e.Member, e.Field)
	return operand{}, 0
}

// checksums generates the code that verifies (after the parser) or updates (before the deparser)
// checksums, up to its OpEnd.
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
		b.FreeTemps()
		calc := b.calcs[c.Calculation]
		if calc == nil {
			return refuse(b.what, c.Source, "calculation %q is not declared", c.Calculation)
		}
		h, f, ok := b.fieldTarget(c.Target)
		if !ok {
			return b.err
		}
		var skip []int
		if verify && !h.Metadata {
			skip = append(skip, b.Emit(program.Instr{Op: program.OpJz, A: uint32(h.Base)}))
		}
		if c.Cond != nil {
			skip = append(skip, b.jumpIf(c.Cond, false)...)
		}
		t := b.Temp(1)
		b.Emit(program.Instr{Op: program.OpHash, D: t, A: uint32(b.calcIndex(calc)), Imm: ^uint64(0)})
		slot := uint32(h.Base + f.Slot)
		if verify {
			skip = append(skip, b.Emit(program.Instr{Op: program.OpJEq, A: t, B: slot}))
			b.Call(program.ChecksumError{})
		} else {
			b.put(slot, b.extend(operand{t, 1, wide.Zero, wide.Ones(64)}, 64, false, f.Words), f.Width, f.Words)
		}
		if b.err != nil {
			return b.err
		}
		b.Patch(skip)
	}
	b.Emit(program.Instr{Op: program.OpEnd})
	return b.err
}
