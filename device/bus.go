package device

import (
	"fmt"
	"time"
)

// Bus is what PCI Express takes of the frames that a function receives. Where it is the limit, and not the
// driver, frames are discarded in the port's buffer: rx_discards_phy counts them, not rx_out_of_buffer. On a
// wire that loses nothing they wait. The zero value is a bus without limits.
type Bus struct {
	// BytesPerSecond is its rate, in bytes of frames and of what goes with them: 80 bytes each for WQE and
	// completion, and PerQueue for each receive queue, whose rings push one another's out of caches.
	BytesPerSecond int64
	PerQueue       int
	// Buffer is how many bytes of frames wait for the bus; 256 KiB if 0.
	Buffer int
}

const (
	busOverhead   = 80
	defaultBuffer = 256 << 10
)

func (b Bus) check() error {
	if b.BytesPerSecond < 0 || b.BytesPerSecond > 1<<42 || b.PerQueue < 0 || b.PerQueue > 1<<20 || b.Buffer < 0 || b.Buffer > 1<<30 {
		return fmt.Errorf("bus of %d bytes a second, %d a queue, buffer of %d: want 0 to 4 TiB, 1 MiB, 1 GiB", b.BytesPerSecond, b.PerQueue, b.Buffer)
	}
	return nil
}

// bus is how much room there is now. The engine owns it.
type bus struct {
	rate, buffer float64 // bytes a second, bytes; rate 0: no limit
	perQueue     int
	room         float64
	at           time.Duration
}

func (b *bus) set(c Bus) {
	b.rate, b.perQueue = float64(c.BytesPerSecond), c.PerQueue
	b.buffer = float64(orDefault(c.Buffer, defaultBuffer))
	b.room = b.buffer
}

// take makes use of the bus for a frame of n bytes, if there is room.
func (b *bus) take(now time.Duration, n int, f *function) bool {
	if now > b.at {
		b.room = min(b.buffer, b.room+b.rate*(now-b.at).Seconds())
		b.at = now
	}
	cost := float64(n + busOverhead + b.perQueue*f.rqs.Len())
	if b.room < cost {
		return false
	}
	b.room -= cost
	return true
}

// discard counts a good frame of a priority that the bus had no room for.
func (p *port) discard(priority int) {
	p.counters.rx.discards++
	p.counters.rx.prioDiscards[priority&7]++
	p.counters.overflow++
}

// pausePriorities counts a PFC frame with the priorities that its enable vector names.
func (d *direction) pausePriorities(enabled byte) {
	for i := range d.prioPause {
		d.prioPause[i] += uint64(enabled >> i & 1)
	}
}
