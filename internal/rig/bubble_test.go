package rig_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"cxkit/device"
	"cxkit/device/wire/capture"
	"cxkit/dma"
	"cxkit/driver"
	"cxkit/drivertest"
	"cxkit/internal/rig"
	"cxkit/prm"
	"cxkit/transport/inproc"
)

// Driver, card and cable on virtual time: what takes minutes on hardware takes milliseconds here, and
// times are exact.

// heap is a rig that lives in a bubble.
func heap(c device.Config) rig.Config {
	return rig.Config{Device: c, Transport: inproc.Config{Kind: dma.Heap}}
}

func TestBringUpOnSlowFirmwareTakesASecondACommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		r, nic := open(t, heap(device.Config{OtherLatency: device.Latency{Min: time.Second, Max: time.Second}}), driver.Config{Queues: 4})
		up := time.Since(begin)
		if up < 40*time.Second || up > 5*time.Minute {
			t.Errorf("bring-up took %v", up)
		}
		// Frames do not wait for firmware.
		begin = time.Now()
		frame := drivertest.Frame(nic.MAC(), 60, 1)
		if r.Far.Send(frame) != 1 {
			t.Fatal("the wire is full")
		}
		if got := one(t, nic); !bytes.Equal(got, frame) {
			t.Errorf("got %x", got)
		}
		if d := time.Since(begin); d > time.Millisecond {
			t.Errorf("a frame took %v", d)
		}
		// Firmware works at up to 32 commands at once, and the driver lets it. One reader takes 17 seconds.
		begin = time.Now()
		errs := make(chan error)
		for i := range 20 {
			go func() {
				_, err := nic.Stats(t.Context())
				if i%2 == 0 {
					err = errors.Join(err, nic.AddMAC(t.Context(), driver.MAC{2, 0, 0, 0, 1, byte(i)}))
				}
				errs <- err
			}()
		}
		for range 20 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if d := time.Since(begin); d > time.Minute {
			t.Errorf("20 readers and writers took %v: their commands do not run at once", d)
		}
	})
}

