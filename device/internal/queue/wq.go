package queue

import (
	"encoding/binary"

	"cxkit/device/internal/object"
)

// WQConfig describes a ring of receive WQEs.
type WQConfig struct {
	Buffer    Buffer
	Record    Record
	LogSize   uint8 // log2 of WQEs
	LogStride uint8 // log2 of a WQE's bytes: at least 4, or 5 if Headed
	// Linked: WQEs are used in the order of their links, and completions name them by index. Without it
	// they are used in the order of the ring and completions carry the counter.
	Linked bool
	// Strides is how many strides a WQE holds, of 1<<LogStrideSize bytes each; 0: a WQE is for one frame.
	Strides       int
	LogStrideSize uint8
	// Shift puts frames two bytes into their first stride, so that IP headers are aligned.
	Shift bool
	// Uses is what it holds: the memory of its ring and record, if it has a number.
	Uses object.Uses
}

// headed reports whether WQEs start with a next segment.
func (c *WQConfig) headed() bool { return c.Linked || c.Strides > 0 }

// WQ is where RQs take WQEs from: a ring of one RQ, or that of an RMP, which several share and hold.
type WQ struct {
	object.Refs
	config WQConfig
	mask   uint16
	epoch  uint64
	// stopped: an RMP that is not in RDY. epoch stays 0 then, so that everyone comes to look.
	stopped bool

	next   uint16 // counter of the WQE to be used
	posted uint16 // as last read from the record

	// Of a linked list: index is the slot of the WQE at next, or, if followed is false, of the one before
	// it: its link is read when another is needed and posted, and not before, because drivers write the
	// link of the last entry when they post the next (reference 03 §4.2).
	index    uint16
	followed bool
	stride   int // strides of the WQE at next that are used
}

// NewWQ makes a ring with nothing posted.
func NewWQ(c WQConfig) *WQ {
	w := &WQ{config: c, mask: 1<<c.LogSize - 1}
	w.reset()
	return w
}

// Config is the ring's configuration.
func (w *WQ) Config() *WQConfig { return &w.config }

// Counters are the counters of WQEs used and posted.
func (w *WQ) Counters() (used, posted uint16) { return w.next, w.posted }

// Reset forgets what was posted: the first WQE is that of slot 0.
func (w *WQ) Reset() { w.reset() }

// Stop keeps the ring's WQEs from being used, until it is called with false.
func (w *WQ) Stop(stopped bool) { w.stopped, w.epoch = stopped, 0 }

func (w *WQ) reset() {
	w.next, w.posted, w.index, w.stride = 0, 0, 0, 0
	w.followed = true
}

// begin checks views once a step.
func (w *WQ) begin(e *Env) {
	if w.epoch != e.epoch {
		w.epoch = e.epoch
		w.config.Buffer.refresh(e)
		w.config.Record.refresh(e)
	}
}

// poll reads the record: there is no doorbell for receive queues. A ring may be full, so the 16-bit
// counters are compared as they are. What they say beyond the ring's size is the driver's mistake; every
// slot is inside the ring whatever they say. ok is false when the record can't be read.
func (w *WQ) poll(e *Env) (more, ok bool) {
	// Partner: the driver's store of the record after it has written WQEs.
	v, ok := w.config.Record.load(e, 0)
	if !ok {
		return false, false
	}
	w.posted = uint16(v)
	return w.next != w.posted, true
}

// slot is the slot of the WQE at next, which is posted. ok is false when a link leads out of the ring or
// can't be read.
func (w *WQ) slot(e *Env) (slot uint16, ok bool) {
	if !w.config.Linked {
		return w.next & w.mask, true
	}
	if !w.followed {
		b, err := w.bytes(e, w.index, segmentSize)
		if err != nil {
			return 0, false
		}
		next := binary.BigEndian.Uint16(b[2:])
		if next > w.mask {
			return 0, false
		}
		w.index, w.followed = next, true
	}
	return w.index, true
}

// advance leaves the WQE at next behind.
func (w *WQ) advance() {
	w.next++
	w.stride = 0
	w.followed = false
}

// bytes returns the first n bytes of a slot.
func (w *WQ) bytes(e *Env, slot uint16, n int) ([]byte, error) {
	off := int(slot) << w.config.LogStride
	if v := w.config.Buffer.view(e, off, n); v != nil {
		return v, nil
	}
	v := e.wqe[:n] // reached by messages only
	return v, w.config.Buffer.pages.Read(e.mem, off, v)
}

// wqe returns the data segments of a slot.
func (w *WQ) wqe(e *Env, slot uint16) ([]byte, error) {
	b, err := w.bytes(e, slot, 1<<w.config.LogStride)
	if err == nil && w.config.headed() {
		b = b[segmentSize:]
	}
	return b, err
}

// shift is how far into its first stride a frame starts.
func (w *WQ) shift() int {
	if w.config.Shift {
		return 2
	}
	return 0
}

// strides is how many strides a frame of n bytes takes.
func (w *WQ) strides(n int) int {
	return max(1, (n+w.shift()+1<<w.config.LogStrideSize-1)>>w.config.LogStrideSize)
}

// byteCount is the field of a striding RQ's completion.
func byteCount(filler bool, strides, bytes int) uint32 {
	v := uint32(strides)<<16 | uint32(bytes)
	if filler {
		v |= 1 << 31
	}
	return v
}

// MaxStrides is how many strides a WQE may have: the field of a completion that counts them is as wide as
// drivers read it, 14 bits, and has to hold all of them when a WQE is flushed.
const MaxStrides = 1<<14 - 1
