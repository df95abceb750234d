package queue

import (
	"encoding/binary"

	"cxkit/device/internal/mkey"
	"cxkit/device/internal/object"
	"cxkit/prm"
)

const (
	// LogBB is log2 of the size of a WQEBB, the unit of send queues.
	LogBB  = 6
	bbSize = 1 << LogBB
	// maxUnits is the largest WQE: 63 units of 16 bytes.
	maxUnits = 16
)

// SQConfig describes an SQ.
type SQConfig struct {
	Buffer     Buffer
	Record     Record
	LogSize    uint8 // log2 of WQEBBs
	CQ         *CQ
	User       mkey.User
	UAR        uint32 // the page whose doorbells it obeys
	Flush      bool   // flush_in_error_en
	InlineMode prm.InlineMode
	NoSend     bool // it has no TIS: only NOPs and UMR
	RegUMR     bool // reg_umr: UMR is allowed
	RealTime   bool // ts_format
	// MultiPacket: the card knows enhanced multi-packet WQEs.
	MultiPacket bool
	UserIndex   uint32
	Priority    uint8         // of its TIS, 0 to 7
	Uses        object.Uses   // the memory of its ring and record, if it has a number
	Context     prm.SQContext // as created and modified, for QUERY_SQ
}

// Priority is the class whose pauses stop the SQ, 0 to 7.
func (q *SQ) Priority() uint8 { return q.config.Priority }

// SQ is a send queue.
type SQ struct {
	object.Refs
	Number uint32
	// Pending is the scheduler's mark: the SQ is in its list.
	Pending bool

	env    *Env
	config SQConfig
	mask   uint16
	state  prm.QueueState
	epoch  uint64
	grant  grant

	next uint16 // WQEBB counter of the WQE to be executed
	// segment is how many segments of it were sent, if it is an LSO WQE that the wire took a part of.
	segment int
	posted  uint16 // as last read from the record

	rung  uint16 // the record when the SQ was last found to be rung: mapped.go
	fresh bool   // it was not, since it left RST
}

// NewSQ makes an SQ in RST; its number is set before it is used.
func NewSQ(e *Env, c SQConfig) *SQ {
	return &SQ{env: e, config: c, mask: 1<<c.LogSize - 1, state: prm.QueueStateRST}
}

// Config is the SQ's configuration.
func (q *SQ) Config() *SQConfig { return &q.config }

// State is the SQ's state.
func (q *SQ) State() prm.QueueState { return q.state }

// Query fills the fields of a context that the card reports.
func (q *SQ) Query() prm.SQContext {
	c := q.config.Context
	c.State = q.state
	c.WQ.HWCounter, c.WQ.SWCounter = uint32(q.next), uint32(q.posted)
	return c
}

// SetState moves the SQ. The caller has checked that the transition exists.
func (q *SQ) SetState(s prm.QueueState) {
	if s == q.state {
		return
	}
	if s == prm.QueueStateERR {
		q.toError()
		return
	}
	q.state = s
	if s == prm.QueueStateRST {
		q.next, q.posted, q.segment = 0, 0, 0
	}
}

// begin checks views once a step.
func (q *SQ) begin() {
	if q.epoch != q.env.epoch {
		q.epoch = q.env.epoch
		q.config.Buffer.refresh(q.env)
		q.config.Record.refresh(q.env)
	}
}

// poll reads how much is posted.
func (q *SQ) poll() bool {
	// Partner: the driver's store of the record after it has written WQEs.
	v, ok := q.config.Record.load(q.env, 4)
	if !ok {
		q.fault()
		return false
	}
	q.posted = uint16(v)
	return true
}

// Fetch reads posted WQEs, from the first that is not complete, and gathers their frames: as many as b
// takes. It changes nothing in the queue: Complete does, for those whose frames were sent, and Fetch
// reads the others again. more tells that b was too small for all. An SQ in ERR is flushed instead.
func (q *SQ) Fetch(b *Batch) (more bool) {
	b.reset()
	b.headers.LookInto(q.env.Tunnels)
	if q.state == prm.QueueStateRST {
		return false
	}
	q.begin()
	if q.state == prm.QueueStateERR {
		q.flushPosted()
		return false
	}
	if !q.poll() {
		return false
	}
	for at := q.next; at != q.posted; {
		if len(b.Items) == cap(b.Items) {
			return true
		}
		b.Items = b.Items[:len(b.Items)+1]
		it := &b.Items[len(b.Items)-1]
		if !q.decode(b, it, at) {
			b.Items = b.Items[:len(b.Items)-1]
			return q.state == prm.QueueStateRDY
		}
		it = &b.Items[len(b.Items)-1] // an LSO WQE makes several
		b.frames = b.frames || it.Frame != nil
		if it.part {
			return true
		}
		if it.syndrome != 0 {
			return false
		}
		at += uint16(it.units)
	}
	return false
}

// HasWork looks at the record once more: a doorbell that came during a burst asked for what is posted now.
func (q *SQ) HasWork() bool {
	return q.state == prm.QueueStateRDY && q.poll() && q.next != q.posted
}

