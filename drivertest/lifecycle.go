package drivertest

import (
	"context"
	"errors"
	"strings"

	"cxkit/driver"
)

func lifecycleTests() []Test {
	return []Test{
		{Name: "OpenAndCloseLeavesNothing", Run: func(e *Env) {}},
		{Name: "OpensAgainAfterClose", Run: func(e *Env) {
			for i := range 3 {
				e.OnlyArrives(Frame(e.NIC.MAC(), 60, uint32(i)))
				e.Close()
				e.Open(driver.Config{})
			}
		}},
		{Name: "OpensWithManyQueues", Config: driver.Config{Queues: 32, RxRing: 64, TxRing: 64}, Run: func(e *Env) {
			if e.NIC.Queues() != 32 {
				e.Errorf("%d queues", e.NIC.Queues())
			}
			e.OnlyArrives(Frame(e.NIC.MAC(), 60, 1))
		}},
		{Name: "CloseTwiceIsFine", Run: func(e *Env) {
			nic := e.NIC
			e.Close()
			if err := nic.Close(e.Ctx); err != nil {
				e.Errorf("second close: %v", err)
			}
		}},
		{Name: "CloseEndsWaits", Run: func(e *Env) {
			nic := e.NIC
			ended := make(chan error, 1)
			go func() {
				for {
					if err := nic.RxQueue(0).Wait(e.Ctx); err != nil {
						ended <- err
						return
					}
				}
			}()
			e.Close()
			if err := <-ended; !errors.Is(err, driver.ErrNICClosed) {
				e.Errorf("wait ended with %v", err)
			}
		}},
		{Name: "CloseUnderTraffic", Run: func(e *Env) {
			ctx, cancel := context.WithCancel(e.Ctx)
			mac := e.NIC.MAC()
			e.background.Go(func() {
				for i := uint32(0); e.Bench.Far.SendAll(ctx, Frame(mac, 60, i)) == nil; i++ {
				}
			})
			e.Receive(0, 300)
			nic := e.NIC
			e.NIC = nil
			if err := nic.Close(e.Ctx); err != nil {
				e.Errorf("close: %v", err)
			}
			cancel()
			e.emptyBooks(nic)
		}},
		{Name: "CloseNamesBuffersTheApplicationKept", Run: func(e *Env) {
			e.Send(Frames(e.NIC.MAC(), 3, 60)...)
			var pkts [3]driver.Packet
			for n := 0; n < 3; {
				n += e.Poll(0, pkts[n:])
			}
			nic := e.NIC
			e.NIC = nil
			err := nic.Close(e.Ctx)
			if err == nil || !strings.Contains(err.Error(), "3 ") {
				e.Errorf("close with 3 buffers out: %v", err)
			}
		}},
		{Name: "InfoNamesTheCard", Run: func(e *Env) {
			info := e.NIC.Info()
			if info.VendorID != 0x15b3 || info.Model == "" || info.PSID == "" || info.Firmware == (driver.FirmwareVersion{}) {
				e.Errorf("info: %+v", info)
			}
		}},
		{Name: "RefusesBadConfigurations", Run: func(e *Env) {
			e.Close()
			for _, c := range []driver.Config{
				{Queues: -1}, {Queues: driver.MaxQueues + 1}, {RxRing: 7}, {RxRing: 1 << 20}, {TxRing: 100},
				{MTU: 20}, {MTU: 20000}, {MAC: driver.MAC{1}}, {Buffers: 1}, {BufferSize: 100}, {CommandTimeout: -1},
			} {
				c.CheckBuffers = true
				if nic, err := driver.Open(e.Ctx, e.Bench.Function, c); err == nil {
					e.Errorf("config %+v is not refused", c)
					e.Must(nic.Close(e.Ctx))
				}
			}
			e.Open(driver.Config{})
		}},
		{Name: "OpenEndsWithItsContext", Run: func(e *Env) {
			e.Close()
			ctx, cancel := context.WithCancel(e.Ctx)
			cancel()
			if nic, err := driver.Open(ctx, e.Bench.Function, driver.Config{CheckBuffers: true}); err == nil {
				e.Errorf("open with an ended context succeeds")
				e.Must(nic.Close(e.Ctx))
			}
			e.Open(driver.Config{})
			e.OnlyArrives(Frame(e.NIC.MAC(), 60, 1))
		}},
		{Name: "BooksAddUp", Run: func(e *Env) {
			b := e.NIC.Books().Buffers
			if b.Free+b.Posted+b.Application+b.Sending != e.NIC.Config().Buffers || b.Application != 0 {
				e.Errorf("books of %d buffers: %+v", e.NIC.Config().Buffers, b)
			}
		}},
	}
}
