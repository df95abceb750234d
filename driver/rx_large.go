package driver

import (
	"encoding/binary"
	"fmt"
	"time"

	"cxkit/driver/internal/gro"
	"cxkit/prm"
)

// Large receives: Config.LargeReceive. The card puts segments of a TCP connection together in the chunks of a
// striding queue, and the completion says what the headers of the whole are.

const (
	// maxLarge is the longest large receive: its completion has 16 bits for it.
	maxLarge = 1<<16 - 1
	// maxLargeHeader is more than the headers of one: Ethernet, two tags, IPv6, TCP.
	maxLargeHeader = 128
	// largeUnit is what a TIR counts the length in, maxLargePayload the most that it can say. That is of the IP
	// packet, so that the longest header that there may be in front has room in maxLarge.
	largeUnit       = 256
	maxLargePayload = 255 * largeUnit
	// minLargeBuffer is the least size of buffers. A large receive then has no more parts than a large send.
	minLargeBuffer = 2048
	// defaultLargeTimeout is Linux's (en.h, MLX5E_DEFAULT_LRO_TIMEOUT).
	defaultLargeTimeout = 32 * time.Microsecond
)

// Bits of a TIR's packet_merge_mask, and the one of a completion's lro flags (Linux get_cqe_lro_tcppsh).
const (
	mergeIPv4   = 1
	mergeIPv6   = 2
	largePushed = 1 << 6
)

// checkLarge checks what is asked of large receives without a look at the card.
func (c *Config) checkLarge() error {
	o := &c.Offloads
	switch {
	case !o.LargeReceive && (o.LargeReceiveMax != 0 || o.LargeReceiveTimeout != 0):
		return fmt.Errorf("large receives of %d bytes, held for %v, without Offloads.LargeReceive", o.LargeReceiveMax, o.LargeReceiveTimeout)
	case !o.LargeReceive:
		return nil
	case !o.Striding:
		return fmt.Errorf("large receives without Offloads.Striding: only striding receive queues take them")
	case o.Tunnels:
		return fmt.Errorf("large receives with Offloads.Tunnels: what is in a tunnel must not be merged")
	case c.Program != nil:
		return fmt.Errorf("large receives with a program, which judges every frame")
	case o.LargeReceiveMax < 0 || o.LargeReceiveMax > maxLargePayload || o.LargeReceiveMax%largeUnit != 0:
		return fmt.Errorf("large receives of %d bytes: want multiples of %d up to %d", o.LargeReceiveMax, largeUnit, maxLargePayload)
	case o.LargeReceiveTimeout < 0 || o.LargeReceiveTimeout%time.Microsecond != 0:
		return fmt.Errorf("large receives held for %v: want whole microseconds", o.LargeReceiveTimeout)
	case c.BufferSize < minLargeBuffer:
		return fmt.Errorf("large receives with buffers of %d bytes: want %d or more", c.BufferSize, minLargeBuffer)
	}
	return nil
}

// leastForLarge is how many buffers let every queue put one large receive together. Caches keep an eighth.
func (c *Config) leastForLarge() int {
	if !c.LargeReceive {
		return 0
	}
	parts := (maxLarge + c.BufferSize - 1) / c.BufferSize
	return (c.MaxChannels*parts*8 + 6) / 7
}

// canLarge tells whether the card has large receives. One that merges what is in tunnels, too, would do so
// unasked where Linux does not offer it (en_main.c).
func (n *NIC) canLarge() bool {
	e := &n.base.eth
	return e.LROCap && n.base.general.StridingRQ && !e.TunnelLROVXLAN && !e.TunnelLROGRE
}

// largePeriods are the times that the card can hold segments for, shortest first.
func (n *NIC) largePeriods() (list []time.Duration) {
	for p := n.base.eth.LROTimerSupportedPeriods[:]; len(p) >= 4; p = p[4:] {
		if us := binary.BigEndian.Uint32(p); us > 0 && us <= 0xffff {
			list = append(list, time.Duration(us)*time.Microsecond)
		}
	}
	return list
}