// decode reads the WQE at counter at into it. false: b has no room for its frame, or the ring's memory
// is gone.
func (q *SQ) decode(b *Batch, it *Item, at uint16) bool {
	off := int(at&q.mask) << LogBB
	wqe, err := q.config.Buffer.entry(q.env, off, bbSize, b.wqe[:])
	if err != nil {
		q.fault()
		return false
	}
	head := binary.BigEndian.Uint32(wqe)
	ds := int(wqe[7] & 0x3f)
	left := q.posted - at
	*it = Item{
		counter: at, units: uint8(ds+3) / 4, opcode: prm.WQEOpcode(head),
		ce: prm.CompletionMode(wqe[11] >> 2 & 3),
	}
	// A counter that is more than a ring ahead, a WQE that is not posted to its end, or one that is not
	// where it says it is: the queue is out of step with its driver (reference 03 §6).
	if left > q.mask+1 && q.mask != 0xffff || ds == 0 || uint16(it.units) > left || uint16(head>>8) != at {
		it.units, it.syndrome = 1, prm.CQESyndromeLocalQPOp
		return true
	}
	if n := ds * segmentSize; n > bbSize {
		if wqe, err = q.config.Buffer.entry(q.env, off, n, b.wqe[:]); err != nil {
			q.fault()
			return false
		}
	} else {
		wqe = wqe[:n]
	}
	switch it.opcode {
	case prm.WQENop:
		return true
	case prm.WQESend:
		return q.send(b, it, wqe)
	case prm.WQELSO:
		return q.lso(b, it, wqe)
	case prm.WQEEnhancedMPSW:
		return q.multi(b, it, wqe)
	case prm.WQEUMR:
		if b.frames {
			return false // it waits until what was sent before it is complete
		}
		q.umr(b, it, wqe)
		return true
	}
	it.syndrome = prm.CQESyndromeLocalQPOp
	return true
}

// Complete completes the first n items of b: completions where the WQEs ask for them, and the error of
// the last one if it has one.
func (q *SQ) Complete(b *Batch, n int) {
	for i := range b.Items[:n] {
		it := &b.Items[i]
		if it.part {
			q.segment++
			continue
		}
		q.segment = 0
		if it.syndrome != 0 {
			q.completeError(it)
			return
		}
		if it.ce >= prm.CompletionAlways && !q.complete(it) {
			q.toError()
			return
		}
		q.next = it.counter + uint16(it.units)
	}
}

// complete writes a CQE. false: the CQ can't take it.
func (q *SQ) complete(it *Item) bool {
	cq := q.config.CQ
	cqe := cq.slot()
	if cqe == nil {
		if cqe = cq.next(); cqe == nil {
			return false
		}
	}
	word := uint32(it.counter)<<16 | uint32(prm.CQERequester)<<4
	if it.ce == prm.CompletionSolicitedEvent {
		word |= cqeSolicited
	}
	be := binary.BigEndian
	_ = cqe[cqeSize-1]
	clear(cqe[:0x20])
	be.PutUint64(cqe[0x20:], uint64(q.config.UserIndex)<<32)
	be.PutUint64(cqe[0x28:], 0)
	be.PutUint64(cqe[0x30:], q.env.time(q.config.RealTime))
	be.PutUint32(cqe[0x38:], uint32(it.opcode)<<24|q.Number)
	cq.done(cqe, word)
	return true
}

func (q *SQ) completeError(it *Item) {
	ok := putErrorCQE(q.config.CQ, uint64(q.config.UserIndex), q.Number, uint8(it.opcode),
		uint32(it.counter)<<16|uint32(prm.CQERequesterError)<<4, it.syndrome)
	if ok {
		q.next = it.counter + uint16(it.units)
	}
	q.toError()
}

// toError moves the SQ to ERR and flushes what is posted.
func (q *SQ) toError() {
	if q.state == prm.QueueStateERR {
		return
	}
	q.state, q.segment = prm.QueueStateERR, 0
	*q.env.Counters.ErrorQueues++
	if q.env.mem != nil {
		q.begin()
		q.flushPosted()
	}
}

// flushPosted completes every posted WQE with "flushed", each with its own counter: Linux waits for them
// before it recovers the queue (reference 03 §2.2). At most a ring full at a time.
func (q *SQ) flushPosted() {
	if !q.config.Flush {
		return
	}
	v, ok := q.config.Record.load(q.env, 4)
	if !ok {
		return
	}
	q.posted = uint16(v)
	for range int(q.mask) + 1 {
		if q.next == q.posted {
			return
		}
		var buf [bbSize]byte
		wqe, err := q.config.Buffer.entry(q.env, int(q.next&q.mask)<<LogBB, bbSize, buf[:])
		if err != nil {
			return
		}
		ok := putErrorCQE(q.config.CQ, uint64(q.config.UserIndex), q.Number, wqe[3],
			uint32(q.next)<<16|uint32(prm.CQERequesterError)<<4, prm.CQESyndromeFlushed)
		if !ok {
			return
		}
		units := uint16(wqe[7]&0x3f+3) / 4
		q.next += min(max(units, 1), q.posted-q.next)
	}
}

// fault moves the SQ to ERR without a CQE: its own memory is gone. The event says so.
func (q *SQ) fault() {
	q.state = prm.QueueStateERR
	*q.env.Counters.ErrorQueues++
	q.env.Events.QueueError(prm.EventWQAccess, prm.EventQueueSQ, q.Number)
}
