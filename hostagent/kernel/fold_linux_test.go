// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// TestFold: a read of one to eight bytes of a constant becomes their value. All other reads stay.
func TestFold(t *testing.T) {
	image := []byte{1, 2, 3, 0x84, 5, 6, 7, 0x88, 9, 10}
	address := func(of string, to asm.Register, at int64) asm.Instruction {
		return asm.LoadMapValue(to, 0, uint32(at)).WithReference(of).WithSymbol("f")
	}
	const rodata, data = ".rodata", ".data"
	for name, c := range map[string]struct {
		address, read asm.Instruction
		jump          int16 // of an instruction behind both, from the instruction that follows it
		want          []asm.Instruction
	}{
		"four bytes": {address(rodata, asm.R1, 0), asm.LoadMem(asm.R1, asm.R1, 0, asm.Word), 0,
			[]asm.Instruction{asm.LoadImm(asm.R1, 0x84030201, asm.DWord), asm.Mov.Reg(asm.R1, asm.R1)}},
		"two bytes at an offset": {address(rodata, asm.R1, 2), asm.LoadMem(asm.R1, asm.R1, 1, asm.Half), 0,
			[]asm.Instruction{asm.LoadImm(asm.R1, 0x0584, asm.DWord), asm.Mov.Reg(asm.R1, asm.R1)}},
		"eight bytes": {address(rodata, asm.R1, 0), asm.LoadMem(asm.R1, asm.R1, 0, asm.DWord), 0,
			[]asm.Instruction{asm.LoadImm(asm.R1, -0x77f8f9fa7bfcfdff, asm.DWord), asm.Mov.Reg(asm.R1, asm.R1)}},
		"another register": {address(rodata, asm.R1, 0), asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), 0,
			[]asm.Instruction{address(rodata, asm.R1, 0), asm.Mov.Imm32(asm.R2, -0x7bfcfdff)}},
		"eight bytes in another register": {address: address(rodata, asm.R1, 0),
			read: asm.LoadMem(asm.R2, asm.R1, 0, asm.DWord)},
		"beyond the constants": {address: address(rodata, asm.R1, 8), read: asm.LoadMem(asm.R1, asm.R1, 0, asm.Word)},
		"through another register": {address: address(rodata, asm.R1, 0),
			read: asm.LoadMem(asm.R1, asm.R2, 0, asm.Word)},
		"of a variable":      {address: address(data, asm.R1, 0), read: asm.LoadMem(asm.R1, asm.R1, 0, asm.Word)},
		"no read":            {address: address(rodata, asm.R1, 0), read: asm.Add.Reg(asm.R1, asm.R2)},
		"a write":            {address: address(rodata, asm.R1, 0), read: asm.StoreMem(asm.R1, 0, asm.R1, asm.Word)},
		"a jump to the read": {address: address(rodata, asm.R1, 0), read: asm.LoadMem(asm.R1, asm.R1, 0, asm.Word), jump: -2},
		"a jump to the address": {address(rodata, asm.R1, 0), asm.LoadMem(asm.R1, asm.R1, 0, asm.Byte), -4,
			[]asm.Instruction{asm.LoadImm(asm.R1, 1, asm.DWord), asm.Mov.Reg(asm.R1, asm.R1)}},
	} {
		jump := asm.JEq.Imm(asm.R1, 0, "")
		jump.Offset = c.jump
		code := asm.Instructions{c.address, c.read, jump}
		fold(code, image)
		if c.want == nil {
			c.want = []asm.Instruction{c.address, c.read}
		}
		for i, want := range c.want {
			if got, want := fmt.Sprint(code[i]), fmt.Sprint(want); got != want {
				t.Errorf("%s: instruction %d is %q, want %q", name, i, got, want)
			}
		}
		if got := code[0].Symbol(); got != "f" {
			t.Errorf("%s: symbol %q, want f", name, got)
		}
	}
}

