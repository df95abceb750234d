package driver

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"cxkit/device"
	"cxkit/device/wire"
	"cxkit/dma"
	"cxkit/driver/internal/queue"
	"cxkit/prm"
	"cxkit/transport/inproc"
)

// onModel opens a NIC on the model; far is the other end of its wire.
func onModel(t *testing.T, c Config) (nic *NIC, far *wire.End) {
	t.Helper()
	card, err := device.New(device.Config{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	near, far := wire.NewCable(wire.CableOptions{})
	if _, err := card.Plug(0, near); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- card.Run(ctx) }()
	f, err := inproc.Open(card.Function(0), inproc.Config{Kind: dma.Heap})
	if err != nil {
		t.Fatal(err)
	}
	c.CheckBuffers = true
	nic, err = Open(t.Context(), f, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), time.Minute)
		defer stop()
		if err := nic.Close(ctx); err != nil {
			t.Error(err)
		}
		if b := nic.Books().Buffers; b.Free != nic.config.Buffers {
			t.Errorf("books after close: %+v", b)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		cancel()
		<-ended
		far.Close()
		near.Close()
	})
	return nic, far
}

// testFrame is a frame of n bytes to mac.
func testFrame(mac MAC, n int) []byte {
	f := append(mac[:], 2, 0, 0, 0, 0, 9, 0x88, 0xb5)
	return append(f, bytes.Repeat([]byte{0x5a}, n-len(f))...)
}

// transmit sends one frame and waits for its completion.
func transmit(ctx context.Context, tx *TxQueue, frame []byte) error {
	var pkts [1]Packet
	if tx.Get(pkts[:]) != 1 {
		return errors.New("no buffer")
	}
	pkts[0].Data = append(pkts[0].Data, frame...)
	if tx.Send(pkts[:]) != 1 {
		return errors.New("not sent")
	}
	return tx.Flush(ctx)
}

func recoverConfig() Config {
	return Config{RxRing: 16, TxRing: 16, Buffers: 128, CheckBuffers: true}
}

func TestTransmitQueueRecoversFromABadAddress(t *testing.T) {
	nic, far := onModel(t, recoverConfig())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tx, frame := nic.TxQueue(0), testFrame(MAC{2, 0, 0, 0, 0, 1}, 100)
	if err := transmit(ctx, tx, frame); err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		bus := nic.pool.Bus
		nic.pool.Bus = 1 << 20 // the card finds nothing there
		err := transmit(ctx, tx, frame)
		nic.pool.Bus = bus
		var failed *QueueError
		if !errors.As(err, &failed) || !failed.Transmit || failed.Syndrome != uint8(prm.CQESyndromeLocalProtection) {
			t.Fatalf("round %d: flush of a frame at a bad address: %v", round, err)
		}
		if n := tx.Send(make([]Packet, 1)); n != 0 {
			t.Error("a queue in error took a packet")
		}
		if err := tx.Recover(ctx); err != nil {
			t.Fatal(err)
		}
		if err := transmit(ctx, tx, frame); err != nil {
			t.Fatalf("round %d: after Recover: %v", round, err)
		}
	}
	for range 4 {
		if got, err := far.Recv(ctx); err != nil || !bytes.Equal(got, frame) {
			t.Fatalf("far end: %x, %v", got, err)
		}
	}
	if s := tx.Stats(); s.Recovered != 3 || s.Errors != 3 || s.Dropped != 3 {
		t.Errorf("stats %+v", s)
	}
}

// receiveOne waits for a frame.
func receiveOne(ctx context.Context, rx *RxQueue) ([]byte, error) {
	var pkts [1]Packet
	for {
		if rx.Poll(pkts[:]) == 1 {
			frame := bytes.Clone(pkts[0].Data)
			rx.Release(pkts[:])
			return frame, nil
		}
		if err := rx.Wait(ctx); err != nil {
			return nil, err
		}
	}
}

// repost resets the queue and posts its buffers as if they lay at bus address base.
func (q *RxQueue) repost(ctx context.Context, base uint64) error {
	q.end(errors.New("reposting"))
	bus := q.pool.Bus
	q.pool.Bus = base
	err := q.Recover(ctx)
	q.pool.Bus = bus
	return err
}

