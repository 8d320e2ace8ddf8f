// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/big"
	"strings"

	"github.com/netsketch/netsketch/p4/softswitch/program"
	"github.com/netsketch/netsketch/p4/softswitch/wide"
)

// link converts the program's operations to functions.
func link(p *program.Program) []func(*Packet) {
	fns := make([]func(*Packet), len(p.Calls))
	for i := range p.Calls {
		fns[i] = linkOp(p.Calls[i])
	}
	return fns
}

func linkOp(op any) func(*Packet) {
	for _, link := range []func(any) func(*Packet){linkWide, linkHeaders, linkParser, linkRegisters} {
		if f := link(op); f != nil {
			return f
		}
	}
	switch o := op.(type) {
	case program.Assert:
		return func(p *Packet) { p.assert(&o) }
	case program.LogMessage:
		return func(p *Packet) { p.logMessage(&o) }
	case program.Random:
		return func(p *Packet) { p.randomField(&o) }
	case program.LearnDigest:
		return func(p *Packet) { p.Learn = o.Digest + 1 }
	case program.Truncate:
		return func(p *Packet) {
			n := int(min(p.f[o.Bytes], 1<<30))
			if p.Truncate < 0 || n < p.Truncate {
				p.Truncate = n
			}
		}
	case program.Resubmit:
		return func(p *Packet) { p.Resubmit = o.List + 1 }
	case program.Recirculate:
		return func(p *Packet) { p.Recirculate = o.List + 1 }
	case program.Clone:
		return func(p *Packet) {
			p.Clone = int(p.f[o.Session]&0x7fff) + 1
			p.CloneList = o.List
		}
	case program.CountRound:
		return func(p *Packet) {
			p.f[o.More] = bit(p.f[o.Rounds] < program.MaxRounds)
			if p.f[o.Rounds]++; p.f[o.Rounds] == program.MaxRounds {
				p.Dropped = true
				p.Lane.Stats.LoopDrops++
			}
		}
	}
	panic(fmt.Sprintf("machine: operation %T is unknown", op)) // compiler and machine do not match
}

func (p *Packet) assert(o *program.Assert) {
	if p.f[o.Cond] != 0 || p.Dropped {
		return
	}
	p.Dropped, p.exit = true, true
	p.Lane.Stats.AssertFailures++
	p.st.env.Log.Error(o.Statement+" failed: packet dropped", "source", o.Source, "port", p.Port)
}

func (p *Packet) logMessage(o *program.LogMessage) {
	log := p.st.env.Log
	if !log.Enabled(context.Background(), slog.LevelInfo) {
		return
	}
	msg := o.Text
	for _, x := range o.Values {
		v := wide.BigInt(p.f[x.A : int(x.A)+x.N])
		if x.Signed && v.Bit(64*x.N-1) == 1 {
			v.Sub(v, new(big.Int).Lsh(wide.One, uint(64*x.N)))
		}
		msg = strings.Replace(msg, "{}", v.String(), 1)
	}
	log.Info(msg, "source", o.Source)
}

func (p *Packet) randomField(o *program.Random) {
	lo, hi := p.f[o.Low], p.f[o.High]
	clear(p.f[o.D : int(o.D)+o.N])
	switch {
	case lo > hi: // BMv2 leaves the field unchanged
		if o.Keep >= 0 {
			p.f[o.D] = p.f[o.Keep]
		}
	case hi-lo == ^uint64(0):
		p.f[o.D] = p.Lane.random()
	default:
		p.f[o.D] = lo + p.Lane.random()%(hi-lo+1)
	}
}

