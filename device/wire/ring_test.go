package wire

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

func quietRing(size int) *ring { return newRing(size, func() {}, func() {}) }

// Frames of every length come out as they went in, whatever the bursts on both sides.
func TestRingKeepsFramesAndOrder(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	r := quietRing(4096)
	var want [][]byte
	got := 0
	out := make([][]byte, 7)
	for seq := 0; seq < 20_000; {
		in := make([][]byte, rnd.IntN(6))
		for i := range in {
			in[i] = make([]byte, rnd.IntN(r.longest()+1)>>rnd.IntN(8))
			for j := range in[i] {
				in[i][j] = byte(seq + i + j)
			}
		}
		n := r.produce(in, false)
		want = append(want, in[:n]...)
		seq += n
		n = r.consume(out[:rnd.IntN(len(out)+1)])
		for _, f := range out[:n] {
			if !bytes.Equal(f, want[got]) {
				t.Fatalf("frame %d: got %d bytes, want %d, or other content", got, len(f), len(want[got]))
			}
			got++
		}
	}
	for n := 1; n > 0; {
		n = r.consume(out)
		got += n
	}
	if got != len(want) {
		t.Errorf("%d frames in, %d out", len(want), got)
	}
}

// What consume gave out stays untouched until the next consume, however much is produced.
func TestRingDoesNotReuseWhatIsGivenOut(t *testing.T) {
	r := quietRing(4096)
	r.produce([][]byte{bytes.Repeat([]byte{1}, 1000)}, false)
	out := make([][]byte, 1)
	if r.consume(out) != 1 {
		t.Fatal("no frame")
	}
	other := bytes.Repeat([]byte{2}, 1000)
	for r.produce([][]byte{other}, false) == 1 {
	}
	if !bytes.Equal(out[0], bytes.Repeat([]byte{1}, 1000)) {
		t.Error("a frame that was given out was overwritten")
	}
}

// The longest frame fits an empty ring wherever its positions are.
func TestRingTakesItsLongestFrameAnywhere(t *testing.T) {
	r := quietRing(4096)
	out := make([][]byte, 1)
	long, short := make([]byte, r.longest()), make([]byte, 30)
	for i := range 500 {
		if r.produce([][]byte{long}, false) != 1 || r.consume(out) != 1 || len(out[0]) != len(long) {
			t.Fatalf("round %d: the longest frame did not pass an empty ring", i)
		}
		if r.produce([][]byte{short}, false) != 1 || r.consume(out) != 1 {
			t.Fatalf("round %d: a short frame did not pass", i)
		}
		r.release()
	}
}

// A sleeping producer is woken even when the frame it holds needs the whole ring to be free.
func TestRingWakesTheProducerOfALongFrame(t *testing.T) {
	for fill := range 60 {
		room := 0
		r := newRing(4096, func() {}, func() { room++ })
		for range fill {
			r.produce([][]byte{make([]byte, 60)}, false)
		}
		long := make([]byte, r.longest())
		waits := false
		out := make([][]byte, 4)
		for step := 0; ; step++ {
			if r.produce([][]byte{long}, false) == 1 {
				break
			}
			waits = true
			before := room
			for room == before {
				if r.consume(out) == 0 && room == before {
					t.Fatalf("fill %d: consumer has nothing left and the producer was not woken", fill)
				}
			}
		}
		if fill > 40 && !waits {
			t.Errorf("fill %d: the ring took a long frame it has no room for", fill)
		}
	}
}

func TestRingWakesOnlySleepers(t *testing.T) {
	frames := 0
	r := newRing(4096, func() { frames++ }, func() {})
	f := [][]byte{make([]byte, 60)}
	out := make([][]byte, 8)
	r.produce(f, false)
	if frames != 0 {
		t.Error("woke a consumer that never found the ring empty")
	}
	for r.consume(out) > 0 {
	}
	r.produce(f, false)
	r.produce(f, false)
	if frames != 1 {
		t.Errorf("%d wake-ups for one sleep", frames)
	}
}

// FuzzRing: bytes become bursts and reads; whatever the order, frames come out once, whole, in order.
func FuzzRing(f *testing.F) {
	f.Add([]byte{10, 200, 3, 255, 0, 90, 128, 7})
	f.Fuzz(func(t *testing.T, plan []byte) {
		r := quietRing(4096)
		out := make([][]byte, 5)
		in, seen := byte(0), byte(0)
		lengths := make([]int, 0, len(plan))
		for _, step := range plan {
			if step&1 == 0 {
				frame := bytes.Repeat([]byte{in}, int(step)*10)
				if r.produce([][]byte{frame}, false) == 1 && len(frame) <= r.longest() {
					lengths = append(lengths, len(frame))
					in++
				}
				continue
			}
			for _, got := range out[:r.consume(out[:step>>1%6])] {
				if len(got) != lengths[0] || len(got) > 0 && (got[0] != seen || got[len(got)-1] != seen) {
					t.Fatalf("frame %d: wrong length or content", seen)
				}
				lengths = lengths[1:]
				seen++
			}
		}
	})
}
