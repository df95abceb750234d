package steer

import (
	"cmp"
	"slices"

	"cxkit/device/internal/packet"
)

// maxMasks bounds the different masks of a domain's tables, each table counting its own. A frame is looked up under
// each mask of a table, so this bounds the work that a frame can cause; CREATE_FLOW_GROUP is refused beyond it, as
// by firmware whose steering memory is full.
const maxMasks = 1 << 12

// shape is what the groups of a table with one mask have in common: their entries lie in one hash table, so that
// a look-up costs the same in one group and in thousands.
type shape struct {
	mask  [packet.KeyWords]uint64
	words []uint8 // those with a mask
	low   uint32  // no group begins before it
	// groups are how many share the shape, values how many different ones their entries have, and sourced those
	// of them that take frames from some vports only.
	groups, values, sourced int
	buckets                 []*value // chains; a power of two
}

// value is what entries of equal match value and source share.
type value struct {
	key     []uint64 // under the shape's mask, in the order of its words
	hash    uint64
	entries []*Entry // a heap: the lowest index is first
	next    *value   // in the bucket
	source  Source
}

// join gives g the shape of its mask, made if the table has none.
func (t *Table) join(g *Group) bool {
	s := t.byMask[g.mask]
	if s == nil {
		if t.domain.masks >= maxMasks {
			return false
		}
		t.domain.masks++
		s = &shape{mask: g.mask, words: g.words, low: g.start, buckets: make([]*value, 1)}
		if t.byMask == nil {
			t.byMask = make(map[[packet.KeyWords]uint64]*shape)
		}
		t.byMask[g.mask] = s
		t.place(s)
	} else if g.start < s.low {
		t.shapes = slices.Delete(t.shapes, slices.Index(t.shapes, s), slices.Index(t.shapes, s)+1)
		s.low = g.start
		t.place(s)
	}
	s.groups++
	g.shape, g.words = s, s.words
	return true
}

// place puts s where it belongs: shapes are in the order of their lowest index.
func (t *Table) place(s *shape) {
	at, _ := slices.BinarySearchFunc(t.shapes, s.low, func(o *shape, low uint32) int { return cmp.Compare(o.low, low) })
	t.shapes = slices.Insert(t.shapes, at, s)
}

// leave ends g's part in its shape.
func (t *Table) leave(g *Group) {
	s := g.shape
	if s.groups--; s.groups > 0 {
		return
	}
	t.domain.masks--
	delete(t.byMask, s.mask)
	at := slices.Index(t.shapes, s)
	t.shapes = slices.Delete(t.shapes, at, at+1)
}

// mix adds a word to a hash; the multiplier is odd, and the rotation brings high bits down.
func mix(h, w uint64) uint64 {
	h = (h ^ w) * 0x9e3779b97f4a7c15
	return h ^ h>>29
}

// find returns the entry for a frame with the lowest index, nil if none matches.
func (s *shape) find(h *packet.Headers, seed uint64) (found *Entry) {
	if s.values == 0 {
		return nil
	}
	hash := seed
	for _, w := range s.words {
		hash = mix(hash, h.Key[w&(packet.KeyWords-1)]&s.mask[w&(packet.KeyWords-1)])
	}
next:
	for v := s.buckets[hash&uint64(len(s.buckets)-1)]; v != nil; v = v.next {
		if v.hash != hash {
			continue
		}
		for i, w := range s.words {
			if h.Key[w&(packet.KeyWords-1)]&s.mask[w&(packet.KeyWords-1)] != v.key[i] {
				continue next
			}
		}
		e := v.entries[0]
		if s.sourced == 0 {
			return e
		}
		if e.takes(h) && (found == nil || e.index < found.index) { // at most three values differ by source alone
			found = e
		}
	}
	return found
}

// insert adds e, whose match value under the mask is key.
func (s *shape) insert(e *Entry, key []uint64, seed uint64) {
	hash := seed
	for _, w := range key {
		hash = mix(hash, w)
	}
	source := e.config.Source
	v := s.buckets[hash&uint64(len(s.buckets)-1)]
	for ; v != nil; v = v.next {
		if v.hash == hash && v.source == source && slices.Equal(v.key, key) {
			break
		}
	}
	if v == nil {
		if s.values >= len(s.buckets) {
			s.resize(2 * len(s.buckets))
		}
		v = &value{key: key, hash: hash, source: source}
		s.link(v)
		s.values++
		if source != AnySource {
			s.sourced++
		}
	}
	e.value = v
	v.push(e)
}

// remove takes e away.
func (s *shape) remove(e *Entry) {
	v := e.value
	v.take(e)
	if len(v.entries) > 0 {
		return
	}
	at := &s.buckets[v.hash&uint64(len(s.buckets)-1)]
	for *at != v {
		at = &(*at).next
	}
	*at, v.next = v.next, nil
	s.values--
	if v.source != AnySource {
		s.sourced--
	}
	if n := len(s.buckets); n > 16 && s.values < n/8 {
		s.resize(n / 4)
	}
}

// resize changes how many buckets there are.
func (s *shape) resize(n int) {
	old := s.buckets
	s.buckets = make([]*value, n)
	for _, v := range old {
		for v != nil {
			next := v.next
			s.link(v)
			v = next
		}
	}
}

func (s *shape) link(v *value) {
	head := &s.buckets[v.hash&uint64(len(s.buckets)-1)]
	v.next, *head = *head, v
}

// push adds e to the heap.
func (v *value) push(e *Entry) {
	e.at = int32(len(v.entries))
	v.entries = append(v.entries, e)
	v.up(e)
}

// take removes e from the heap.
func (v *value) take(e *Entry) {
	last := len(v.entries) - 1
	moved := v.entries[last]
	v.entries[last] = nil
	v.entries = v.entries[:last]
	if moved != e {
		moved.at = e.at
		v.entries[e.at] = moved
		v.up(moved)
		v.down(moved)
	}
	if n := cap(v.entries); n > 16 && last < n/4 {
		v.entries = append(make([]*Entry, 0, n/2), v.entries...)
	}
}

// up moves e to the front while an entry of a higher index is before it, down the other way.
func (v *value) up(e *Entry) {
	for e.at > 0 {
		parent := v.entries[(e.at-1)/2]
		if parent.index < e.index {
			return
		}
		v.swap(parent, e)
	}
}

func (v *value) down(e *Entry) {
	for {
		child := 2*int(e.at) + 1
		if child >= len(v.entries) {
			return
		}
		if child+1 < len(v.entries) && v.entries[child+1].index < v.entries[child].index {
			child++
		}
		if e.index < v.entries[child].index {
			return
		}
		v.swap(e, v.entries[child])
	}
}

func (v *value) swap(parent, child *Entry) {
	v.entries[parent.at], v.entries[child.at] = child, parent
	parent.at, child.at = child.at, parent.at
}
