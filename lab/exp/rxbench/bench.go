package rxbench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cxkit/device"
	"cxkit/device/wire"
	"cxkit/driver"
	"cxkit/internal/rig"
)

// Bench is a NIC and the far end of its wire. One goroutine uses it.
type Bench struct {
	NIC *driver.NIC
	RX  *driver.RxQueue

	rig  *rig.Rig
	undo []func() error
}

// Open brings a NIC up. lossy: frames without a buffer are lost and counted, as on a wire without flow
// control. On errors nothing is left open.
func Open(ctx context.Context, seed uint64, lossy bool, c driver.Config) (b *Bench, err error) {
	b = new(Bench)
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if b.rig, err = rig.New(rig.Config{Device: device.Config{Seed: seed}, Cable: wire.CableOptions{Lossy: lossy}}); err != nil {
		return b, err
	}
	b.undo = append(b.undo, b.rig.Close)
	f, err := b.rig.Function(0)
	if err != nil {
		return b, err
	}
	b.undo = append(b.undo, f.Close)
	c.Promiscuous = true
	if b.NIC, err = driver.Open(ctx, f, c); err != nil {
		return b, err
	}
	b.RX = b.NIC.RxQueue(0)
	b.undo = append(b.undo, func() error {
		b.rig.Start()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		return b.NIC.Close(ctx)
	})
	for l := range b.NIC.LinkChanges(ctx) {
		if l.Up {
			break
		}
	}
	return b, b.rig.Stop()
}

// Close takes everything down.
func (b *Bench) Close() (err error) {
	for i := len(b.undo) - 1; i >= 0; i-- {
		err = errors.Join(err, b.undo[i]())
	}
	b.undo = nil
	return err
}

// Receive sends frames, has the card deliver them, and shows what Poll returns to f, which has the packets
// from then on. It ends when the card has dealt with every frame and Poll finds nothing more. It returns how
// long Poll took.
func (b *Bench) Receive(ctx context.Context, frames [][]byte, f func(pkts []driver.Packet)) (took time.Duration, err error) {
	pkts := make([]driver.Packet, 64)
	idle := 0
	for idle < 3 || len(frames) > 0 {
		if err := ctx.Err(); err != nil {
			return took, err
		}
		if err := b.RX.Err(); err != nil {
			return took, fmt.Errorf("receive: %w", err)
		}
		sent := b.rig.Far.Send(frames...)
		frames = frames[sent:]
		for range 1024 {
			if !b.rig.Card.Step(64) {
				break
			}
		}
		begin := time.Now()
		n := b.RX.Poll(pkts)
		took += time.Since(begin)
		if n > 0 {
			f(pkts[:n])
		}
		if idle++; sent+n > 0 {
			idle = 0
		}
		if idle == maxIdle {
			return took, fmt.Errorf("receive: %d frames find no buffer, and nobody gives any back", len(frames))
		}
	}
	return took, nil
}

// maxIdle is how many turns nothing may happen.
const maxIdle = 100

// Lost is how many frames found no buffer, by the card's counter.
func (b *Bench) Lost(ctx context.Context) (uint64, error) {
	b.rig.Start()
	s, err := b.NIC.Stats(ctx)
	if err != nil {
		return 0, err
	}
	return s.Get("rx_out_of_buffer"), b.rig.Stop()
}
