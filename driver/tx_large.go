package driver

import (
	"encoding/binary"

	"cxkit/driver/internal/gro"
	"cxkit/driver/internal/queue"
	"cxkit/driver/internal/rxpool"
	"cxkit/prm"
)

// Frames in several parts, large sends, and frames whose headers the card wants in their WQEs.

// largeScratch is what postLarge works in.
type largeScratch struct {
	pieces [queue.MaxPieces]queue.Piece
	parts  [gro.MaxSegments]Packet
	held   [queue.MaxPieces]rxpool.Holder // who had the pieces' buffers
	header [queue.MaxHeader]byte
	frame  queue.Headed
}

// postLarge writes the WQE of the frame that pkts begin with and returns how many packets it was. 0: there
// is no room, and q.need says how much it takes.
func (q *TxQueue) postLarge(pkts []Packet, sums *txSums) int {
	if pkts[0].more != nil {
		return q.postMerged(&pkts[0], sums)
	}
	n := 1
	for pkts[n-1].TxFlags&TxMore != 0 && n < len(pkts) {
		n++
	}
	pkts = pkts[:n]
	if pkts[n-1].TxFlags&TxMore != 0 || !q.hold(pkts) {
		q.dropAll(pkts)
		return n
	}
	total, ok := q.plan(pkts)
	s := &q.large
	if !ok || s.frame.Blocks() > q.sq.Size() {
		q.giveBack(pkts)
		q.dropAll(pkts)
		return n
	}
	if !q.sq.WriteHeaded(&s.frame) {
		q.need = int(s.frame.Blocks())
		q.giveBack(pkts)
		return 0
	}
	first := &pkts[0]
	frames, bytes := uint64(1), max(total, minFrame)
	if first.Segment != 0 {
		header := len(s.frame.Header)
		payload := total - header
		frames = uint64((payload + int(first.Segment) - 1) / int(first.Segment))
		bytes += int(frames-1) * header
		sums.large++
		sums.largeBytes += uint64(payload)
	}
	sums.packets += frames
	sums.bytes += uint64(bytes)
	if first.Segment != 0 || first.TxFlags&(TxChecksum|TxInnerChecksum) != 0 {
		sums.partial += frames
	}
	if first.TxFlags&TxInnerChecksum != 0 {
		sums.inner += frames
	}
	if first.TxFlags&TxInsertVLAN != 0 {
		sums.tagged += frames
	}
	for i := range pkts {
		pkts[i].buffer, pkts[i].Data = 0, nil
	}
	return n
}

// postMerged is postLarge of a merged packet: its segments are the parts of one frame.
func (q *TxQueue) postMerged(p *Packet, sums *txSums) int {
	s := &q.large
	parts := s.parts[:1+copy(s.parts[1:], p.more.rest)]
	parts[0] = *p
	parts[0].more = nil
	last := len(parts) - 1
	for i := range parts {
		if i > 0 {
			parts[i].TxFlags, parts[i].Segment = 0, 0
		}
		if i < last {
			parts[i].TxFlags |= TxMore
		}
	}
	if p.TxFlags&TxMore != 0 {
		parts[last].TxFlags |= TxMore // what the application says follows: refused
	}
	if q.postLarge(parts, sums) == 0 {
		return 0
	}
	p.unmerge().done()
	p.buffer, p.Data = 0, nil
	return 1
}

// hold takes the buffers of a frame's parts from the application and makes pieces of them. false: they are
// too many, or one is not in a buffer that the application has; nothing is taken then.
func (q *TxQueue) hold(pkts []Packet) bool {
	pool, s := q.pool, &q.large
	if len(pkts) > len(s.pieces) {
		return false
	}
	for i := range pkts {
		p := &pkts[i]
		buffer, size := p.buffer-1, pool.Size
		ok := uint(buffer) < uint(len(pool.Holders)) && pool.Holders[buffer].Out() && cap(p.Data) > 0 && cap(p.Data) <= size+q.headroom
		off := 0
		if ok {
			off = int(buffer)*pool.Unit + size - cap(p.Data)
			ok = off >= 0 && &pool.Mem[off] == &p.Data[:1][0]
		}
		if !ok {
			q.giveBack(pkts[:i])
			return false
		}
		s.held[i] = pool.Holders[buffer]
		pool.Holders[buffer] = rxpool.NIC
		s.pieces[i] = queue.Piece{Addr: pool.Bus + uint64(off), Length: uint32(len(p.Data)), Buffer: buffer}
	}
	return true
}

