// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// func prefetch(base unsafe.Pointer, words []uint32)
TEXT ·prefetch(SB), NOSPLIT, $0-32
	MOVQ base+0(FP), DI
	MOVQ words_base+8(FP), SI
	MOVQ words_len+16(FP), CX
	TESTQ CX, CX
	JE   done

next:
	MOVL (SI), AX
	PREFETCHT0 (DI)(AX*8)
	ADDQ $4, SI
	SUBQ $1, CX
	JNE  next

done:
	RET
