package driver

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"cxkit/dma"
)

// segments are n full segments of a stream, as the card writes them.
func segments(n int) (list [][]byte) {
	for i := range n {
		b := make([]byte, 66+1448)
		copy(b, "\x02\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x02\x08\x00\x45\x00\x05\xdc\x00\x00\x40\x00\x40\x06\x00\x00\xc0\x00\x02\x01\xc6\x33\x64\x01")
		b[18], b[19] = byte(i>>8), byte(i)
		copy(b[34:], "\x10\x00\x00\x50\x00\x00\x00\x00\x00\x00\x00\x01\x80\x10\x01\x00\x00\x00\x00\x00\x01\x01\x08\x0a\x00\x00\x00\x01\x00\x00\x00\x02")
		seq := uint32(i) * 1448
		b[38], b[39], b[40], b[41] = byte(seq>>24), byte(seq>>16), byte(seq>>8), byte(seq)
		list = append(list, b)
	}
	return list
}

// receiveFrames is receive of given frames, with checksums found right.
func (w *writer) receiveFrames(frames [][]byte) {
	first, at := w.rxCQ.pi, w.rqPI
	w.receive(len(frames), len(frames[0]))
	for i, f := range frames {
		copy(w.nic.pool.Buffer(w.rx.rq.Buffers[(at+uint32(i))&w.rx.rq.Mask]), f)
		e := w.rxCQ.entry(first + uint32(i))
		e.SetRSSHashResult(7)
		e.SetHDSIPExt(6)
	}
}

func merging45(tb testing.TB, c Config) (*writer, [][]byte) {
	c.GRO, c.GROTimeout = true, time.Hour
	return newWriter(tb, c), segments(45)
}

