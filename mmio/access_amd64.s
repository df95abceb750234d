#include "textflag.h"

// func loadWord32(p *uint32) uint32
TEXT ·loadWord32(SB), NOSPLIT, $0-12
	MOVQ p+0(FP), AX
	MOVL (AX), CX
	MOVL CX, ret+8(FP)
	RET

// func loadWord64(p *uint64) uint64
TEXT ·loadWord64(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ (AX), CX
	MOVQ CX, ret+8(FP)
	RET

// func storeWord32(p *uint32, v uint32)
TEXT ·storeWord32(SB), NOSPLIT, $0-12
	MOVQ p+0(FP), AX
	MOVL v+8(FP), CX
	MOVL CX, (AX)
	RET

// func storeWord64(p *uint64, v uint64)
TEXT ·storeWord64(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ v+8(FP), CX
	MOVQ CX, (AX)
	RET

// func WriteBarrier()
TEXT ·WriteBarrier(SB), NOSPLIT, $0-0
	RET

// func ReadBarrier()
TEXT ·ReadBarrier(SB), NOSPLIT, $0-0
	RET
