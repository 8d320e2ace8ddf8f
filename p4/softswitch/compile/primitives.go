// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"math/big"
	"strings"

	"github.com/netsketch/netsketch/p4/softswitch/bmv2json"
	"github.com/netsketch/netsketch/p4/softswitch/control"
	"github.com/netsketch/netsketch/p4/softswitch/program"
	"github.com/netsketch/netsketch/p4/softswitch/wide"
)

// drop makes the switch drop the packet, if these are the fields of its standard metadata.
func (b *builder) drop(egressSpec, mcastGroup program.StdField) {
	b.Emit(program.Instr{Op: program.OpMov, D: uint32(egressSpec.Slot), A: b.ConstU(program.DropPort),
		Imm: egressSpec.Mask})
	if mcastGroup.Slot >= 0 {
		b.Emit(program.Instr{Op: program.OpMov, D: uint32(mcastGroup.Slot), A: b.ConstU(0), Imm: mcastGroup.Mask})
	}
}

// markToDrop writes to the header of its argument: a copy of the standard metadata if the program
// calls mark_to_drop in an action with an inout parameter, since p4c copies in and out.
func (b *builder) markToDrop(e *bmv2json.Expr) {
	h := b.headerNamed[e.Name]
	if e.Type != "header" || h == nil || !h.Metadata {
		b.failf("takes standard metadata, have %s", describe(e))
		return
	}
	egressSpec := metadataField(h, "egress_spec")
	if egressSpec.Slot < 0 {
		b.failf("header %q has no field \"egress_spec\"", h.Name)
		return
	}
	b.drop(egressSpec, metadataField(h, "mcast_grp"))
}

func (b *builder) assertion(pr *bmv2json.Primitive) {
	s := b.boolean(b.truth(pr.Params[0]))
	b.Call(program.Assert{Cond: s, Statement: pr.Op, Source: b.src.String()})
}

func (b *builder) logMsg(pr *bmv2json.Primitive) {
	format, list := pr.Params[0], pr.Params[1]
	if format.Type != "string" || list.Type != "parameters_vector" {
		b.failf("log_msg takes a string and a list of numbers")
		return
	}
	text := strings.NewReplacer(`\{`, "{", `\}`, "}").Replace(format.Name)
	msg := program.LogMessage{Text: text, Source: b.src.String()}
	for _, e := range list.List {
		if b.kind(e) == kindBool {
			e = &bmv2json.Expr{Type: "expression", Op: "b2d", Right: e}
		}
		o := b.exact(e)
		msg.Values = append(msg.Values, program.LogValue{A: o.slot, N: o.nw, Signed: o.lo.Sign() < 0})
	}
	b.Call(msg)
}

func (b *builder) randomField(arg []*bmv2json.Expr) {
	b.store(arg[0], func(f *program.Field) operand {
		lo, hi := b.value(arg[1], 1), b.value(arg[2], 1)
		r := program.Random{D: b.Temp(f.Words), Low: lo.slot, High: hi.slot, N: f.Words, Keep: -1}
		if arg[0].Type == "field" {
			if h, f, ok := b.fieldAt(arg[0]); ok {
				r.Keep = h.Base + f.Slot
			}
		}
		b.Call(r)
		return operand{r.D, f.Words, wide.Zero, wide.Ones(64)}
	})
}

