package driver

import (
	"iter"
	"sync"
	"time"

	"cxkit/driver/internal/gro"
	"cxkit/driver/internal/rxpool"
)

// Merged packets: Config.GRO. Poll hands frames to the merger, which decides; this file keeps them.

// chain is what follows the first buffer of a merged packet.
type chain struct {
	home     *chains
	rest     []Packet // their Data are payload only; at most gro.MaxSegments-1
	segments int      // of a large receive, whose buffers are not segments; else 0
}

// chains are a queue's chains that are not in use.
type chains struct {
	mu     sync.Mutex // packets are released by anybody
	unused []*chain
}

func newChains() *chains {
	s := new(chains)
	for range gro.Flows {
		s.unused = append(s.unused, s.newChain())
	}
	return s
}

func (s *chains) newChain() *chain {
	return &chain{home: s, rest: make([]Packet, 0, gro.MaxSegments-1)}
}

// take takes an empty chain. More than there were are made when the application keeps more merged packets
// than ever.
func (s *chains) take() *chain {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := len(s.unused) - 1; last >= 0 {
		c := s.unused[last]
		s.unused = s.unused[:last]
		return c
	}
	return s.newChain()
}

// done gives an empty chain back. Any goroutine may call it.
func (c *chain) done() {
	c.rest, c.segments = c.rest[:0], 0
	c.home.mu.Lock()
	c.home.unused = append(c.home.unused, c)
	c.home.mu.Unlock()
}

// never is a time that everything is older than.
const never = time.Duration(1<<63 - 1)

// merging is the packets that a receive queue is merging.
type merging struct {
	merger  gro.Merger
	timeout time.Duration
	clock   func() time.Duration

	raw   [64]Packet
	heads [gro.Flows]Packet
	ready []Packet // merged, and not handed out yet
	out   int      // of ready, handed out

	chains *chains
}

func newMerging(c *Config, s *chains) *merging {
	return &merging{timeout: c.GROTimeout, clock: c.RxClock, ready: make([]Packet, 0, 3*gro.Flows), chains: s}
}

// prepare makes what packets of several buffers need, as the configuration has them.
func (q *RxQueue) prepare(c *Config) {
	q.striding, q.compressed, q.linked, q.short = c.Striding, c.CompressCompletions, c.LinkedReceive, 1
	q.special = q.striding || q.linked
	if c.LargeReceive {
		q.longest = maxLarge
	}
	if c.GRO || c.LargeReceive {
		q.chains = newChains()
	}
	if c.GRO {
		q.merge = newMerging(c, q.chains)
	}
}

// add takes one frame.
func (m *merging) add(p *Packet, now time.Duration) {
	if p.Tunnel.Tunnelled() {
		m.ready = append(m.ready, *p) // the verdict is about what is inside
		return
	}
	f := gro.Frame{Data: p.Data, Hash: p.RSSHash, Verified: p.Rx.ChecksumOK(), Merged: p.more != nil}
	if p.Rx.VLANStripped() {
		f.Tag = 1<<16 | uint32(p.VLAN)
	}
	d := m.merger.Add(&f, now)
	if d.Before != gro.None {
		m.deliver(d.Before)
	}
	switch {
	case d.Flow == gro.None:
		m.ready = append(m.ready, *p)
		return
	case d.First:
		m.heads[d.Flow] = *p
	default:
		head := &m.heads[d.Flow]
		if head.more == nil {
			head.more = m.chains.take()
		}
		p.Data = p.Data[d.Header:]
		head.more.rest = append(head.more.rest, *p)
	}
	if d.Last {
		m.deliver(d.Flow)
	}
}

func (m *merging) deliver(flow int) {
	m.ready = append(m.ready, m.heads[flow])
	m.heads[flow] = Packet{}
}

// flush delivers what has waited for the time-out; everything, if there is none.
func (m *merging) flush(now time.Duration) {
	for at := m.merger.Flush(now - m.timeout); at != gro.None; at = m.merger.Flush(now - m.timeout) {
		m.deliver(at)
	}
}

// hand gives out what is ready.
func (m *merging) hand(pkts []Packet) int {
	n := copy(pkts, m.ready[m.out:])
	clear(m.ready[m.out : m.out+n])
	if m.out += n; m.out == len(m.ready) {
		m.ready, m.out = m.ready[:0], 0
	}
	return n
}

// pending tells that Poll has something to hand out without a new frame, if not now then after wait.
func (m *merging) pending() (now bool, wait time.Duration) {
	if m.out < len(m.ready) || m.merger.Held() > 0 && m.timeout == 0 {
		return true, 0
	}
	if m.merger.Held() > 0 {
		return m.merger.Oldest() <= m.clock()-m.timeout, m.timeout
	}
	return false, 0
}

// pollMerged is Poll with Config.GRO. poll is what takes frames.
func (q *RxQueue) pollMerged(pkts []Packet) int {
	if q.over() {
		return 0
	}
	m := q.merge
	n := m.hand(pkts)
	for n < len(pkts) {
		raw := m.raw[:min(len(m.raw), len(pkts)-n)]
		k := q.pollProgram(raw)
		now := m.clock()
		for i := range raw[:k] {
			m.add(&raw[i], now)
		}
		if k < len(raw) { // the end of what is there
			if q.dry() {
				now = never // what is held has the memory that the ring lacks
			}
			m.flush(now)
		}
		n += m.hand(pkts[n:])
		if k < len(raw) {
			break
		}
	}
	return n
}

// Fragments are the parts of the packet, in order: Data, and for a merged packet (Config.GRO) the payload of
// each segment that was merged into it, or what a large receive (Config.LargeReceive) has in further buffers. The
// headers in Data are those of the whole: its lengths, the IPv4 header's checksum, FIN and PSH of any segment.
// The TCP checksum of a large receive is right. That of a packet that GRO merged is the sum over the
// pseudo-header, not inverted, as Linux has it: every segment's own was right.
func (p *Packet) Fragments() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if !yield(p.Data) || p.more == nil {
			return
		}
		for i := range p.more.rest {
			if !yield(p.more.rest[i].Data) {
				return
			}
		}
	}
}

// Segments is how many frames were merged into the packet: 1 if none were.
func (p *Packet) Segments() int {
	switch {
	case p.more == nil:
		return 1
	case p.more.segments > 0:
		return p.more.segments
	}
	return 1 + len(p.more.rest)
}

// Len is the bytes of all fragments.
func (p *Packet) Len() int {
	n := len(p.Data)
	if p.more != nil {
		for i := range p.more.rest {
			n += len(p.more.rest[i].Data)
		}
	}
	return n
}

// unmerge takes the chain of a packet: what is in it is to be released before done.
func (p *Packet) unmerge() *chain {
	c := p.more
	p.more = nil
	return c
}

// forgetHeld takes packets that Poll has not handed out yet out of the application's books. The queue has
// ended.
func (q *RxQueue) forgetHeld() {
	forget := func(pkts []Packet) {
		for i := range pkts {
			if buffer := pkts[i].buffer; buffer != 0 {
				q.pool.Holders[buffer-1] = rxpool.NIC
			}
			if c := pkts[i].unmerge(); c != nil {
				for j := range c.rest {
					q.pool.Holders[c.rest[j].buffer-1] = rxpool.NIC
				}
			}
			pkts[i] = Packet{}
		}
	}
	if m := q.merge; m != nil {
		forget(m.ready[m.out:])
		forget(m.heads[:])
	}
}
