package wire

import (
	"encoding/binary"
	"sync/atomic"
)

const (
	// recordAlign places records so that a 60-byte frame and its length fill one cache line.
	recordAlign = 16
	// recordHead is the length word before each frame.
	recordHead = 4
	// wrapMark stands where a length would: the next record is at the ring's start.
	wrapMark = 1<<32 - 1
)

// ring carries frames from one producing goroutine to one consuming goroutine. Records are a length and
// the frame's bytes, never split. Each side publishes its position with one atomic store a burst and
// raises a flag before it sleeps, so the other side makes a wake-up only for a sleeper.
//
// Go's atomics are sequentially consistent: the store of a position and the load of the other side's
// flag (produce, release) pair with the store of a flag and the load of a position (consume, room).
type ring struct {
	mem        []byte // length is a power of two
	wakeReader func() // ends the consumer's sleep
	wakeWriter func() // ends the producer's sleep

	_ [64]byte // the two sides' words do not share a cache line

	// The producer's.
	head      atomic.Uint64 // bytes ever produced; memory below it is the consumer's
	produced  uint64        // == head, read without an atomic
	seenTail  uint64        // tail as last loaded
	wantsRoom atomic.Bool   // producer sleeps until there is room
	sent      tally
	dropped   atomic.Uint64

	_ [64]byte

	// The consumer's.
	tail       atomic.Uint64 // bytes ever released
	consumed   uint64        // given out; tail follows at the next call
	released   uint64        // == tail
	wantsFrame atomic.Bool   // consumer sleeps until there is a frame
	received   tally
}

// tally counts frames and bytes: one goroutine adds, any goroutine reads.
type tally struct{ frames, bytes atomic.Uint64 }

func (t *tally) add(frames, bytes uint64) {
	if frames == 0 {
		return
	}
	// Load and store: there is one writer, and a locked add costs more.
	t.frames.Store(t.frames.Load() + frames)
	t.bytes.Store(t.bytes.Load() + bytes)
}

func count(c *atomic.Uint64, n uint64) {
	if n != 0 {
		c.Store(c.Load() + n)
	}
}

// ringSize rounds a wanted size up to a power of two between 4 KiB and 1 GiB.
func ringSize(bytes int) int {
	size := 4 << 10
	for size < bytes && size < 1<<30 {
		size <<= 1
	}
	return size
}

// newRing makes a ring of at least size bytes. The wake functions never block.
func newRing(size int, wakeReader, wakeWriter func()) *ring {
	return &ring{mem: make([]byte, ringSize(size)), wakeReader: wakeReader, wakeWriter: wakeWriter}
}

// longest is the longest frame the ring is sure to carry: a record of half the ring fits an empty ring
// wherever the positions are.
func (r *ring) longest() int { return min(len(r.mem)/2-recordHead, MaxFrame) }

func recordSize(frame int) uint64 {
	return uint64(frame+recordHead+recordAlign-1) &^ (recordAlign - 1)
}

// reserve returns the offset where a record with a frame of n bytes goes, or false when there is no
// room. at is the producer's position including records not yet published.
func (r *ring) reserve(at uint64, n int) (off int, next uint64, ok bool) {
	size := uint64(len(r.mem))
	need := recordSize(n)
	o := at & (size - 1)
	skip := uint64(0)
	if o+need > size {
		skip = size - o
	}
	if at+skip+need-r.seenTail > size {
		r.seenTail = r.tail.Load()
		if at+skip+need-r.seenTail > size {
			return 0, at, false
		}
	}
	if skip != 0 {
		binary.LittleEndian.PutUint32(r.mem[o:], wrapMark)
		o = 0
	}
	return int(o), at + skip + need, true
}

// fill puts the length of a frame that was written in place before off, which reserve returned for
// position at, and returns the position behind the frame.
func (r *ring) fill(off int, at uint64, n int) uint64 {
	binary.LittleEndian.PutUint32(r.mem[off:], uint32(n))
	if off == 0 {
		at = (at + uint64(len(r.mem)) - 1) &^ uint64(len(r.mem)-1) // over a wrap mark, if there was one
	}
	return at + recordSize(n)
}

