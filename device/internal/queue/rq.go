package queue

import (
	"encoding/binary"
	"hash/crc32"

	"cxkit/device/internal/mkey"
	"cxkit/device/internal/object"
	"cxkit/device/internal/packet"
	"cxkit/pci"
	"cxkit/prm"
)

// RQConfig describes an RQ.
type RQConfig struct {
	// WQ is the ring it takes WQEs from; Shared: it is an RMP's.
	WQ         *WQ
	Shared     bool
	CQ         *CQ
	User       mkey.User
	KeepVLAN   bool // vsd
	ScatterFCS bool
	Flush      bool // flush_in_error_en
	RealTime   bool // ts_format
	// OutOfBuffer counts frames that found no WQE, nil if nobody wants to know. Whoever calls Receive
	// moves it.
	OutOfBuffer *uint32
	Context     prm.RQContext // as created and modified, for QUERY_RQ
}

// RQ is a receive queue. RQTs and TIRs that lead to it hold it.
type RQ struct {
	object.Refs
	Number uint32

	env    *Env
	config RQConfig
	wq     *WQ
	state  prm.QueueState
	grant  grant
	plain  bool // cyclic, a WQE a frame, tags are not told from data: the usual queue

	word0 uint64 // constant parts of CQEs: flags_rqpn
	word1 uint64 // srqn_uidx
}

// NewRQ makes an RQ in RST; SetNumber is called before it is used.
func NewRQ(e *Env, c RQConfig) *RQ {
	q := &RQ{env: e, config: c, wq: c.WQ, state: prm.QueueStateRST}
	q.plain = !c.WQ.config.headed() && !c.ScatterFCS
	return q
}

// SetScatterFCS makes the RQ write frame check sequences, or not.
func (q *RQ) SetScatterFCS(on bool) {
	q.config.ScatterFCS, q.config.Context.ScatterFCS = on, on
	q.plain = !q.wq.config.headed() && !on
}

// Striding reports whether WQEs are for several frames.
func (q *RQ) Striding() bool { return q.wq.config.Strides > 0 }

// Longest is the longest frame that a WQE of a striding RQ holds, in bytes.
func (q *RQ) Longest() int {
	w := q.wq
	return w.config.Strides<<w.config.LogStrideSize - w.shift()
}

// SetNumber gives the RQ its number, and what its completions carry in srqn_uidx.
func (q *RQ) SetNumber(n, userIndex uint32) {
	q.Number = n
	q.config.User.QPN = n
	q.word0, q.word1 = uint64(n)<<32, uint64(userIndex)<<32
}

// Config is the RQ's configuration; what MODIFY_RQ may change in it takes effect at once.
func (q *RQ) Config() *RQConfig { return &q.config }

// State is the RQ's state.
func (q *RQ) State() prm.QueueState { return q.state }

// Query fills the fields of a context that the card reports.
func (q *RQ) Query() prm.RQContext {
	c := q.config.Context
	c.State = q.state
	c.WQ.HWCounter, c.WQ.SWCounter = uint32(q.wq.next), uint32(q.wq.posted)
	return c
}

// SetState moves the RQ. The caller has checked that the transition exists. The ring of an RMP is left as
// it is.
func (q *RQ) SetState(s prm.QueueState) {
	if s == q.state {
		return
	}
	q.state = s
	switch s {
	case prm.QueueStateRST:
		if !q.config.Shared {
			q.wq.reset()
		}
	case prm.QueueStateERR:
		*q.env.Counters.ErrorQueues++
		if q.env.mem != nil {
			q.wq.begin(q.env)
			q.flushPosted()
		}
	}
}

// Frame is a received frame and what the card knows about it.
type Frame struct {
	// Data is the frame without FCS, at least packet.EthernetLen bytes; Headers are those of Data.
	Data    []byte
	Headers *packet.Headers
	// Hash and HashType are what the TIR made of it, Tag is the flow tag (24 bits).
	Hash     uint32
	HashType uint8
	Tag      uint32
	// Tunnelled: the completion is to tell of the headers in the tunnel.
	Tunnelled bool
	// Large is what is known of a frame that was put together from several; nil for others.
	Large *Large
}

// Large is what a completion tells of a large receive (reference 06 §4): Segments frames of one TCP
// connection, the headers of the first and the payload of all.
type Large struct {
	Segments uint8
	MinTTL   uint8
	Push     bool
	Window   uint16 // the last one's
	Ack      uint32 // the last one's
}

// Outcome is what became of a frame.
type Outcome uint8

