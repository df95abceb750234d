package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func frame(n int, fill byte) []byte { return bytes.Repeat([]byte{fill}, n) }

func TestCableCarriesFramesBothWays(t *testing.T) {
	a, b := NewCable(CableOptions{})
	for _, dir := range []struct{ from, to *End }{{a, b}, {b, a}} {
		want := [][]byte{frame(60, 1), {}, frame(1514, 2), frame(9018, 3), frame(65_600, 4)}
		if n := dir.from.Send(want...); n != len(want) {
			t.Fatalf("took %d of %d frames", n, len(want))
		}
		for i, w := range want {
			got, err := dir.to.Recv(t.Context())
			if err != nil || !bytes.Equal(got, w) {
				t.Errorf("frame %d: %d bytes, %v; want %d bytes", i, len(got), err, len(w))
			}
		}
	}
	c := a.Counters()
	if c.TxFrames != 5 || c.RxFrames != 5 || c.TxBytes != c.RxBytes || c.TxBytes != 60+1514+9018+65_600 {
		t.Errorf("counters %+v", c)
	}
}

func TestCableCopiesWhatIsSent(t *testing.T) {
	a, b := NewCable(CableOptions{})
	f := frame(60, 7)
	a.Send(f)
	clear(f)
	got, err := b.Recv(t.Context())
	if err != nil || !bytes.Equal(got, frame(60, 7)) {
		t.Errorf("the far end sees changes of the sender's buffer: % x, %v", got[:4], err)
	}
}

func TestFullCableHoldsFramesBack(t *testing.T) {
	a, b := NewCable(CableOptions{Ring: 4096})
	if !a.Lossless() || !b.Lossless() {
		t.Error("a cable without options is not lossless")
	}
	sent := 0
	for a.Send(frame(500, byte(sent))) == 1 {
		sent++
	}
	if sent == 0 || sent > 8 {
		t.Fatalf("%d frames of 500 bytes fit 4096 bytes", sent)
	}
	for i := range sent {
		got, err := b.Recv(t.Context())
		if err != nil || got[0] != byte(i) {
			t.Fatalf("frame %d: %v, %v", i, got[:1], err)
		}
	}
	if d := a.Counters().TxDropped; d != 0 {
		t.Errorf("%d frames dropped by a lossless cable", d)
	}
}

func TestFullLossyCableDropsAndCounts(t *testing.T) {
	a, b := NewCable(CableOptions{Ring: 4096, Lossy: true})
	if a.Lossless() {
		t.Error("a lossy cable calls itself lossless")
	}
	const sent = 40
	for range sent {
		if a.Send(frame(500, 1)) != 1 {
			t.Fatal("a lossy cable held a frame back")
		}
	}
	c := a.Counters()
	if c.TxDropped == 0 || c.TxFrames+c.TxDropped != sent || b.Counters().RxDropped != c.TxDropped {
		t.Errorf("near end %+v, far end %+v: want %d frames accounted for", c, b.Counters(), sent)
	}
	out := make([][]byte, sent)
	if n := b.Receive(out); uint64(n) != c.TxFrames {
		t.Errorf("received %d, counted %d", n, c.TxFrames)
	}
}

func TestCableDropsFramesLongerThanItCarries(t *testing.T) {
	a, b := NewCable(CableOptions{Ring: 4096})
	if n := a.Send(frame(4000, 1), frame(60, 2)); n != 2 {
		t.Fatalf("took %d frames of 2", n)
	}
	got, err := b.Recv(t.Context())
	if err != nil || got[0] != 2 {
		t.Errorf("want the frame behind the long one, got %d bytes, %v", len(got), err)
	}
	if d := a.Counters().TxDropped; d != 1 {
		t.Errorf("TxDropped %d, want 1", d)
	}
}

