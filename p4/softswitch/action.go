// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"context"
	"fmt"
	"log/slog"
	"math/big"
	"slices"
	"strings"

	"github.com/netsketch/netsketch/p4/softswitch/bmv2json"
)

// action is an action of the program.
type action struct {
	id     int
	name   string
	info   ActionInfo
	locals []operand // where its parameters are when a table calls it
	words  int
	pc     uint32
	def    *bmv2json.Action
	exits  bool
}

// declareActions gives the actions' parameters their slots.
func (b *builder) declareActions() error {
	most := 0
	names := map[string]bool{}
	for i := range b.file.Actions {
		d := &b.file.Actions[i]
		what := fmt.Sprintf("action %q", d.Name)
		if b.actionByID[d.ID] != nil {
			return refuse(what, d.Source, "id %d is declared twice", d.ID)
		}
		a := &action{id: d.ID, name: d.Name, def: d, info: ActionInfo{Name: d.Name}}
		for _, p := range d.Params {
			w := (p.Width + 63) / 64
			a.locals = append(a.locals, operand{uint32(b.params + a.words), w, bigZero, ones(p.Width)})
			a.words += w
			if a.words > maxSlots {
				return refuse(what, d.Source, "its parameters are too long")
			}
			a.info.Params = append(a.info.Params, ParamInfo{Name: p.Name, Width: p.Width})
		}
		for j := range d.Primitives {
			op := d.Primitives[j].Op
			a.exits = a.exits || op == "exit" || op == "assert" || op == "assume"
		}
		most = max(most, a.words)
		b.actionByID[d.ID] = a
		if !names[d.Name] { // p4c makes several actions of one name; they differ by nothing the control plane sees
			names[d.Name] = true
			b.prog.info.actions = append(b.prog.info.actions, a.info)
		}
	}
	b.temps = b.params + most
	return nil
}

// body makes the code of an action's statements with its parameters in locals.
func (b *builder) body(a *action, locals []operand) {
	b.locals = locals
	defer func() { b.locals = nil }()
	locks := b.lockSet(a)
	if locks >= 0 {
		b.emit(instr{op: opLock, a: uint32(locks)})
	}
	n := len(a.def.Primitives)
	labels := make([][]int, n+1) // jumps to patch, by the statement they go to
	jumps := false
	start := len(b.code)
	for i := range a.def.Primitives {
		pr := &a.def.Primitives[i]
		b.what, b.src = fmt.Sprintf("action %q, statement %d (%s)", a.name, i, pr.Op), pr.Source
		if pr.Source == nil {
			b.src = a.def.Source
		}
		b.patch(labels[i])
		b.freeTemps()
		switch pr.Op {
		case "_jump", "_jump_if_zero":
			jumps = true
			target, at := b.jumpPrimitive(pr, i, n)
			if b.err == nil {
				labels[target] = append(labels[target], at...)
			}
		default:
			b.primitive(pr)
		}
		if b.err != nil {
			return
		}
	}
	b.patch(labels[n])
	if !jumps {
		b.fuseReadOut(start)
	}
	if locks >= 0 {
		b.emit(instr{op: opUnlock, a: uint32(locks)})
	}
}

// jumpPrimitive emits a jump inside of an action.
func (b *builder) jumpPrimitive(pr *bmv2json.Primitive, i, n int) (target int, at []int) {
	want := 1
	if pr.Op == "_jump_if_zero" {
		want = 2
	}
	if !b.arity(pr, want) {
		return 0, nil
	}
	off := pr.Params[want-1]
	if off.Type != "hexstr" || !off.Int.IsInt64() {
		b.unsupportedf("a jump to a computed place")
		return 0, nil
	}
	t := off.Int.Int64()
	if t <= int64(i) || t > int64(n) {
		b.unsupportedf("a jump from statement %d to %d: only jumps ahead inside of the action can be run", i, t)
		return 0, nil
	}
	if want == 1 {
		return int(t), []int{b.emit(instr{op: opJmp})}
	}
	return int(t), b.jumpIfFalse(b.truth(pr.Params[0]))
}

