package rxpool

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"cxkit/dma"
	"cxkit/driver/internal/layout"
)

// Holder is who has a buffer: NIC, or the application, and then which queue gave it out.
type Holder uint16

const (
	// NIC: the buffer is free or in a ring.
	NIC Holder = 0

	out    Holder = 1 << 15 // with the application
	fromTx Holder = 1 << 14 // given out by a transmit queue
)

// DeliveredBy is the application, which has the buffer from Poll of a receive queue.
func DeliveredBy(queue int) Holder { return out | Holder(queue) }

// TakenFrom is the application, which has the buffer from Get of a transmit queue.
func TakenFrom(queue int) Holder { return out | fromTx | Holder(queue) }

// Out tells that the application has the buffer.
func (h Holder) Out() bool { return h&out != 0 }

// Queue is the number of the queue that gave the buffer out, and whether it is a transmit queue.
func (h Holder) Queue() (number int, transmit bool) {
	return int(h &^ (out | fromTx)), h&fromTx != 0
}

func (h Holder) String() string {
	switch q, tx := h.Queue(); {
	case !h.Out():
		return "with the NIC"
	case tx:
		return fmt.Sprintf("with the application from tx queue %d", q)
	default:
		return fmt.Sprintf("with the application from rx queue %d", q)
	}
}

// Bulk is how many buffers caches take and give at once at most.
const Bulk = 256

// Config sizes a pool.
type Config struct {
	// Memory holds Count buffers of Size bytes, one after the other, behind the pages of Fragments if there
	// are any.
	Memory dma.Region
	Size   int
	Count  int
	// Fragments, if not nil, are the books of pages at the beginning of the memory, whose fragments are
	// buffers of Size bytes, too. They belong to the queues of Pages, and are known by the same numbers.
	Fragments *layout.Shared
	Pages     []*layout.Queue
	// Caches is how many caches there will be. Together they keep no more than an eighth of the buffers
	// from those who need them.
	Caches int
	// Check fills free buffers with a pattern, verifies it when they are used again, and panics on wrong
	// moves.
	Check bool
}

// Pool is the buffers and the depot. Fields are fixed after New; the queues' hot paths read them.
type Pool struct {
	Mem     []byte
	Bus     uint64
	Size    int
	Unit    int // bytes from one buffer's number to the next; Size where there are no fragments
	Count   int // buffers beside fragments
	Check   bool
	Holders []Holder // per number; belongs to who has the buffer

	// fragments below end belong to queues; the others are in the depot and in caches
	fragments *layout.Shared
	queues    []*layout.Queue
	end       uint32

	batch      int // how many buffers a cache exchanges with the depot, if it is not asked for more
	violations atomic.Uint64

	hungry atomic.Int32 // len(waiting)

	mu      sync.Mutex // guards depot and waiting
	depot   []uint32
	waiting []Waker
}

// Waker is told that the depot has buffers again.
type Waker interface{ Raise() }

// New makes a pool whose buffers are all free and in the depot. It panics if they do not fit the memory.
func New(c Config) *Pool {
	p := &Pool{
		Bus: c.Memory.Bus, Size: c.Size, Unit: c.Size, Count: c.Count, Check: c.Check,
		batch: min(Bulk, max(1, c.Count/(16*max(1, c.Caches)))),
		depot: make([]uint32, max(0, c.Count)),
	}
	step := uint32(1) // numbers from buffer to buffer
	if c.Fragments != nil {
		p.fragments, p.queues, p.end, p.Unit = c.Fragments, c.Pages, c.Fragments.Fragments(), c.Fragments.Unit()
		step = uint32((c.Size + p.Unit - 1) / p.Unit)
	}
	numbers := int(p.end) + int(step)*c.Count
	if c.Size <= 0 || c.Count <= 0 || numbers*p.Unit > len(c.Memory.Bytes) {
		panic(fmt.Sprintf("rxpool: %d buffers of %d bytes, and %d fragments, in %d", c.Count, c.Size, p.end, len(c.Memory.Bytes)))
	}
	p.Mem = c.Memory.Bytes[:numbers*p.Unit]
	p.Holders = make([]Holder, numbers)
	for i := range p.depot { // low numbers on top
		p.depot[i] = p.end + step*uint32(c.Count-1-i)
	}
	if p.Check {
		layout.Poison(p.Mem[int(p.end)*p.Unit:])
	}
	return p
}

