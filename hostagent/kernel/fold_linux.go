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

// fold follows which registers hold the address of a constant, from one instruction to the next.
// Where a jump arrives, it knows of none. Instructions keep their sizes, so that the offsets of
// jumps stay valid: a read right behind its address can become a value of any size, and every other
// read a value of up to four bytes.
func fold(code asm.Instructions, image []byte) {
	targets := map[asm.RawInstructionOffset]bool{}
	for it := code.Iterate(); it.Next(); {
		if it.Ins.OpCode.Class().IsJump() {
			targets[it.Offset+1+asm.RawInstructionOffset(it.Ins.Offset)] = true
		}
	}
	addresses := map[asm.Register]*asm.Instruction{}
	var before *asm.Instruction
	for it := code.Iterate(); it.Next(); before = it.Ins {
		ins := it.Ins
		if targets[it.Offset] || ins.Symbol() != "" {
			clear(addresses)
		}
		if address := addresses[ins.Src]; address != nil && ins.OpCode.Class() == asm.LdXClass &&
			ins.OpCode.Mode() == asm.MemMode {
			foldRead(address, ins, before == address, image)
		}
		switch class := ins.OpCode.Class(); {
		case ins.IsLoadFromMap() && ins.Src == asm.PseudoMapValue && ins.Reference() == constants:
			addresses[ins.Dst] = ins
		case class.IsALU() || class.IsLoad():
			delete(addresses, ins.Dst)
		case class == asm.StXClass && ins.OpCode.Mode() == asm.AtomicMode: // it may return a value
			delete(addresses, ins.Src)
			delete(addresses, asm.R0)
		case class.IsJump() && ins.OpCode.JumpOp() == asm.Call:
			for r := asm.R0; r <= asm.R5; r++ {
				delete(addresses, r)
			}
		}
	}
}

// foldRead replaces a read of a constant, and the instruction with its address if it is adjacent.
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
