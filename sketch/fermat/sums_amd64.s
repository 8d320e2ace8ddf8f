// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// ADD adds the fragments to the four sums x at a pointer: x-c, and the prime p again where x < c,
// with c = p-fragment in X3, p in X1, the sign bits in X2 and c with its sign bit changed in X6, so
// that a signed comparison is an unsigned one.
#define ADD(pointer) \
	MOVOU (pointer), X4; \
	MOVO X4, X5; \
	PXOR X2, X5; \
	MOVO X6, X7; \
	PCMPGTL X5, X7; \
	PAND X1, X7; \
	PSUBL X3, X4; \
	PADDL X7, X4; \
	MOVOU X4, (pointer)

// func addSums(a, b, c *uint32, low, high uint64)
TEXT ·addSums(SB), NOSPLIT, $0-40
	MOVQ a+0(FP), AX
	MOVQ b+8(FP), BX
	MOVQ c+16(FP), CX
	MOVQ low+24(FP), X0
	MOVQ high+32(FP), X4
	PUNPCKLQDQ X4, X0
	PCMPEQL X1, X1
	MOVO X1, X2
	PSLLL $31, X2
	MOVO X1, X3
	PSRLL $31, X3
	PSLLL $2, X3
	PSUBL X3, X1
	MOVO X1, X3
	PSUBL X0, X3
	MOVO X3, X6
	PXOR X2, X6
	ADD(AX)
	ADD(BX)
	ADD(CX)
	RET