// Fragments is the first number that is no fragment of a page; 0 where there are none.
func (p *Pool) Fragments() uint32 { return p.end }

// Buffer is the memory of buffer i.
func (p *Pool) Buffer(i uint32) []byte {
	off := int(i) * p.Unit
	return p.Mem[off : off+p.Size : off+p.Size]
}

// Violation notes that somebody used a buffer that was not his.
func (p *Pool) Violation(what string, i uint32, h Holder) {
	p.violations.Add(1)
	if p.Check {
		panic(fmt.Sprintf("rxpool: %s of buffer %d, which is %v", what, i, h))
	}
}

// Release takes buffer i, which the application holds, back and reports whether it did hold it. The caller
// then puts it into a cache or the depot.
func (p *Pool) Release(i uint32) bool {
	if i >= uint32(len(p.Holders)) {
		p.Violation("release", i, NIC)
		return false
	}
	if h := p.Holders[i]; !h.Out() {
		p.Violation("release", i, h)
		return false
	}
	p.Holders[i] = NIC
	return true
}

// Hold notes that the application has buffers that were taken from a cache.
func (p *Pool) Hold(list []uint32, h Holder) {
	holders := p.Holders
	for _, i := range list {
		holders[i] = h
	}
}

// Return puts buffers that Release has freed into the depot. Any goroutine may call it.
func (p *Pool) Return(free []uint32) {
	if p.fragments != nil {
		free = free[:p.route(free, -1)]
	}
	if p.Check {
		for _, i := range free {
			layout.Poison(p.Buffer(i))
		}
	}
	p.Deposit(free)
}

// route gives the fragments among free buffers to their queues, home's without a lock, as its owner calls. It
// leaves the others in front and returns how many they are.
func (p *Pool) route(free []uint32, home int) (others int) {
	if home >= 0 {
		free = free[:p.queues[home].Absorb(free)]
	}
	for i := 0; i < len(free); {
		if free[i] >= p.end {
			free[others] = free[i]
			others++
			i++
			continue
		}
		to, run := p.fragments.Home(free[i]), i+1
		for run < len(free) && free[run] < p.end && p.fragments.Home(free[run]) == to {
			run++
		}
		p.queues[to].Give(free[i:run])
		i = run
	}
	return others
}

// Deposit puts free buffers of a cache into the depot.
func (p *Pool) Deposit(free []uint32) {
	p.mu.Lock()
	p.depot = append(p.depot, free...)
	if len(p.depot) > 0 {
		for _, w := range p.waiting {
			w.Raise()
		}
		p.waiting = p.waiting[:0]
		p.hungry.Store(0)
	}
	p.mu.Unlock()
}

// Want raises w once when the depot gets buffers: a queue found none. Asking again before that changes
// nothing. If the depot has some by now Want returns false and does nothing.
func (p *Pool) Want(w Waker) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.depot) > 0 {
		return false
	}
	if !slices.Contains(p.waiting, w) {
		p.waiting = append(p.waiting, w)
		p.hungry.Store(int32(len(p.waiting)))
	}
	return true
}

// Wanted tells that a queue waits for buffers: who has some in a cache empties it.
func (p *Pool) Wanted() bool { return p.hungry.Load() != 0 }

// withdraw takes up to len(dst) free buffers.
func (p *Pool) withdraw(dst []uint32) int {
	p.mu.Lock()
	n := min(len(dst), len(p.depot))
	copy(dst, p.depot[len(p.depot)-n:])
	p.depot = p.depot[:len(p.depot)-n]
	p.mu.Unlock()
	return n
}

// Violations is how many wrong moves were refused.
func (p *Pool) Violations() uint64 { return p.violations.Load() }

// Census counts the buffers by holder. It may be called while nobody uses a queue.
func (p *Pool) Census() map[Holder]int {
	m := make(map[Holder]int)
	for _, h := range p.Holders {
		m[h]++
	}
	return m
}

// Verify panics if the bytes of free buffer i are not as they were left: somebody wrote to it.
func (p *Pool) Verify(i uint32) {
	buffer := p.Buffer(i)
	if layout.Intact(buffer) {
		return
	}
	for off, b := range buffer {
		if b != layout.Pattern {
			p.violations.Add(1)
			panic(fmt.Sprintf("rxpool: free buffer %d was written to at byte %d (%#02x)", i, off, b))
		}
	}
}
