// SPDX-License-Identifier: Apache-2.0

package softswitch

// p4c writes out a variable's value wherever the variable is used, so that one product is computed again and again. optimize finds, in
// the code of one action, what was computed before from slots that have not changed since, and drops instructions whose results nobody
// reads. It relies on jumps that lead ahead only.

// value names a slot as it was after a certain definition.
type value struct {
	slot    uint32
	version int
}

type computation struct {
	op      opcode
	a, b, c value
	imm     uint64
}

type optimizer struct {
	b       *builder
	code    []instr
	start   uint32
	version map[uint32]int
	fresh   int
	known   map[computation]value
	copies  map[value]value
	pending map[uint32][]map[uint32]int // versions at jumps, by their target
}

// optimize rewrites the code from start on.
func (b *builder) optimize(start int) {
	o := &optimizer{
		b: b, code: b.code[start:], start: uint32(start), version: map[uint32]int{}, known: map[computation]value{},
		copies: map[value]value{}, pending: map[uint32][]map[uint32]int{},
	}
	for i := range o.code {
		o.join(uint32(i) + o.start)
		o.rewrite(&o.code[i])
	}
	o.sweep()
}

// join forgets, at the target of jumps, what is not the same on all ways to it.
func (o *optimizer) join(pc uint32) {
	for _, other := range o.pending[pc] {
		for slot, v := range o.version {
			if other[slot] != v {
				o.define(slot)
			}
		}
		for slot, v := range other {
			if o.version[slot] != v {
				o.define(slot)
			}
		}
	}
	delete(o.pending, pc)
}

func (o *optimizer) define(slot uint32) value {
	o.fresh++
	o.version[slot] = o.fresh
	return value{slot, o.fresh}
}

func (o *optimizer) forget() {
	clear(o.known)
	clear(o.copies)
	for slot := range o.version {
		o.define(slot)
	}
}

// now is a slot as it is at this place, or an earlier slot that still holds the same.
func (o *optimizer) now(slot uint32) value {
	v := value{slot, o.version[slot]}
	if c, ok := o.copies[v]; ok && o.version[c.slot] == c.version {
		return c
	}
	return v
}

// operands returns pointers to the slots an instruction reads.
func (in *instr) operands() []*uint32 {
	switch in.op {
	case opMov, opNot, opShlI, opShrI, opSarI, opSext, opJz, opJnz, opCRC32M:
		return []*uint32{&in.a}
	case opAdd, opSub, opMul, opAnd, opOr, opXor, opShl, opShr, opSar, opFunnel, opDiv, opMod, opEq, opNe, opLtU, opLeU, opLtS, opLeS,
		opJEq, opJNe, opJLtU, opJGeU, opJLtS, opJGeS:
		return []*uint32{&in.a, &in.b}
	case opSel, opMulAdd:
		return []*uint32{&in.a, &in.b, &in.c}
	case opLoad, opRegRd, opCount:
		return []*uint32{&in.b}
	case opStore:
		return []*uint32{&in.b, &in.d}
	case opRegWr:
		return []*uint32{&in.b, &in.c}
	}
	return nil
}

// pure tells whether an instruction does nothing but define d from its operands.
func (in *instr) pure() bool { return in.retargetable() || in.op == opCRC32M }

func (o *optimizer) rewrite(in *instr) {
	for _, s := range in.operands() {
		*s = o.now(*s).slot
	}
	switch {
	case in.pure():
		key := computation{op: in.op, imm: in.imm, a: value{slot: in.a}, b: value{slot: in.b}, c: value{slot: in.c}}
		for _, s := range in.operands() {
			switch s {
			case &in.a:
				key.a = o.now(in.a)
			case &in.b:
				key.b = o.now(in.b)
			case &in.c:
				key.c = o.now(in.c)
			}
		}
		if v, ok := o.known[key]; ok && o.version[v.slot] == v.version {
			*in = instr{op: opMov, d: in.d, a: v.slot, imm: ^uint64(0)}
			if d := o.define(in.d); v.slot != in.d {
				o.copies[d] = v
			}
			return
		}
		from := o.now(in.a)
		d := o.define(in.d)
		if in.op == opMov && in.imm == ^uint64(0) && from.slot != in.d {
			o.copies[d] = from
		} else if key.a.slot != in.d && key.b.slot != in.d && key.c.slot != in.d {
			o.known[key] = d
		}
	case in.op == opRegRd, in.op == opLoad, in.op == opHash:
		o.define(in.d)
	case in.op >= opJmp && in.op <= opJGeS:
		at := make(map[uint32]int, len(o.version))
		for s, v := range o.version {
			at[s] = v
		}
		o.pending[in.d] = append(o.pending[in.d], at)
	case in.op == opLock, in.op == opUnlock, in.op == opRegWr, in.op == opCount, in.op == opExit:
	default: // a closure may change any slot
		o.forget()
	}
}

// sweep drops pure instructions whose result is a temporary that nothing reads, and moves the rest together.
func (o *optimizer) sweep() {
	read := map[uint32]bool{}
	keep := make([]bool, len(o.code))
	for i := len(o.code) - 1; i >= 0; i-- {
		in := &o.code[i]
		dead := in.pure() && o.b.isTemp(in.d) && !read[in.d] && !read[anySlot]
		dead = dead || in.op == opMov && in.d == in.a && in.imm == ^uint64(0)
		if keep[i] = !dead; dead {
			continue
		}
		for _, s := range in.operands() {
			read[*s] = true
		}
		if in.op == opCall || in.op == opCallP {
			read[anySlot] = true
		}
	}
	o.b.pack(int(o.start), keep)
}

// pack moves together what is kept of the code from start on.
func (b *builder) pack(start int, keep []bool) {
	code := b.code[start:]
	moved := make([]uint32, len(code)+1)
	n := uint32(0)
	for i, k := range keep {
		moved[i] = n
		if k {
			n++
		}
	}
	moved[len(code)] = n
	out := b.code[:start]
	for i, k := range keep {
		if !k {
			continue
		}
		in := code[i]
		if in.op >= opJmp && in.op <= opJGeS && int(in.d) >= start {
			in.d = moved[int(in.d)-start] + uint32(start)
		}
		out = append(out, in)
	}
	b.code = out
}

// anySlot stands for what closures read.
const anySlot = ^uint32(0)