// Merged packets are received, read and released without an allocation.
func TestMergingDoesNotAllocate(t *testing.T) {
	w, frames := merging45(t, Config{Arena: dma.Heap})
	pkts := make([]Packet, 4)
	total := 0
	if n := testing.AllocsPerRun(50, func() {
		w.receiveFrames(frames)
		for n := 0; n == 0; {
			n = w.rx.Poll(pkts)
			for i := range pkts[:n] {
				total += pkts[i].Len()
			}
			w.rx.Release(pkts[:n])
			if n == 0 {
				w.rx.merge.flush(1 << 62)
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations a packet", n)
	}
	if total == 0 {
		t.Error("nothing received")
	}
}

// Whoever releases a merged packet, all its segments come back, once.
func TestMergedPacketsComeBackWhole(t *testing.T) {
	for name, release := range map[string]func(w *writer, pkts []Packet){
		"rx queue": func(w *writer, pkts []Packet) { w.rx.Release(pkts) },
		"tx queue": func(w *writer, pkts []Packet) { w.tx.Release(pkts) },
		"anybody":  func(w *writer, pkts []Packet) { w.nic.ReleaseAll(pkts) },
		"send": func(w *writer, pkts []Packet) {
			w.tx.Send(pkts) // too long without Segment: dropped, with all its parts
			if w.tx.Stats().Dropped == 0 {
				t.Error("not counted as dropped")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, frames := merging45(t, Config{Arena: dma.Heap, CheckBuffers: true})
			var pkts [4]Packet
			w.receiveFrames(frames)
			for range 3 {
				n := w.rx.Poll(pkts[:1])
				if n == 1 && pkts[0].Segments() != 45 {
					t.Fatalf("%d segments", pkts[0].Segments())
				}
				if n == 1 {
					break
				}
				w.rx.merge.flush(1 << 62)
			}
			if got := w.nic.bufferBooks().Application; got != 45 {
				t.Fatalf("%d buffers with the application", got)
			}
			release(w, pkts[:1])
			if got := w.nic.bufferBooks(); got.Application != 0 || got.Violations != 0 || pkts[0].Segments() != 1 {
				t.Errorf("books %+v", got)
			}
			w.rx.refill()
			if s := w.rx.PageStats(); s.InFlight != w.rx.Posted() {
				t.Errorf("%d in flight, %d posted", s.InFlight, w.rx.Posted())
			}
		})
	}
}

// R43: 1389 frames are in the transmit ring of a card that hangs. Close names the ring and their number.
func TestR43CloseNamesRingAndCount(t *testing.T) {
	c := Config{TxRing: 2048, RxRing: 64, Buffers: 8192, Arena: dma.Heap}
	w := newWriter(t, c)
	pkts := make([]Packet, 1389)
	if n := w.tx.Get(pkts); n != len(pkts) {
		t.Fatalf("%d buffers", n)
	}
	for i := range pkts {
		pkts[i].Data = pkts[i].Data[:64]
	}
	if n := w.tx.Send(pkts); n != len(pkts) {
		t.Fatalf("%d sent", n)
	}
	err := w.nic.finishPlane(false)
	var out *BuffersOutError
	if !errors.As(err, &out) {
		t.Fatalf("close: %v", err)
	}
	for _, want := range []string{"64 buffers are in the ring of rx queue 0", "1389 buffers are in the ring of tx queue 0"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("close: %v; want %q", err, want)
		}
	}
	if err := w.nic.finishPlane(true); err != nil { // the card gave everything back
		t.Errorf("close: %v", err)
	}
}

// Frames are released by several goroutines at once while the owner receives; pages come back to it.
func TestPagesComeBackFromManyGoroutines(t *testing.T) {
	w := newWriter(t, Config{Arena: dma.Heap, RxRing: 256, CheckBuffers: true})
	batches := make(chan []Packet, 16)
	done := make(chan struct{})
	for range 3 {
		go func() {
			for b := range batches {
				w.nic.ReleaseAll(b)
			}
			done <- struct{}{}
		}()
	}
	received := 0
	for received < 20_000 {
		w.receive(64, 64)
		pkts := make([]Packet, 32)
		n := w.rx.Poll(pkts)
		received += n
		if n == 0 {
			runtime.Gosched()
			continue
		}
		batches <- pkts[:n]
	}
	close(batches)
	for range 3 {
		<-done
	}
	w.rx.Poll(nil)
	w.rx.refill()
	if s := w.rx.PageStats(); s.InFlight != w.rx.Posted() || w.nic.bufferBooks().Violations != 0 {
		t.Errorf("%+v, %d posted", s, w.rx.Posted())
	}
}

// Configurations that cannot be are refused, by name.
func TestPageConfigurationsAreChecked(t *testing.T) {
	program := func(*Frame) Verdict { return Pass }
	for _, c := range []Config{
		{RxPages: RxPages{RxPageSize: 8192}}, {RxPages: RxPages{RxOrder: new(11)}}, {RxPages: RxPages{RxLayout: RxStack + 1}},
		{RxPages: RxPages{RxLayout: RxHalves}, BufferSize: 9728}, {RxPages: RxPages{RxLayout: RxHalves}, Offloads: Offloads{Striding: true}},
		{Receiving: Receiving{GROTimeout: 1}}, {Receiving: Receiving{GRO: true, GROTimeout: -1}},
		{Receiving: Receiving{Program: program}, RxPages: RxPages{RxLayout: RxStack}}, {Receiving: Receiving{Program: program}, BufferSize: 4096},
	} {
		if _, err := c.complete(); err == nil {
			t.Errorf("%+v %+v was accepted", c.RxPages, c.Receiving)
		}
	}
	for _, c := range []struct {
		Config
		want RxLayout
	}{{Config{}, RxHalves}, {Config{BufferSize: 9728}, RxStack}, {Config{BufferSize: 9728, RxPages: RxPages{RxPageSize: 65536}}, RxHalves},
		{Config{Offloads: Offloads{Striding: true}}, RxStack}} {
		got, err := c.complete()
		if err != nil || got.RxLayout != c.want {
			t.Errorf("%v, %v; want %v", got.RxLayout, err, c.want)
		}
	}
}

// BenchmarkGRO receives, merges and releases segments of 1448 bytes: all that one core does for them in
// process, but for the card's part.
func BenchmarkGRO(b *testing.B) {
	w, frames := merging45(b, Config{Arena: dma.Private})
	pkts := make([]Packet, 32)
	var rates []float64
	for b.Loop() {
		for range 21 {
			w.receiveFrames(frames)
		}
		begin, bytes := time.Now(), 0
		for {
			n := w.rx.Poll(pkts)
			if n == 0 {
				break
			}
			for i := range pkts[:n] {
				bytes += pkts[i].Len()
			}
			w.rx.Release(pkts[:n])
		}
		rates = append(rates, 8*float64(bytes)/float64(time.Since(begin).Nanoseconds()))
	}
	slices.Sort(rates)
	b.ReportMetric(rates[len(rates)/2], "Gbit/s")
	b.ReportMetric(8*1448/rates[len(rates)/2], "ns/segment")
	b.ReportMetric(0, "ns/op")
}