func (b *builder) hashField(arg []*bmv2json.Expr) {
	c := b.calcs[arg[2].Name]
	if arg[2].Type != "calculation" || c == nil {
		b.failf("calculation %q is not declared", arg[2].Name)
		return
	}
	b.store(arg[0], func(f *program.Field) operand {
		base, size := b.value(arg[1], 1), b.value(arg[3], 1)
		d := b.Temp(1)
		if c.Word >= 0 {
			b.Emit(program.Instr{Op: program.OpCRC32M, D: d, A: uint32(c.Word), Imm: ^uint64(0)})
		} else {
			b.Emit(program.Instr{Op: program.OpHash, D: d, A: uint32(b.calcIndex(c)), Imm: ^uint64(0)})
		}
		hash := len(b.Code) - 1
		hi := wide.Ones(64)
		n, known := b.ConstOf(size.slot)
		switch {
		case known && n <= 1:
			b.Code[hash].Imm, hi = 0, wide.Zero
		case known && n&(n-1) == 0:
			b.Code[hash].Imm, hi = n-1, new(big.Int).SetUint64(n-1)
		case known:
			t := b.Temp(1)
			b.Emit(program.Instr{Op: program.OpMod, D: t, A: d, B: size.slot, Imm: ^uint64(0)})
			d, hi = t, new(big.Int).SetUint64(n-1)
		default: // modulo zero is zero, like modulo one
			t := b.Temp(1)
			b.Emit(program.Instr{Op: program.OpMod, D: t, A: d, B: size.slot, Imm: ^uint64(0)})
			d = t
		}
		if v, ok := b.ConstOf(base.slot); !ok || v != 0 {
			t := b.Temp(1)
			b.Emit(program.Instr{Op: program.OpAdd, D: t, A: d, B: base.slot, Imm: ^uint64(0)})
			d, hi = t, wide.Ones(64)
		}
		return b.extend(operand{d, 1, wide.Zero, hi}, 64, false, f.Words)
	})
}

func (b *builder) calcIndex(c *program.Hash) int {
	for i, x := range b.Prog.Hashes {
		if x == c {
			return i
		}
	}
	b.Prog.Hashes = append(b.Prog.Hashes, c)
	return len(b.Prog.Hashes) - 1
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
	b.Call(program.LearnDigest{Digest: i})
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
		b.Call(program.Truncate{Bytes: v})
	case "resubmit":
		b.Call(program.Resubmit{List: list})
	case "recirculate":
		b.Call(program.Recirculate{List: list})
	default:
		b.Call(program.Clone{Session: v, List: list})
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
	b.Call(program.ExecuteMeter{Meter: m, Index: i, D: uint32(h.Base + f.Slot), Mask: wide.Mask(f.Width)})
}

func (b *builder) fieldTarget(e *bmv2json.Expr) (*program.Header, *program.Field, bool) {
	if e.Type != "field" || e.Field == validField {
		b.failf("expected a field to write to, have %s", describe(e))
		return nil, nil, false
	}
	return b.fieldAt(e)
}

// registerArray returns a register array by name.
func (b *builder) registerArray(e *bmv2json.Expr) (int, control.RegisterInfo, bool) {
	i, ok := b.regs[e.Name]
	if e.Type != "register_array" || !ok {
		b.failf("register array %q is not declared", e.Name)
		return 0, control.RegisterInfo{}, false
	}
	return i, b.Prog.Info.Registers[i], true
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
	slot := uint32(h.Base + f.Slot)
	if f.Words == 1 && info.Width <= 64 {
		b.Emit(program.Instr{Op: program.OpRegRd, D: slot, A: uint32(r), B: i, Imm: wide.Mask(f.Width)})
		return
	}
	b.Call(program.ReadCell{Register: r, Index: i, D: slot, N: f.Words, Width: f.Width})
}

// registerValue reads a register cell in an expression.
func (b *builder) registerValue(r int, idx *bmv2json.Expr, nw int) operand {
	info := b.Prog.Info.Registers[r]
	i := b.index(idx)
	if b.noRegisters {
		b.unsupportedf("register %q outside of an action", info.Name)
	}
	words := max(nw, (info.Width+63)/64)
	d := b.Temp(words)
	b.Call(program.ReadCell{Register: r, Index: i, D: d, N: words, Clear: true})
	return operand{d, nw, wide.Zero, wide.Ones(info.Width)}
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
		b.Emit(program.Instr{Op: program.OpRegWr, A: uint32(r), B: i, C: v.slot})
		return
	}
	b.Call(program.WriteCell{Register: r, Index: i, A: v.slot, N: words, Width: info.Width})
}