const (
	// Delivered: it is in memory and has a CQE.
	Delivered Outcome = iota
	// NoBuffer: no WQE is posted.
	NoBuffer
	// NotReady: the RQ is not in RDY, or its CQ has failed.
	NotReady
	// TooLong: it does not fit the WQE, which stays posted.
	TooLong
	// Failed: the WQE could not be used; the RQ is in ERR now.
	Failed
)

// Posted reports whether there is room for a frame of n bytes. A queue that is not in RDY counts as having
// it: a frame for it need not wait.
func (q *RQ) Posted(n int) bool {
	w := q.wq
	if q.state != prm.QueueStateRDY || w.stopped {
		return true
	}
	w.begin(q.env)
	if w.stride > 0 && w.stride+w.strides(n+frameSlack) > w.config.Strides {
		// What is left of the WQE is too little: there has to be another.
		if w.next+1 != w.posted {
			return true
		}
		_, ok := w.poll(q.env)
		return !ok || w.next+1 != w.posted
	}
	if w.next != w.posted {
		return true
	}
	more, ok := w.poll(q.env)
	if !ok {
		q.fault(prm.EventWQAccess)
	}
	return more
}

// frameSlack is how much longer than the frame what is written may be: the FCS.
const frameSlack = 4

// ready reports whether a WQE is there, and what to say of the frame if not.
func (q *RQ) ready() (Outcome, bool) {
	w := q.wq
	if q.state != prm.QueueStateRDY || w.stopped {
		return NotReady, false
	}
	w.begin(q.env)
	if w.next == w.posted {
		more, ok := w.poll(q.env)
		if !ok {
			q.fault(prm.EventWQAccess)
			return Failed, false
		}
		if !more {
			return NoBuffer, false
		}
	}
	return Delivered, true
}

// Receive scatters a frame to the next WQE and writes its CQE.
func (q *RQ) Receive(f *Frame) Outcome {
	w := q.wq
	if q.state != prm.QueueStateRDY || w.epoch != q.env.epoch || w.next == w.posted {
		if out, ok := q.ready(); !ok {
			return out
		}
	}
	h, data := f.Headers, f.Data
	if !q.plain || f.Large != nil || f.Tunnelled || h.Outer == packet.TypeCVID && !q.config.KeepVLAN {
		return q.receive(f)
	}
	if v := q.target(len(data)); v != nil {
		copy(v, data)
	} else if out := q.scatter(w.next&w.mask, &parts{data: data}); out != Delivered {
		return out
	}
	cq := q.config.CQ
	cqe := cq.slot()
	if cqe == nil {
		if cqe = cq.next(); cqe == nil {
			q.toError()
			return Failed
		}
	}
	checksum, ok := h.Check(data, packet.EthernetLen)
	be := binary.BigEndian
	_ = cqe[cqeSize-1]
	be.PutUint64(cqe[0x00:], 0)
	be.PutUint64(cqe[0x08:], uint64(f.Hash))
	be.PutUint64(cqe[0x10:], uint64(f.HashType)<<56|uint64(checksum)<<16)
	be.PutUint64(cqe[0x18:], q.word0|uint64(ok)<<24|uint64(h.HdrType())<<16)
	be.PutUint64(cqe[0x20:], q.word1)
	be.PutUint64(cqe[0x28:], uint64(len(data)))
	be.PutUint64(cqe[0x30:], q.env.time(q.config.RealTime))
	be.PutUint32(cqe[0x38:], f.Tag)
	cq.done(cqe, uint32(w.next)<<16|uint32(prm.CQEResponderSend)<<4)
	w.next++
	return Delivered
}

// parts are what is written of a frame, one after the other.
type parts struct{ head, data, tail []byte }

func (p *parts) len() int { return len(p.head) + len(p.data) + len(p.tail) }

// receive is Receive for all queues. A WQE is posted.
func (q *RQ) receive(f *Frame) Outcome {
	w, h := q.wq, f.Headers
	p := parts{data: f.Data}
	from := packet.EthernetLen
	var stripped uint64 // byte l4_l3_hdr_type and vlan_info
	if h.Outer == packet.TypeCVID && !q.config.KeepVLAN {
		// The tag is taken out: addresses, then what follows the tag.
		stripped = packet.HdrStripped<<16 | uint64(h.TCI)
		from += packet.TagLen
		p.head, p.data = f.Data[:addressLen], f.Data[addressLen+packet.TagLen:]
	}
	fcs := &q.env.fcs
	if q.config.ScatterFCS && f.Large == nil {
		binary.LittleEndian.PutUint32(fcs[:], crc32.ChecksumIEEE(f.Data))
		p.tail = fcs[:]
	}
	n := p.len()
	c := completion{frame: f, from: from, flags: stripped, bytes: uint32(n), fcs: p.tail}
	if w.config.Strides > 0 {
		return q.receiveStrides(&p, &c)
	}
	slot, ok := w.slot(q.env)
	if !ok {
		return q.badLink()
	}
	if out := q.scatter(slot, &p); out != Delivered {
		return out
	}
	c.counter = w.next
	if w.config.Linked {
		c.counter = slot
	}
	if !q.complete(&c) {
		return Failed
	}
	w.advance()
	return Delivered
}

