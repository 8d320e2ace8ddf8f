// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// func prefetch(cells *fetchCell, n int, entry *uint64)
TEXT ·prefetch(SB), NOSPLIT, $0-24
	MOVQ cells+0(FP), BX
	MOVQ n+8(FP), DX
	MOVQ entry+16(FP), SI

next:
	MOVL 24(BX), DI // word
	MOVL 28(BX), CX // shift
	MOVQ (SI)(DI*1), AX
	SHRQ CX, AX
	CMPQ AX, 8(BX)  // size
	JCC  skip
	IMULQ 16(BX), AX
	ADDQ (BX), AX
	BYTE $0x0f; BYTE $0x0d; BYTE $0x08 // PREFETCHW (AX), which the assembler does not know

skip:
	ADDQ $32, BX
	SUBQ $1, DX
	JNE  next
	RET
