// SPDX-License-Identifier: Apache-2.0

package program

import (
	"github.com/netsketch/netsketch/p4/softswitch/control"
)

type Opcode uint16

const (
	OpEnd Opcode = iota // leave the run loop
	OpMov
	OpAdd
	OpSub
	OpMul
	OpAnd
	OpOr
	OpXor
	OpNot
	OpShl    // b: slot of the amount
	OpShr    // logical
	OpSar    // arithmetic
	OpShlI   // b: the amount
	OpShrI   //
	OpSarI   //
	OpFunnel // d = f[a]>>c | f[b]<<(64-c)
	OpSext   // b: width
	OpDiv
	OpMod
	OpEq
	OpNe
	OpLtU
	OpLeU
	OpLtS
	OpLeS
	OpSel // d = f[c] != 0 ? f[a] : f[b]
	OpMulAdd
	OpJmp // jumps to d
	OpJz  // a
	OpJnz // a
	OpJEq // a, b
	OpJNe
	OpJLtU
	OpJGeU
	OpJLtS
	OpJGeS
	OpLoad     // d = f[a + f[b]*c] while f[b] < imm
	OpStore    // f[a + f[b]*c] = f[d] while f[b] < imm
	OpCall     // fns[a]
	OpCallP    // calls fns[a]; jumps to the parser's end if that set an error
	OpExtract  // a: header
	OpSelect   // a: select
	OpState    // counts the states of a parser
	OpAddHdr   // a: header
	OpRmHdr    // a: header
	OpTable    // a: table
	OpRet      // returns from an action of a table
	OpLock     // a: lock
	OpUnlock   // a: lock
	OpRegRd    // d = reg[a][f[b]]
	OpRegWr    // reg[a][f[b]] = f[c]
	OpHash     // a: hash
	OpCRC32M   // d = crc32(be32(f[a])) & imm
	OpCount    // counter[a][f[b]]
	OpExit     //
	OpExitTest // jumps to d when the packet is marked for exit
)

// Instr is one instruction. imm is the mask of the result wherever there is one.
type Instr struct {
	Op         Opcode
	D, A, B, C uint32
	Imm        uint64
}

// Maskable reports whether the instruction's result is masked with imm.
func (in *Instr) Maskable() bool {
	return in.Op >= OpMov && in.Op <= OpSext || in.Op == OpSel || in.Op == OpMulAdd || in.Op == OpDiv || in.Op == OpMod
}

// Retargetable reports whether the instruction only writes its result to slot d, so that another
// slot may take the place of d.
func (in *Instr) Retargetable() bool {
	return in.Op >= OpMov && in.Op <= OpMulAdd
}

// Jumps reports whether d is an instruction to which this instruction may jump.
func (in *Instr) Jumps() bool {
	return in.Op >= OpJmp && in.Op <= OpJGeS || in.Op == OpCallP || in.Op == OpExtract || in.Op == OpState
}

// Select is the transition of a parser state.
type Select struct {
	Slots   []uint32 // words of the key
	Cases   []SelectCase
	Default uint32 // target of the jump if nothing matches
}

type SelectCase struct {
	Value []uint64
	Mask  []uint64
	Set   int // value set, or -1
	Next  uint32
}

// Action is an action of the program.
type Action struct {
	ID    int
	Name  string
	Info  control.ActionInfo
	Words int // words of the action's parameters
	PC    uint32
}

// MaxHeaderBits bounds the length of a header.
const MaxHeaderBits = 1 << 16
