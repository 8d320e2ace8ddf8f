// SPDX-License-Identifier: Apache-2.0

package softswitch

import (
	"context"
	"log/slog"
	"math/big"
	"strings"

	"github.com/netsketch/netsketch/p4/softswitch/bmv2json"
)

// The statements of actions that are more than an assignment.

func (b *builder) assertion(pr *bmv2json.Primitive) {
	s := b.boolean(b.truth(pr.Params[0]))
	op, where := pr.Op, b.src.String()
	b.callUsing(using(slot1(s)), func(p *packet) {
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
	b.callUsing(using(), func(p *packet) { p.learn = i + 1 })
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
		b.callUsing(using(slot1(v)), func(p *packet) {
			n := int(min(p.f[v], 1<<30))
			if p.trunc < 0 || n < p.trunc {
				p.trunc = n
			}
		})
	case "resubmit":
		b.callUsing(using(), func(p *packet) { p.resubmit = list + 1 })
	case "recirculate":
		b.callUsing(using(), func(p *packet) { p.recirc = list + 1 })
	default:
		b.callUsing(using(slot1(v)), func(p *packet) {
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
	b.callUsing(using(slot1(i)), func(p *packet) {
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