// giveBack undoes hold.
func (q *TxQueue) giveBack(pkts []Packet) {
	for i := range pkts {
		q.pool.Holders[pkts[i].buffer-1] = q.large.held[i]
	}
}

// dropAll gives up a frame in parts. It counts as one dropped.
func (q *TxQueue) dropAll(pkts []Packet) {
	q.count.dropped.Add(1)
	holders := q.pool.Holders
	for i := range pkts {
		p := &pkts[i]
		buffer := p.buffer - 1
		switch {
		case uint(buffer) < uint(len(holders)) && holders[buffer].Out():
			p.buffer, p.Data = 0, nil
			holders[buffer] = rxpool.NIC
			q.cache.Put(buffer)
		case p.buffer != 0:
			q.violation(p)
		}
	}
}

// plan checks what the frame asks for, and makes the large frame of it. total is the frame's length on the
// wire, as a whole.
func (q *TxQueue) plan(pkts []Packet) (total int, ok bool) {
	s, first := &q.large, &pkts[0]
	if first.TxFlags&^(q.can.flags|TxMore) != 0 || int(first.Segment) > 0 && q.can.segment == 0 {
		return 0, false
	}
	pieces := s.pieces[:len(pkts)]
	for i := range pieces {
		total += int(pieces[i].Length)
	}
	inner := first.TxFlags&TxInnerChecksum != 0
	sums, head := checksums(first.TxFlags), 0
	switch {
	case first.Segment != 0:
		if head, ok = headerLength(first.Data, inner); !ok || total-head < 1 || total-head > q.can.segment {
			return 0, false
		}
		sums |= queue.ChecksumL3 | queue.ChecksumL4
		if inner {
			// The outer datagram's checksum is not asked for as segments' are: the card leaves 0 there,
			// or fills it in if the flag says so.
			sums = checksums(first.TxFlags|TxL3Checksum) | queue.ChecksumInnerL3 | queue.ChecksumInnerL4
		}
	case q.sq.Inline != queue.InlineNone || q.can.headers > prm.InlineModeL2:
		if len(pkts) == 1 && total < minFrame {
			data := padded(first.Data)
			if data == nil {
				return 0, false
			}
			total, pieces[0].Length = len(data), uint32(len(data))
			first.Data = data
		}
		if head, ok = inlineLength(first.Data, q.can.headers); !ok {
			return 0, false
		}
	}
	frame := total
	if first.Segment != 0 {
		frame = head + min(int(first.Segment), total-head)
	}
	if frame < ethernetHeader || frame > int(q.nic.maxFrame.Load()) {
		return 0, false
	}
	f := &s.frame
	f.Pieces, f.Segment = pieces, first.Segment
	tag := first.TxFlags&TxInsertVLAN != 0
	f.Offload = queue.Insert(sums, tag && head == 0, first.VLAN)
	f.Header = s.header[:0]
	if head == 0 {
		return total, true
	}
	if head+vlanTag > len(s.header) {
		return 0, false
	}
	pieces[0].Addr += uint64(head)
	pieces[0].Length -= uint32(head)
	if !tag {
		f.Header = append(f.Header, first.Data[:head]...)
		return total, true
	}
	// The field for insertion is the inlined header's: the tag goes into that (Linux mlx5e_insert_vlan).
	f.Header = append(f.Header, first.Data[:12]...)
	f.Header = binary.BigEndian.AppendUint16(f.Header, 0x8100)
	f.Header = binary.BigEndian.AppendUint16(f.Header, first.VLAN)
	f.Header = append(f.Header, first.Data[12:head]...)
	return total + vlanTag, true
}
