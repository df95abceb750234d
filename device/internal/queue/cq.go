package queue

import (
	"encoding/binary"

	"cxkit/device/internal/object"
	"cxkit/dma"
	"cxkit/prm"
)

// cqeSize is the size of a CQE; the stride of entries may be larger.
const cqeSize = 64

// counterMask is the width of CQ counters: 24 bits.
const counterMask = 1<<24 - 1

// Values of cqc.status.
const (
	CQOK           = 0
	CQOverflow     = 9
	CQWriteFailure = 0xa
)

// CQConfig describes a CQ.
type CQConfig struct {
	Buffer  Buffer
	Record  Record
	LogSize uint8
	// Stride is log2 of the distance of entries: 6, or 7 with the CQE in the second half.
	Stride uint8
	// Collapsed: every CQE goes to entry 0. OverrunIgnore: write on when the consumer has not kept up.
	Collapsed, OverrunIgnore bool
	// Compress: like completions of a burst become one session, in the format given.
	Compress bool
	Format   uint8
	// EQN takes completion events, UAR is the page whose doorbells arm the CQ.
	EQN uint8
	UAR uint32
	// Uses is what else the CQ holds: the memory of its ring and record, if it has a number.
	Uses object.Uses
	// Context is the CQ context as created and modified, for QUERY_CQ.
	Context prm.CQContext
}

// arming is what the consumer waits for.
type arming uint8

const (
	disarmed arming = iota
	armedAny
	armedSolicited
)

// CQ is a completion queue. RQs and SQs that complete to it hold it.
type CQ struct {
	object.Refs
	Number uint32

	env    *Env
	config CQConfig
	mask   uint32 // of slots
	offset int    // of the CQE in its entry

	producer uint32 // counts CQEs, 24 bits
	consumer uint32 // as last read from the record
	limit    uint32 // the producer at which the record has to be read again
	epoch    uint64
	status   uint8

	unpublished int // CQEs of the burst; the first one's last dword is not yet written
	firstSlot   []byte
	firstWord   uint32
	listed      bool        // in env.open
	compress    *compressor // nil: completions are written as they are

	armed        arming
	fired        bool   // an event was sent since the last arm
	armedAt      uint32 // the consumer counter that the arm doorbell carried
	solicited    uint32 // producer after the last solicited CQE
	hasSolicited bool
	notified     uint32 // producer when the last event was sent
	armWord      uint32 // the record's arm dword as last seen: mapped.go
	moderation   moderation
	scratch      [cqeSize]byte
}

// NewCQ makes a CQ; its number is set before it is used.
func NewCQ(e *Env, c CQConfig) *CQ {
	q := &CQ{env: e, config: c, mask: 1<<c.LogSize - 1}
	if c.Stride == 7 {
		q.offset = cqeSize
	}
	q.limit = q.producer + 1<<c.LogSize
	if c.Compress {
		q.compress = &compressor{format: c.Format}
	}
	return q
}

// Config is the CQ's configuration; what MODIFY_CQ may change in it takes effect at once.
func (q *CQ) Config() *CQConfig { return &q.config }

// Working reports whether the CQ takes completions.
func (q *CQ) Working() bool { return q.status == CQOK }

// Query fills the fields of a context that the card reports.
func (q *CQ) Query() prm.CQContext {
	c := q.config.Context
	c.Status = q.status
	switch {
	case q.armed == armedAny:
		c.ST = prm.CQStateArmed
	case q.armed == armedSolicited:
		c.ST = prm.CQStateSolicitedArmed
	case q.fired:
		c.ST = prm.CQStateFired
	}
	c.LastNotifiedIndex = q.notified
	c.LastSolicitIndex = q.solicited
	c.ConsumerCounter, c.ProducerCounter = q.consumer, q.producer
	return c
}

// slot is next where that takes no look-up: within a burst, on a mapped ring that has room. It is nil
// otherwise.
func (q *CQ) slot() []byte {
	if q.unpublished == 0 || q.producer == q.limit || q.compress != nil {
		return nil
	}
	off := uint(q.producer&q.mask)<<q.config.Stride + uint(q.offset)
	if flat := q.config.Buffer.flat; off+cqeSize <= uint(len(flat)) {
		return flat[off : off+cqeSize]
	}
	return nil
}

// next returns the 64 bytes of the next CQE, nil if the CQ can't take one. The caller fills the first 60
// and calls done.
func (q *CQ) next() []byte {
	if q.compress != nil && q.env.Filter == nil { // a filter wants to see each
		return q.stage()
	}
	return q.ringSlot()
}

// ringSlot is next without compression.
func (q *CQ) ringSlot() []byte {
	if q.status != CQOK {
		return nil
	}
	if !q.listed {
		q.begin()
	}
	if q.producer == q.limit && !q.room(0) {
		return nil
	}
	if q.env.Filter != nil {
		return q.scratch[:]
	}
	if slot := q.config.Buffer.view(q.env, q.place(), cqeSize); slot != nil {
		return slot
	}
	return q.scratch[:]
}

// place is where the next CQE goes.
func (q *CQ) place() int {
	if q.config.Collapsed {
		return q.offset
	}
	return int(q.producer&q.mask)<<q.config.Stride + q.offset
}

// begin checks the views once a step and takes note that the CQ has a burst to end.
func (q *CQ) begin() {
	q.refresh()
	q.listed = true
	q.env.open = append(q.env.open, q)
}

