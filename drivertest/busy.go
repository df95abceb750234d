package drivertest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"sync"
	"time"

	"cxkit/driver"
)

// Changes while frames move, in both directions.
func busyTests() []Test {
	return []Test{
		{Name: "MTUChangesUnderTrafficLoseNothing", Config: driver.Config{BufferSize: 9728, RxRing: 256, TxRing: 256}, Run: func(e *Env) {
			in, out := Frames(e.NIC.MAC(), 2000, 1000), Frames(peer(), 2000, 1000)
			e.Background(func(e *Env) { e.Send(in...) })
			e.Background(func(e *Env) { e.Transmit(0, out...) })
			e.Background(func(e *Env) { e.Same(e.Arrived(len(out)), out) })
			e.Background(func(e *Env) {
				for i := range 30 {
					e.Must(e.NIC.SetMTU(e.Ctx, []int{9000, 1500, 1000}[i%3]))
				}
			})
			e.Same(e.Receive(0, len(in)), in)
		}},
		{Name: "LinkSetUnderTrafficKeepsOrder", Run: func(e *Env) {
			changes := e.NIC.LinkChanges(e.Ctx)
			e.waitLink(changes, true)
			ctx, cancel := context.WithCancel(e.Ctx)
			mac := e.NIC.MAC()
			const last = 1 << 31
			e.Background(func(e *Env) {
				for i := uint32(0); e.Bench.Far.SendAll(ctx, Frame(mac, 60, i)) == nil; i++ {
				}
				e.Send(Frame(mac, 60, last))
			})
			e.Background(func(e *Env) {
				defer cancel()
				for range 10 {
					e.Must(e.NIC.SetLink(e.Ctx, false))
					e.waitLink(changes, false)
					e.Must(e.NIC.SetLink(e.Ctx, true))
					e.waitLink(changes, true)
				}
			})
			next := uint32(0)
			for next <= last {
				e.ReceiveEach(0, 1, func(p *driver.Packet) {
					n := binary.BigEndian.Uint32(p.Data[14:])
					if n < next {
						e.Errorf("frame %d after %d", n, next-1)
					}
					next = n + 1
				})
			}
		}},
		{Name: "CablePulledUnderTrafficLosesOnlyFrames", Run: func(e *Env) {
			changes := e.NIC.LinkChanges(e.Ctx)
			e.waitLink(changes, true)
			for i := range 5 {
				e.Background(func(e *Env) { e.Transmit(0, Frames(peer(), 200, 60)...); e.Flush(0) })
				e.Bench.Far.SetLink(false)
				e.waitLink(changes, false)
				e.background.Wait()
				e.Bench.Far.SetLink(true)
				e.waitLink(changes, true)
				mark := Frame(driver.MAC{2, 9, 9, 9, 9, byte(i)}, 60, 0)
				e.Transmit(0, mark)
				for !bytes.Equal(e.Arrived(1)[0], mark) {
				}
			}
		}},
		{Name: "OpensAndClosesManyTimesUnderTraffic", Config: driver.Config{Queues: 2, RxRing: 64, TxRing: 64}, Run: func(e *Env) {
			ctx, cancel := context.WithCancel(e.Ctx)
			var sender sync.WaitGroup
			defer sender.Wait()
			defer cancel()
			mac := e.NIC.MAC()
			sender.Go(func() {
				for i := uint32(0); e.Bench.Far.SendAll(ctx, Frame(mac, 60, i), Frame(Broadcast(), 90, i)) == nil; i++ {
				}
			})
			for range 6 {
				e.Receive(0, 40)
				e.Transmit(0, Frames(peer(), 40, 60)...) // perhaps not sent before Close
				e.Close()
				e.Open(driver.Config{Queues: 2, RxRing: 64, TxRing: 64})
			}
		}},
		{Name: "CloseEndsEverythingAtOnce", Config: driver.Config{Queues: 2, RxRing: 64, TxRing: 64}, Run: func(e *Env) {
			nic := e.NIC
			for q := range 2 {
				e.background.Go(func() {
					for nic.RxQueue(q).Wait(e.Ctx) == nil {
					}
				})
				e.background.Go(func() {
					for nic.TxQueue(q).Wait(e.Ctx) == nil { // there is room: it returns at once
						runtime.Gosched()
					}
				})
			}
			for i := range 4 {
				e.background.Go(func() {
					for {
						_, err := nic.Stats(e.Ctx)
						if err == nil {
							err = nic.SetPromiscuous(e.Ctx, i%2 == 0)
						}
						if err == nil {
							err = nic.SetMTU(e.Ctx, 1400+i)
						}
						if err != nil {
							if e.Ctx.Err() != nil {
								e.Errorf("calls do not end with the NIC: %v", err)
							}
							return
						}
					}
				})
			}
			e.Receive(0, 0)
			e.Must(e.NIC.SetAllMulticast(e.Ctx, true)) // all of them have begun, or will find the NIC closed
			e.NIC = nil
			if err := nic.Close(e.Ctx); err != nil {
				e.Errorf("close: %v", err)
			}
			e.background.Wait()
			e.emptyBooks(nic)
		}},
		{Name: "FullWireHoldsFrames", Config: driver.Config{TxRing: 64}, Run: func(e *Env) {
			// Nobody takes frames at the far end until the wire and the ring are full.
			want := Frames(peer(), 4000, 1514)
			sent := make(chan struct{})
			e.Background(func(e *Env) { defer close(sent); e.Transmit(0, want...) })
			select {
			case <-sent:
				e.Fatalf("a wire that nobody reads took %d frames", len(want))
			case <-time.After(20 * time.Millisecond):
			}
			e.Same(e.Arrived(len(want)), want)
			<-sent
			e.Flush(0)
		}},
		{Name: "FlushEndsWithItsContext", Config: driver.Config{TxRing: 1024}, Run: func(e *Env) {
			tx := e.NIC.TxQueue(0)
			want := Frames(peer(), 1000, 1514) // more than the wire holds
			e.Transmit(0, want...)
			ctx, cancel := context.WithTimeout(e.Ctx, 10*time.Millisecond)
			defer cancel()
			if err := tx.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
				e.Errorf("flush with %d frames pending: %v", tx.Pending(), err)
			}
			if tx.Pending() == 0 {
				e.Error("nothing is pending after a flush that ended early")
			}
			e.Background(func(e *Env) { e.Same(e.Arrived(len(want)), want) })
			e.Flush(0)
			if n := tx.Pending(); n != 0 {
				e.Errorf("%d frames are pending after a flush", n)
			}
		}},
	}
}
