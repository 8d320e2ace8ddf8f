// SPDX-License-Identifier: Apache-2.0

//go:build 386 || amd64 || arm || arm64 || loong64 || mips64le || mipsle || ppc64le || riscv64

package kernel

import (
	"encoding/binary"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// constants is the section of variables that do not change while a program is loaded.
const constants = ".rodata"

// Fold replaces reads of constants in programs by their values. A program that reads them from
// memory waits for one more page, and where each system call empties the processor's cache of
// addresses, it waits at each packet.
func Fold(spec *ebpf.CollectionSpec) {
	var image []byte
	for _, v := range spec.Variables {
		if v.SectionName == constants {
			end := int(v.Offset) + len(v.Value)
			image = append(image, make([]byte, max(0, end-len(image)))...)
			copy(image[v.Offset:], v.Value)
		}
	}
	for _, p := range spec.Programs {
		fold(p.Instructions, image)
	}
}

// registers are the instructions that gave registers the addresses of constants; nil for registers
// that hold something else.
type registers [asm.R10 + 1]*asm.Instruction

// common keeps the registers that hold the same address in both.
func (r registers) common(other registers) registers {
	for i, ins := range r {
		if ins != nil && (other[i] == nil || other[i].Constant != ins.Constant) {
			r[i] = nil
		}
	}
	return r
}

// fold follows which registers hold the address of a constant, along all ways through the code.
// Instructions keep their sizes, so that the offsets of jumps stay valid: a read right behind its
// address can become a value of any size, and every other read a value of up to four bytes.
func fold(code asm.Instructions, image []byte) {
	loops := map[asm.RawInstructionOffset]bool{} // where a jump back arrives
	for it := code.Iterate(); it.Next(); {
		if to, ok := target(it); ok && to <= it.Offset {
			loops[to] = true
		}
	}
	arriving := map[asm.RawInstructionOffset]registers{} // by jumps
	var known registers
	var before *asm.Instruction
	follows := false // the instruction before is followed by this one
	for it := code.Iterate(); it.Next(); before = it.Ins {
		ins := it.Ins
		r, joined := arriving[it.Offset]
		if joined && follows {
			known = known.common(r)
		} else if joined {
			known, follows = r, true
		}
		if !follows || loops[it.Offset] || ins.Symbol() != "" {
			known = registers{}
		}
		class := ins.OpCode.Class()
		if class == asm.LdXClass && ins.OpCode.Mode() == asm.MemMode && known[ins.Src] != nil {
			foldRead(known[ins.Src], ins, before == known[ins.Src] && !joined, image)
		}
		switch op := ins.OpCode; {
		case ins.IsLoadFromMap() && ins.Src == asm.PseudoMapValue && ins.Reference() == constants:
			known[ins.Dst] = ins
		case class.IsALU() || class.IsLoad():
			known[ins.Dst] = nil
		case class == asm.StXClass && op.Mode() == asm.AtomicMode: // it may return a value
			known[ins.Src], known[asm.R0] = nil, nil
		case class.IsJump() && op.JumpOp() == asm.Call:
			clear(known[:asm.R6])
		}
		if to, ok := target(it); ok {
			if r, ok := arriving[to]; ok {
				arriving[to] = r.common(known)
			} else {
				arriving[to] = known
			}
		}
		follows = !class.IsJump() || ins.OpCode.JumpOp() != asm.Ja && ins.OpCode.JumpOp() != asm.Exit
	}
}

// target returns where a jump arrives.
func target(it *asm.InstructionIterator) (to asm.RawInstructionOffset, ok bool) {
	op := it.Ins.OpCode
	if !op.Class().IsJump() || op.JumpOp() == asm.Call || op.JumpOp() == asm.Exit {
		return 0, false
	}
	return it.Offset + 1 + asm.RawInstructionOffset(it.Ins.Offset), true
}

// foldRead replaces a read of a constant. Where the address comes right before it, the value takes
// the place of the address.
func foldRead(address, read *asm.Instruction, adjacent bool, image []byte) {
	at, size := int(address.Constant>>32)+int(read.Offset), read.OpCode.Size().Sizeof()
	if at < 0 || at+size > len(image) {
		return
	}
	var b [8]byte
	copy(b[:], image[at:at+size])
	value := int64(binary.LittleEndian.Uint64(b[:]))
	switch {
	case adjacent && read.Dst == address.Dst: // the second one has nothing left to do
		*address = asm.LoadImm(read.Dst, value, asm.DWord).WithMetadata(address.Metadata).WithReference("")
		*read = asm.Mov.Reg(read.Dst, read.Dst).WithMetadata(read.Metadata)
	case size < 8:
		*read = asm.Mov.Imm32(read.Dst, int32(value)).WithMetadata(read.Metadata)
	}
}
