// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"fmt"

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
	n := len(a.def.Primitives)
	b.freeTemps()
	labels := make([][]int, n+1) // jumps to patch, by the statement they go to
	jumps, loops := false, a.loops()
	at := make([]uint32, n) // where statements begin
	start := len(b.code)
	regs := b.registersOf(a)
	if loops && len(regs) > 0 { // what a round does to registers and the next one sees is one step, too
		b.emit(instr{op: opLock, a: uint32(b.lockOf[regs[0]])})
	}
	for i := range a.def.Primitives {
		pr := &a.def.Primitives[i]
		b.what, b.src = fmt.Sprintf("action %q, statement %d (%s)", a.name, i, pr.Op), pr.Source
		if pr.Source == nil {
			b.src = a.def.Source
		}
		b.patch(labels[i])
		at[i] = b.here()
		if b.tempNext > b.tempCap/2 { // until then each value has a place of its own, for optimize
			b.freeTemps()
		}
		switch pr.Op {
		case "_jump", "_jump_if_zero":
			jumps = true
			target, from := b.jumpPrimitive(pr, n)
			switch {
			case b.err != nil:
			case target > i:
				labels[target] = append(labels[target], from...)
			default:
				b.patch(b.jumpBack(at[target], from))
			}
		default:
			b.primitive(pr)
		}
		if b.err != nil {
			return
		}
	}
	b.patch(labels[n])
	if loops { // what follows knows only code that runs from its beginning to its end
		if len(regs) > 0 {
			b.emit(instr{op: opUnlock, a: uint32(b.lockOf[regs[0]])})
		}
		return
	}
	if !jumps {
		b.fuseReadOut(start)
	}
	if !b.plain {
		b.optimize(start)
	}
	if len(regs) > 0 {
		b.lockRegisters(start, b.lockOf[regs[0]])
	}
}

// loops tells whether an action has a jump back.
func (a *action) loops() bool {
	for i := range a.def.Primitives {
		if t, ok := jumpTarget(&a.def.Primitives[i]); ok && t <= int64(i) {
			return true
		}
	}
	return false
}

// loops tells whether any action has one.
func (b *builder) loops() bool {
	for i := range b.file.Actions {
		if (&action{def: &b.file.Actions[i]}).loops() {
			return true
		}
	}
	return false
}

// jumpTarget is the statement that a jump inside of an action leads to.
func jumpTarget(pr *bmv2json.Primitive) (int64, bool) {
	if pr.Op != "_jump" && pr.Op != "_jump_if_zero" || len(pr.Params) == 0 {
		return 0, false
	}
	to := pr.Params[len(pr.Params)-1]
	if to == nil || to.Type != "hexstr" || to.Int == nil || !to.Int.IsInt64() {
		return 0, false
	}
	return to.Int.Int64(), true
}

// maxRounds bounds the rounds that one packet may go in loops of actions; BMv2 goes round for ever.
const maxRounds = 1 << 20

// jumpBack makes jumps, which have no place to go to yet, go back to an earlier one, as often as a packet may. It returns the jumps of those that
// do not, and go on.
func (b *builder) jumpBack(to uint32, from []int) (on []int) {
	if b.code[from[0]].op != opJmp { // a condition: where it does not hold the packet goes on
		on = []int{b.emit(instr{op: opJmp})}
	}
	b.patch(from)
	more, rounds := b.temp(1), b.rounds
	b.callUsing(using(slot1(rounds)).writing(slot1(more), slot1(rounds)), func(p *packet) {
		p.f[more] = bit(p.f[rounds] < maxRounds)
		if p.f[rounds]++; p.f[rounds] == maxRounds {
			p.dropped = true
			p.lane.stats.LoopDrops++
		}
	})
	b.emit(instr{op: opJnz, a: more, d: to})
	return on
}

// jumpPrimitive emits a jump inside of an action.
func (b *builder) jumpPrimitive(pr *bmv2json.Primitive, n int) (target int, at []int) {
	want := 1
	if pr.Op == "_jump_if_zero" {
		want = 2
	}
	if !b.arity(pr, want) {
		return 0, nil
	}
	t, ok := jumpTarget(pr)
	if !ok {
		b.unsupportedf("a jump to a computed place")
		return 0, nil
	}
	if t < 0 || t > int64(n) {
		b.failf("a jump to statement %d of %d", t, n)
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
		b.callUsing(using().writing(spec.spans()...).writing(mcast.spans()...), func(p *packet) {
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