// truth is a number as a condition: whether it is not zero.
func (b *builder) truth(e *bmv2json.Expr) *bmv2json.Expr {
	for e != nil && e.Type == "expression" && (e.Op == "b2d" || e.Op == "d2b") && e.Right != nil && e.Right.Type == "expression" && e.Right.Op != e.Op &&
		(e.Right.Op == "b2d" || e.Right.Op == "d2b") {
		e = e.Right.Right
	}
	switch {
	case b.kind(e) == kindBool:
		return e
	case e != nil && e.Type == "expression" && e.Op == "b2d":
		return e.Right
	}
	return &bmv2json.Expr{Type: "expression", Op: "d2b", Right: e}
}

// lockSet finds the registers an action uses; -1 if it uses none.
func (b *builder) lockSet(a *action) int {
	set := map[int]bool{}
	var walk func(e *bmv2json.Expr)
	walk = func(e *bmv2json.Expr) {
		if e == nil {
			return
		}
		if e.Type == "register" || e.Type == "register_array" {
			if i, ok := b.regs[e.Name]; ok {
				set[i] = true
			}
		}
		walk(e.Left)
		walk(e.Right)
		walk(e.Cond)
		for _, x := range e.List {
			walk(x)
		}
	}
	for i := range a.def.Primitives {
		for _, e := range a.def.Primitives[i].Params {
			walk(e)
		}
	}
	if len(set) == 0 {
		return -1
	}
	var regs []int
	for i := range set {
		regs = append(regs, i)
	}
	slices.Sort(regs)
	for i, l := range b.prog.locks {
		if slices.Equal(l, regs) {
			return i
		}
	}
	b.prog.locks = append(b.prog.locks, regs)
	return len(b.prog.locks) - 1
}

func (b *builder) arity(pr *bmv2json.Primitive, n int) bool {
	if len(pr.Params) != n {
		b.failf("takes %d parameters, has %d", n, len(pr.Params))
		return false
	}
	return true
}

// arities of the primitives that are known.
var arities = map[string]int{
	"assign": 2, "modify_field": 2, "assign_VL": 2, "assign_header": 2, "copy_header": 2, "assign_union": 2, "assign_header_stack": 2,
	"assign_union_stack": 2, "push": 2, "pop": 2, "exit": 0, "assert": 1, "assume": 1, "log_msg": 2, "no_op": 0,
	"modify_field_rng_uniform": 3, "add_to_field": 2, "subtract_from_field": 2, "add": 3, "subtract": 3, "bit_xor": 3, "bit_or": 3,
	"bit_and": 3, "shift_left": 3, "shift_right": 3, "drop": 0, "mark_to_drop": 1, "generate_digest": 2, "add_header": 1,
	"add_header_fast": 1, "remove_header": 1, "clone_ingress_pkt_to_egress": 2, "clone_egress_pkt_to_egress": 2, "resubmit": 1,
	"recirculate": 1, "modify_field_with_hash_based_offset": 4, "execute_meter": 3, "count": 2, "register_read": 3,
	"register_write": 3, "truncate": 1,
}

var binaryPrimitives = map[string]string{
	"add": "+", "subtract": "-", "bit_xor": "^", "bit_or": "|", "bit_and": "&", "shift_left": "<<", "shift_right": ">>",
	"add_to_field": "+", "subtract_from_field": "-",
}

