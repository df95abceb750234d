package queue

import "cxkit/prm"

// What doorbells say where they are memory that the host maps: of all SQs of a page, and of all its CQs, only
// the last write is there, so it is a hint to look at the doorbell records, which drivers store before they
// ring (reference 03 §12). The step has begun for all of this.

// Rung reports whether the SQ's record has moved since it was last asked, and where to. named tells that the
// SQ is the one of the last write.
func (q *SQ) Rung(named bool) (index uint16, rung bool) {
	if q.state == prm.QueueStateRST {
		return 0, false
	}
	q.begin()
	v, ok := q.config.Record.load(q.env, 4)
	if !ok {
		return 0, true // whoever fetches finds out, and ends the SQ
	}
	index = uint16(v)
	// A record that was not cleared while the SQ was reset may show where it is to go by chance.
	rung = index != q.rung || named && q.fresh
	q.rung = index
	if rung {
		q.fresh = false
	}
	return index, rung
}

// Start takes the record as it is when the SQ leaves RST for one that has not been rung: drivers need not
// clear it (Linux does not when it recovers an SQ).
func (q *SQ) Start() {
	q.begin()
	q.fresh = true
	if v, ok := q.config.Record.load(q.env, 4); ok {
		q.rung = uint16(v)
	}
}

// Start arms a new CQ: a first arm for the first CQE looks like the record before it.
func (q *CQ) Start() {
	q.refresh()
	if v, ok := q.config.Record.load(q.env, 4); ok {
		q.armWord = v
	}
	q.Arm(0)
}

// Rearmed reports whether the CQ's record has a new arm dword: drivers count the events they have seen in it.
func (q *CQ) Rearmed() (word uint32, yes bool) {
	q.refresh()
	v, ok := q.config.Record.load(q.env, 4)
	if !ok || v == q.armWord {
		return 0, false
	}
	q.armWord = v
	return v, true
}
