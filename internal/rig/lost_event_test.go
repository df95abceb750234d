package rig_test

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"cxkit/device"
	"cxkit/device/fault"
	"cxkit/driver"
	"cxkit/drivertest"
	"cxkit/prm"
)

// What a Wait does when the word of a completion goes astray: it finds the completion a second later, says
// which word was lost, and the next event comes again (reports R32).
func TestWaitFindsCompletionsWhoseEventWasLost(t *testing.T) {
	for name, test := range map[string]struct {
		fault              fault.Fault
		events, interrupts uint64
	}{
		"EQE":       {fault.Fault{Kind: fault.LostEQE, Events: []prm.EventType{prm.EventCompletion}, Times: 1}, 1, 0},
		"interrupt": {fault.Fault{Kind: fault.LostInterrupt, Vectors: []int{1}, Times: 1}, 0, 1},
		"arm":       {fault.Fault{Kind: fault.LostDoorbell, Doorbell: fault.CQBell, Times: 1}, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, nic := open(t, heap(device.Config{}), driver.Config{})
				if err := r.Card.Inject(fault.Plan{Faults: []fault.Fault{test.fault}}); err != nil {
					t.Fatal(err)
				}
				for i := range 3 {
					frame := drivertest.Frame(nic.MAC(), 60, uint32(i))
					go func() {
						time.Sleep(10 * time.Second) // the receiver sleeps, and has looked in vain before
						r.Far.Send(frame)
					}()
					begin := time.Now()
					if got := one(t, nic); !bytes.Equal(got, frame) {
						t.Errorf("frame %d: got %x", i, got)
					}
					late := time.Since(begin) - 10*time.Second
					if i == 0 && (late <= 0 || late > 2*time.Second) || i > 0 && late > time.Millisecond {
						t.Errorf("frame %d was found %v after it came", i, late)
					}
				}
				if nic.TxQueue(0).Stats().LostEvents != 0 {
					t.Error("the transmit queue lost an event, too")
				}
				s := nic.RxQueue(0).Stats()
				if s.LostEvents != test.events || s.LostInterrupts != test.interrupts {
					t.Errorf("%d events and %d interrupts lost, want %d and %d", s.LostEvents, s.LostInterrupts, test.events, test.interrupts)
				}
			})
		})
	}
}

// The same for a Flush: the completion comes when everybody sleeps, and no event tells of it.
func TestFlushFindsCompletionsWhoseEventWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const late = 5300 * time.Millisecond // between two looks, which come each second
		r, nic := open(t, heap(device.Config{}), driver.Config{})
		if err := r.Card.Inject(fault.Plan{Faults: []fault.Fault{
			{Kind: fault.LateCQE, Direction: fault.Sent, Delay: late},
			{Kind: fault.LostEQE, Events: []prm.EventType{prm.EventCompletion}, Times: 1},
		}}); err != nil {
			t.Fatal(err)
		}
		tx := nic.TxQueue(0)
		for i := range 2 {
			var pkts [1]driver.Packet
			if tx.Get(pkts[:]) != 1 {
				t.Fatal("no buffer")
			}
			pkts[0].Data = append(pkts[0].Data, drivertest.Frame(nic.MAC(), 60, 1)...)
			begin := time.Now()
			if tx.Send(pkts[:]) != 1 {
				t.Fatal("not sent")
			}
			if err := tx.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			if d := time.Since(begin) - late; i == 0 && (d <= 0 || d > 2*time.Second) || i > 0 && (d < 0 || d > time.Millisecond) {
				t.Errorf("frame %d: Flush returned %v after the completion", i, d)
			}
		}
		if s := tx.Stats(); s.LostEvents != 1 || s.LostInterrupts != 0 {
			t.Errorf("%d events and %d interrupts lost, want 1 and 0", s.LostEvents, s.LostInterrupts)
		}
	})
}