func (b *builder) primitive(pr *bmv2json.Primitive) {
	n, known := arities[pr.Op]
	if !known {
		b.unsupportedf("primitive %q", pr.Op)
		return
	}
	if !b.arity(pr, n) {
		return
	}
	arg := pr.Params
	switch pr.Op {
	case "assign", "modify_field":
		b.assign(arg[0], arg[1])
	case "add", "subtract", "bit_xor", "bit_or", "bit_and", "shift_left", "shift_right":
		b.assign(arg[0], &bmv2json.Expr{Type: "expression", Op: binaryPrimitives[pr.Op], Left: arg[1], Right: arg[2]})
	case "add_to_field", "subtract_from_field":
		b.assign(arg[0], &bmv2json.Expr{Type: "expression", Op: binaryPrimitives[pr.Op], Left: arg[0], Right: arg[1]})
	case "assign_VL":
		b.assignVL(arg[0], arg[1])
	case "assign_header", "copy_header", "add_header", "add_header_fast", "remove_header":
		b.headerPrimitive(pr)
	case "assign_union", "assign_header_stack", "assign_union_stack", "push", "pop":
		b.stackPrimitive(pr)
	case "no_op":
	case "exit":
		b.emit(instr{op: opExit})
	case "drop", "mark_to_drop":
		spec, mcast := b.prog.std.egressSpec, b.prog.std.mcastGrp
		b.call(func(p *packet) {
			p.set(spec, DropPort)
			p.set(mcast, 0)
		})
	case "assert", "assume":
		b.assertion(pr)
	case "log_msg":
		b.logMsg(pr)
	case "modify_field_rng_uniform":
		b.randomField(arg)
	case "modify_field_with_hash_based_offset":
		b.hashField(arg)
	case "generate_digest":
		b.digest(arg[1])
	case "clone_ingress_pkt_to_egress", "clone_egress_pkt_to_egress", "resubmit", "recirculate", "truncate":
		b.loopPrimitive(pr)
	case "execute_meter":
		b.executeMeter(arg)
	case "count":
		i, ok := b.counters[arg[0].Name]
		if arg[0].Type != "counter_array" || !ok {
			b.failf("counter array %q is not declared", arg[0].Name)
			return
		}
		b.emit(instr{op: opCount, a: uint32(i), b: b.index(arg[1])})
	case "register_read":
		b.registerRead(arg)
	case "register_write":
		b.registerWrite(arg)
	}
}

// assign stores the value of src in the field that dst names.
func (b *builder) assign(dst, src *bmv2json.Expr) {
	if b.kind(src) == kindBool { // BMv2 does not take these; p4c always converts
		src = &bmv2json.Expr{Type: "expression", Op: "b2d", Right: src}
	}
	b.store(dst, func(f *fieldLayout) operand {
		v := src
		if f.sat {
			op := "usat_cast"
			if f.signed {
				op = "sat_cast"
			}
			v = &bmv2json.Expr{Type: "expression", Op: op, Left: src, Right: &bmv2json.Expr{Type: "hexstr", Int: big.NewInt(int64(f.width))}}
		}
		return b.value(v, f.words)
	})
}

