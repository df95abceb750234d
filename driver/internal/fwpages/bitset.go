package fwpages

import "math/bits"

// bitset is a set of small numbers that knows how many it has and finds the least one soon.
type bitset struct {
	words []uint64
	n     int // numbers in the set
	hint  int // no number of it is in words before
}

// grow makes room for numbers below n.
func (b *bitset) grow(n int) {
	for len(b.words) < (n+63)/64 {
		b.words = append(b.words, 0)
	}
}

// fill makes the set 0 to n-1.
func (b *bitset) fill(n int) {
	b.words = make([]uint64, (n+63)/64)
	for i := range b.words {
		b.words[i] = ^uint64(0)
	}
	if rest := n % 64; rest != 0 {
		b.words[len(b.words)-1] = 1<<rest - 1
	}
	b.n, b.hint = n, 0
}

func (b *bitset) has(i int) bool { return i/64 < len(b.words) && b.words[i/64]>>(i%64)&1 != 0 }

// set adds i.
func (b *bitset) set(i int) {
	if w := &b.words[i/64]; *w>>(i%64)&1 == 0 {
		*w |= 1 << (i % 64)
		b.n++
		b.hint = min(b.hint, i/64)
	}
}

// clear takes i out.
func (b *bitset) clear(i int) {
	if w := &b.words[i/64]; *w>>(i%64)&1 != 0 {
		*w &^= 1 << (i % 64)
		b.n--
	}
}

// first is the least number; the set is not empty.
func (b *bitset) first() int {
	for b.words[b.hint] == 0 {
		b.hint++ // ends: there is one from hint on
	}
	return b.hint*64 + bits.TrailingZeros64(b.words[b.hint])
}
