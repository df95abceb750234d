package addrspace

import (
	"cmp"
	"math/bits"
	"slices"
	"sync/atomic"

	"cxkit/pci"
)

const (
	chunkMax  = 256     // mappings in a chunk
	bigOnes   = 4       // mappings that are asked first
	bigSize   = 2 << 20 // what is worth being asked first, unless the table is small
	pageShift = 12
	maxCache  = 8192 // entries of the page cache
)

// Mapping is a range of bus addresses and what is behind it.
type Mapping struct {
	Bus, Size uint64
	// Bytes is the memory, Size bytes long; nil where the range can be reached by messages only, or not
	// at all.
	Bytes []byte
	// Access is what a card may do there.
	Access pci.Access
	// MayFault: the memory can vanish under the card, because a peer can truncate its file.
	MayFault bool
	// Release, if any, is called once after the mapping was removed and no card uses it.
	Release func()
}

// end is the last address, so that a mapping can end at 2^64.
func (m *Mapping) end() uint64 { return m.Bus + m.Size - 1 }

func (m *Mapping) holds(addr uint64) bool { return addr-m.Bus < m.Size }

// table is an immutable set of mappings, but for its cache, whose entries are mappings of the table.
type table struct {
	big    [bigOnes]bigMapping
	cache  []atomic.Pointer[Mapping] // pairs, by hash of the page; empty while the table is small
	shift  uint                      // of the hash
	chunks [][]*Mapping              // sorted; none is empty
	n      int
}

// bigMapping repeats the range so that asking costs no look elsewhere.
type bigMapping struct {
	bus, size uint64
	m         *Mapping
}

// find returns the mapping that holds addr, or nil.
func (t *table) find(addr uint64) *Mapping {
	for i := range t.big {
		if b := &t.big[i]; addr-b.bus < b.size {
			return b.m
		}
	}
	if t.n <= bigOnes {
		return nil
	}
	i := (addr >> pageShift) * 0x9e3779b97f4a7c15 >> t.shift &^ 1
	if i+1 < uint64(len(t.cache)) {
		if m := t.cache[i].Load(); m != nil && m.holds(addr) {
			return m
		}
		if m := t.cache[i+1].Load(); m != nil && m.holds(addr) {
			return m
		}
	}
	return t.findSlow(addr, i)
}

// findSlow searches the list and keeps what it finds in the cache.
func (t *table) findSlow(addr, slot uint64) *Mapping {
	c := t.chunkOf(addr)
	if c < 0 {
		return nil
	}
	chunk := t.chunks[c]
	m := chunk[lastAtOrBelow(chunk, addr)]
	if !m.holds(addr) {
		return nil
	}
	if slot+1 < uint64(len(t.cache)) {
		t.cache[slot+1].Store(t.cache[slot].Load())
		t.cache[slot].Store(m)
	}
	return m
}

// chunkOf is the index of the last chunk that starts at or below addr, or -1.
func (t *table) chunkOf(addr uint64) int {
	i, found := slices.BinarySearchFunc(t.chunks, addr, func(c []*Mapping, a uint64) int { return cmp.Compare(c[0].Bus, a) })
	if found {
		return i
	}
	return i - 1
}

// lastAtOrBelow is the index of the last mapping of chunk that starts at or below addr; the first one does.
func lastAtOrBelow(chunk []*Mapping, addr uint64) int {
	i, found := slices.BinarySearchFunc(chunk, addr, func(m *Mapping, a uint64) int { return cmp.Compare(m.Bus, a) })
	if found {
		return i
	}
	return i - 1
}

// overlaps reports whether a mapping has an address in first..last.
func (t *table) overlaps(first, last uint64) bool {
	c := t.chunkOf(last)
	if c < 0 {
		return false
	}
	m := t.chunks[c][lastAtOrBelow(t.chunks[c], last)]
	return m.end() >= first
}

// with returns a table that also has m, which overlaps nothing.
func (t *table) with(m *Mapping) *table {
	n := &table{big: t.big, n: t.n + 1, cache: t.cache, shift: t.shift}
	c := max(t.chunkOf(m.Bus), 0)
	if len(t.chunks) == 0 {
		n.chunks = [][]*Mapping{{m}}
	} else {
		old := t.chunks[c]
		i := 0
		if old[0].Bus < m.Bus {
			i = lastAtOrBelow(old, m.Bus) + 1
		}
		grown := make([]*Mapping, 0, len(old)+1)
		grown = append(append(append(grown, old[:i]...), m), old[i:]...)
		n.chunks = make([][]*Mapping, 0, len(t.chunks)+1)
		n.chunks = append(n.chunks, t.chunks[:c]...)
		if len(grown) > chunkMax {
			half := len(grown) / 2
			n.chunks = append(n.chunks, grown[:half:half], grown[half:])
		} else {
			n.chunks = append(n.chunks, grown)
		}
		n.chunks = append(n.chunks, t.chunks[c+1:]...)
	}
	n.addBig(m)
	if n.n > bigOnes && (n.cache == nil || n.n*2 > len(n.cache) && len(n.cache) < maxCache) {
		n.newCache()
	}
	return n
}

// without returns a table that lacks every mapping for which gone is true. Its cache starts empty: one
// that is shared could still name mappings that are gone.
func (t *table) without(first, last uint64, gone func(*Mapping) bool) *table {
	n := &table{chunks: make([][]*Mapping, 0, len(t.chunks))}
	for _, chunk := range t.chunks {
		if chunk[len(chunk)-1].end() >= first && chunk[0].Bus <= last {
			chunk = slices.DeleteFunc(slices.Clone(chunk), gone)
		}
		if len(chunk) > 0 {
			n.chunks = append(n.chunks, chunk)
			n.n += len(chunk)
		}
	}
	n.big = t.big
	if slices.ContainsFunc(t.big[:], func(b bigMapping) bool { return b.m != nil && gone(b.m) }) || n.n <= bigOnes {
		n.big = [bigOnes]bigMapping{}
		for _, chunk := range n.chunks {
			for _, m := range chunk {
				n.addBig(m)
			}
		}
	}
	if n.n > bigOnes {
		n.newCache()
	}
	return n
}

// addBig keeps the largest mappings first; a small table has all of its mappings there.
func (t *table) addBig(m *Mapping) {
	if m.Size < bigSize && t.n > bigOnes {
		return
	}
	smallest := 0
	for i := range t.big {
		if t.big[i].size < t.big[smallest].size {
			smallest = i
		}
	}
	if m.Size > t.big[smallest].size {
		t.big[smallest] = bigMapping{m.Bus, m.Size, m}
	}
}

func (t *table) newCache() {
	size := min(max(64, 1<<bits.Len(uint(t.n*4-1))), maxCache)
	t.cache = make([]atomic.Pointer[Mapping], size)
	t.shift = uint(64 - bits.Len(uint(size-1)))
}

// all calls f for each mapping that has an address in first..last, in order, until it returns false.
func (t *table) all(first, last uint64, f func(*Mapping) bool) {
	for c := max(t.chunkOf(first), 0); c < len(t.chunks) && t.chunks[c][0].Bus <= last; c++ {
		for _, m := range t.chunks[c] {
			if m.end() >= first && m.Bus <= last && !f(m) {
				return
			}
		}
	}
}
