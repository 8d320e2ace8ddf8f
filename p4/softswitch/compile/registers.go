// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"slices"

	"github.com/netsketch/netsketch/p4/softswitch/bmv2json"
)

// groupRegisters assigns locks to registers.
func (b *builder) groupRegisters() {
	b.lockOf = make([]int, len(b.Prog.Info.Registers))
	for i := range b.lockOf {
		b.lockOf[i] = i
	}
	for i := range b.file.Actions {
		regs := b.registersOf(b.actionByID[b.file.Actions[i].ID])
		for _, r := range regs {
			keep, drop := b.lockOf[regs[0]], b.lockOf[r]
			for j, l := range b.lockOf {
				if l == drop {
					b.lockOf[j] = keep
				}
			}
		}
	}
	b.Prog.Locks = len(b.lockOf)
}

// registersOf lists the registers that an action names.
func (b *builder) registersOf(a *actionDef) (regs []int) {
	var walk func(e *bmv2json.Expr)
	walk = func(e *bmv2json.Expr) {
		if e == nil {
			return
		}
		if e.Type == "register" || e.Type == "register_array" {
			if i, ok := b.regs[e.Name]; ok {
				regs = append(regs, i)
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
	slices.Sort(regs)
	return slices.Compact(regs)
}
