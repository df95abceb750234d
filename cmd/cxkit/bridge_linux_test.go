package main

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"cxkit/device"
	"cxkit/driver"
	"cxkit/internal/rig"
)

// The bridge floods, learns, and then leaves flows to the card, which counts them.
func TestBridgeLearnsAndOffloads(t *testing.T) {
	r, err := rig.New(rig.Config{Device: device.Config{VFs: 2}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	open := func(i int) *driver.NIC {
		f, err := r.Function(i)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		nic, err := driver.Open(t.Context(), f, driver.Config{CheckBuffers: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if err := nic.Close(ctx); err != nil {
				t.Error(err)
			}
		})
		return nic
	}
	pf := open(0)
	if _, err := pf.SetMode(t.Context(), driver.Switchdev); err != nil {
		t.Fatal(err)
	}
	if err := pf.EnableVFs(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	b, err := newBridge(t.Context(), pf, 2, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	vfs := []*driver.NIC{open(r.Card.VF(0, 1)), open(r.Card.VF(0, 2))}
	// exchange sends a frame from one to the other, and waits for it.
	mark := byte(0)
	exchange := func(from, to *driver.NIC) {
		t.Helper()
		dst, src := to.MAC(), from.MAC()
		mark++
		frame := append(append(dst[:], src[:]...), 0x88, 0xb5, mark)
		frame = append(frame, make([]byte, 60-len(frame))...)
		pkts := make([]driver.Packet, 1)
		tx, rx := from.TxQueue(0), to.RxQueue(0)
		if tx.Get(pkts) != 1 {
			t.Fatal("no buffer")
		}
		pkts[0].Data = append(pkts[0].Data[:0], frame...)
		if tx.Send(pkts) != 1 || tx.Flush(t.Context()) != nil {
			t.Fatal("not sent")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		for rx.Poll(pkts) == 0 {
			if err := rx.Wait(ctx); err != nil {
				t.Fatalf("frame %d: %v", mark, err)
			}
		}
		if !bytes.Equal(pkts[0].Data, frame) {
			t.Errorf("got %x, want %x", pkts[0].Data, frame)
		}
		rx.Release(pkts)
	}
	exchange(vfs[0], vfs[1]) // flooded
	exchange(vfs[1], vfs[0]) // known: a rule follows
	exchange(vfs[0], vfs[1]) // known: a rule follows
	b.Close()                // rules that were on their way are there
	seen := b.seen.Load()
	if seen != 3 {
		t.Errorf("the bridge has seen %d frames, want 3", seen)
	}
	for range 10 {
		exchange(vfs[0], vfs[1])
		exchange(vfs[1], vfs[0])
	}
	for v := driver.Vport(1); v <= 2; v++ {
		if s, err := pf.VportStats(t.Context(), v); err != nil || s.RxUnicast.Packets < 10 {
			t.Errorf("vport %d: %+v, %v", v, s, err)
		}
	}
}