// receiveStrides is receive for striding RQs.
func (q *RQ) receiveStrides(p *parts, c *completion) Outcome {
	w, n := q.wq, p.len()
	need := w.strides(n)
	if need > w.config.Strides || n > 1<<16-1 {
		*q.env.Counters.TooSmall++
		return TooLong
	}
	if w.stride+need > w.config.Strides {
		// The rest of the WQE is left unused: a completion of its own says so.
		slot, ok := w.slot(q.env)
		if !ok {
			return q.badLink()
		}
		filler := completion{id: slot, counter: uint16(w.stride), bytes: byteCount(true, w.config.Strides-w.stride, 0)}
		if !q.complete(&filler) {
			return Failed
		}
		w.advance()
		if out, ok := q.ready(); !ok {
			return out
		}
	}
	slot, ok := w.slot(q.env)
	if !ok {
		return q.badLink()
	}
	wqe, err := w.wqe(q.env, slot)
	if err != nil {
		q.fault(prm.EventWQAccess)
		return Failed
	}
	size := uint64(binary.BigEndian.Uint32(wqe) & 0x7fffffff)
	key, addr := binary.BigEndian.Uint32(wqe[4:]), binary.BigEndian.Uint64(wqe[8:])
	off := uint64(w.stride<<w.config.LogStrideSize + w.shift())
	if off+uint64(n) > size {
		q.completeError(prm.CQESyndromeLocalLength)
		return Failed
	}
	if !q.writeParts(key, addr+off, p) {
		q.completeError(prm.CQESyndromeLocalProtection)
		return Failed
	}
	c.id, c.counter, c.bytes = slot, uint16(w.stride), byteCount(false, need, n)
	if !q.complete(c) {
		return Failed
	}
	if w.stride += need; w.stride == w.config.Strides {
		w.advance()
	}
	return Delivered
}

// badLink ends a queue whose list leads out of its ring.
func (q *RQ) badLink() Outcome {
	q.env.Events.QueueError(prm.EventWQCatastrophic, prm.EventQueueRQ, q.Number)
	q.toError()
	return Failed
}

// completion is what a CQE says. Without a frame it is a filler's.
type completion struct {
	frame       *Frame
	from        int    // where the checksum starts
	flags       uint64 // stripped tag
	id, counter uint16
	bytes       uint32
	fcs         []byte
}

// complete writes a CQE. false: the CQ can't take it, and the RQ is in ERR.
func (q *RQ) complete(c *completion) bool {
	cq := q.config.CQ
	cqe := cq.next()
	if cqe == nil {
		q.toError()
		return false
	}
	be := binary.BigEndian
	clear(cqe[:0x38])
	if f := c.frame; f != nil {
		h := f.Headers
		var checksum uint16
		var ok uint8
		typ := h.HdrType()
		if l := f.Large; l == nil {
			checksum, ok = h.Check(f.Data, c.from)
			if c.fcs != nil {
				checksum = packet.AddSum(checksum, packet.Sum(c.fcs), len(f.Data)-c.from)
			}
		} else {
			// The checksum has another meaning (reference 06 §4): TCP's payload and nothing else.
			checksum, ok = packet.Sum(f.Data[h.PayloadOff(f.Data):h.End]), packet.L2OK|packet.L3OK|packet.L4OK
			if l.Push {
				cqe[0x04] = 1 << 6
			}
			cqe[0x05] = l.MinTTL
			be.PutUint16(cqe[0x06:], l.Window)
			be.PutUint32(cqe[0x08:], l.Ack)
			cqe[0x20] = l.Segments
		}
		if in, at := h.Inner(); f.Tunnelled && in != nil {
			cqe[0x00], typ = h.Tunnel(), in.HdrType()
			_, inside := in.Check(f.Data[at:h.End], in.L3Off)
			if h.L4 == packet.UDP && ok&packet.L4OK == 0 {
				inside &^= packet.L4OK // the outer datagram's checksum counts, too
			}
			ok = inside & (ok | packet.L4OK)
		}
		be.PutUint32(cqe[0x0c:], f.Hash)
		be.PutUint64(cqe[0x10:], uint64(f.HashType)<<56|uint64(checksum)<<16)
		be.PutUint64(cqe[0x18:], q.word0|uint64(ok)<<24|uint64(typ)<<16|c.flags)
		be.PutUint32(cqe[0x38:], f.Tag)
	} else {
		be.PutUint64(cqe[0x18:], q.word0)
		be.PutUint32(cqe[0x38:], 0)
	}
	be.PutUint16(cqe[0x02:], c.id)
	be.PutUint64(cqe[0x20:], uint64(cqe[0x20])<<56|q.word1)
	be.PutUint32(cqe[0x2c:], c.bytes)
	be.PutUint64(cqe[0x30:], q.env.time(q.config.RealTime))
	cq.done(cqe, uint32(c.counter)<<16|uint32(prm.CQEResponderSend)<<4)
	return true
}

