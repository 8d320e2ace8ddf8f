// SPDX-License-Identifier: Apache-2.0

package softswitch_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/netsketch/netsketch/p4/softswitch/asm"
	"github.com/netsketch/netsketch/p4/softswitch/program"
)

const (
	fields = 6 // slots that outlive the code
	temps  = 6
)

func newBuilder(t *testing.T) *asm.Builder {
	t.Helper()
	b := &asm.Builder{Prog: &program.Program{}, Temps: fields, TempCap: temps, ConstAt: fields + temps,
		Consts: map[string]uint32{}}
	b.Fail = func(format string, args ...any) { t.Fatalf(format, args...) }
	return b
}

// run executes arithmetic and forward jumps; it stops at the end of the code.
func run(t *testing.T, b *asm.Builder, slots []uint64) []uint64 {
	t.Helper()
	f := append(slices.Clone(slots), make([]uint64, temps)...)
	f = append(f, b.ConstVal...)
	for pc := 0; pc < len(b.Code); {
		in := b.Code[pc]
		pc++
		switch in.Op {
		case program.OpMov:
			f[in.D] = f[in.A] & in.Imm
		case program.OpAdd:
			f[in.D] = (f[in.A] + f[in.B]) & in.Imm
		case program.OpMul:
			f[in.D] = (f[in.A] * f[in.B]) & in.Imm
		case program.OpXor:
			f[in.D] = (f[in.A] ^ f[in.B]) & in.Imm
		case program.OpJmp:
			pc = int(in.D)
		case program.OpJnz:
			if f[in.A] != 0 {
				pc = int(in.D)
			}
		case program.OpEnd:
			return f[:fields]
		default:
			t.Fatalf("instruction %d: operation %d is not part of the test", pc-1, in.Op)
		}
	}
	return f[:fields]
}

// TestOptimizeKeepsResults runs random code with forward jumps before and after the passes.
func TestOptimizeKeepsResults(t *testing.T) {
	removed := 0
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := newBuilder(t)
		consts := []uint32{b.ConstU(0), b.ConstU(1), b.ConstU(77)}
		slot := func() uint32 { return r.Uint32N(fields + temps) }
		operand := func() uint32 {
			if r.IntN(4) == 0 {
				return consts[r.IntN(len(consts))]
			}
			return slot()
		}
		for i := range uint32(temps) { // code defines temporaries before it reads them
			b.Emit(program.Instr{Op: program.OpMov, D: fields + i, A: r.Uint32N(fields), Imm: ^uint64(0)})
		}
		var open []int
		for range 30 {
			switch r.IntN(8) {
			case 0:
				open = append(open, b.Emit(program.Instr{Op: program.OpJnz, A: operand()}))
			case 1:
				if len(open) > 0 {
					b.Patch(open[len(open)-1:])
					open = open[:len(open)-1]
				}
			default:
				op := []program.Opcode{program.OpMov, program.OpAdd, program.OpMul, program.OpXor}[r.IntN(4)]
				b.Emit(program.Instr{Op: op, D: slot(), A: operand(), B: operand(),
					Imm: []uint64{^uint64(0), 0xff}[r.IntN(2)]})
			}
		}
		b.Patch(open)
		b.Emit(program.Instr{Op: program.OpEnd})
		in := make([]uint64, fields)
		for i := range in {
			in[i] = r.Uint64N(300)
		}
		want, before := run(t, b, in), len(b.Code)
		b.Optimize(0)
		b.Compact()
		if got := run(t, b, in); !slices.Equal(got, want) {
			t.Fatalf("seed %d: %v becomes %v, optimized %v", seed, in, want, got)
		}
		removed += before - len(b.Code)
	}
	if removed < 2000 {
		t.Errorf("only %d instructions were removed", removed)
	}
}

// TestOptimizeReusesValues: an expression that was computed before is not computed again, unless an
// operand has changed.
func TestOptimizeReusesValues(t *testing.T) {
	b := newBuilder(t)
	all := ^uint64(0)
	sum := program.Instr{Op: program.OpAdd, D: fields, A: 0, B: 1, Imm: all}
	b.Emit(sum)
	b.Emit(program.Instr{Op: program.OpMov, D: 2, A: fields, Imm: all})
	sum.D = fields + 1
	b.Emit(sum) // the same sum
	b.Emit(program.Instr{Op: program.OpMov, D: 3, A: fields + 1, Imm: all})
	b.Emit(program.Instr{Op: program.OpMov, D: 0, A: 4, Imm: all})
	sum.D = fields + 2
	b.Emit(sum) // another one
	b.Emit(program.Instr{Op: program.OpMov, D: 5, A: fields + 2, Imm: all})
	b.Optimize(0)
	sums := 0
	for _, in := range b.Code {
		if in.Op == program.OpAdd {
			sums++
		}
	}
	if got := run(t, b, []uint64{3, 4, 0, 0, 10, 0}); sums != 2 || !slices.Equal(got, []uint64{10, 4, 7, 7, 10, 14}) {
		t.Errorf("%d sums, result %v: %+v", sums, got, b.Code)
	}
}

// TestCompact redirects jumps to jumps and closes gaps, for everything that refers to code.
func TestCompact(t *testing.T) {
	b := newBuilder(t)
	move := program.Instr{Op: program.OpMov, D: 1, A: 0, Imm: ^uint64(0)}
	b.Emit(program.Instr{Op: program.OpJmp, D: 2})
	b.Emit(move)
	b.Emit(program.Instr{Op: program.OpJmp, D: 3}) // to the next instruction
	b.Emit(move)
	b.Emit(program.Instr{Op: program.OpEnd})
	p := b.Prog
	p.IngressPC, p.EgressPC = 2, 1
	p.Actions = []*program.Action{{PC: 0}}
	p.Selects = []*program.Select{{Default: 2, Cases: []program.SelectCase{{Next: 4}}}}
	b.Compact()
	want := []program.Instr{{Op: program.OpJmp, D: 2}, move, move, {Op: program.OpEnd}}
	if !slices.Equal(b.Code, want) || p.IngressPC != 2 || p.EgressPC != 1 || p.Actions[0].PC != 2 ||
		p.Selects[0].Default != 2 || p.Selects[0].Cases[0].Next != 3 {
		t.Errorf("code %+v, ingress %d, egress %d, action %d, select %+v", b.Code, p.IngressPC, p.EgressPC,
			p.Actions[0].PC, p.Selects[0])
	}
}