func linkWide(op any) func(*Packet) {
	switch o := op.(type) {
	case program.WideArith:
		f := wide.Ring[o.Op]
		return func(p *Packet) { f(p.f, o.D, o.A, o.B, o.N) }
	case program.WideNot:
		return func(p *Packet) { wide.Not(p.f, o.D, o.A, o.N) }
	case program.WideShift:
		if o.Right {
			return func(p *Packet) { wide.ShiftRight(p.f, o.D, o.A, p.f[o.Amount], o.N, o.Signed) }
		}
		return func(p *Packet) { wide.ShiftLeft(p.f, o.D, o.A, p.f[o.Amount], o.N) }
	case program.WideDivide:
		return func(p *Packet) { wide.Divide(p.f, o.D, o.A, o.B, o.N, o.Mod) }
	case program.WideCompare:
		return func(p *Packet) { p.f[o.D] = bit(wideCompare(p.f, &o)) }
	case program.WideSelect:
		return func(p *Packet) {
			from := o.B
			if p.f[o.Cond] != 0 {
				from = o.A
			}
			copy(p.f[o.D:int(o.D)+o.N], p.f[from:int(from)+o.N])
		}
	case program.WideSignExtend:
		return func(p *Packet) { wide.SignExtend(p.f, o.D, o.A, o.Have, o.Sign, o.N) }
	case program.WideZeroExtend:
		return func(p *Packet) {
			f := p.f
			copy(f[o.D:int(o.D)+o.Have], f[o.A:int(o.A)+o.Have])
			clear(f[int(o.D)+o.Have : int(o.D)+o.N])
		}
	case program.WideClamp:
		return func(p *Packet) {
			from := o.A
			if wide.Less(p.f, o.High, o.A, o.N, o.Signed) {
				from = o.High
			} else if o.Signed && wide.Less(p.f, o.A, o.Low, o.N, true) {
				from = o.Low
			}
			copy(p.f[o.D:int(o.D)+o.N], p.f[from:int(from)+o.N])
		}
	case program.WideStore:
		return func(p *Packet) {
			copy(p.f[o.D:int(o.D)+o.N], p.f[o.A:int(o.A)+o.N])
			wide.Cut(p.f, o.D, o.Width)
		}
	case program.OneWord:
		return func(p *Packet) {
			v := p.f[o.A]
			for i := 1; i < o.N; i++ {
				if p.f[int(o.A)+i] != 0 {
					v = ^uint64(0)
				}
			}
			p.f[o.D] = v
		}
	}
	return nil
}

func wideCompare(f []uint64, o *program.WideCompare) bool {
	switch o.Op {
	case program.OpEq:
		return wide.Equal(f, o.A, o.B, o.N)
	case program.OpNe:
		return !wide.Equal(f, o.A, o.B, o.N)
	case program.OpLtU, program.OpLtS:
		return wide.Less(f, o.A, o.B, o.N, o.Op == program.OpLtS)
	}
	return !wide.Less(f, o.B, o.A, o.N, o.Op == program.OpLeS)
}

func linkHeaders(op any) func(*Packet) {
	switch o := op.(type) {
	case program.LoadField:
		return func(p *Packet) {
			h := p.header(&o.From)
			if h == nil {
				clear(p.f[o.D : int(o.D)+o.N])
				return
			}
			copy(p.f[o.D:int(o.D)+o.N], p.f[h.Base+o.Offset:])
		}
	case program.StoreField:
		return func(p *Packet) {
			if h := p.header(&o.To); h != nil {
				at := h.Base + o.Offset
				copy(p.f[at:at+o.N], p.f[o.A:])
				wide.Cut(p.f, uint32(at), o.Width)
			}
		}
	case program.CopyVariable:
		return func(p *Packet) {
			copy(p.f[o.To:o.To+o.N], p.f[o.From:o.From+o.N])
			clear(p.f[o.To+o.N : o.To+o.Room])
			p.f[o.ToLength] = p.f[o.FromLength]
		}
	case program.AddHeader:
		return func(p *Packet) { p.addHeader(p.header(&o.To)) }
	case program.RemoveHeader:
		return func(p *Packet) { p.removeHeader(p.header(&o.To)) }
	case program.AssignHeader:
		return func(p *Packet) { p.assignHeader(p.header(&o.To), p.header(&o.From)) }
	case program.AssignStack:
		return func(p *Packet) {
			p.f[o.To.Next] = p.f[o.From.Next]
			for i := range o.To.Elements {
				p.assignHeader(o.To.Elements[i], o.From.Elements[i])
			}
		}
	case program.AssignUnion:
		return func(p *Packet) {
			if to, from := p.union(&o.To), p.union(&o.From); to != nil && from != nil {
				p.assignUnion(to, from)
			}
		}
	case program.AssignUnionStack:
		return func(p *Packet) {
			p.f[o.To.Next] = p.f[o.From.Next]
			for i := range o.To.Elements {
				p.assignUnion(o.To.Elements[i], o.From.Elements[i])
			}
		}
	case program.ShiftStack:
		return func(p *Packet) {
			p.shift(o.Stack.Next, o.Stack.Base, o.Stack.Stride, len(o.Stack.Elements), p.f[o.Count], o.Pop)
		}
	case program.ShiftUnionStack:
		base := o.Stack.Elements[0].Members[0].Base
		return func(p *Packet) {
			p.shift(o.Stack.Next, base, o.Stack.Stride, len(o.Stack.Elements), p.f[o.Count], o.Pop)
		}
	case program.HeaderValid:
		return func(p *Packet) {
			h := p.header(&o.Of)
			p.f[o.D] = 0
			if h != nil {
				p.f[o.D] = p.f[h.Base]
			}
		}
	case program.UnionValid:
		return func(p *Packet) {
			u := p.union(&o.Of)
			p.f[o.D] = 0
			if u != nil {
				for _, h := range u.Members {
					p.f[o.D] |= p.f[h.Base]
				}
			}
		}
	case program.HeadersEqual:
		return func(p *Packet) { p.f[o.D] = bit(p.headersEqual(p.header(&o.X), p.header(&o.Y)) != o.Not) }
	case program.UnionsEqual:
		return func(p *Packet) { p.f[o.D] = bit(p.unionsEqual(p.union(&o.X), p.union(&o.Y)) != o.Not) }
	}
	return nil
}

