package transporttest

import (
	"errors"
	"runtime"
	"time"

	"cxkit/dma"
	"cxkit/pci"
)

// holdTime is how long cmdHold stays in its step: long enough that a transport that does not wait for it
// is found out.
const holdTime = 30 * time.Millisecond

type command struct {
	op           uint32
	source, dest uint64
	length       int
	arg          uint32
	notify       int
}

// engine is what the engine's goroutine keeps between commands.
type engine struct {
	kept    []byte
	keptGen uint64
}

// run is the engine: it performs commands one after the other until the host is gone.
func (c *Card) run(h pci.Host, ended chan struct{}) {
	defer close(ended)
	for {
		c.mu.Lock()
		for c.host == h && len(c.queue) == 0 {
			c.work.Wait()
		}
		if c.host != h {
			c.mu.Unlock()
			return
		}
		cmd := c.queue[0]
		c.queue = c.queue[1:]
		c.busy = true
		c.mu.Unlock()

		status, value := c.perform(h, cmd)

		c.mu.Lock()
		c.put(regStatus, 4, uint64(status))
		c.put(regValue, 8, value)
		c.put(regDone, 4, c.get(regDone, 4)+1)
		// The interrupt belongs to the command: a reset that waits for the engine is after both.
		h.Raise(cmd.notify)
		c.busy = false
		c.idle.Broadcast()
		c.mu.Unlock()
	}
}

// perform is one step.
func (c *Card) perform(h pci.Host, cmd command) (status int, value uint64) {
	mem := h.Memory()
	if cmd.op == cmdRaise {
		for range min(cmd.length, 1<<16) {
			h.Raise(int(int64(cmd.source)))
		}
		return statusOK, 0
	}
	err := pci.Guard(mem, func() { status, value = c.step(h, mem, cmd) })
	if err != nil {
		status = statusVanished
	}
	return status, value
}

func (c *Card) step(h pci.Host, mem pci.Memory, cmd command) (status int, value uint64) {
	length := min(cmd.length, 1<<20) // what a hostile register asks for is not made
	switch cmd.op {
	case cmdFill:
		return fill(mem.View(cmd.dest, length, pci.Write), length, byte(cmd.arg)), 0
	case cmdSum:
		b := mem.View(cmd.source, length, pci.Read)
		return viewStatus(b, length), sum(b)
	case cmdCopy:
		from, to := mem.View(cmd.source, length, pci.Read), mem.View(cmd.dest, length, pci.Write)
		if s := max(viewStatus(from, length), viewStatus(to, length)); s != statusOK {
			return s, 0
		}
		copy(to, from)
		return statusOK, 0
	case cmdFillAt:
		b := make([]byte, max(length, 0))
		fill(b, len(b), byte(cmd.arg))
		return errorStatus(mem.WriteAt(b, cmd.dest)), 0
	case cmdSumAt:
		b := make([]byte, max(length, 0))
		err := mem.ReadAt(b, cmd.source)
		return errorStatus(err), sum(b)
	case cmdHold:
		return c.hold(h, mem.View(cmd.dest, length, pci.Write), cmd), 0
	case cmdGen:
		return statusOK, mem.Generation()
	case cmdKeep:
		c.engine.kept, c.engine.keptGen = mem.View(cmd.dest, length, pci.Write), mem.Generation()
		return viewStatus(c.engine.kept, length), 0
	case cmdUseKept:
		if mem.Generation() != c.engine.keptGen {
			c.engine.kept = nil
			return statusStale, 0
		}
		return fill(c.engine.kept, len(c.engine.kept), byte(cmd.arg)), 0
	case cmdPublish:
		b := mem.View(cmd.dest, length, pci.Write)
		if s := viewStatus(b, length); s != statusOK || length < 4 {
			return s, 0
		}
		fill(b[4:], length-4, byte(cmd.arg))
		dma.StoreBE32(b, 0, cmd.arg) // partner: the driver's load in OwnershipWordsPublish
		return statusOK, 0
	}
	return statusOK, 0
}

// hold stays in its step for holdTime and writes all the while. It raises notify when it has begun.
func (c *Card) hold(h pci.Host, b []byte, cmd command) (status int) {
	if s := viewStatus(b, cmd.length); s != statusOK {
		return s
	}
	h.Raise(cmd.notify)
	for end := time.Now().Add(holdTime); time.Now().Before(end); runtime.Gosched() {
		fill(b, len(b), byte(cmd.arg))
	}
	c.mu.Lock()
	c.put(regLeft, 4, c.get(regLeft, 4)+1)
	c.mu.Unlock()
	return statusOK
}

func fill(b []byte, n int, v byte) (status int) {
	for i := range b {
		b[i] = v
	}
	return viewStatus(b, n)
}

func sum(b []byte) (s uint64) {
	for _, v := range b {
		s += uint64(v)
	}
	return s
}

func viewStatus(b []byte, n int) int {
	switch {
	case b == nil:
		return statusNoView
	case len(b) != n:
		return statusOdd
	}
	return statusOK
}

func errorStatus(err error) int {
	var e *pci.DMAError
	switch {
	case err == nil:
		return statusOK
	case errors.As(err, &e):
		return statusDMAError
	}
	return statusOdd
}