func TestReceiveQueueRecoversFromABadAddress(t *testing.T) {
	nic, far := onModel(t, recoverConfig())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	rx, frame := nic.RxQueue(0), testFrame(nic.MAC(), 100)
	for round := range 3 {
		// The ring is posted again at an address where nothing is: with it empty, from the first WQE on.
		if err := rx.repost(ctx, 1<<20); err != nil {
			t.Fatal(err)
		}
		far.Send(frame)
		_, err := receiveOne(ctx, rx)
		var failed *QueueError
		if !errors.As(err, &failed) || failed.Transmit || failed.Syndrome != uint8(prm.CQESyndromeLocalProtection) {
			t.Fatalf("round %d: receive into a bad address: %v", round, err)
		}
		if err := rx.Recover(ctx); err != nil {
			t.Fatal(err)
		}
		far.Send(frame)
		if got, err := receiveOne(ctx, rx); err != nil || !bytes.Equal(got, frame) {
			t.Fatalf("round %d: after Recover: %x, %v", round, got, err)
		}
	}
	if s := rx.Stats(); s.Recovered != 6 || s.Errors < 3 || s.Packets != 3 {
		t.Errorf("stats %+v", s)
	}
}

func TestLinkChangesReachWatchersAndEnd(t *testing.T) {
	nic, far := onModel(t, recoverConfig())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	changes := nic.LinkChanges(ctx)
	wait := func(up bool) Link {
		t.Helper()
		for {
			select {
			case l, open := <-changes:
				if !open {
					t.Fatal("channel closed")
				}
				if l.Up == up {
					return l
				}
			case <-ctx.Done():
				t.Fatalf("link never became %v; it is %v", up, nic.Link())
			}
		}
	}
	if l := wait(true); l.Speed != 100_000 {
		t.Errorf("link %v", l)
	}
	far.SetLink(false)
	before := wait(false)
	far.SetLink(true)
	if after := wait(true); after.Changes != before.Changes+1 {
		t.Errorf("%d changes after %d", after.Changes, before.Changes)
	}
	cancel()
	for range changes { // until it is closed
	}
}

