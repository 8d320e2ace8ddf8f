// SPDX-License-Identifier: Apache-2.0

package softswitch

// A program runs as a flat list of instructions over the slots of a packet: three-address code with a mask, in which
// tables, actions, parser states and conditions are jumps. Everything that is rare is a Go closure behind opCall.

type opcode uint16

const (
	opEnd opcode = iota // leave the run loop
	opMov
	opAdd
	opSub
	opMul
	opAnd
	opOr
	opXor
	opNot
	opShl    // b: slot of the amount
	opShr    // logical
	opSar    // arithmetic
	opShlI   // b: the amount
	opShrI   //
	opSarI   //
	opFunnel // d = f[a]>>c | f[b]<<(64-c)
	opSext   // b: width
	opDiv
	opMod
	opEq
	opNe
	opLtU
	opLeU
	opLtS
	opLeS
	opSel // d = f[c] != 0 ? f[a] : f[b]
	opMulAdd
	opJmp // to d
	opJz  // a
	opJnz // a
	opJEq // a, b
	opJNe
	opJLtU
	opJGeU
	opJLtS
	opJGeS
	opLoad     // d = f[a + f[b]*c] while f[b] < imm
	opStore    // f[a + f[b]*c] = f[d] while f[b] < imm
	opCall     // fns[a]
	opCallP    // fns[a], then to the parser's end when it set an error
	opExtract  // a: header
	opSelect   // a: select
	opState    // counts the states of a parser
	opAccept   // end of parser
	opAddHdr   // a: header
	opRmHdr    // a: header
	opTable    // a: table
	opRet      // from an action of a table
	opLock     // a: lock
	opUnlock   // a: lock
	opDefer    // to d, which leads to an opCapture, where several lanes run; else opLock. a: deferred
	opCapture  // puts off deferred[a], to d
	opRegRd    // d = reg[a][f[b]]
	opRegWr    // reg[a][f[b]] = f[c]
	opRegAdd   // superinstruction: reg[a][f[b]] → f[d]
	opReadOut  // superinstruction, see readOut
	opHash     // a: hash
	opCRC32W   // d = crc32(be32(f[a])) % f[b] + f[c]
	opCRC32M   // d = crc32(be32(f[a])) & imm
	opCount    // counter[a][f[b]]
	opExit     //
	opExitTest // to d when the packet is marked for exit
)

// instr is one instruction. imm is the mask of the result wherever there is one.
type instr struct {
	op         opcode
	d, a, b, c uint32
	imm        uint64
}

// maskable tells whether the instruction's result is masked with imm.
func (in *instr) maskable() bool {
	return in.op >= opMov && in.op <= opSext || in.op == opSel || in.op == opMulAdd || in.op == opDiv || in.op == opMod
}

// retargetable tells whether d is nothing but the place of the result.
func (in *instr) retargetable() bool {
	return in.op >= opMov && in.op <= opMulAdd
}

// readOut reads count cells of a register, from the one that slot index names, into consecutive slots stride apart,
// sets them to zero, and leaves the index behind the last.
type readOut struct {
	reg, index  int
	first, step int
	count       int
	mask        uint64 // of the destination fields
	indexMask   uint64
}
