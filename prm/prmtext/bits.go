package prmtext

import "cxkit/prm"

// getBits reads n bits from bit start of b; bit 0 is the first bit on the wire.
func getBits(b []byte, start, n int) uint64 {
	var v uint64
	for i := start; i < start+n; i++ {
		v = v<<1 | uint64(b[i/8]>>(7-i%8)&1)
	}
	return v
}

// putBits ORs the low n bits of v into b from bit start on.
func putBits(b []byte, start, n int, v uint64) {
	for i := start + n - 1; i >= start; i-- {
		b[i/8] |= byte(v&1) << (7 - i%8)
		v >>= 1
	}
}

// extent is the range of bits of a field of l, counted from the start of the structure.
func extent(f *prm.Field) (start, n int) {
	switch f.Kind {
	case prm.KindBits, prm.KindAlias:
		unit := 32
		if f.Hi > 31 {
			unit = 64
		}
		return f.Off*8 + unit - 1 - f.Hi, f.Hi - f.Lo + 1
	case prm.KindBytes, prm.KindWords:
		return f.Off * 8, f.Size * f.Count * 8
	}
	l := prm.LayoutByName(f.Layout)
	return f.Off * 8, l.Size * f.Count * 8
}
