package queue

// Filter decides what becomes of completions. An honest card has none, and writes them all.
type Filter interface {
	// Completion is asked about a CQE whose last dword, without the owner bit, is word. If it returns
	// false the CQE is not written, and takes no place in its CQ: it is lost, or the filter has copied it
	// and calls CQ.Late.
	Completion(q *CQ, cqe *[cqeSize]byte, word uint32) bool
}

// Late writes a CQE that a filter kept back. It reports false if the CQ can't take it. Called like the
// queues' own work: after Env.Begin, with Env.Flush to follow.
func (q *CQ) Late(cqe *[cqeSize]byte, word uint32) bool {
	if q.status != CQOK {
		return false
	}
	if !q.listed {
		q.begin()
	}
	q.flush()
	if q.producer == q.limit && !q.room(0) {
		return false
	}
	q.publish(cqe, word)
	return true
}