// largePeriod is the shortest of the card's periods that is not below what was asked for, and its longest where
// nothing was, in microseconds (Linux mlx5e_choose_lro_timeout).
func (n *NIC) largePeriod() (uint16, error) {
	asked := n.config.LargeReceiveTimeout
	want := orDefault(asked, defaultLargeTimeout)
	var best, longest time.Duration
	for _, p := range n.largePeriods() {
		longest = max(longest, p)
		if p >= want && (best == 0 || p < best) {
			best = p
		}
	}
	switch {
	case best == 0 && asked != 0:
		return 0, fmt.Errorf("large receives held for %v: the card's longest is %v", asked, longest)
	case best == 0:
		best = longest
	}
	return uint16(best / time.Microsecond), nil
}

// mergeIn has a TIR merge, if the NIC does.
func (n *NIC) mergeIn(c *prm.TIRContext) error {
	if !n.config.LargeReceive {
		return nil
	}
	period, err := n.largePeriod()
	if err != nil {
		return err
	}
	c.PacketMergeMask = mergeIPv4 | mergeIPv6
	c.LROMaxIPPayloadSize = uint8(orDefault(n.config.LargeReceiveMax, maxLargePayload) / largeUnit)
	c.LROTimeoutPeriodUsecs = period
	return nil
}

// strideSums is what a burst of a striding queue adds to the counters.
type strideSums struct {
	rxSums
	large, largeBytes uint64
	merged            uint64 // segments behind the first of each
}

// parts is how many buffers n bytes take.
func (q *RxQueue) parts(n int) int { return max(1, (n+q.pool.Size-1)/q.pool.Size) }

// room makes sure that there are buffers for n bytes, or notes what is missing.
func (q *RxQueue) room(n int) bool {
	q.short = q.parts(n)
	return q.cache.Fill(q.short) >= q.short
}

// completeHead puts the headers of a large receive into q.head as they are to be. The card can reach the memory
// that it received into, so they are looked at where it cannot. false: they are no headers of one.
func (q *RxQueue) completeHead(data []byte, e *prm.CQE) bool {
	q.headed = copy(q.head[:], data)
	l4 := L4Type(e.L4L3HdrType() >> 4 & 7)
	l := gro.Large{
		Length: len(data), MinTTL: e.LROMinTTL(), Push: e.LROFlags()&largePushed != 0, Acked: l4 == L4TCPAck || l4 == L4TCPAckData,
		Ack: e.LROAckSeq(), Window: e.LROTCPWin(), Sum: e.Checksum(),
	}
	return l.Complete(q.head[:q.headed])
}

// tellLarge has p tell of a large receive: of so many segments, with the headers in q.head.
func (q *RxQueue) tellLarge(p *Packet, segments int, sums *strideSums) {
	p.more = q.chains.take()
	p.more.segments = segments
	sums.large++
	sums.largeBytes += uint64(len(p.Data))
	sums.merged += uint64(segments - 1)
}

// copyParts copies a packet's data into as many buffers of the pool as it takes, which the cache must have.
func (q *RxQueue) copyParts(p *Packet) {
	data := p.Data
	for i, buffer := range q.cache.Take(q.parts(len(data))) {
		q.pool.Holders[buffer] = q.delivered
		to := q.pool.Buffer(buffer)
		n := copy(to, data)
		data = data[n:]
		if i == 0 {
			p.Data, p.buffer = to[:n], buffer+1
		} else {
			p.more.rest = append(p.more.rest, Packet{Data: to[:n], buffer: buffer + 1})
		}
	}
}

// SegmentSize is the payload of each segment of a merged packet but the last, which may be shorter: what
// Packet.Segment has to be for the card to cut it like that again. Of a large receive it is what the segments had
// on average, rounded up. 0: the packet was not merged.
func (p *Packet) SegmentSize() int {
	if p.more == nil {
		return 0
	}
	header, ok := headerLength(p.Data, false)
	if !ok {
		return 0
	}
	if n := p.more.segments; n > 0 {
		return (p.Len() - header + n - 1) / n
	}
	return len(p.Data) - header
}
