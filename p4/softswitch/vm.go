// SPDX-License-Identifier: Apache-2.0

package softswitch

import "math/bits"

// run executes instructions from pc to the next opEnd.
func (p *packet) run(pc uint32) {
	f := p.f
	code := p.prog.code
	for {
		in := &code[pc]
		pc++
		switch in.op {
		case opEnd:
			return
		case opMov:
			f[in.d] = f[in.a] & in.imm
		case opAdd:
			f[in.d] = (f[in.a] + f[in.b]) & in.imm
		case opSub:
			f[in.d] = (f[in.a] - f[in.b]) & in.imm
		case opMul:
			f[in.d] = f[in.a] * f[in.b] & in.imm
		case opMulAdd:
			f[in.d] = (f[in.a]*f[in.b] + f[in.c]) & in.imm
		case opAnd:
			f[in.d] = f[in.a] & f[in.b] & in.imm
		case opOr:
			f[in.d] = (f[in.a] | f[in.b]) & in.imm
		case opXor:
			f[in.d] = (f[in.a] ^ f[in.b]) & in.imm
		case opNot:
			f[in.d] = ^f[in.a] & in.imm
		case opShl:
			f[in.d] = f[in.a] << f[in.b] & in.imm
		case opShr:
			f[in.d] = f[in.a] >> f[in.b] & in.imm
		case opSar:
			f[in.d] = uint64(int64(f[in.a])>>f[in.b]) & in.imm
		case opShlI:
			f[in.d] = f[in.a] << (in.b & 63) & in.imm
		case opShrI:
			f[in.d] = f[in.a] >> (in.b & 63) & in.imm
		case opSarI:
			f[in.d] = uint64(int64(f[in.a])>>(in.b&63)) & in.imm
		case opFunnel:
			f[in.d] = (f[in.a]>>(in.c&63) | f[in.b]<<(64-in.c&63)) & in.imm
		case opSext:
			s := (64 - in.b) & 63
			f[in.d] = uint64(int64(f[in.a]<<s)>>s) & in.imm
		case opDiv:
			if y := f[in.b]; y != 0 {
				f[in.d] = f[in.a] / y & in.imm
			} else {
				f[in.d] = 0
			}
		case opMod:
			x, y := f[in.a], f[in.b]
			switch {
			case y == 0:
				x = 0
			case (x|y)>>32 == 0:
				x = uint64(uint32(x) % uint32(y))
			default:
				x %= y
			}
			f[in.d] = x & in.imm
		case opEq:
			f[in.d] = bit(f[in.a] == f[in.b])
		case opNe:
			f[in.d] = bit(f[in.a] != f[in.b])
		case opLtU:
			f[in.d] = bit(f[in.a] < f[in.b])
		case opLeU:
			f[in.d] = bit(f[in.a] <= f[in.b])
		case opLtS:
			f[in.d] = bit(int64(f[in.a]) < int64(f[in.b]))
		case opLeS:
			f[in.d] = bit(int64(f[in.a]) <= int64(f[in.b]))
		case opSel:
			v := f[in.b]
			if f[in.c] != 0 {
				v = f[in.a]
			}
			f[in.d] = v & in.imm
		case opJmp:
			pc = in.d
		case opJz:
			if f[in.a] == 0 {
				pc = in.d
			}
		case opJnz:
			if f[in.a] != 0 {
				pc = in.d
			}
		case opJEq:
			if f[in.a] == f[in.b] {
				pc = in.d
			}
		case opJNe:
			if f[in.a] != f[in.b] {
				pc = in.d
			}
		case opJLtU:
			if f[in.a] < f[in.b] {
				pc = in.d
			}
		case opJGeU:
			if f[in.a] >= f[in.b] {
				pc = in.d
			}
		case opJLtS:
			if int64(f[in.a]) < int64(f[in.b]) {
				pc = in.d
			}
		case opJGeS:
			if int64(f[in.a]) >= int64(f[in.b]) {
				pc = in.d
			}
		case opLoad:
			if i := f[in.b]; i < in.imm {
				f[in.d] = f[uint64(in.a)+i*uint64(in.c)]
			} else {
				f[in.d] = 0
				p.lane.stats.IndexErrors++
			}
		case opStore:
			if i := f[in.b]; i < in.imm {
				f[uint64(in.a)+i*uint64(in.c)] = f[in.d]
			} else {
				p.lane.stats.IndexErrors++
			}
		case opCall:
			p.prog.fns[in.a](p)
		case opCallP:
			p.prog.fns[in.a](p)
			if p.perr != 0 {
				pc = in.d
			}
		case opExtract:
			if !p.extract(p.prog.headers[in.a]) {
				p.perr = errTooShort
				pc = in.d
			}
		case opState:
			if p.states++; p.states > maxStateVisit {
				p.perr = errTimeout
				pc = in.d
			}
		case opSelect:
			pc = p.prog.selects[in.a].next(p)
		case opAddHdr:
			p.addHeader(p.prog.headers[in.a])
		case opRmHdr:
			p.removeHeader(p.prog.headers[in.a])
		case opTable:
			pc = p.st.tables[in.a].apply(p)
		case opRet:
			pc = p.ret
			if p.exit {
				pc = 0
			}
		case opExitTest:
			if p.exit {
				pc = 0
			}
		case opExit:
			p.exit = true
		case opLock:
			if !p.lane.serial {
				p.st.groups[in.a].enter(p)
			}
		case opUnlock:
			if !p.lane.serial {
				p.st.groups[in.a].unlock()
			}
		case opDefer:
			if p.lane.serial {
				continue
			}
			if g := &p.st.groups[p.prog.deferred[in.a].lock]; g.eager.Load() {
				g.enterEager(p)
			} else {
				pc = in.d
			}
		case opCapture:
			d := &p.prog.deferred[in.a]
			p.st.groups[d.lock].capture(p, d, in.a)
			pc = in.d
		case opRegRd:
			r := p.st.regs[in.a]
			i := f[in.b]
			switch {
			case i >= r.size:
				f[in.d] = 0
				p.lane.stats.IndexErrors++
			case r.b32 != nil:
				f[in.d] = uint64(r.b32[i]) & in.imm
			default:
				f[in.d] = r.get(i) & in.imm
			}
		case opRegWr:
			r := p.st.regs[in.a]
			i := f[in.b]
			switch {
			case i >= r.size:
				p.lane.stats.IndexErrors++
			case r.b32 != nil:
				r.b32[i] = uint32(f[in.c]) & r.mask32
			default:
				r.set(i, f[in.c])
			}
		case opHash:
			f[in.d] = p.prog.calcs[in.a].compute(p) & in.imm
		case opCRC32M:
			f[in.d] = uint64(crc32Word(uint32(f[in.a]))) & in.imm
		case opCount:
			p.st.counters[in.a].count(p, f[in.b])
		default:
			return // no such instruction is ever emitted
		}
	}
}

