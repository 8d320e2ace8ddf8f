// SPDX-License-Identifier: Apache-2.0

package softswitch_test

import (
	"slices"
	"testing"

	"github.com/netsketch/netsketch/p4/softswitch/asm"
	"github.com/netsketch/netsketch/p4/softswitch/program"
)

const (
	fields = 6 // slots that are read after the code; the temporary slots follow
	temps  = 6
)

func newBuilder(t *testing.T) *asm.Builder {
	t.Helper()
	b := &asm.Builder{Prog: &program.Program{}, Temps: fields, TempCap: temps, ConstAt: fields + temps,
		Consts: map[string]uint32{}}
	b.Fail = func(format string, args ...any) { t.Fatalf(format, args...) }
	return b
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