// publish hands everything up to at to the consumer.
func (r *ring) publish(at uint64) {
	if at == r.produced {
		return
	}
	r.produced = at
	r.head.Store(at)
	if r.wantsFrame.Load() && r.wantsFrame.CompareAndSwap(true, false) {
		r.wakeReader()
	}
}

// produce copies frames into the ring and returns how many it took. Frames over the longest are taken
// and dropped. With lossy, so are frames that find no room; without, it asks to be woken for room.
func (r *ring) produce(frames [][]byte, lossy bool) int {
	b := r.begin()
	for b.done < len(frames) {
		if !b.put(nil, frames[b.done], lossy) {
			break
		}
	}
	b.end()
	return b.done
}

// burst is frames on their way into a ring.
type burst struct {
	*ring
	at                   uint64
	done                 int
	sent, bytes, dropped uint64
}

func (r *ring) begin() burst { return burst{ring: r, at: r.produced} }

// put copies one frame, with head in front of it. false: there is no room, and the producer is woken when
// there is. The bytes that are counted are the frame's.
func (b *burst) put(head, frame []byte, lossy bool) bool {
	n := len(head) + len(frame)
	if n > b.longest() {
		b.dropped++
		b.done++
		return true
	}
	off, next, ok := b.reserve(b.at, n)
	for !ok && !lossy && b.waitRoom(b.at, n) {
		off, next, ok = b.reserve(b.at, n)
	}
	if !ok {
		if !lossy {
			return false
		}
		b.dropped++
		b.done++
		return true
	}
	to := b.mem[off+recordHead:]
	copy(to[copy(to, head):], frame)
	binary.LittleEndian.PutUint32(b.mem[off:], uint32(n))
	b.at = next
	b.sent++
	b.bytes += uint64(len(frame))
	b.done++
	return true
}

// end hands the burst to the consumer.
func (b *burst) end() {
	b.ring.sent.add(b.sent, b.bytes)
	count(&b.ring.dropped, b.dropped)
	b.publish(b.at)
}

// waitRoom raises the producer's flag and looks again; true means that room appeared meanwhile.
func (r *ring) waitRoom(at uint64, n int) bool {
	// Published first: a consumer that sees the flag must also see what fills the ring.
	r.publish(at)
	r.wantsRoom.Store(true)
	if _, _, ok := r.reserve(at, n); ok {
		r.wantsRoom.Store(false)
		return true
	}
	return false
}

// release gives the memory of frames that were given out back to the producer. A sleeping producer is
// woken when half the ring is free, or all that was produced is consumed.
func (r *ring) release() {
	if r.consumed != r.released {
		r.released = r.consumed
		r.tail.Store(r.consumed)
	}
	if !r.wantsRoom.Load() {
		return
	}
	used := r.head.Load() - r.released
	if used <= uint64(len(r.mem))/2 && r.wantsRoom.CompareAndSwap(true, false) {
		r.wakeWriter()
	}
}

// consume releases what the last call gave out and fills frames with what is there. When nothing is
// there it asks to be woken.
func (r *ring) consume(frames [][]byte) int {
	r.release()
	head := r.head.Load()
	if head == r.consumed {
		if len(frames) == 0 || !r.sleepReader() {
			return 0
		}
		head = r.head.Load()
	}
	size := uint64(len(r.mem))
	n, at, bytes := 0, r.consumed, uint64(0)
	for n < len(frames) && at != head {
		off := at & (size - 1)
		l := uint64(binary.LittleEndian.Uint32(r.mem[off:]))
		if l == wrapMark {
			at += size - off
			continue
		}
		start := off + recordHead
		frames[n] = r.mem[start : start+l : start+l]
		bytes += l
		at += recordSize(int(l))
		n++
	}
	r.consumed = at
	r.received.add(uint64(n), bytes)
	return n
}

// sleepReader raises the consumer's flag and looks again; true means that there is a frame.
func (r *ring) sleepReader() bool {
	if !r.wantsFrame.Load() {
		r.wantsFrame.Store(true)
	}
	if r.head.Load() == r.consumed {
		return false
	}
	r.wantsFrame.Store(false)
	return true
}
