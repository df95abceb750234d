package driver

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cxkit/dma"
)

// withProgram gives the writer's receive queue a program, whose send queue is the writer's.
func (w *writer) withProgram(p Program) {
	w.rx.allowPrograms(w.tx)
	w.rx.xdp.run = p
	w.tx.headroom = Headroom
	w.nic.config.Program = p
}

// A block of so many frames that its count of references would wrap is refused, by name: such a block never
// came back.
func TestBlocksOfTooManyFramesAreRefused(t *testing.T) {
	block := func(order, size int) error {
		_, err := (Config{MTU: 200, BufferSize: size, RxPages: RxPages{RxLayout: RxBlocks, RxPageSize: 65536, RxOrder: &order}}).complete()
		return err
	}
	if block(8, 256) == nil || block(10, 1024) == nil || block(10, 800) == nil {
		t.Error("blocks of 65,536 frames were accepted")
	}
	if err := block(7, 256); err != nil {
		t.Error(err)
	}
}

// Buffers of 256 bytes lie where, with a program, frames begin behind their headroom: a program that is loaded
// while they are posted must not reach into the frame in front.
func TestFrameWithoutHeadroomIsNotExtended(t *testing.T) {
	program := func(*Frame) Verdict { return Pass }
	w := newWriter(t, Config{Arena: dma.Heap, RxRing: 16, TxRing: 8, MTU: 200, BufferSize: 256, Receiving: Receiving{Program: program}})
	extended := 0
	w.withProgram(func(f *Frame) Verdict {
		if f.Extend(4) {
			extended++
		}
		return Pass
	})
	receive := func(program bool) {
		// What was posted before the switch has the room that it has.
		if program {
			w.rx.pages.Switch(RxHalves.kind())
		}
		pkts := make([]Packet, 16)
		for range 4 {
			w.receive(16, 64)
			n := w.rx.Poll(pkts)
			w.rx.Release(pkts[:n])
		}
	}
	receive(false)
	if extended != 64 {
		t.Fatalf("%d of 64 frames had headroom", extended)
	}
	receive(true)
	if extended != 80 { // the ring that was posted with headroom
		t.Errorf("%d frames without headroom were extended", extended-80)
	}
}

// With nothing posted and nothing to post, frames that wait to be merged are handed out: else the ring waits for
// memory that the driver itself holds.
func TestDryRingDoesNotWaitForMerging(t *testing.T) {
	w := newWriter(t, Config{Arena: dma.Heap, RxRing: 8, TxRing: 8, Buffers: 8, RxPages: RxPages{RxLayout: RxPagePerSlot},
		Receiving: Receiving{GRO: true, GROTimeout: time.Hour}})
	frames := segments(8)
	for i, f := range frames {
		f[35] = byte(i) // flows of one segment each
	}
	var pkts [16]Packet
	n := 0
	for range 4 {
		if w.posted() >= 8 {
			w.receiveFrames(frames)
		}
		n += w.rx.Poll(pkts[n:])
	}
	if n == 0 {
		t.Fatalf("no frame came out; %d posted, %+v", w.posted(), w.rx.PageStats())
	}
	w.rx.Release(pkts[:n])
	w.rx.Poll(pkts[:1])
	if w.posted() == 0 {
		t.Error("nothing is posted though all frames are back")
	}
}

// The allocator fails totally and has memory again: a queue that waits posts buffers within one period of 250 ms,
// though nobody tells it.
func TestWaitRecoversFromTotalFailureWithinOnePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(t, Config{Arena: dma.Heap, RxRing: 64, TxRing: 8})
		memory := &RxMemory{pages: w.nic.memory.pages}
		memory.Fail(0, 1)
		var held []Packet
		for w.posted() > 0 {
			w.receive(64, 64)
			pkts := make([]Packet, 64)
			held = append(held, pkts[:w.rx.Poll(pkts)]...)
		}
		ctx, cancel := context.WithCancel(t.Context())
		waited := make(chan error)
		go func() { waited <- w.rx.Wait(ctx) }()
		time.Sleep(1001 * time.Millisecond) // it looks again and again, in vain
		synctest.Wait()
		if w.posted() != 0 {
			t.Fatal("buffers out of nothing")
		}
		memory.Fail(0, 0)
		time.Sleep(250 * time.Millisecond)
		synctest.Wait()
		if w.posted() == 0 {
			t.Error("no buffer posted a period after there was memory again")
		}
		cancel()
		<-waited
		w.rx.Release(held)
	})
}