// store evaluates value for the field dst names, and puts it there.
func (b *builder) store(dst *bmv2json.Expr, value func(*fieldLayout) operand) {
	switch {
	case dst.Type == "field":
		if dst.Field == validField {
			b.unsupportedf("an assignment to a header's validity")
			return
		}
		h, f, ok := b.fieldAt(dst)
		if !ok {
			return
		}
		if h.t.vl >= 0 && f == &h.t.fields[h.t.vl] {
			b.unsupportedf("an assignment to variable-length field %s.%s by %q", dst.Name, dst.Field, "assign")
			return
		}
		b.put(uint32(h.base+f.slot), value(f), f.width, f.words)
	case dst.Type == "stack_field":
		s := b.stacks[dst.Name]
		if s == nil {
			b.failf("header stack %q is not declared", dst.Name)
			return
		}
		f, ok := s.t.field(dst.Field)
		if !ok {
			b.failf("header stack %q has no field %q", dst.Name, dst.Field)
			return
		}
		b.storeFound(f, value, func(p *packet) *header {
			if n := p.f[s.next]; n > 0 && n <= uint64(len(s.elems)) {
				return s.elems[n-1]
			}
			return nil
		})
	case dst.Type == "expression" && dst.Op == "access_field":
		r, ok := b.headerRef(dst.Left)
		if !ok {
			return
		}
		if dst.Index >= len(r.t.fields) || dst.Index == r.t.vl {
			b.failf("field %d of a header that has no such field", dst.Index)
			return
		}
		f := &r.t.fields[dst.Index]
		switch {
		case r.h != nil:
			b.put(uint32(r.h.base+f.slot), value(f), f.width, f.words)
		case r.stk != nil && f.words == 1:
			o := value(f)
			t := b.temp(1)
			b.emit(instr{op: opMov, d: t, a: o.slot, imm: maskOf(f.width)})
			b.emit(instr{op: opStore, d: t, a: uint32(r.stk.base + f.slot), b: r.idx, c: uint32(r.stk.stride), imm: uint64(len(r.stk.elems))})
		default:
			b.storeFound(f, value, r.find)
		}
	default:
		b.failf("cannot assign to %s", describe(dst))
	}
}

func (b *builder) storeFound(f *fieldLayout, value func(*fieldLayout) operand, find func(*packet) *header) {
	o := value(f)
	at, words, width := f.slot, f.words, f.width
	b.call(func(p *packet) {
		if h := find(p); h != nil {
			copy(p.f[h.base+at:h.base+at+words], p.f[o.slot:])
			wideMask(p.f, uint32(h.base+at), width)
		}
	})
}

// put moves a value into a field, cut off at its width.
func (b *builder) put(dst uint32, o operand, width, words int) {
	if b.err != nil {
		return
	}
	if words > 1 {
		from := int(o.slot)
		b.call(func(p *packet) {
			copy(p.f[dst:int(dst)+words], p.f[from:from+words])
			wideMask(p.f, dst, width)
		})
		return
	}
	mask := maskOf(width)
	if n := len(b.code) - 1; n >= 0 && b.isTemp(o.slot) && b.code[n].d == o.slot && b.code[n].retargetable() {
		b.code[n].d = dst
		b.code[n].imm &= mask
		return
	}
	if o.slot == dst {
		return
	}
	b.emit(instr{op: opMov, d: dst, a: o.slot, imm: mask})
}

func (b *builder) assignVL(dst, src *bmv2json.Expr) {
	if dst.Type != "field" || src.Type != "field" {
		b.unsupportedf("assign_VL of anything but fields")
		return
	}
	d, df, ok1 := b.fieldAt(dst)
	s, sf, ok2 := b.fieldAt(src)
	if !ok1 || !ok2 {
		return
	}
	if d.t.vl < 0 || s.t.vl < 0 || df != &d.t.fields[d.t.vl] || sf != &s.t.fields[s.t.vl] || df.width < sf.width {
		b.failf("assign_VL needs two variable-length fields, the target no shorter")
		return
	}
	to, from, words := d.base+df.slot, s.base+sf.slot, sf.words
	all := df.words
	toLen, fromLen := d.base+d.t.vlLen, s.base+s.t.vlLen
	b.call(func(p *packet) {
		copy(p.f[to:to+words], p.f[from:from+words])
		clear(p.f[to+words : to+all])
		p.f[toLen] = p.f[fromLen]
	})
}

func (b *builder) headerPrimitive(pr *bmv2json.Primitive) {
	dst, ok := b.headerRef(pr.Params[0])
	if !ok {
		return
	}
	switch pr.Op {
	case "add_header", "add_header_fast":
		if dst.h != nil && pr.Op == "add_header" {
			b.emit(instr{op: opAddHdr, a: uint32(dst.h.index)})
			return
		}
		b.call(func(p *packet) { p.addHeader(dst.at(p)) })
	case "remove_header":
		if dst.h != nil {
			b.emit(instr{op: opRmHdr, a: uint32(dst.h.index)})
			return
		}
		b.call(func(p *packet) { p.removeHeader(dst.at(p)) })
	default:
		src, ok := b.headerRef(pr.Params[1])
		if !ok {
			return
		}
		if src.t != dst.t {
			b.failf("headers of types %q and %q", dst.t.name, src.t.name)
			return
		}
		b.call(func(p *packet) { p.assignHeader(dst.at(p), src.at(p)) })
	}
}