func TestPulledCableDropsAndTellsBothEnds(t *testing.T) {
	a, b := NewCable(CableOptions{})
	var wokenA, wokenB atomic.Int32
	a.Attach(func() { wokenA.Add(1) })
	b.Attach(func() { wokenB.Add(1) })
	a.Send(frame(60, 1))
	b.SetLink(false)
	if a.Link() || b.Link() {
		t.Error("link up after SetLink(false)")
	}
	if wokenA.Load() == 0 || wokenB.Load() == 0 {
		t.Error("a link change woke only one end or none")
	}
	if a.Send(frame(60, 2)) != 1 {
		t.Error("a pulled cable holds frames back")
	}
	a.SetLink(true)
	a.Send(frame(60, 3))
	for _, want := range []byte{1, 3} {
		if got, err := b.Recv(t.Context()); err != nil || got[0] != want {
			t.Errorf("got %v, %v; want frame %d", got, err, want)
		}
	}
	if c := a.Counters(); c.TxDropped != 1 || c.TxFrames != 2 {
		t.Errorf("counters %+v", c)
	}
	down, _ := NewCable(CableOptions{Down: true})
	if down.Link() {
		t.Error("CableOptions.Down starts with the link up")
	}
}

func TestClosedEndTakesTheLinkDownAndLeavesWhatWasSent(t *testing.T) {
	a, b := NewCable(CableOptions{})
	a.Send(frame(60, 1))
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	b.SetLink(true)
	if a.Link() || b.Link() {
		t.Error("link up with a closed end")
	}
	if b.Send(frame(60, 2)) != 1 || b.Counters().TxDropped != 1 {
		t.Error("a frame to a closed end is not dropped and counted")
	}
	if got, err := b.Recv(t.Context()); err != nil || got[0] != 1 {
		t.Errorf("what was sent before Close: %v, %v", got, err)
	}
	if _, err := b.Recv(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("Recv at the end: %v", err)
	}
	if n := a.Receive(make([][]byte, 1)); n != 0 {
		t.Errorf("Receive after Close: %d", n)
	}
	if err := a.SendAll(t.Context(), frame(60, 1)); !errors.Is(err, ErrClosed) {
		t.Errorf("SendAll after Close: %v", err)
	}
}

// Recv, SendAll and Wait block and end as they should; the bubble proves that nothing spins.
func TestProgramsBlockAndAreWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := NewCable(CableOptions{Ring: 4096})
		var got []byte
		go func() { got, _ = b.Recv(t.Context()) }()
		synctest.Wait()
		a.Send(frame(60, 9))
		synctest.Wait()
		if len(got) != 60 {
			t.Fatal("a frame did not wake Recv")
		}

		sent := errors.New("still sending")
		frames := make([][]byte, 100)
		for i := range frames {
			frames[i] = frame(500, byte(i))
		}
		go func() { sent = a.SendAll(t.Context(), frames...) }()
		synctest.Wait()
		if sent == nil {
			t.Fatal("50,000 bytes fit 4,096")
		}
		for i := range frames {
			if f, err := b.Recv(t.Context()); err != nil || f[0] != byte(i) {
				t.Fatalf("frame %d: %v", i, err)
			}
		}
		synctest.Wait()
		if sent != nil {
			t.Errorf("SendAll: %v", sent)
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.Recv(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Recv with nothing to receive: %v", err)
		}
		err := a.SendAll(ctx, frames...)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("SendAll into a full cable: %v", err)
		}

		waiters := make(chan error, 2)
		go func() { waiters <- a.Wait(t.Context()) }()
		go func() { _, err := a.Recv(t.Context()); waiters <- err }()
		synctest.Wait()
		a.Close()
		for range 2 {
			if err := <-waiters; err != nil && !errors.Is(err, ErrClosed) {
				t.Errorf("a waiter after Close: %v", err)
			}
		}
	})
}

// Two cards poll and sleep by the Port's rules on two goroutines. No frame is lost, none comes twice.
func TestSleepingEnginesLoseNoWakeUp(t *testing.T) {
	const total = 30_000
	for _, burst := range []int{1, 3, 32} {
		t.Run(fmt.Sprintf("burst=%d", burst), func(t *testing.T) {
			a, b := NewCable(CableOptions{Ring: 8192})
			var wg sync.WaitGroup
			wg.Go(func() { pump(a, total, burst) })
			wg.Go(func() {
				if err := drain(b, total, burst); err != nil {
					t.Error(err)
				}
			})
			wg.Wait()
		})
	}
}

// engine is a wake function and what sleeps on it.
func engine(p Port) chan struct{} {
	wake := make(chan struct{}, 1)
	p.Attach(func() { signal(wake) })
	return wake
}

