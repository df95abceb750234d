// Package msix is the MSI-X table and the pending bits of one function, as transports keep them (PCI local
// bus specification 3.0, 6.8.2).
//
// Vectors are delivered by whatever the transport has (a channel, an eventfd). A driver that talks to the
// transport instead of the table never writes the table, so a vector's mask bit, which is set at reset,
// holds vectors back only once the driver has written it. A vector that is masked, or that has nobody to
// be delivered to, stays pending and is delivered once when that ends.
package msix

import "sync"

const (
	entrySize   = 16
	controlByte = 12 // of the dword whose bit 0 masks the vector
)

// Table is the state of all vectors of a function. Its methods may be called from any goroutine.
type Table struct {
	deliver func(vector int) bool

	mu      sync.Mutex // guards the rest, and serialises deliver
	bytes   []byte     // the table as software reads it
	vectors []vector
	masked  bool // Function Mask of the capability
}

type vector struct {
	masked  bool // by the table's mask bit, once written, or by Mask
	pending bool
}

// New makes the table of n vectors. deliver passes a vector on and reports whether there was somebody to
// take it; it is called with the table locked, must not block and must not call the table.
func New(n int, deliver func(vector int) bool) *Table {
	t := &Table{deliver: deliver, bytes: make([]byte, n*entrySize), vectors: make([]vector, n)}
	t.reset()
	return t
}

// Len is the number of vectors.
func (t *Table) Len() int { return len(t.vectors) }

// Raise delivers a vector or keeps it pending. Vectors that do not exist are ignored: the card checks
// them where they are configured.
func (t *Table) Raise(v int) {
	if v < 0 || v >= len(t.vectors) {
		return
	}
	t.mu.Lock()
	t.vectors[v].pending = true
	t.tryDeliver(v)
	t.mu.Unlock()
}

// tryDeliver delivers v if it is pending and nothing holds it back.
func (t *Table) tryDeliver(v int) {
	s := &t.vectors[v]
	if s.pending && !s.masked && !t.masked && t.deliver(v) {
		s.pending = false
	}
}

// Ready says that v has somebody to be delivered to now.
func (t *Table) Ready(v int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tryDeliver(v)
}

// Mask masks or unmasks a vector as a write of its mask bit does.
func (t *Table) Mask(v int, masked bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bytes[v*entrySize+controlByte] &^= 1
	if masked {
		t.bytes[v*entrySize+controlByte] |= 1
	}
	t.vectors[v].masked = masked
	t.tryDeliver(v)
}

// SetFunctionMask is the capability's Function Mask bit.
func (t *Table) SetFunctionMask(masked bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.masked
	t.masked = masked
	if was && !masked {
		for v := range t.vectors {
			t.tryDeliver(v)
		}
	}
}

// Reset brings the table to its state after a reset: nothing pending, no addresses, mask bits set.
func (t *Table) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reset()
}

func (t *Table) reset() {
	clear(t.bytes)
	clear(t.vectors)
	t.masked = false
	for v := range t.vectors {
		t.bytes[v*entrySize+controlByte] = 1
	}
}

// Read fills p from the table at off; what is outside reads as zero.
func (t *Table) Read(off uint64, p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	copyFrom(p, t.bytes, off)
}

// Write writes p to the table at off. Of a vector control dword only the mask bit can be written.
func (t *Table) Write(off uint64, p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, b := range p {
		at := off + uint64(i)
		if at >= uint64(len(t.bytes)) {
			return
		}
		switch at % entrySize {
		default:
			t.bytes[at] = b
		case controlByte:
			v := int(at / entrySize)
			t.bytes[at] = b & 1
			t.vectors[v].masked = b&1 != 0
			t.tryDeliver(v)
		case controlByte + 1, controlByte + 2, controlByte + 3: // reserved
		}
	}
}

// ReadPending fills p from the pending bits at off; what is outside reads as zero. They can't be written.
func (t *Table) ReadPending(off uint64, p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range p {
		p[i] = 0
		first := (off + uint64(i)) * 8
		for bit := range uint64(8) {
			if v := first + bit; v < uint64(len(t.vectors)) && t.vectors[v].pending {
				p[i] |= 1 << bit
			}
		}
	}
}

func copyFrom(p, b []byte, off uint64) {
	clear(p)
	if off < uint64(len(b)) {
		copy(p, b[off:])
	}
}