// one receives one frame on queue 0.
func one(t *testing.T, nic *driver.NIC) []byte {
	t.Helper()
	rx := nic.RxQueue(0)
	var pkts [1]driver.Packet
	for rx.Poll(pkts[:]) == 0 {
		if err := rx.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	frame := bytes.Clone(pkts[0].Data)
	rx.Release(pkts[:])
	return frame
}

// TestCommandsTimeOutAfterSixtySeconds lets firmware hang in one command of bring-up.
func TestCommandsTimeOutAfterSixtySeconds(t *testing.T) {
	for _, op := range []prm.Opcode{prm.OpEnableHCA, prm.OpInitHCA, prm.OpCreateEQ, prm.OpCreateCQ, prm.OpCreateRQ, prm.OpSetFlowTableRoot} {
		t.Run(op.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, err := rig.New(heap(device.Config{Latency: map[uint16]device.Latency{uint16(op): {Min: 24 * time.Hour, Max: 24 * time.Hour}}}))
				if err != nil {
					t.Fatal(err)
				}
				f, err := r.Function(0)
				if err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				_, err = driver.Open(t.Context(), f, driver.Config{CheckBuffers: true})
				if !errors.Is(err, driver.ErrTimeout) {
					t.Errorf("open says %v", err)
				}
				if d := time.Since(begin); d < 60*time.Second || d > 3*time.Minute {
					t.Errorf("open gave up after %v", d)
				}
				if err := errors.Join(f.Close(), r.Close()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestCommandThatTimesOutLeavesTheNICWorking lets firmware answer one kind of command after its deadline.
func TestCommandThatTimesOutLeavesTheNICWorking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := device.Latency{Min: 90 * time.Second, Max: 90 * time.Second}
		r, nic := open(t, heap(device.Config{Latency: map[uint16]device.Latency{uint16(prm.OpQueryQCounter): slow}}), driver.Config{})
		begin := time.Now()
		moved := make(chan struct{})
		go func() { // meanwhile
			defer close(moved)
			for i := range 50 {
				time.Sleep(time.Second)
				frame := drivertest.Frame(nic.MAC(), 60, uint32(i))
				if r.Far.Send(frame) != 1 || !bytes.Equal(one(t, nic), frame) {
					t.Errorf("frame %d is lost", i)
				}
			}
		}()
		s, err := nic.Stats(t.Context())
		if !errors.Is(err, driver.ErrTimeout) || len(s.Stale) == 0 {
			t.Errorf("counters are not there: %v, stale %v", err, s.Stale)
		}
		if d := time.Since(begin); d < 60*time.Second || d > 65*time.Second {
			t.Errorf("gave up after %v", d)
		}
		<-moved
		if n := nic.Books().CommandSlots; n != 1 {
			t.Errorf("firmware has %d slots, want 1", n)
		}
		time.Sleep(31 * time.Second) // the answer comes
		if n := nic.Books().CommandSlots; n != 0 {
			t.Errorf("firmware has %d slots after it answered", n)
		}
		if n := s.Get("rx_packets_phy"); n != 50 {
			t.Errorf("rx_packets_phy: %d, want 50", n)
		}
	})
}

// TestLinkFollowsASchedule pulls the cable at set times and looks at what the driver says, and when.
func TestLinkFollowsASchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, nic := open(t, heap(device.Config{}), driver.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		changes := nic.LinkChanges(ctx)
		next := func() driver.Link {
			select {
			case l := <-changes:
				return l
			case <-time.After(time.Hour):
				t.Fatal("no change of the link")
				return driver.Link{}
			}
		}
		for l := next(); !l.Up; l = next() {
		}
		before := nic.Link().Changes
		begin := time.Now()
		schedule := []time.Duration{time.Second, 10 * time.Second, 11 * time.Second, time.Minute, time.Minute + time.Millisecond, time.Hour}
		go func() {
			for i, at := range schedule {
				time.Sleep(at - time.Since(begin))
				r.Far.SetLink(i%2 == 1)
			}
		}()
		for i, at := range schedule {
			l := next()
			if late := time.Since(begin) - at; l.Up != (i%2 == 1) || late < 0 || late > 5*time.Millisecond {
				t.Errorf("change %d: up %v, %v late", i, l.Up, late)
			}
		}
		if n := nic.Link().Changes - before; n != uint64(len(schedule)) {
			t.Errorf("%d changes counted, want %d", n, len(schedule))
		}
		frame := drivertest.Frame(nic.MAC(), 60, 1)
		if r.Far.Send(frame) != 1 {
			t.Fatal("the wire is full")
		}
		if got := one(t, nic); !bytes.Equal(got, frame) {
			t.Errorf("got %x after the last change", got)
		}
	})
}

// TestRecordedGapsReachTheDriver plays a capture at its own pace.
func TestRecordedGapsReachTheDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		times := []time.Duration{0, time.Microsecond, time.Millisecond, time.Millisecond, 2 * time.Second, 32 * time.Second, 32*time.Second + 1, 90 * time.Second}
		var records []record
		for i, at := range times {
			records = append(records, record{data: drivertest.Frame(own, 60+i, uint32(i)), at: at})
		}
		r, nic := open(t, heap(device.Config{}), driver.Config{MAC: own})
		p := player(t, records, capture.Options{Recorded: true})
		defer p.Close()
		if _, err := r.Card.Plug(0, p); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		for i, at := range times {
			got := one(t, nic)
			if !bytes.Equal(got, records[i].data) {
				t.Errorf("frame %d came as %x", i, got)
			}
			if late := time.Since(begin) - at; late < 0 || late > 200*time.Microsecond {
				t.Errorf("frame %d of %v came %v late", i, at, late)
			}
		}
		<-p.Done()
		if err := p.Err(); err != nil {
			t.Error(err)
		}
	})
}
