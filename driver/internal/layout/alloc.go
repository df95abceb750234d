package layout

// page takes a fresh page: one in hand, or of a new block.
func (q *Queue) page() (page uint32, ok bool) {
	if len(q.idle) == 0 && !q.allocate() {
		return 0, false
	}
	last := len(q.idle) - 1
	page = q.idle[last]
	q.idle = q.idle[:last]
	q.stats.Fresh++
	return page, true
}

// allocate takes a block of the order that worked last and splits it. A failure lowers the order at once.
func (q *Queue) allocate() bool {
	q.climb()
	for {
		fits := q.stats.Held+1<<q.order <= q.config.Limit
		if fits {
			if page, ok := q.shared.pages.Alloc(q.order); ok {
				q.adopt(page, 1<<q.order)
				return true
			}
		}
		if q.order == 0 {
			q.stats.Failed++
			if !fits {
				q.stats.Limited++
			}
			return false
		}
		if !fits {
			// A limit is no lack of memory: the remembered order stays.
			return q.allocateSingle()
		}
		q.order--
		q.stats.Drops++
	}
}

// allocateSingle takes one page, where a block would be beyond the limit.
func (q *Queue) allocateSingle() bool {
	if q.stats.Held >= q.config.Limit {
		q.stats.Failed++
		q.stats.Limited++
		return false
	}
	page, ok := q.shared.pages.Alloc(0)
	if !ok {
		q.stats.Failed++
		return false
	}
	q.adopt(page, 1)
	return true
}

// adopt makes pages of an allocated block the queue's own.
func (q *Queue) adopt(page, n int) {
	if n > 1 {
		q.shared.pages.Split(page, q.order)
	}
	for i := n - 1; i >= 0; i-- { // the first on top: slots that follow one another get neighbours
		b := info{home: uint16(q.config.Index)}
		if q.shared.pages.Unfit(page + i) {
			b.order = once
		}
		q.shared.info[page+i] = b
		q.idle = append(q.idle, uint32(page+i))
	}
	q.held(n)
}

func (q *Queue) held(n int) {
	q.stats.Held += n
	q.stats.Peak = max(q.stats.Peak, q.stats.Held)
}

// ticks is the time in RecoverPeriods.
func (q *Queue) ticks() int64 { return int64(q.config.Now() / RecoverPeriod) }

// climb raises the order by one for every RecoverPeriod that began since it was last called.
func (q *Queue) climb() {
	now := q.ticks()
	if steps := now - q.tick; steps > 0 {
		up := int(min(steps, int64(q.config.Order-q.order)))
		q.order += up
		q.stats.Climbs += uint64(up)
	}
	q.tick = now
}

// Order is the order that the next allocation tries first.
func (q *Queue) Order() int {
	q.climb()
	return q.order
}