func (b *builder) stackPrimitive(pr *bmv2json.Primitive) {
	x, y := pr.Params[0], pr.Params[1]
	switch pr.Op {
	case "push", "pop":
		n := b.index(y)
		pop := pr.Op == "pop"
		if s := b.stacks[x.Name]; s != nil && x.Type == "header_stack" {
			b.call(func(p *packet) {
				if pop {
					p.pop(s, p.f[n])
				} else {
					p.push(s, p.f[n])
				}
			})
			return
		}
		if s := b.unionStacks[x.Name]; s != nil && x.Type == "header_union_stack" {
			b.call(func(p *packet) { p.pushUnions(s, p.f[n], pop) })
			return
		}
	case "assign_header_stack":
		d, s := b.stacks[x.Name], b.stacks[y.Name]
		if d != nil && s != nil && d.t == s.t && len(d.elems) == len(s.elems) {
			b.call(func(p *packet) {
				p.f[d.next] = p.f[s.next]
				for i := range d.elems {
					p.assignHeader(d.elems[i], s.elems[i])
				}
			})
			return
		}
	case "assign_union":
		d, findD, ok1 := b.unionRef(x)
		s, findS, ok2 := b.unionRef(y)
		if ok1 && ok2 && sameUnion(d, s) {
			b.call(func(p *packet) {
				to, from := d, s
				if findD != nil {
					to = findD(p)
				}
				if findS != nil {
					from = findS(p)
				}
				if to != nil && from != nil {
					p.assignUnion(to, from)
				}
			})
			return
		}
	case "assign_union_stack":
		d, s := b.unionStacks[x.Name], b.unionStacks[y.Name]
		if d != nil && s != nil && len(d.elems) == len(s.elems) && sameUnion(d.elems[0], s.elems[0]) {
			b.call(func(p *packet) {
				p.f[d.next] = p.f[s.next]
				for i := range d.elems {
					p.assignUnion(d.elems[i], s.elems[i])
				}
			})
			return
		}
	}
	b.failf("operands %s and %s do not fit", describe(x), describe(y))
}

func sameUnion(a, c *union) bool {
	if len(a.members) != len(c.members) {
		return false
	}
	for i := range a.members {
		if a.members[i].t != c.members[i].t {
			return false
		}
	}
	return true
}

func (p *packet) assignUnion(dst, src *union) {
	if dst == src {
		return
	}
	for _, h := range dst.members {
		p.f[h.base] = 0
	}
	for i, h := range src.members {
		if p.f[h.base] != 0 {
			p.assignHeader(dst.members[i], h)
		}
	}
}

func (b *builder) assertion(pr *bmv2json.Primitive) {
	s := b.boolean(b.truth(pr.Params[0]))
	op, where := pr.Op, b.src.String()
	b.call(func(p *packet) {
		if p.f[s] != 0 || p.dropped {
			return
		}
		p.dropped, p.exit = true, true
		p.lane.stats.AssertFailures++
		p.st.sw.log.Error(op+" failed: packet dropped", "source", where, "port", p.port)
	})
}

