package wire

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

// takeAll receives from p until want frames came, and returns when each did.
func takeAll(p Port, want, burst int) []time.Duration {
	start := time.Now()
	wake := engine(p)
	frames := make([][]byte, burst)
	var at []time.Duration
	for len(at) < want {
		n := p.Receive(frames)
		for range n {
			at = append(at, time.Since(start))
		}
		if n == 0 {
			<-wake
		}
	}
	return at
}

func TestPacedFramesKeepTheRate(t *testing.T) {
	for _, c := range []struct {
		rate Rate
		size int
		gap  time.Duration
	}{
		{Rate{Frames: 1000}, 60, time.Millisecond},
		{Rate{Frames: 2}, 60, 500 * time.Millisecond},
		{Rate{Bits: 84 * 8 * 1000}, 60, time.Millisecond},
		{Rate{Bits: 84 * 8 * 1000}, 14, time.Millisecond}, // counts as 84 bytes
		{Rate{Bits: 1538 * 8 * 100}, 1514, 10 * time.Millisecond},
		{Rate{Frames: 1000, Bits: 84 * 8 * 10}, 60, 100 * time.Millisecond}, // the slower of the two
	} {
		for _, burst := range []int{1, 7} {
			t.Run(fmt.Sprintf("%v/size=%d/burst=%d", c.rate, c.size, burst), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := Pace(NewSource(0, frame(c.size, 1)), c.rate, SystemClock{})
					defer p.Close()
					for i, at := range takeAll(p, 50, burst) {
						if want := time.Duration(i) * c.gap; at != want {
							t.Fatalf("frame %d after %v, want %v", i, at, want)
						}
					}
				})
			})
		}
	}
}

// A receiver that comes late catches up over paceSlack, and never sends more than that at once.
func TestPacedPortCatchesUpALittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := Pace(NewSource(0, frame(60, 1)), Rate{Frames: 1000}, SystemClock{})
		defer p.Close()
		frames := make([][]byte, 64)
		if n := p.Receive(frames); n != 1 {
			t.Fatalf("%d frames at the start, want 1", n)
		}
		time.Sleep(5 * time.Millisecond)
		if n := p.Receive(frames); n != 5 {
			t.Errorf("%d frames 5 ms later, want 5", n)
		}
		time.Sleep(time.Hour)
		if n := p.Receive(frames); n != 11 {
			t.Errorf("%d frames an hour later, want what 10 ms hold", n)
		}
	})
}

func TestUnlimitedRateHoldsNothingBack(t *testing.T) {
	p := Pace(NewSource(1000, frame(60, 1)), Rate{}, SystemClock{})
	frames := make([][]byte, 50)
	seen := 0
	for n := p.Receive(frames); n > 0; n = p.Receive(frames) {
		seen += n
	}
	select {
	case <-p.Done():
	default:
		t.Error("not done")
	}
	if seen != 1000 || p.Err() != nil {
		t.Errorf("%d frames of 1000, %v", seen, p.Err())
	}
}

// Done of a paced port waits for the frames that the source gave out already.
func TestPacedPortIsDoneAfterItsLastFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := NewSource(3, frame(60, 1))
		p := Pace(source, Rate{Frames: 10}, SystemClock{})
		defer p.Close()
		for i := range 3 {
			if n := p.Receive(make([][]byte, 8)); n != 1 {
				t.Fatalf("frame %d: received %d", i, n)
			}
			select {
			case <-p.Done():
				if i != 2 {
					t.Fatalf("done after frame %d", i)
				}
			default:
				if i == 2 {
					t.Fatal("not done after the last frame")
				}
			}
			time.Sleep(100 * time.Millisecond)
		}
		<-source.Done()
	})
}

func TestPacedPortPassesTheRestThrough(t *testing.T) {
	a, b := NewCable(CableOptions{Lossy: true})
	p := Pace(a, Rate{Frames: 1}, SystemClock{})
	if p.Transmit([][]byte{frame(60, 1)}) != 1 || p.Lossless() || !p.Link() || p.Err() != nil {
		t.Error("a paced cable differs from the cable")
	}
	if f, err := b.Recv(t.Context()); err != nil || len(f) != 60 {
		t.Errorf("%d bytes, %v", len(f), err)
	}
	woken := make(chan struct{}, 1)
	p.Attach(func() { signal(woken) })
	b.SetLink(false)
	<-woken
	p.Attach(nil)
	if err := p.Close(); err != nil || b.Link() {
		t.Errorf("Close: %v, link %v", err, b.Link())
	}
	<-p.Done()
	if _, err := b.Recv(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("the far end: %v", err)
	}
}

func TestPacedPortDoesNotAllocate(t *testing.T) {
	p := Pace(NewSource(0, frame(60, 1)), Rate{Frames: 1e9}, SystemClock{})
	defer p.Close()
	frames := make([][]byte, 32)
	if n := testing.AllocsPerRun(100, func() { p.Receive(frames) }); n != 0 {
		t.Errorf("%v allocations for a burst", n)
	}
}

func TestRatesAreRead(t *testing.T) {
	for text, want := range map[string]Rate{
		"100000":    {Frames: 100_000},
		"100_000":   {Frames: 100_000},
		"250kpps":   {Frames: 250_000},
		"1.5M":      {Frames: 1.5e6},
		"2 Mpps":    {Frames: 2e6},
		"10Gbps":    {Bits: 10e9},
		"40 Gbit/s": {Bits: 40e9},
		"9600 b/s":  {Bits: 9600},
		"3Kpps":     {Frames: 3000},
	} {
		if got, err := ParseRate(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "fast", "0", "-5", "10 furlongs", "1e9", "1.2.3", "10Tbps", "1G G", "99999999999999999999", "NaN", "inf"} {
		if got, err := ParseRate(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
	for text, rate := range map[string]Rate{
		"unlimited": {}, "250kpps": {Frames: 250_000}, "10Gbps": {Bits: 10e9}, "1.5Mpps and 5bps": {Frames: 1.5e6, Bits: 5},
	} {
		if rate.String() != text {
			t.Errorf("%+v is printed as %q, want %q", rate, rate, text)
		}
	}
}

func TestCostOfAFrameIsBounded(t *testing.T) {
	for _, r := range []Rate{{Frames: math.SmallestNonzeroFloat64}, {Bits: 1e-9}} {
		if got := r.cost(1514); got != float64(time.Hour) {
			t.Errorf("%v: %v ns a frame", r, got)
		}
	}
	if got := (Rate{Bits: 10e9}).cost(60); got != 67.2 {
		t.Errorf("a minimal frame at 10 Gbit/s takes %v ns, want 67.2", got)
	}
}

// Costs under a ns add up: a second at 14.88 million frames has 14.88 million frames.
func TestFastRatesAreExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := Pace(NewSource(0, frame(60, 1)), Rate{Bits: 10e9}, SystemClock{})
		defer p.Close()
		frames := make([][]byte, 64)
		seen := 0
		for range 100 {
			for n := p.Receive(frames); n > 0; n = p.Receive(frames) {
				seen += n
			}
			time.Sleep(time.Millisecond)
		}
		if want := 99 * 10e9 / (84 * 8 * 1000); math.Abs(float64(seen)-want) > 2 {
			t.Errorf("%d frames in 99 ms at 10 Gbit/s, want %.0f", seen, want)
		}
	})
}