// TestFoldDistant: a read of a constant far behind its address becomes its value, unless something
// between them may change the register.
func TestFoldDistant(t *testing.T) {
	image := []byte{1, 2, 3, 4}
	jump := func(op asm.JumpOp, offset int16) asm.Instruction {
		ins := op.Imm(asm.R2, 0, "")
		ins.Offset = offset
		return ins
	}
	read := asm.LoadMem(asm.R1, asm.R1, 0, asm.Word)
	for name, c := range map[string]struct {
		between asm.Instruction
		folded  bool
	}{
		"another register":         {asm.Mov.Reg(asm.R2, asm.R3), true},
		"a write to memory":        {asm.StoreMem(asm.R2, 0, asm.R1, asm.Word), true},
		"a jump away":              {jump(asm.JEq, 1), true},
		"a jump to the read":       {jump(asm.JEq, 0), true},
		"a jump back":              {jump(asm.JEq, -3), true},
		"an endless loop":          {jump(asm.Ja, -1), false},
		"an addition":              {asm.Add.Imm(asm.R1, 4), false},
		"a copy":                   {asm.Mov.Reg(asm.R1, asm.R2), false},
		"a read":                   {asm.LoadMem(asm.R1, asm.R2, 0, asm.DWord), false},
		"another number":           {asm.LoadImm(asm.R1, 1, asm.DWord), false},
		"a call":                   {asm.FnJiffies64.Call(), false},
		"an addition in memory":    {asm.AddAtomic.Mem(asm.R2, asm.R3, asm.Word, 0), true},
		"an exchange":              {asm.FetchAdd.Mem(asm.R2, asm.R1, asm.Word, 0), false},
		"the start of a function":  {asm.Mov.Reg(asm.R2, asm.R3).WithSymbol("g"), false},
		"the address of something": {asm.LoadMapValue(asm.R1, 0, 0).WithReference(".data"), false},
	} {
		code := asm.Instructions{asm.LoadMapValue(asm.R1, 0, 0).WithReference(".rodata"), c.between, read}
		fold(code, image)
		if want := fmt.Sprint(asm.Mov.Imm32(asm.R1, 0x04030201)); (fmt.Sprint(code[2]) == want) != c.folded {
			t.Errorf("%s before the read: %v, folded %v wanted", name, code[2], c.folded)
		}
	}
}

// TestFoldJoined: where two ways meet, a read becomes a value if both bring the same address.
func TestFoldJoined(t *testing.T) {
	image := []byte{1, 2, 3, 4, 5, 6, 7, 8}
	jump := func(op asm.JumpOp, offset int16) asm.Instruction {
		ins := op.Imm(asm.R2, 0, "")
		ins.Offset = offset
		return ins
	}
	at := func(offset uint32) asm.Instruction {
		return asm.LoadMapValue(asm.R1, 0, offset).WithReference(".rodata")
	}
	read := asm.LoadMem(asm.R1, asm.R1, 0, asm.Half)
	const offset4 = 0x0605
	for name, c := range map[string]struct {
		code   asm.Instructions
		folded bool
	}{
		"one address": {asm.Instructions{at(4), jump(asm.JEq, 1), asm.Mov.Reg(asm.R2, asm.R3), read}, true},
		"the same address twice": {asm.Instructions{at(4), jump(asm.JEq, 3), at(4), asm.Mov.Reg(asm.R2, asm.R3), read},
			true},
		"a jump behind the second address": {asm.Instructions{at(4), jump(asm.JEq, 2), at(4), read}, true},
		"two addresses":                    {asm.Instructions{at(4), jump(asm.JEq, 2), at(0), read}, false},
		"a number":                         {asm.Instructions{at(4), jump(asm.JEq, 1), asm.Mov.Imm(asm.R1, 0), read}, false},
		"only by the jump":                 {asm.Instructions{at(4), jump(asm.JEq, 1), asm.Return(), read}, true},
		"a loop":                           {asm.Instructions{at(4), read, asm.Mov.Imm(asm.R1, 0), jump(asm.JEq, -3)}, false},
		"behind the return":                {asm.Instructions{at(4), asm.Return(), read}, false},
	} {
		n := len(c.code) - 1
		for c.code[n].OpCode.Class() != asm.LdXClass {
			n--
		}
		fold(c.code, image)
		if want := fmt.Sprint(asm.Mov.Imm32(asm.R1, offset4)); (fmt.Sprint(c.code[n]) == want) != c.folded {
			t.Errorf("%s: %v, folded %v wanted", name, c.code[n], c.folded)
		}
	}
}

// TestFoldVariables: values are those of the variables, also behind a gap.
func TestFoldVariables(t *testing.T) {
	read := func() asm.Instructions {
		return asm.Instructions{asm.LoadMapValue(asm.R1, 0, 6).WithReference(".rodata"),
			asm.LoadMem(asm.R1, asm.R1, 0, asm.Byte)}
	}
	spec := &ebpf.CollectionSpec{
		Programs: map[string]*ebpf.ProgramSpec{"p": {Instructions: read()}, "q": {Instructions: read()}},
		Variables: map[string]*ebpf.VariableSpec{
			"a": {SectionName: ".rodata", Offset: 0, Value: []byte{1, 2}},
			"b": {SectionName: ".rodata", Offset: 4, Value: []byte{3, 4, 5}},
			"c": {SectionName: ".data", Offset: 6, Value: []byte{6}},
		},
	}
	Fold(spec)
	for name, p := range spec.Programs {
		if got := p.Instructions[0]; !got.IsConstantLoad(asm.DWord) || got.Constant != 5 {
			t.Errorf("program %s: %v, want a load of 5", name, got)
		}
	}
}