// refresh makes the views right for the present step.
func (q *CQ) refresh() {
	if q.epoch != q.env.epoch {
		q.epoch = q.env.epoch
		q.config.Buffer.refresh(q.env)
		q.config.Record.refresh(q.env)
	}
}

// room finds out whether the entry that is pending entries behind the producer is free, and sets limit to
// where it is not.
func (q *CQ) room(pending int) bool {
	size := q.mask + 1
	if q.config.OverrunIgnore || q.config.Collapsed {
		q.flush() // a burst is at most one round, or it would overwrite its own first entry
		q.limit = (q.producer + size) & counterMask
		return true
	}
	// Partner: the driver's store of the record after it has read the entries before the counter.
	consumer, ok := q.config.Record.load(q.env, 0)
	if !ok {
		q.fail(CQWriteFailure)
		return false
	}
	consumer &= counterMask
	used := (q.producer - consumer) & counterMask
	if used+uint32(pending) >= size { // full, or a counter that no driver can have reached
		q.fail(CQOverflow)
		return false
	}
	q.consumer = consumer
	q.limit = (consumer + size) & counterMask
	return true
}

// done completes the CQE at slot, which next returned: word is its last dword without the owner bit.
func (q *CQ) done(slot []byte, word uint32) {
	if c := q.compress; c != nil && &slot[0] == &c.stage[0] {
		q.add(word)
		return
	}
	q.put(slot, word)
}

// put is done without compression.
func (q *CQ) put(slot []byte, word uint32) {
	if &slot[0] == &q.scratch[0] {
		q.apart(word)
		return
	}
	word = q.count(word)
	switch {
	case q.unpublished != 0: // the rest of a burst
		binary.BigEndian.PutUint32(slot[60:cqeSize], word)
		q.unpublished++
	case q.config.Collapsed:
		dma.StoreBE32(slot, 60, word) // partner: the driver's load; there is no burst in one entry
	default:
		q.firstSlot, q.firstWord, q.unpublished = slot, word, 1
	}
}

// count moves the producer over a CQE and adds the owner bit to its last dword.
func (q *CQ) count(word uint32) uint32 {
	word |= q.producer >> q.config.LogSize & 1
	q.producer = (q.producer + 1) & counterMask
	if word&cqeSolicited != 0 {
		q.solicited, q.hasSolicited = q.producer, true
	}
	return word
}

// cqeSolicited is the bit of the last dword that asks for a solicited event.
const cqeSolicited = 1 << 1

// apart completes the CQE in scratch: one whose place has no view, or that a filter looks at first.
func (q *CQ) apart(word uint32) {
	if f := q.env.Filter; f != nil && !f.Completion(q, &q.scratch, word) {
		return
	}
	q.publish(&q.scratch, word)
}

// publish writes a CQE by itself, after what came before it.
func (q *CQ) publish(cqe *[cqeSize]byte, word uint32) {
	off := q.place()
	word = q.count(word)
	q.flush()
	if slot := q.config.Buffer.view(q.env, off, cqeSize); slot != nil {
		copy(slot[:60], cqe[:60])
		dma.StoreBE32(slot, 60, word) // partner: the driver's load
		return
	}
	binary.BigEndian.PutUint32(cqe[60:], word)
	pages := q.config.Buffer.pages
	err := pages.Write(q.env.mem, off, cqe[:60])
	if err == nil {
		err = pages.Write(q.env.mem, off+60, cqe[60:])
	}
	if err != nil {
		q.fail(CQWriteFailure)
	}
}

// flush publishes the burst: see the package comment.
func (q *CQ) flush() {
	if q.compress != nil {
		q.endSession()
	}
	if q.unpublished != 0 {
		q.unpublished = 0
		dma.StoreBE32(q.firstSlot, 60, q.firstWord)
		q.firstSlot = nil
	}
}

// notify sends the completion event that an armed CQ owes, or holds it back.
func (q *CQ) notify(atOnce bool) {
	if q.armed == disarmed {
		return
	}
	waiting := (q.producer - q.armedAt) & counterMask
	if waiting == 0 {
		return
	}
	if q.armed == armedSolicited {
		// Solicited CQEs that lie at or after the armed index.
		if !q.hasSolicited || (q.solicited-q.armedAt-1)&counterMask >= waiting {
			return
		}
	}
	if !atOnce && !q.due(waiting) {
		return
	}
	q.sent()
	q.armed, q.fired = disarmed, true
	q.notified = q.producer
	q.env.Events.Completion(q.config.EQN, q.Number)
}

// Arm asks for one event: word is the arm dword, sn[29:28], cmd[24], ci[23:0]. If CQEs at or after ci are
// there already the event is sent at once, without which a driver that arms after its last look would
// wait for ever. Arming an armed CQ again changes nothing but what it waits for. sn is not checked: an
// event too many does no harm.
func (q *CQ) Arm(word uint32) {
	if q.status != CQOK {
		return
	}
	q.armed, q.fired = armedAny, false
	if word>>24&1 != 0 {
		q.armed = armedSolicited
	}
	q.armedAt = word & counterMask
	q.moderation.waits = false
	if q.unpublished == 0 {
		q.notify(true)
	}
}

// fail ends the CQ. What is complete is published; the driver learns of the rest from the CQ error event.
func (q *CQ) fail(status uint8) {
	q.flush()
	q.status = status
	syndrome := prm.CQErrorAccessViolation
	if status == CQOverflow {
		syndrome = prm.CQErrorOverrun
		*q.env.Counters.CQOverrun++
	}
	q.env.Events.CQError(q.Number, syndrome)
}