func linkParser(op any) func(*Packet) {
	switch o := op.(type) {
	case program.Extract:
		return func(p *Packet) { p.extractOp(&o) }
	case program.Lookahead:
		if o.N == 1 && o.Offset%8 == 0 && o.Width%8 == 0 {
			first, bytes := o.Offset/8, o.Width/8
			return func(p *Packet) {
				rest := p.Data[p.off:]
				switch {
				case len(rest) < first+bytes:
					p.perr = program.PacketTooShort
				case len(rest) >= first+8:
					p.f[o.D] = binary.BigEndian.Uint64(rest[first:]) >> (64 - o.Width)
				default:
					p.f[o.D] = wide.ReadBits(rest, o.Offset, o.Width)
				}
			}
		}
		return func(p *Packet) {
			if (o.Offset+o.Width+7)/8 > len(p.Data)-p.off {
				p.perr = program.PacketTooShort
				return
			}
			wide.Read(p.f[o.D:int(o.D)+o.N], p.Data[p.off:], o.Offset, o.Width)
		}
	case program.Advance:
		return func(p *Packet) { p.advance(p.f[o.Count], o.Bytes) }
	case program.ParserError:
		return func(p *Packet) { p.perr = program.ErrorBase + int(p.f[o.Code]&0xffff) }
	case program.ChecksumError:
		return func(p *Packet) { p.badSum = true }
	}
	return nil
}

// advance skips bits, or bytes.
func (p *Packet) advance(n uint64, bytes bool) {
	if !bytes {
		if n%8 != 0 {
			p.perr = program.InvalidArgument
			return
		}
		n /= 8
	}
	if n > uint64(len(p.Data)-p.off) {
		p.perr = program.PacketTooShort
		return
	}
	p.off += int(n)
}

func (p *Packet) extractOp(o *program.Extract) {
	h, next, size := o.Header, 0, 0
	switch {
	case o.Stack != nil:
		next, size = o.Stack.Next, len(o.Stack.Elements)
	case o.Unions != nil:
		next, size = o.Unions.Next, len(o.Unions.Elements)
	}
	if h == nil {
		n := p.f[next]
		if n >= uint64(size) {
			p.perr = program.StackOutOfBounds
			return
		}
		if o.Stack != nil {
			h = o.Stack.Elements[n]
		} else {
			h = o.Unions.Elements[n].Members[o.Member]
		}
	}
	if o.Variable {
		p.perr = p.extractVL(h, int(min(p.f[o.Length], program.MaxHeaderBits*16)))
	} else if !p.extract(h) {
		p.perr = program.PacketTooShort
	}
	if p.perr == 0 && o.Header == nil {
		p.f[next]++
	}
}

func linkRegisters(op any) func(*Packet) {
	switch o := op.(type) {
	case program.ExecuteMeter:
		return func(p *Packet) {
			cells, n := p.st.meters[o.Meter].cells, p.f[o.Index]
			if n >= uint64(len(cells)) {
				p.Lane.Stats.IndexErrors++
				return
			}
			p.f[o.D] = uint64(cells[n].Execute(p.Now, p.ingressLen)) & o.Mask
		}
	case program.ReadCell:
		return func(p *Packet) { p.readCell(&o) }
	case program.WriteCell:
		return func(p *Packet) {
			reg, n := p.st.regs[o.Register], p.f[o.Index]
			if n >= reg.size {
				p.Lane.Stats.IndexErrors++
				return
			}
			cell := reg.cell(n)
			copy(cell, p.f[o.A:int(o.A)+o.N])
			if o.Width%64 != 0 {
				cell[o.N-1] &= wide.Mask(o.Width % 64)
			}
		}
	}
	return nil
}

func (p *Packet) readCell(o *program.ReadCell) {
	reg, n := p.st.regs[o.Register], p.f[o.Index]
	d := p.f[o.D : int(o.D)+o.N]
	if n >= reg.size {
		p.Lane.Stats.IndexErrors++
		if o.Clear {
			clear(d)
		}
		return
	}
	clear(d)
	if reg.wide != nil {
		copy(d, reg.cell(n))
	} else {
		d[0] = reg.get(n)
	}
	if o.Width > 0 {
		wide.Cut(p.f, o.D, o.Width)
	}
}