func (b *builder) logMsg(pr *bmv2json.Primitive) {
	format, list := pr.Params[0], pr.Params[1]
	if format.Type != "string" || list.Type != "parameters_vector" {
		b.failf("log_msg takes a string and a list of numbers")
		return
	}
	text := strings.NewReplacer(`\{`, "{", `\}`, "}").Replace(format.Name)
	var vals []operand
	for _, e := range list.List {
		if b.kind(e) == kindBool {
			e = &bmv2json.Expr{Type: "expression", Op: "b2d", Right: e}
		}
		vals = append(vals, b.exact(e))
	}
	where := b.src.String()
	b.call(func(p *packet) {
		log := p.st.sw.log
		if !log.Enabled(context.Background(), slog.LevelInfo) {
			return
		}
		msg := text
		for _, o := range vals {
			v := wideBig(p.f[o.slot : int(o.slot)+o.nw])
			if o.lo.Sign() < 0 && v.Bit(64*o.nw-1) == 1 {
				v.Sub(v, new(big.Int).Lsh(bigOne, uint(64*o.nw)))
			}
			msg = strings.Replace(msg, "{}", v.String(), 1)
		}
		log.Info(msg, "source", where)
	})
}

func (b *builder) randomField(arg []*bmv2json.Expr) {
	b.store(arg[0], func(f *fieldLayout) operand {
		lo, hi := b.value(arg[1], 1), b.value(arg[2], 1)
		d := b.temp(f.words)
		words := f.words
		at, isField := uint32(0), false
		if arg[0].Type == "field" {
			if h, f, ok := b.fieldAt(arg[0]); ok {
				at, isField = uint32(h.base+f.slot), true
			}
		}
		b.call(func(p *packet) {
			l, h := p.f[lo.slot], p.f[hi.slot]
			clear(p.f[d : int(d)+words])
			switch {
			case l > h: // BMv2 leaves the field as it is
				if isField {
					p.f[d] = p.f[at]
				}
			case h-l == ^uint64(0):
				p.f[d] = p.lane.random()
			default:
				p.f[d] = l + p.lane.random()%(h-l+1)
			}
		})
		return operand{d, f.words, bigZero, ones(64)}
	})
}

func (b *builder) hashField(arg []*bmv2json.Expr) {
	c := b.calcs[arg[2].Name]
	if arg[2].Type != "calculation" || c == nil {
		b.failf("calculation %q is not declared", arg[2].Name)
		return
	}
	b.store(arg[0], func(f *fieldLayout) operand {
		base, size := b.value(arg[1], 1), b.value(arg[3], 1)
		d := b.temp(1)
		if c.word >= 0 {
			b.emit(instr{op: opCRC32M, d: d, a: uint32(c.word), imm: ^uint64(0)})
		} else {
			b.emit(instr{op: opHash, d: d, a: uint32(b.calcIndex(c)), imm: ^uint64(0)})
		}
		hash := len(b.code) - 1
		hi := ones(64)
		n, known := b.constOf(size.slot)
		switch {
		case known && n <= 1:
			b.code[hash].imm, hi = 0, bigZero
		case known && n&(n-1) == 0:
			b.code[hash].imm, hi = n-1, new(big.Int).SetUint64(n-1)
		case known:
			t := b.temp(1)
			b.emit(instr{op: opMod, d: t, a: d, b: size.slot, imm: ^uint64(0)})
			d, hi = t, new(big.Int).SetUint64(n-1)
		default: // modulo zero is zero, as modulo one is
			t := b.temp(1)
			b.emit(instr{op: opMod, d: t, a: d, b: size.slot, imm: ^uint64(0)})
			d = t
		}
		if v, ok := b.constOf(base.slot); !ok || v != 0 {
			t := b.temp(1)
			b.emit(instr{op: opAdd, d: t, a: d, b: base.slot, imm: ^uint64(0)})
			d, hi = t, ones(64)
		}
		return b.extend(operand{d, 1, bigZero, hi}, 64, false, f.words)
	})
}

func (b *builder) calcIndex(c *calculation) int {
	for i, x := range b.prog.calcs {
		if x == c {
			return i
		}
	}
	b.prog.calcs = append(b.prog.calcs, c)
	return len(b.prog.calcs) - 1
}

