package layout

// perSlot gives each frame a page of its own.
type perSlot struct {
	q     *Queue
	first uint32 // units in front of the frame
	size  int    // units
}

func (p *perSlot) fill(dst []uint32) int {
	q := p.q
	for i := range dst {
		page, ok := q.page()
		if !ok {
			return i
		}
		b := &q.shared.info[page]
		b.refs, b.size, b.head = 1, uint8(p.size-1), p.first != 0
		dst[i] = page<<q.shared.shift + p.first
	}
	return len(dst)
}

func (p *perSlot) retire()     {}
func (p *perSlot) pooled() int { return 0 }

// flip keeps a page for each slot: of two halves it uses the one that is free, on larger pages one fragment
// after the other until the page is used up (mlx4 en_rx.c, mlx4_en_complete_rx_desc).
type flip struct {
	q       *Queue
	size    int // units
	perPage int
	slots   []slot
	cursor  int
	search  int // where rescue found the last one
}

// slot is a page and which of its fragments was posted last.
type slot struct {
	page uint32
	at   int
}

func (f *flip) fill(dst []uint32) int {
	for i := range dst {
		s, ok := f.turn(&f.slots[f.cursor])
		if !ok {
			return i
		}
		dst[i] = s.page<<f.q.shared.shift + uint32(s.at*f.size)
		if f.cursor++; f.cursor == len(f.slots) {
			f.cursor = 0
		}
	}
	return len(dst)
}

// turn chooses the slot's next fragment.
func (f *flip) turn(s *slot) (next slot, ok bool) {
	q := f.q
	known := q.shared.info
	if s.page != noPage {
		b := &known[s.page]
		switch at := s.at + 1; {
		case f.perPage == 2 && b.busy&(1<<(at&1)) == 0:
			s.at = at & 1
			b.busy |= 1 << s.at
			b.refs++
			q.stats.Recycled++
			return *s, true
		case f.perPage > 2 && at < f.perPage:
			s.at = at
			b.refs++
			q.stats.Recycled++
			return *s, true
		}
	}
	fresh, ok := q.page()
	if !ok {
		ok = f.rescue(s)
		return *s, ok
	}
	if s.page != noPage {
		q.stats.Missed++
		q.drop(s.page, 1)
	}
	next = slot{page: fresh}
	*s = next
	b := &known[fresh]
	b.refs, b.size, b.busy, b.head = 2, uint8(f.size-1), 0, false
	if f.perPage == 2 {
		b.busy = 1
	}
	if b.order == once {
		b.refs--
		s.page = noPage
	}
	return next, true
}

// rescue exchanges s, whose page is in use, with a slot whose page has a free fragment: also one that was posted
// before, of a page of which all is back. It searches once after something was released, as halves.rescue does.
func (f *flip) rescue(s *slot) bool {
	if !f.q.freed {
		return false
	}
	for range f.slots {
		if f.search++; f.search >= len(f.slots) {
			f.search = 0
		}
		f.q.stats.Searched++
		o := &f.slots[f.search]
		at, ok := f.free(o)
		if !ok {
			continue
		}
		b := &f.q.shared.info[o.page]
		*s, *o = slot{page: o.page, at: at}, *s
		b.refs++
		if f.perPage == 2 {
			b.busy |= 1 << at
		}
		f.q.stats.Rescued++
		return true
	}
	f.q.freed = false
	return false
}

// free finds a fragment of a slot's page that nobody has.
func (f *flip) free(s *slot) (at int, ok bool) {
	if s.page == noPage {
		return 0, false
	}
	b := &f.q.shared.info[s.page]
	switch {
	case f.perPage == 2:
		return int(b.busy & 1), b.busy != 3
	case b.refs == 1:
		return 0, true
	}
	return s.at + 1, s.at+1 < f.perPage
}

func (f *flip) retire() {
	for i := range f.slots {
		if page := f.slots[i].page; page != noPage {
			f.slots[i].page = noPage
			f.q.drop(page, 1)
		}
	}
}

func (f *flip) pooled() (n int) {
	for i := range f.slots {
		if f.slots[i].page != noPage {
			n++
		}
	}
	return n
}

// striding fills blocks of one order: where there is none, there is nothing to receive into.
type striding struct {
	q        *Queue
	order    int
	step     uint32
	perBlock int
	block    uint32
	next     uint32
	left     int
}

func (s *striding) fill(dst []uint32) int {
	for i := range dst {
		if s.left == 0 && !s.turn() {
			return i
		}
		dst[i] = s.next
		s.next += s.step
		s.left--
	}
	return len(dst)
}

func (s *striding) turn() bool {
	page, ok := s.take()
	if !ok {
		return false
	}
	b := &s.q.shared.info[page]
	b.refs, b.size, b.head = uint16(s.perBlock), uint8(s.step-1), false
	s.block = page
	s.next, s.left = page<<s.q.shared.shift, s.perBlock
	return true
}

// take allocates a block.
func (s *striding) take() (page uint32, ok bool) {
	q := s.q
	if s.order == 0 {
		return q.page()
	}
	if q.stats.Held+1<<s.order > q.config.Limit {
		q.stats.Failed++
		q.stats.Limited++
		return 0, false
	}
	first, ok := q.shared.pages.Alloc(s.order)
	if !ok {
		q.stats.Failed++
		return 0, false
	}
	for i := range 1 << s.order {
		q.shared.info[first+i] = info{home: uint16(q.config.Index), order: uint8(s.order)}
	}
	q.held(1 << s.order)
	q.stats.Fresh += 1 << s.order
	return uint32(first), true
}

// retire gives up what is left of the current block.
func (s *striding) retire() {
	if s.left > 0 {
		s.q.drop(s.block, s.left)
		s.left = 0
	}
}

func (s *striding) pooled() int { return 0 }
