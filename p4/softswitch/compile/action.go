// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"

	"github.com/netsketch/netsketch/p4/softswitch/bmv2json"
	"github.com/netsketch/netsketch/p4/softswitch/control"
	"github.com/netsketch/netsketch/p4/softswitch/program"
	"github.com/netsketch/netsketch/p4/softswitch/wide"
)

// actionDef is an action that is being compiled.
type actionDef struct {
	*program.Action
	locals []operand // parameters of the action when a table calls it
	def    *bmv2json.Action
	exits  bool
}

// declareActions assigns slots to the parameters of actions.
func (b *builder) declareActions() error {
	most := 0
	names := map[string]bool{}
	for i := range b.file.Actions {
		d := &b.file.Actions[i]
		what := fmt.Sprintf("action %q", d.Name)
		if b.actionByID[d.ID] != nil {
			return refuse(what, d.Source, "id %d is declared twice", d.ID)
		}
		a := &actionDef{Action: &program.Action{ID: d.ID, Name: d.Name, Info: control.ActionInfo{Name: d.Name}}, def: d}
		for _, p := range d.Params {
			w := (p.Width + 63) / 64
			a.locals = append(a.locals, operand{uint32(b.params + a.Words), w, wide.Zero, wide.Ones(p.Width)})
			a.Words += w
			if a.Words > maxSlots {
				return refuse(what, d.Source, "its parameters are too long")
			}
			a.Info.Params = append(a.Info.Params, control.ParamInfo{Name: p.Name, Width: p.Width})
		}
		for j := range d.Primitives {
			op := d.Primitives[j].Op
			a.exits = a.exits || op == "exit" || op == "assert" || op == "assume"
		}
		most = max(most, a.Words)
		b.actionByID[d.ID] = a
		b.Prog.Actions = append(b.Prog.Actions, a.Action)
		if !names[d.Name] { // p4c copies actions under one name; the copies do not differ for the control plane
			names[d.Name] = true
			b.Prog.Info.Actions = append(b.Prog.Info.Actions, a.Info)
		}
	}
	b.Temps = b.params + most
	return nil
}

// body generates the code of an action's statements, with its parameters in locals.
func (b *builder) body(a *actionDef, locals []operand) {
	b.locals = locals
	defer func() { b.locals = nil }()
	n := len(a.def.Primitives)
	b.FreeTemps()
	labels := make([][]int, n+1) // jumps to patch, by the statement that they go to
	at := make([]uint32, n)      // where statements begin
	regs := b.registersOf(a)
	if len(regs) > 0 { // the action runs as one atomic step
		b.Emit(program.Instr{Op: program.OpLock, A: uint32(b.lockOf[regs[0]])})
	}
	for i := range a.def.Primitives {
		pr := &a.def.Primitives[i]
		b.what, b.src = fmt.Sprintf("action %q, statement %d (%s)", a.Name, i, pr.Op), pr.Source
		if pr.Source == nil {
			b.src = a.def.Source
		}
		b.Patch(labels[i])
		at[i] = b.Here()
		b.FreeTemps()
		switch pr.Op {
		case "_jump", "_jump_if_zero":
			target, from := b.jumpPrimitive(pr, n)
			switch {
			case b.err != nil:
			case target > i:
				labels[target] = append(labels[target], from...)
			default:
				b.Patch(b.jumpBack(at[target], from))
			}
		default:
			b.primitive(pr)
		}
		if b.err != nil {
			return
		}
	}
	b.Patch(labels[n])
	if len(regs) > 0 {
		b.Emit(program.Instr{Op: program.OpUnlock, A: uint32(b.lockOf[regs[0]])})
	}
}

// loops reports whether any action has a backward jump.
func (b *builder) loops() bool {
	for i := range b.file.Actions {
		for j := range b.file.Actions[i].Primitives {
			if t, ok := jumpTarget(&b.file.Actions[i].Primitives[j]); ok && t <= int64(j) {
				return true
			}
		}
	}
	return false
}

// jumpTarget returns the statement that a jump inside an action leads to.
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

// jumpBack directs jumps to an earlier instruction, up to the limit of rounds of a packet. It
// returns the jumps to patch that leave the loop.
func (b *builder) jumpBack(to uint32, from []int) (on []int) {
	if b.Code[from[0]].Op != program.OpJmp { // a condition: if it is false the packet leaves the loop
		on = []int{b.Emit(program.Instr{Op: program.OpJmp})}
	}
	b.Patch(from)
	more, rounds := b.Temp(1), b.rounds
	b.Call(program.CountRound{More: more, Rounds: rounds})
	b.Emit(program.Instr{Op: program.OpJnz, A: more, D: to})
	return on
}

// jumpPrimitive emits a jump inside an action.
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
		b.failf("a jump to statement %d, but the action has %d statements", t, n)
		return 0, nil
	}
	if want == 1 {
		return int(t), []int{b.Emit(program.Instr{Op: program.OpJmp})}
	}
	return int(t), b.jumpIf(b.truth(pr.Params[0]), false)
}

// truth converts a number to a condition: true if it is not zero.
func (b *builder) truth(e *bmv2json.Expr) *bmv2json.Expr {
	for e != nil && e.Type == "expression" && (e.Op == "b2d" || e.Op == "d2b") && e.Right != nil &&
		e.Right.Type == "expression" && e.Right.Op != e.Op &&
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

// arities is the number of parameters of each primitive.
var arities = map[string]int{
	"assign": 2, "modify_field": 2, "assign_VL": 2, "assign_header": 2, "copy_header": 2, "assign_union": 2,
	"assign_header_stack": 2,
	"assign_union_stack":  2, "push": 2, "pop": 2, "exit": 0, "assert": 1, "assume": 1, "log_msg": 2, "no_op": 0,
	"modify_field_rng_uniform": 3, "add_to_field": 2, "subtract_from_field": 2, "add": 3, "subtract": 3, "bit_xor": 3,
	"bit_or":  3,
	"bit_and": 3, "shift_left": 3, "shift_right": 3, "drop": 0, "mark_to_drop": 1, "generate_digest": 2,
	"add_header":      1,
	"add_header_fast": 1, "remove_header": 1, "clone_ingress_pkt_to_egress": 2, "clone_egress_pkt_to_egress": 2,
	"resubmit":    1,
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
		b.Emit(program.Instr{Op: program.OpExit})
	case "drop":
		b.drop(b.Prog.Std.EgressSpec, b.Prog.Std.McastGroup)
	case "mark_to_drop":
		b.markToDrop(arg[0])
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
		b.Emit(program.Instr{Op: program.OpCount, A: uint32(i), B: b.index(arg[1])})
	case "register_read":
		b.registerRead(arg)
	case "register_write":
		b.registerWrite(arg)
	}
}
