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

// fold finds pairs of adjacent instructions: the first one puts the address of a constant into a
// register, the second one reads from that address. Instructions keep their sizes, so that offsets
// of jumps stay valid.
func fold(code asm.Instructions, image []byte) {
	targets := map[asm.RawInstructionOffset]bool{}
	for it := code.Iterate(); it.Next(); {
		if it.Ins.OpCode.Class().IsJump() {
			targets[it.Offset+1+asm.RawInstructionOffset(it.Ins.Offset)] = true
		}
	}
	address := &asm.Instruction{}
	for it := code.Iterate(); it.Next(); address = it.Ins {
		read := it.Ins
		if !address.IsLoadFromMap() || address.Src != asm.PseudoMapValue || address.Reference() != constants ||
			read.OpCode.Class() != asm.LdXClass || read.OpCode.Mode() != asm.MemMode ||
			read.Src != address.Dst || targets[it.Offset] {
			continue
		}
		at, size := int(address.Constant>>32)+int(read.Offset), read.OpCode.Size().Sizeof()
		if at < 0 || at+size > len(image) {
			continue
		}
		var b [8]byte
		copy(b[:], image[at:at+size])
		value := int64(binary.LittleEndian.Uint64(b[:]))
		switch {
		case read.Dst == address.Dst: // the second one has nothing left to do
			*address = asm.LoadImm(read.Dst, value, asm.DWord).WithMetadata(address.Metadata).WithReference("")
			*read = asm.Mov.Reg(read.Dst, read.Dst).WithMetadata(read.Metadata)
		case size < 8:
			*read = asm.Mov.Imm32(read.Dst, int32(value)).WithMetadata(read.Metadata)
		}
	}
}