// segment is a data segment of a receive WQE.
const segmentSize = 16

// target returns the n bytes that the WQE at next begins with, where that takes no look-up: the ring is
// mapped, the first segment is large enough, its key was granted in this step and its memory has a window.
// It is nil otherwise.
func (q *RQ) target(n int) []byte {
	e, w := q.env, q.wq
	off := int(w.next&w.mask) << w.config.LogStride
	if uint(off)+segmentSize > uint(len(w.config.Buffer.flat)) {
		return nil
	}
	s := w.config.Buffer.flat[off : off+segmentSize]
	head, addr := binary.BigEndian.Uint64(s), binary.BigEndian.Uint64(s[8:])
	win := &e.windows[addr>>windowLog&(windows-1)]
	at := uint(addr & (1<<windowLog - 1))
	if uint32(head) != q.grant.key || q.grant.epoch != e.epoch || uint64(n) > head>>32&0x7fffffff ||
		win.base != addr>>windowLog || win.generation != e.generation || at+uint(n) > uint(len(win.view)) {
		return nil
	}
	return win.view[at : at+uint(n)]
}

// addressLen is the length of both MAC addresses: what stays in front of a tag.
const addressLen = 12

// scatter writes a frame to the segments of the WQE in a slot. It first sees whether they fit.
func (q *RQ) scatter(slot uint16, p *parts) Outcome {
	wqe, err := q.wq.wqe(q.env, slot)
	if err != nil {
		q.fault(prm.EventWQAccess)
		return Failed
	}
	var room uint64
	total := uint64(p.len())
	for s := wqe; len(s) >= segmentSize && room < total; s = s[segmentSize:] {
		if binary.BigEndian.Uint32(s[4:]) == prm.TerminateScatterLKey {
			break
		}
		room += uint64(binary.BigEndian.Uint32(s) & 0x7fffffff)
	}
	if room < total {
		// Linux counts on never seeing such a frame; real cards have a counter for it (reference 03 §4).
		*q.env.Counters.TooSmall++
		return TooLong
	}
	for s := wqe; p.len() > 0; s = s[segmentSize:] {
		left := int(binary.BigEndian.Uint32(s) & 0x7fffffff)
		key, addr := binary.BigEndian.Uint32(s[4:]), binary.BigEndian.Uint64(s[8:])
		piece := p.cut(left)
		if !q.writeParts(key, addr, &piece) {
			q.completeError(prm.CQESyndromeLocalProtection)
			return Failed
		}
	}
	return Delivered
}

// cut takes at most n bytes off the front.
func (p *parts) cut(n int) (front parts) {
	for i, part := range [...]*[]byte{&p.head, &p.data, &p.tail} {
		take := min(n, len(*part))
		to := [...]*[]byte{&front.head, &front.data, &front.tail}[i]
		*to, *part = (*part)[:take], (*part)[take:]
		n -= take
	}
	return front
}

// writeParts writes what p holds at addr of a key. false: the key does not reach it.
func (q *RQ) writeParts(key uint32, addr uint64, p *parts) bool {
	for _, b := range [...][]byte{p.head, p.data, p.tail} {
		if len(b) == 0 {
			continue
		}
		if q.write(key, addr, b) != nil {
			return false
		}
		addr += uint64(len(b))
	}
	return true
}

// write copies b to memory that a key reaches.
func (q *RQ) write(key uint32, addr uint64, b []byte) error {
	v, err := q.env.view(&q.grant, &q.config.User, key, addr, len(b), pci.Write)
	if err != nil {
		return err
	}
	if v != nil {
		copy(v, b)
		return nil
	}
	return q.env.keys.Write(q.env.mem, b, key, addr, q.config.User)
}
