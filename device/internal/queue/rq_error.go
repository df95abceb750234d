package queue

import (
	"encoding/binary"

	"cxkit/prm"
)

// completeError completes the WQE at next with a syndrome, and moves the RQ to ERR.
func (q *RQ) completeError(syndrome prm.CQESyndrome) {
	if q.errorCQE(syndrome) {
		q.wq.advance()
	}
	q.toError()
}

// errorCQE writes an error CQE for the WQE at next: with its index, and with all that is left of its
// strides, which drivers add up whatever the opcode (reference 03 §4.2).
func (q *RQ) errorCQE(syndrome prm.CQESyndrome) bool {
	w := q.wq
	slot, ok := w.slot(q.env)
	if !ok {
		return false
	}
	cqe := q.config.CQ.next()
	if cqe == nil {
		return false
	}
	counter := w.next
	if w.config.Linked {
		counter = slot
	}
	var bytes uint32
	var id uint16
	if w.config.Strides > 0 {
		id, counter, bytes = slot, uint16(w.stride), byteCount(false, w.config.Strides-w.stride, 0)
	}
	putError(q.config.CQ, cqe, q.word1>>32, q.Number, uint32(counter)<<16|uint32(prm.CQEResponderError)<<4, syndrome, id, bytes)
	return true
}

// toError moves the RQ to ERR and flushes what is posted.
func (q *RQ) toError() {
	if q.state == prm.QueueStateERR {
		return
	}
	q.state = prm.QueueStateERR
	*q.env.Counters.ErrorQueues++
	q.flushPosted()
}

// flushPosted completes the WQEs that are posted with "flushed", at most a ring full. Those of an RMP are
// for its other RQs.
func (q *RQ) flushPosted() {
	w := q.wq
	if !q.config.Flush || q.config.Shared {
		return
	}
	w.poll(q.env)
	for range int(w.mask) + 1 {
		if w.next == w.posted || !q.errorCQE(prm.CQESyndromeFlushed) {
			return
		}
		w.advance()
	}
}

// fault moves the RQ to ERR without a CQE: its own memory is gone. The event says so.
func (q *RQ) fault(typ prm.EventType) {
	q.state = prm.QueueStateERR
	*q.env.Counters.ErrorQueues++
	q.env.Events.QueueError(typ, prm.EventQueueRQ, q.Number)
}

// putErrorCQE writes a send queue's error CQE. word is the last dword without the owner bit. ok is false
// when the CQ can't take it.
func putErrorCQE(cq *CQ, userIndex uint64, number uint32, opcode uint8, word uint32, syndrome prm.CQESyndrome) (ok bool) {
	cqe := cq.next()
	if cqe == nil {
		return false
	}
	putError(cq, cqe, userIndex, uint32(opcode)<<24|number, word, syndrome, 0, 0)
	return true
}

// putError fills an error CQE that cq.next returned.
func putError(cq *CQ, cqe []byte, userIndex uint64, number, word uint32, syndrome prm.CQESyndrome, id uint16, bytes uint32) {
	be := binary.BigEndian
	clear(cqe[:0x20])
	be.PutUint16(cqe[0x02:], id)
	be.PutUint64(cqe[0x20:], userIndex<<32)
	be.PutUint64(cqe[0x28:], uint64(bytes))
	be.PutUint64(cqe[0x30:], uint64(syndrome))
	be.PutUint32(cqe[0x38:], number)
	cq.done(cqe, word)
}
