package prm

import (
	"fmt"
	"strconv"
	"strings"
)

// bit is 1 for true.
func bit(v bool) uint32 {
	if v {
		return 1
	}
	return 0
}

// checkWidth panics if v needs more than width bits: the caller's mistake, never the device's.
func checkWidth(field string, v uint64, width int) {
	if v>>width != 0 {
		panic(fmt.Sprintf("prm: %s: value %#x is wider than %d bits", field, v, width))
	}
}

func panicShort(name string, need, have int) {
	panic(fmt.Sprintf("prm: %s.Put: %d bytes given, %d needed", name, have, need))
}

// resize returns s with n elements, in the same memory if that is large enough.
func resize[T any](s []T, n int) []T {
	if n <= cap(s) {
		return s[:n]
	}
	return make([]T, n)
}

// patch copies the bits of src that mask names into dst.
func patch(dst, src []byte, mask string) {
	_ = dst[len(src)-1]
	for i := range len(mask) {
		dst[i] = dst[i]&^mask[i] | src[i]&mask[i]
	}
}

type maskBit struct {
	bit  uint64
	text string
}

// maskText names the bits of v: "COUNT|FWD_DEST", with unnamed ones as a number at the end.
func maskText(v uint64, names []maskBit) string {
	var parts []string
	for _, n := range names {
		if v&n.bit != 0 {
			parts = append(parts, n.text)
			v &^= n.bit
		}
	}
	if v != 0 || len(parts) == 0 {
		parts = append(parts, "0x"+strconv.FormatUint(v, 16))
	}
	return strings.Join(parts, "|")
}

func numberText(enum string, v uint64) string {
	return enum + "(0x" + strconv.FormatUint(v, 16) + ")"
}
