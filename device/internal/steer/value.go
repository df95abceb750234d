package steer

import (
	"encoding/binary"
	"math/bits"
)

// Value is a match_value. Most of its bytes are zero: only the words that are not are kept, for entries come by
// the million.
type Value struct {
	present uint64 // a bit for each word of fte_match_param
	words   []uint64
}

// NewValue makes a Value of the bytes of fte_match_param, of which there may be fewer.
func NewValue(raw []byte) (v Value) {
	var full [paramBytes]byte
	copy(full[:], raw)
	for i := range paramBytes / 8 {
		if binary.BigEndian.Uint64(full[i*8:]) != 0 {
			v.present |= 1 << i
		}
	}
	v.words = make([]uint64, 0, bits.OnesCount64(v.present))
	for i := range paramBytes / 8 {
		if v.present>>i&1 != 0 {
			v.words = append(v.words, binary.BigEndian.Uint64(full[i*8:]))
		}
	}
	return v
}

// word is one of the words of fte_match_param.
func (v *Value) word(i uint8) uint64 {
	if v.present>>i&1 == 0 {
		return 0
	}
	return v.words[bits.OnesCount64(v.present&(1<<i-1))]
}

// Bytes is the whole of it.
func (v *Value) Bytes() []byte {
	raw := make([]byte, paramBytes)
	for i := range paramBytes / 8 {
		binary.BigEndian.PutUint64(raw[i*8:], v.word(uint8(i)))
	}
	return raw
}