func (b *builder) digest(id *bmv2json.Expr) {
	if id.Type != "hexstr" || !id.Int.IsInt64() {
		b.unsupportedf("a digest whose list is computed")
		return
	}
	i, ok := b.digestID[int(id.Int.Int64())]
	if !ok {
		b.failf("learn list %v is not declared", id.Int)
		return
	}
	b.call(func(p *packet) { p.learn = i + 1 })
}

func (b *builder) loopPrimitive(pr *bmv2json.Primitive) {
	v := b.index(pr.Params[0])
	list := 0
	if at := len(pr.Params) - 1; pr.Op != "truncate" {
		e := pr.Params[at]
		if e.Type != "hexstr" || !e.Int.IsInt64() {
			b.unsupportedf("a field list that is computed")
			return
		}
		list = int(e.Int.Int64())
		if list != 0 || pr.Op == "resubmit" || pr.Op == "recirculate" {
			if _, ok := b.fieldLists[list]; !ok && list != 0 {
				b.failf("field list %d is not declared", list)
				return
			}
		}
	}
	switch pr.Op {
	case "truncate":
		b.call(func(p *packet) {
			n := int(min(p.f[v], 1<<30))
			if p.trunc < 0 || n < p.trunc {
				p.trunc = n
			}
		})
	case "resubmit":
		b.call(func(p *packet) { p.resubmit = list + 1 })
	case "recirculate":
		b.call(func(p *packet) { p.recirc = list + 1 })
	default:
		b.call(func(p *packet) {
			p.clone = int(p.f[v]&0x7fff) + 1
			p.cloneList = list
		})
	}
}

func (b *builder) executeMeter(arg []*bmv2json.Expr) {
	m, ok := b.meters[arg[0].Name]
	if arg[0].Type != "meter_array" || !ok {
		b.failf("meter array %q is not declared", arg[0].Name)
		return
	}
	i := b.index(arg[1])
	h, f, ok := b.fieldTarget(arg[2])
	if !ok {
		return
	}
	slot, mask := h.base+f.slot, maskOf(f.width)
	b.call(func(p *packet) {
		cells := p.st.meters[m]
		n := p.f[i]
		if n >= uint64(len(cells)) {
			p.lane.stats.IndexErrors++
			return
		}
		p.f[slot] = uint64(cells[n].execute(p)) & mask
	})
}

func (b *builder) fieldTarget(e *bmv2json.Expr) (*header, *fieldLayout, bool) {
	if e.Type != "field" || e.Field == validField {
		b.failf("expected a field to write to, have %s", describe(e))
		return nil, nil, false
	}
	return b.fieldAt(e)
}

// registerArray finds a register array by name.
func (b *builder) registerArray(e *bmv2json.Expr) (int, RegisterInfo, bool) {
	i, ok := b.regs[e.Name]
	if e.Type != "register_array" || !ok {
		b.failf("register array %q is not declared", e.Name)
		return 0, RegisterInfo{}, false
	}
	return i, b.prog.info.regs[i], true
}

func (b *builder) registerRead(arg []*bmv2json.Expr) {
	r, info, ok := b.registerArray(arg[1])
	if !ok {
		return
	}
	i := b.index(arg[2])
	h, f, ok := b.fieldTarget(arg[0])
	if !ok {
		return
	}
	slot := uint32(h.base + f.slot)
	if f.words == 1 && info.Width <= 64 {
		b.emit(instr{op: opRegRd, d: slot, a: uint32(r), b: i, imm: maskOf(f.width)})
		return
	}
	words, width := f.words, f.width
	b.call(func(p *packet) {
		reg, n := p.st.regs[r], p.f[i]
		if n >= reg.size {
			p.lane.stats.IndexErrors++
			return
		}
		p.loadCell(reg, n, slot, words)
		wideMask(p.f, slot, width)
	})
}