// selectOp is the transition of a parser state.
type selectOp struct {
	slots []uint32 // words of the key
	cases []selectCase
	def   uint32 // where to go without a match
}

type selectCase struct {
	value []uint64
	mask  []uint64
	set   int // value set, or -1
	next  uint32
}

func (s *selectOp) next(p *packet) uint32 {
	if len(s.slots) == 1 {
		k := p.f[s.slots[0]]
		for i := range s.cases {
			c := &s.cases[i]
			if c.set < 0 {
				if k&c.mask[0] == c.value[0] {
					return c.next
				}
			} else if p.st.vsets[c.set].has(p, s.slots, c.mask) {
				return c.next
			}
		}
		return s.def
	}
	for i := range s.cases {
		c := &s.cases[i]
		if c.set >= 0 {
			if p.st.vsets[c.set].has(p, s.slots, c.mask) {
				return c.next
			}
			continue
		}
		hit := true
		for j, at := range s.slots {
			if p.f[at]&c.mask[j] != c.value[j] {
				hit = false
				break
			}
		}
		if hit {
			return c.next
		}
	}
	return s.def
}

// popcount is here so that tables can order masks by how much they fix.
func popcount(words []uint64) int {
	n := 0
	for _, w := range words {
		n += bits.OnesCount64(w)
	}
	return n
}