// A program sends every frame, and all pages are in its send ring. Their completion ends a wait at once: pages come
// back when they are sent, not when somebody looks.
func TestWaitEndsWhenAProgramsSendsComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		send := func(*Frame) Verdict { return Tx }
		w := newWriter(t, Config{Arena: dma.Heap, RxRing: 16, TxRing: 16, Buffers: 16, Receiving: Receiving{Program: send}})
		w.withProgram(send)
		var pkts [16]Packet
		for range 8 {
			w.receive(16, 64)
			w.rx.Poll(pkts[:])
		}
		if w.posted() != 0 {
			t.Fatalf("%d are posted still", w.posted())
		}
		waited := make(chan error)
		go func() { waited <- w.rx.Wait(t.Context()) }()
		synctest.Wait()
		begin := time.Now()
		w.complete()
		w.tx.completed.Raise()
		if err := <-waited; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("the wait ended %v after the sends", took)
		}
		w.rx.Poll(pkts[:])
		if w.posted() == 0 {
			t.Error("nothing posted")
		}
	})
}

// Others release while the NIC is closed: what comes too late is forgotten, and nothing is touched that is gone.
func TestReleaseWhileTheNICCloses(t *testing.T) {
	for range 20 {
		w := newWriter(t, Config{Arena: dma.Heap, RxRing: 64, TxRing: 8})
		w.receive(64, 64)
		pkts := make([]Packet, 64)
		if n := w.rx.Poll(pkts); n != 64 {
			t.Fatalf("%d packets", n)
		}
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				for part := pkts[i*16:][:16]; len(part) > 0; part = part[1:] {
					w.nic.ReleaseAll(part[:1])
				}
			})
		}
		w.nic.stopPlane()
		w.nic.finishPlane(true)
		clear(w.pool.Bytes) // the memory is another's now
		all.Wait()
		for i, b := range w.pool.Bytes {
			if b != 0 {
				t.Fatalf("byte %d of memory that is gone was written", i)
			}
		}
	}
}

// The smallest and largest rings, MTUs, pages and orders, with no more buffers than there must be: frames come, are kept
// and released out of order, and when all are back the ring is full.
func TestExtremeConfigurationsReceive(t *testing.T) {
	for name, c := range map[string]Config{
		"smallest ring":                  {RxRing: MinRing, Buffers: MinRing},
		"smallest ring on large pages":   {RxRing: MinRing, Buffers: MinRing, RxPages: RxPages{RxPageSize: 65536}},
		"largest ring":                   {RxRing: MaxRing, Buffers: MaxRing, MTU: MinMTU, BufferSize: 256},
		"smallest MTU, 16 frames a page": {RxRing: 64, Buffers: 64, MTU: MinMTU, BufferSize: 256},
		"256 frames a page":              {RxRing: 512, Buffers: 512, MTU: MinMTU, BufferSize: 256, RxPages: RxPages{RxPageSize: 65536}},
		"largest MTU":                    {RxRing: 32, Buffers: 32, MTU: MaxMTU},
		"largest MTU on large pages":     {RxRing: 32, Buffers: 32, MTU: MaxMTU, RxPages: RxPages{RxPageSize: 65536}},
		"largest buffer":                 {RxRing: 16, Buffers: 16, BufferSize: MaxBufferSize, RxPages: RxPages{RxPageSize: 65536}},
		"odd size":                       {RxRing: 16, Buffers: 16, BufferSize: 1777},
		"odd size, flip":                 {RxRing: 16, Buffers: 16, BufferSize: 1777, RxPages: RxPages{RxLayout: RxPageFlip, RxPageSize: 65536}},
		"one frame a page, flip":         {RxRing: 16, Buffers: 16, BufferSize: 4096, RxPages: RxPages{RxLayout: RxPageFlip}},
		"single pages":                   {RxRing: 16, Buffers: 16, RxPages: RxPages{RxOrder: new(0)}},
		"largest order":                  {RxRing: 16, Buffers: 16, RxPages: RxPages{RxOrder: new(10)}},
		"largest blocks":                 {RxRing: 16, Buffers: 16, RxPages: RxPages{RxLayout: RxBlocks, RxOrder: new(10)}},
		"smallest blocks":                {RxRing: 16, Buffers: 16, RxPages: RxPages{RxLayout: RxBlocks, RxOrder: new(0)}},
	} {
		t.Run(name, func(t *testing.T) {
			c.Arena, c.TxRing = dma.Heap, MinRing
			w := newWriter(t, c)
			ring := c.RxRing
			if w.posted() != ring {
				t.Fatalf("%d of %d posted", w.posted(), ring)
			}
			var held []Packet
			pkts := make([]Packet, min(ring, 64))
			for turn := range 3*ring/len(pkts) + 8 {
				w.receive(len(pkts), 60)
				n := w.rx.Poll(pkts)
				held = append(held, pkts[:n]...)
				if turn%3 == 2 { // the newest half first
					half := len(held) / 2
					w.nic.ReleaseAll(held[half:])
					w.rx.Release(held[:half])
					held = held[:0]
				}
			}
			w.rx.Release(held)
			w.rx.refill()
			if w.posted() != ring {
				t.Errorf("%d of %d posted when all is back", w.posted(), ring)
			}
			if b := w.nic.bufferBooks(); b.Application != 0 || b.Violations != 0 {
				t.Errorf("%+v", b)
			}
		})
	}
}