// loadCell copies a register cell of any width to words slots, cut off or filled with zeros.
func (p *packet) loadCell(r *register, i uint64, slot uint32, words int) {
	d := p.f[slot : int(slot)+words]
	clear(d)
	if r.wide != nil {
		copy(d, r.cell(i))
	} else {
		d[0] = r.get(i)
	}
}

// registerValue is a register cell in an expression.
func (b *builder) registerValue(r int, idx *bmv2json.Expr, nw int) operand {
	info := b.prog.info.regs[r]
	i := b.index(idx)
	if b.noRegisters {
		b.unsupportedf("register %q outside of an action", info.Name)
	}
	words := max(nw, (info.Width+63)/64)
	d := b.temp(words)
	b.call(func(p *packet) {
		reg, n := p.st.regs[r], p.f[i]
		if n >= reg.size {
			p.lane.stats.IndexErrors++
			clear(p.f[d : int(d)+words])
			return
		}
		p.loadCell(reg, n, d, words)
	})
	return operand{d, nw, bigZero, ones(info.Width)}
}

func (b *builder) registerWrite(arg []*bmv2json.Expr) {
	r, info, ok := b.registerArray(arg[0])
	if !ok {
		return
	}
	i := b.index(arg[1])
	words := (info.Width + 63) / 64
	v := b.value(arg[2], words)
	if words == 1 {
		b.emit(instr{op: opRegWr, a: uint32(r), b: i, c: v.slot})
		return
	}
	b.call(func(p *packet) {
		reg, n := p.st.regs[r], p.f[i]
		if n >= reg.size {
			p.lane.stats.IndexErrors++
			return
		}
		cell := reg.cell(n)
		copy(cell, p.f[v.slot:int(v.slot)+words])
		if info.Width%64 != 0 {
			cell[words-1] &= maskOf(info.Width % 64)
		}
	})
}

// fuseReadOut makes one step of a long run of "read cell, write zero to it, add one to the index" into neighbouring fields.
func (b *builder) fuseReadOut(start int) {
	const shortest = 4
	out := b.code[:start:start]
	code := b.code[start:]
	var fused []instr
	for i := 0; i < len(code); {
		n, ro := readOutAt(b, code[i:])
		if n < shortest {
			fused = append(fused, code[i])
			i++
			continue
		}
		b.fns = append(b.fns, func(p *packet) { p.st.regs[ro.reg].readAndClear(p, ro) })
		fused = append(fused, instr{op: opCall, a: uint32(len(b.fns) - 1)})
		i += 3 * n
	}
	b.code = append(out, fused...)
}

// readOutAt returns how many cells the code reads and clears from its start on.
func readOutAt(b *builder, code []instr) (int, *readOut) {
	n := 0
	ro := &readOut{}
	for ; len(code) >= 3; code = code[3:] {
		rd, wr, add := &code[0], &code[1], &code[2]
		if rd.op != opRegRd || wr.op != opRegWr || add.op != opAdd || rd.a != wr.a || rd.b != wr.b || add.d != rd.b || add.a != rd.b || rd.d == rd.b {
			break
		}
		zero, ok1 := b.constOf(wr.c)
		one, ok2 := b.constOf(add.b)
		if !ok1 || !ok2 || zero != 0 || one != 1 {
			break
		}
		switch {
		case n == 0:
			ro.reg, ro.index, ro.first, ro.mask, ro.indexMask = int(rd.a), int(rd.b), int(rd.d), rd.imm, add.imm
		case int(rd.a) != ro.reg || int(rd.b) != ro.index || rd.imm != ro.mask || add.imm != ro.indexMask:
			ro.count = n
			return n, ro
		}
		if n == 1 {
			ro.step = int(rd.d) - ro.first
		}
		if n > 0 && int(rd.d) != ro.first+n*ro.step || n > 0 && ro.step <= 0 {
			break
		}
		n++
	}
	ro.count = n
	return n, ro
}
