package device

import (
	"cxkit/device/internal/packet"
	"cxkit/device/internal/queue"
	"cxkit/device/internal/steer"
)

const (
	// lroSessions is how many TCP connections have a large receive under way at a time, within a burst.
	lroSessions = 8
	// maxLRO is the longest large receive: its length has to fit IP's field and the completion's.
	maxLRO = 1<<16 - 1
)

// lroSession is a large receive under way: segments of a connection that have come in this burst. All end
// with the burst, so that none is older than its TIR, its queue or the timeout that the driver has chosen,
// the shortest of which is longer than a burst.
type lroSession struct {
	to       steer.Delivery
	q        *queue.RQ
	hash     uint32
	hashType uint8

	bytes   []byte // headers of the first segment and the payload of all; room for maxLRO
	n       int
	segment int // payload of the first
	seq     uint32
	limit   int // of n
	large   queue.Large
}

// merges reports whether frames of h's kind that t delivers may be put together for q.
func merges(t *steer.TIR, h *packet.Headers, q *queue.RQ) bool {
	bit := uint8(1)
	if h.L3 == packet.IPv6 {
		bit = 2
	}
	return t.Merge&bit != 0 && q.Striding()
}

// coalesce takes a frame that merges into a large receive, or delivers it after those that it has to follow.
func (d *dataPort) coalesce(q *queue.RQ, to steer.Delivery) {
	h, data := &d.headers, d.frame.Data
	fits := h.Coalesces(data)
	var s *lroSession
	for i := range d.lro {
		l := &d.lro[i]
		if l.n > 0 && l.q == q && h.SameFlow(data, l.bytes[:l.n]) {
			s = l
			break
		}
	}
	if !fits {
		if s != nil {
			d.flushLRO(s)
		}
		d.receive(q)
		return
	}
	payload := data[h.PayloadOff(data):h.End]
	if s != nil && (s.to != to || !h.Continues(data, s.bytes[:s.n], s.seq) || len(payload) > s.segment || s.n+len(payload) > s.limit) {
		d.flushLRO(s)
		s = nil
	}
	if s == nil {
		if s = d.startLRO(q, to); s == nil {
			d.receive(q)
			return
		}
	} else {
		s.n += copy(s.bytes[s.n:], payload)
		s.large.Segments++
	}
	s.seq = h.Seq(data) + uint32(len(payload))
	s.large.MinTTL = min(s.large.MinTTL, h.TTL())
	s.large.Ack, s.large.Window = h.Ack(data), h.Window(data)
	if h.Push(data) {
		s.large.Push = true
	}
	if s.large.Push || len(payload) < s.segment || s.large.Segments == 255 {
		d.flushLRO(s)
	}
}

// startLRO begins a large receive with the frame in d. nil: the frame is longer than one may be.
func (d *dataPort) startLRO(q *queue.RQ, to steer.Delivery) *lroSession {
	h, data := &d.headers, d.frame.Data
	off := h.PayloadOff(data)
	limit := min(maxLRO, h.L4Off+to.TIR.MaxMerge, q.Longest())
	if h.End > limit {
		return nil
	}
	s := d.freeLRO(q)
	if s.bytes == nil {
		s.bytes = make([]byte, maxLRO)
	}
	s.to, s.q, s.hash, s.hashType = to, q, d.frame.Hash, d.frame.HashType
	s.n = copy(s.bytes, data[:h.End])
	s.segment, s.limit = h.End-off, limit
	s.large = queue.Large{Segments: 1, MinTTL: 255}
	d.merging++
	return s
}

// freeLRO is a session that is not under way. On a lossless port there is one at a time for a queue, because
// the room for a frame is looked for before it comes.
func (d *dataPort) freeLRO(q *queue.RQ) *lroSession {
	var free *lroSession
	for i := range d.lro {
		s := &d.lro[i]
		if s.n > 0 && d.lossless && s.q == q {
			d.flushLRO(s)
		}
		if s.n == 0 {
			free = s
		}
	}
	if free == nil {
		free = &d.lro[d.nextLRO%lroSessions]
		d.nextLRO++
		d.flushLRO(free)
	}
	return free
}

// pendingLRO is how many bytes large receives for q hold.
func (d *dataPort) pendingLRO(q *queue.RQ) (n int) {
	if d.merging == 0 {
		return 0
	}
	for i := range d.lro {
		if s := &d.lro[i]; s.n > 0 && s.q == q {
			n += s.n
		}
	}
	return n
}

// flushLRO delivers a large receive.
func (d *dataPort) flushLRO(s *lroSession) {
	data := s.bytes[:s.n]
	s.n = 0
	d.merging--
	h := &d.mergedHeaders
	packet.Parse(data, h)
	f := queue.Frame{Data: data, Headers: h, Hash: s.hash, HashType: s.hashType, Tag: s.to.Tag}
	if s.large.Segments > 1 {
		h.SetLength(data)
		packet.Parse(data, h)
		f.Large = &s.large
	}
	if out := s.q.Receive(&f); out != queue.Delivered {
		d.function.account(s.q, out)
	}
}

// flushLROs delivers all large receives, at the end of a burst.
func (d *dataPort) flushLROs() {
	for i := range d.lro {
		if d.merging == 0 {
			return
		}
		if s := &d.lro[i]; s.n > 0 {
			d.flushLRO(s)
		}
	}
}

// receive delivers the frame in d.
func (d *dataPort) receive(q *queue.RQ) {
	if out := q.Receive(&d.frame); out != queue.Delivered {
		d.function.account(q, out)
	}
}