func TestChangesOfAddressesLoseNoFrame(t *testing.T) {
	nic, far := onModel(t, Config{RxRing: 64, Buffers: 512})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	frame := testFrame(nic.MAC(), 64)
	const frames = 2000
	sent := make(chan error, 1)
	go func() {
		for range frames {
			if err := far.SendAll(ctx, frame); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	changed := make(chan error, 1)
	go func() {
		var errs []error
		for i := range 20 {
			mac := MAC{2, 1, 1, 1, 1, byte(i)}
			errs = append(errs, nic.AddMAC(ctx, mac), nic.SetPromiscuous(ctx, true), nic.AddVLAN(ctx, uint16(i)),
				nic.SetVLANFilter(ctx, true), nic.SetPromiscuous(ctx, false), nic.RemoveMAC(ctx, mac),
				nic.SetVLANFilter(ctx, false), nic.RemoveVLAN(ctx, uint16(i)))
		}
		changed <- errors.Join(errs...)
	}()
	for i := range frames {
		if got, err := receiveOne(ctx, nic.RxQueue(0)); err != nil || !bytes.Equal(got, frame) {
			t.Fatalf("frame %d: %x, %v", i, got, err)
		}
	}
	if err := errors.Join(<-sent, <-changed); err != nil {
		t.Error(err)
	}
	s, err := nic.Stats(ctx)
	if err != nil || s.Get("rx_packets") != frames || s.Get("rx_steer_missed_packets") != 0 || s.Get("rx_out_of_buffer") != 0 {
		t.Errorf("%v: %v", err, s.NonZero())
	}
}

func TestAddressErrorsLeaveThingsAsTheyWere(t *testing.T) {
	nic, _ := onModel(t, recoverConfig())
	ctx := t.Context()
	a := MAC{2, 0, 0, 0, 0, 7}
	for _, tt := range []struct {
		name string
		err  error
		want error
	}{
		{"add", nic.AddMAC(ctx, a), nil},
		{"add again", nic.AddMAC(ctx, a), ErrPresent},
		{"add own", nic.AddMAC(ctx, nic.MAC()), ErrPresent},
		{"remove", nic.RemoveMAC(ctx, a), nil},
		{"remove again", nic.RemoveMAC(ctx, a), ErrAbsent},
		{"remove own", nic.RemoveMAC(ctx, nic.MAC()), ErrAbsent},
		{"remove VLAN", nic.RemoveVLAN(ctx, 5), ErrAbsent},
		{"remove multicast", nic.RemoveMulticast(ctx, MAC{1}), ErrAbsent},
	} {
		if !errors.Is(tt.err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, tt.err, tt.want)
		}
	}
	for name, err := range map[string]error{
		"multicast as unicast": nic.AddMAC(ctx, MAC{1, 0, 0x5e}),
		"unicast as multicast": nic.AddMulticast(ctx, MAC{2}),
		"VLAN 4096":            nic.AddVLAN(ctx, 4096),
		"MTU 67":               nic.SetMTU(ctx, 67),
		"MTU over the buffers": nic.SetMTU(ctx, 2030),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	// More addresses than the card's list holds: refused as a whole, and what was there still works.
	var err error
	added := 0
	for i := 0; i < 5000 && err == nil; i++ {
		if err = nic.AddMAC(ctx, MAC{2, 9, 9, 9, byte(i >> 8), byte(i)}); err == nil {
			added++
		}
	}
	if err == nil {
		t.Errorf("%d addresses were taken", added)
	}
	if err := nic.RemoveMAC(ctx, MAC{2, 9, 9, 9, 0, 0}); err != nil {
		t.Error(err)
	}
	if err := nic.AddMAC(ctx, a); err != nil {
		t.Errorf("with one removed: %v", err)
	}
}

// fill makes the card believe that the completion queue is full: its next completion overruns it.
func fill(cq *queue.CQ) {
	cq.Taken -= cq.Mask + 1
	cq.PublishAll()
	cq.Taken += cq.Mask + 1
}

// stopped waits until the card's event has stopped the queue.
func stopped(ctx context.Context, t *testing.T, q *common) *QueueError {
	t.Helper()
	for q.Err() == nil {
		select {
		case <-q.nudged.C():
		case <-ctx.Done():
			t.Fatal("the queue never stopped")
		}
	}
	var failed *QueueError
	if !errors.As(q.Err(), &failed) {
		t.Fatalf("error %v", q.Err())
	}
	return failed
}

func TestQueuesRecoverFromOverrunCompletionQueues(t *testing.T) {
	nic, far := onModel(t, recoverConfig())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tx, rx, frame := nic.TxQueue(0), nic.RxQueue(0), testFrame(MAC{2, 0, 0, 0, 0, 1}, 100)
	ours := testFrame(nic.MAC(), 100)
	var pkts [1]Packet
	for round := range 3 {
		for tx.Err() == nil && ctx.Err() == nil {
			if tx.Get(pkts[:]) != 1 {
				t.Fatal("no buffer")
			}
			tx.Reap() // which Send would do
			fill(tx.cq)
			pkts[0].Data = append(pkts[0].Data, frame...)
			posted := tx.sq.Posted
			if tx.Release(pkts[tx.Send(pkts[:]):]); tx.sq.Posted == posted {
				continue
			}
			for there := false; !there && tx.Err() == nil && ctx.Err() == nil; _, there = tx.cq.Peek() {
				runtime.Gosched()
			}
		}
		if e := stopped(ctx, t, &tx.common); !e.Transmit || e.Syndrome != uint8(prm.CQErrorOverrun) {
			t.Fatalf("round %d: %v", round, e)
		}
		if err := tx.Recover(ctx); err != nil {
			t.Fatal(err)
		}
		if err := transmit(ctx, tx, frame); err != nil {
			t.Fatalf("round %d: after Recover: %v", round, err)
		}

		for rx.Err() == nil && ctx.Err() == nil {
			fill(rx.cq)
			far.Send(ours)
			for !rx.Ready() && rx.Err() == nil && ctx.Err() == nil {
				runtime.Gosched()
			}
			rx.Release(pkts[:rx.Poll(pkts[:])])
		}
		if e := stopped(ctx, t, &rx.common); e.Transmit || e.Syndrome != uint8(prm.CQErrorOverrun) {
			t.Fatalf("round %d: %v", round, e)
		}
		if err := rx.Recover(ctx); err != nil {
			t.Fatal(err)
		}
		far.Send(ours)
		if got, err := receiveOne(ctx, rx); err != nil || !bytes.Equal(got, ours) {
			t.Fatalf("round %d: after Recover: %x, %v", round, got, err)
		}
	}
	if r, s := rx.Stats().Recovered, tx.Stats().Recovered; r != 3 || s != 3 {
		t.Errorf("recovered %d and %d times", r, s)
	}
}