func pump(p Port, total, burst int) {
	wake := engine(p)
	frames := make([][]byte, burst)
	for i := range frames {
		frames[i] = make([]byte, 60+i)
	}
	for seq := 0; seq < total; {
		batch := frames[:min(burst, total-seq)]
		for i, f := range batch {
			binary.BigEndian.PutUint32(f, uint32(seq+i))
		}
		n := p.Transmit(batch)
		seq += n
		if n < len(batch) {
			<-wake
		}
	}
}

func drain(p Port, total, burst int) error {
	wake := engine(p)
	frames := make([][]byte, burst)
	for seq := 0; seq < total; {
		n := p.Receive(frames)
		for _, f := range frames[:n] {
			if got := binary.BigEndian.Uint32(f); got != uint32(seq) {
				return fmt.Errorf("frame %d where %d should be", got, seq)
			}
			seq++
		}
		if n == 0 {
			<-wake
		}
	}
	return nil
}

func TestManyProgramsShareAnEnd(t *testing.T) {
	a, b := NewCable(CableOptions{Ring: 4096})
	const each, senders = 500, 4
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			for range each {
				if err := a.SendAll(t.Context(), frame(60, byte(s))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	var got [senders]atomic.Int32
	for range 2 {
		wg.Go(func() {
			for range each * senders / 2 {
				f, err := b.Recv(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				got[f[0]].Add(1)
			}
		})
	}
	wg.Wait()
	for s := range got {
		if got[s].Load() != each {
			t.Errorf("sender %d: %d frames of %d", s, got[s].Load(), each)
		}
	}
}

func TestCableDoesNotAllocate(t *testing.T) {
	a, b := NewCable(CableOptions{})
	in, out := make([][]byte, 32), make([][]byte, 32)
	for i := range in {
		in[i] = frame(60, 1)
	}
	var port Port = a
	if n := testing.AllocsPerRun(100, func() {
		if port.Transmit(in) != 32 || b.Receive(out) != 32 || b.Receive(out) != 0 {
			t.Fatal("frames lost")
		}
	}); n != 0 {
		t.Errorf("%v allocations for a burst", n)
	}
}

func BenchmarkCable(b *testing.B) {
	for _, size := range []int{60, 1514} {
		for _, burst := range []int{1, 32, 64} {
			b.Run(fmt.Sprintf("size=%d/burst=%d", size, burst), func(b *testing.B) {
				near, far := NewCable(CableOptions{})
				in, out := make([][]byte, burst), make([][]byte, burst)
				for i := range in {
					in[i] = frame(size, 1)
				}
				n := 0
				for b.Loop() {
					n += near.Transmit(in)
					far.Receive(out)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/frame")
			})
		}
	}
}

func BenchmarkCableTwoGoroutines(b *testing.B) {
	for _, burst := range []int{1, 32, 64} {
		b.Run(fmt.Sprintf("size=60/burst=%d", burst), func(b *testing.B) {
			near, far := NewCable(CableOptions{})
			total := max(b.N, 1)
			var wg sync.WaitGroup
			wg.Go(func() { pump(near, total, burst) })
			if err := drain(far, total, burst); err != nil {
				b.Error(err)
			}
			wg.Wait()
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(total), "ns/frame")
		})
	}
}

func TestAnEndThatIsDarkOrSharesNoModeGivesNoLink(t *testing.T) {
	a, b := NewCable(CableOptions{})
	var woken atomic.Int32
	b.Attach(func() { woken.Add(1) })
	if a.Far() != ^uint32(0) {
		t.Errorf("an end that no card has sends in %#x", a.Far())
	}
	a.Signal(0)
	if !a.Link() || b.Link() || b.Far() != 0 {
		t.Errorf("dark: link %v here, %v at the far end, which sees %#x", a.Link(), b.Link(), b.Far())
	}
	if woken.Load() == 0 {
		t.Error("the far end was not told")
	}
	a.Signal(6)
	b.Signal(9)
	if a.Link() || b.Link() {
		t.Error("a link without a mode in common")
	}
	b.Signal(12)
	if !a.Link() || !b.Link() || a.Far() != 12 || b.Far() != 6 {
		t.Errorf("links %v and %v, seen %#x and %#x", a.Link(), b.Link(), a.Far(), b.Far())
	}
}
