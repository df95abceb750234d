package layout

// halves is the circle of pages in doc.go.
type halves struct {
	q       *Queue
	step    uint32 // units from fragment to fragment
	perPage int
	circle  []uint32
	cursor  int // the oldest page in quarantine, or a place without a page
	search  int // where rescue found the last one
	next    uint32
	left    int // fragments of the current page that were not posted yet
}

func (h *halves) fill(dst []uint32) int {
	n := 0
	for n < len(dst) {
		if h.left == 0 {
			if k := h.recycle(dst[n:]); k > 0 {
				n += k
				continue
			}
			if !h.turn() {
				break
			}
		}
		part := dst[n:min(len(dst), n+h.left)]
		f := h.next
		for i := range part {
			part[i] = f
			f += h.step
		}
		h.next = f
		h.left -= len(part)
		n += len(part)
	}
	return n
}

// recycle posts whole pages of two fragments from the cursor on, as long as they are free: turn and fill for
// what happens nearly always.
func (h *halves) recycle(dst []uint32) (n int) {
	if h.perPage != 2 {
		return 0
	}
	known, circle, at, shift := h.q.shared.info, h.circle, h.cursor, h.q.shared.shift&31
	for len(dst) >= 2 && uint(at) < uint(len(circle)) {
		page := circle[at]
		if uint(page) >= uint(len(known)) || known[page].refs != 1 {
			break
		}
		known[page].refs = 3
		dst[0] = page << shift
		dst[1] = page<<shift + h.step
		dst = dst[2:]
		n += 2
		if at++; at == len(circle) {
			at = 0
		}
	}
	h.cursor = at
	h.q.stats.Recycled += uint64(n / 2)
	return n
}

// turn makes the page at the cursor the current one: the page that is there if it is free, else a fresh one.
func (h *halves) turn() bool {
	q := h.q
	known := q.shared.info
	page := h.circle[h.cursor]
	switch {
	case page != noPage && known[page].refs == 1:
		q.stats.Recycled++
	default:
		fresh, ok := q.page()
		if !ok {
			if page, ok = h.rescue(); !ok {
				return false
			}
			break
		}
		if page != noPage {
			q.stats.Missed++
			q.drop(page, 1)
		}
		page = fresh
		h.circle[h.cursor] = page
	}
	b := &known[page]
	b.refs = uint16(1 + h.perPage)
	if b.order == once {
		b.refs--
		h.circle[h.cursor] = noPage
	}
	b.size, b.head = uint8(h.step-1), false
	h.next, h.left = page<<q.shared.shift, h.perPage
	if h.cursor++; h.cursor == len(h.circle) {
		h.cursor = 0
	}
	return true
}

// rescue brings a free page from elsewhere in the circle to the cursor: receiving must not stall while there
// is one. It searches once after something was released, from where it found the last one on: pages are mostly
// released in the order they were posted in, so the next free one is near.
func (h *halves) rescue() (page uint32, ok bool) {
	if !h.q.freed {
		return 0, false
	}
	for range h.circle {
		if h.search++; h.search >= len(h.circle) {
			h.search = 0
		}
		h.q.stats.Searched++
		if page := h.circle[h.search]; page != noPage && h.q.shared.info[page].refs == 1 {
			h.circle[h.search], h.circle[h.cursor] = h.circle[h.cursor], page
			h.q.stats.Rescued++
			return page, true
		}
	}
	h.q.freed = false
	return 0, false
}

func (h *halves) retire() {
	if h.left > 0 {
		h.q.drop((h.next-1)>>h.q.shared.shift, h.left)
		h.left = 0
	}
	for i, page := range h.circle {
		if page != noPage {
			h.circle[i] = noPage
			h.q.drop(page, 1)
		}
	}
}

func (h *halves) pooled() (n int) {
	for _, page := range h.circle {
		if page != noPage {
			n++
		}
	}
	return n
}
