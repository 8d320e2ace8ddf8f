// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"github.com/netsketch/netsketch/p4/softswitch/program"
)

// maxStateVisit bounds the parser states that a packet visits.
const maxStateVisit = 1 << 14

// run executes instructions from pc to the next OpEnd.
func (p *Packet) run(pc uint32) {
	f := p.f
	code := p.prog.Code
	for {
		in := &code[pc]
		pc++
		switch in.Op {
		case program.OpEnd:
			return
		case program.OpMov:
			f[in.D] = f[in.A] & in.Imm
		case program.OpAdd:
			f[in.D] = (f[in.A] + f[in.B]) & in.Imm
		case program.OpSub:
			f[in.D] = (f[in.A] - f[in.B]) & in.Imm
		case program.OpMul:
			f[in.D] = f[in.A] * f[in.B] & in.Imm
		case program.OpMulAdd:
			f[in.D] = (f[in.A]*f[in.B] + f[in.C]) & in.Imm
		case program.OpAnd:
			f[in.D] = f[in.A] & f[in.B] & in.Imm
		case program.OpOr:
			f[in.D] = (f[in.A] | f[in.B]) & in.Imm
		case program.OpXor:
			f[in.D] = (f[in.A] ^ f[in.B]) & in.Imm
		case program.OpNot:
			f[in.D] = ^f[in.A] & in.Imm
		case program.OpShl:
			f[in.D] = f[in.A] << f[in.B] & in.Imm
		case program.OpShr:
			f[in.D] = f[in.A] >> f[in.B] & in.Imm
		case program.OpSar:
			f[in.D] = uint64(int64(f[in.A])>>f[in.B]) & in.Imm
		case program.OpShlI:
			f[in.D] = f[in.A] << (in.B & 63) & in.Imm
		case program.OpShrI:
			f[in.D] = f[in.A] >> (in.B & 63) & in.Imm
		case program.OpSarI:
			f[in.D] = uint64(int64(f[in.A])>>(in.B&63)) & in.Imm
		case program.OpFunnel:
			f[in.D] = (f[in.A]>>(in.C&63) | f[in.B]<<(64-in.C&63)) & in.Imm
		case program.OpSext:
			s := (64 - in.B) & 63
			f[in.D] = uint64(int64(f[in.A]<<s)>>s) & in.Imm
		case program.OpDiv:
			if y := f[in.B]; y != 0 {
				f[in.D] = f[in.A] / y & in.Imm
			} else {
				f[in.D] = 0
			}
		case program.OpMod:
			x, y := f[in.A], f[in.B]
			switch {
			case y == 0:
				x = 0
			case (x|y)>>32 == 0:
				x = uint64(uint32(x) % uint32(y))
			default:
				x %= y
			}
			f[in.D] = x & in.Imm
		case program.OpEq:
			f[in.D] = bit(f[in.A] == f[in.B])
		case program.OpNe:
			f[in.D] = bit(f[in.A] != f[in.B])
		case program.OpLtU:
			f[in.D] = bit(f[in.A] < f[in.B])
		case program.OpLeU:
			f[in.D] = bit(f[in.A] <= f[in.B])
		case program.OpLtS:
			f[in.D] = bit(int64(f[in.A]) < int64(f[in.B]))
		case program.OpLeS:
			f[in.D] = bit(int64(f[in.A]) <= int64(f[in.B]))
		case program.OpSel:
			v := f[in.B]
			if f[in.C] != 0 {
				v = f[in.A]
			}
			f[in.D] = v & in.Imm
		case program.OpJmp:
			pc = in.D
		case program.OpJz:
			if f[in.A] == 0 {
				pc = in.D
			}
		case program.OpJnz:
			if f[in.A] != 0 {
				pc = in.D
			}
		case program.OpJEq:
			if f[in.A] == f[in.B] {
				pc = in.D
			}
		case program.OpJNe:
			if f[in.A] != f[in.B] {
				pc = in.D
			}
		case program.OpJLtU:
			if f[in.A] < f[in.B] {
				pc = in.D
			}
		case program.OpJGeU:
			if f[in.A] >= f[in.B] {
				pc = in.D
			}
		case program.OpJLtS:
			if int64(f[in.A]) < int64(f[in.B]) {
				pc = in.D
			}
		case program.OpJGeS:
			if int64(f[in.A]) >= int64(f[in.B]) {
				pc = in.D
			}
		case program.OpLoad:
			if i := f[in.B]; i < in.Imm {
				f[in.D] = f[uint64(in.A)+i*uint64(in.C)]
			} else {
				f[in.D] = 0
				p.Lane.Stats.IndexErrors++
			}
		case program.OpStore:
			if i := f[in.B]; i < in.Imm {
				f[uint64(in.A)+i*uint64(in.C)] = f[in.D]
			} else {
				p.Lane.Stats.IndexErrors++
			}
		case program.OpCall:
			p.st.calls[in.A](p)
		case program.OpCallP:
			p.st.calls[in.A](p)
			if p.perr != 0 {
				pc = in.D
			}
		case program.OpExtract:
			if !p.extract(p.prog.Headers[in.A]) {
				p.perr = program.PacketTooShort
				pc = in.D
			}
		case program.OpState:
			if p.states++; p.states > maxStateVisit {
				p.perr = program.ParserTimeout
				pc = in.D
			}
		case program.OpSelect:
			pc = p.next(p.prog.Selects[in.A])
		case program.OpAddHdr:
			p.addHeader(p.prog.Headers[in.A])
		case program.OpRmHdr:
			p.removeHeader(p.prog.Headers[in.A])
		case program.OpTable:
			pc = p.st.tables[in.A].apply(p)
		case program.OpRet:
			pc = p.ret
			if p.exit {
				pc = 0
			}
		case program.OpExitTest:
			if p.exit {
				pc = 0
			}
		case program.OpExit:
			p.exit = true
		case program.OpLock:
			if !p.Lane.serial {
				p.st.locks[in.A].Lock()
			}
		case program.OpUnlock:
			if !p.Lane.serial {
				p.st.locks[in.A].Unlock()
			}
		case program.OpRegRd:
			r := p.st.regs[in.A]
			i := f[in.B]
			switch {
			case i >= r.size:
				f[in.D] = 0
				p.Lane.Stats.IndexErrors++
			case r.b32 != nil:
				f[in.D] = uint64(r.b32[i]) & in.Imm
			default:
				f[in.D] = r.get(i) & in.Imm
			}
		case program.OpRegWr:
			r := p.st.regs[in.A]
			i := f[in.B]
			switch {
			case i >= r.size:
				p.Lane.Stats.IndexErrors++
			case r.b32 != nil:
				r.b32[i] = uint32(f[in.C]) & r.mask32
			default:
				r.set(i, f[in.C])
			}
		case program.OpHash:
			f[in.D] = p.compute(p.prog.Hashes[in.A]) & in.Imm
		case program.OpCRC32M:
			f[in.D] = uint64(program.CRC32Word(uint32(f[in.A]))) & in.Imm
		case program.OpCount:
			p.st.counters[in.A].count(p, f[in.B])
		default:
			return // the compiler emits no other instruction
		}
	}
}

// next returns the first instruction of the next parser state.
func (p *Packet) next(s *program.Select) uint32 {
	if len(s.Slots) == 1 {
		k := p.f[s.Slots[0]]
		for i := range s.Cases {
			c := &s.Cases[i]
			if c.Set < 0 {
				if k&c.Mask[0] == c.Value[0] {
					return c.Next
				}
			} else if p.st.vsets[c.Set].has(p, s.Slots, c.Mask) {
				return c.Next
			}
		}
		return s.Default
	}
	for i := range s.Cases {
		c := &s.Cases[i]
		if c.Set >= 0 {
			if p.st.vsets[c.Set].has(p, s.Slots, c.Mask) {
				return c.Next
			}
			continue
		}
		hit := true
		for j, at := range s.Slots {
			if p.f[at]&c.Mask[j] != c.Value[j] {
				hit = false
				break
			}
		}
		if hit {
			return c.Next
		}
	}
	return s.Default
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
