#include "textflag.h"

// func loadWord32(p *uint32) uint32
TEXT ·loadWord32(SB), NOSPLIT, $0-12
	MOVD p+0(FP), R0
	MOVWU (R0), R1
	MOVW R1, ret+8(FP)
	RET

// func loadWord64(p *uint64) uint64
TEXT ·loadWord64(SB), NOSPLIT, $0-16
	MOVD p+0(FP), R0
	MOVD (R0), R1
	MOVD R1, ret+8(FP)
	RET

// func storeWord32(p *uint32, v uint32)
TEXT ·storeWord32(SB), NOSPLIT, $0-12
	MOVD p+0(FP), R0
	MOVWU v+8(FP), R1
	MOVW R1, (R0)
	RET

// func storeWord64(p *uint64, v uint64)
TEXT ·storeWord64(SB), NOSPLIT, $0-16
	MOVD p+0(FP), R0
	MOVD v+8(FP), R1
	MOVD R1, (R0)
	RET

// func WriteBarrier()
TEXT ·WriteBarrier(SB), NOSPLIT, $0-0
	DMB $2 // OSHST
	RET

// func ReadBarrier()
TEXT ·ReadBarrier(SB), NOSPLIT, $0-0
	DMB $1 // OSHLD
	RET
