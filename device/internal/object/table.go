package object

// quarantine is how many numbers are freed before the first of them is used again, where the table has
// that many: a handle that its owner has destroyed then finds nothing rather than somebody else's object.
const quarantine = 64

// Table holds up to a fixed count of objects under consecutive numbers. Memory grows with the objects in
// use (and the quarantine), not with the count. The zero value holds nothing; use New.
type Table[T any] struct {
	first uint32
	count int
	slots []slot[T]
	free  []uint32 // indices in the order they were freed, from head
	head  int
	live  int
}

type slot[T any] struct {
	value T
	used  bool
}

// New makes a table of numbers first to first+count-1.
func New[T any](first uint32, count int) Table[T] {
	return Table[T]{first: first, count: max(count, 0)}
}

// Add stores v under a number of its own. ok is false when all numbers are in use.
func (t *Table[T]) Add(v T) (number uint32, ok bool) {
	waiting := len(t.free) - t.head
	var i uint32
	switch {
	case waiting > 0 && (waiting > quarantine || len(t.slots) >= t.count):
		i = t.free[t.head]
		t.head++
		if t.head > quarantine && t.head > len(t.free)/2 {
			t.free = t.free[:copy(t.free, t.free[t.head:])]
			t.head = 0
		}
	case len(t.slots) < t.count:
		i = uint32(len(t.slots))
		t.slots = append(t.slots, slot[T]{})
	default:
		return 0, false
	}
	t.slots[i] = slot[T]{value: v, used: true}
	t.live++
	return t.first + i, true
}

// Get returns the object of a number, or the zero value and false.
func (t *Table[T]) Get(number uint32) (v T, ok bool) {
	i := number - t.first // wraps to a large index below first
	if uint64(i) >= uint64(len(t.slots)) {
		return v, false
	}
	s := &t.slots[i]
	return s.value, s.used
}

// Remove forgets the object of a number and reports whether there was one.
func (t *Table[T]) Remove(number uint32) bool {
	i := number - t.first
	if uint64(i) >= uint64(len(t.slots)) || !t.slots[i].used {
		return false
	}
	t.slots[i] = slot[T]{}
	t.free = append(t.free, i)
	t.live--
	return true
}

// Full reports whether Add would fail.
func (t *Table[T]) Full() bool { return t.live >= t.count }

// Len is the number of objects.
func (t *Table[T]) Len() int { return t.live }

// Each calls f for the objects in the order of their numbers until it returns false. f may remove the
// object it is called with.
func (t *Table[T]) Each(f func(number uint32, v T) bool) {
	for i := range t.slots {
		if s := t.slots[i]; s.used && !f(t.first+uint32(i), s.value) {
			return
		}
	}
}

// Clear forgets all objects and starts numbering over, as a reset does.
func (t *Table[T]) Clear() {
	*t = Table[T]{first: t.first, count: t.count}
}
