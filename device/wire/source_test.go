package wire

import (
	"bytes"
	"testing"
)

func TestReflectorSendsFramesBack(t *testing.T) {
	for _, swap := range []bool{false, true} {
		r := NewReflector(ReflectorOptions{SwapMAC: swap})
		sent := append([]byte{1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2}, frame(50, 3)...)
		want := bytes.Clone(sent)
		if swap {
			want = append([]byte{2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1}, frame(50, 3)...)
		}
		if r.Transmit([][]byte{sent, frame(3, 9)}) != 2 {
			t.Fatal("a frame was not taken")
		}
		clear(sent)
		out := make([][]byte, 4)
		if n := r.Receive(out); n != 2 || !bytes.Equal(out[0], want) || !bytes.Equal(out[1], frame(3, 9)) {
			t.Errorf("swap %v: %d frames, % x", swap, n, out[:n])
		}
		if !r.Link() || !r.Lossless() {
			t.Error("want a lossless port with its link up")
		}
		if c := r.Counters(); c.RxFrames != 2 || c.TxFrames != 2 || c.RxBytes != 65 || c.TxBytes != 65 {
			t.Errorf("counters %+v", c)
		}
	}
}

func TestFullReflectorHoldsFramesBackAndWakes(t *testing.T) {
	r := NewReflector(ReflectorOptions{Ring: 4096})
	wake := engine(r)
	taken := 0
	for r.Transmit([][]byte{frame(500, 1)}) == 1 {
		taken++
	}
	out := make([][]byte, 1)
	for range taken {
		if r.Receive(out) != 1 {
			t.Fatal("a frame is lost")
		}
	}
	r.Receive(out)
	select {
	case <-wake:
	default:
		t.Error("no wake-up although there is room")
	}
	if r.Transmit([][]byte{frame(500, 1)}) != 1 {
		t.Error("no room")
	}
	for range 2 {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	if r.Link() || r.Receive(out) != 0 || r.Transmit([][]byte{frame(60, 1)}) != 1 || r.Counters().TxDropped != 1 {
		t.Errorf("after Close: link %v, %+v", r.Link(), r.Counters())
	}
}

func TestSourceGivesOutItsFramesInTurn(t *testing.T) {
	s := NewSource(7, frame(60, 1), frame(100, 2), frame(1514, 3))
	out := make([][]byte, 3)
	var seen []byte
	for n := s.Receive(out[:2]); n > 0; n = s.Receive(out) {
		for _, f := range out[:n] {
			seen = append(seen, f[0])
		}
	}
	if !bytes.Equal(seen, []byte{1, 2, 3, 1, 2, 3, 1}) {
		t.Errorf("frames %v", seen)
	}
	<-s.Done()
	if s.Err() != nil || s.Counters().RxFrames != 7 || s.Counters().RxBytes != 3*60+2*100+2*1514 {
		t.Errorf("%v, %+v", s.Err(), s.Counters())
	}
}

func TestDiscardTakesEverything(t *testing.T) {
	s := NewDiscard()
	wake := engine(s)
	if s.Transmit([][]byte{frame(60, 1), frame(70, 1)}) != 2 || s.Receive(make([][]byte, 4)) != 0 {
		t.Error("want every frame taken and none given")
	}
	if c := s.Counters(); c.TxFrames != 2 || c.TxBytes != 130 || !s.Link() || !s.Lossless() {
		t.Errorf("counters %+v", c)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	<-wake
	<-s.Done()
	if s.Link() || s.Transmit([][]byte{frame(60, 1)}) != 1 || s.Counters().TxDropped != 1 {
		t.Error("a closed port")
	}
	s.Attach(nil)
}

func TestSourceAndReflectorDoNotAllocate(t *testing.T) {
	in, out := make([][]byte, 32), make([][]byte, 32)
	for i := range in {
		in[i] = frame(60, 1)
	}
	for _, p := range []Port{NewSource(0, frame(60, 1)), NewReflector(ReflectorOptions{SwapMAC: true})} {
		if n := testing.AllocsPerRun(100, func() {
			if p.Transmit(in) != 32 || p.Receive(out) != 32 {
				t.Fatal("frames lost")
			}
		}); n != 0 {
			t.Errorf("%T: %v allocations for a burst", p, n)
		}
	}
}

func BenchmarkReflector(b *testing.B) {
	r := NewReflector(ReflectorOptions{SwapMAC: true})
	in, out := make([][]byte, 32), make([][]byte, 32)
	for i := range in {
		in[i] = frame(60, 1)
	}
	n := 0
	for b.Loop() {
		n += r.Transmit(in)
		r.Receive(out)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/frame")
}
