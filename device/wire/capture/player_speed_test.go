package capture

import (
	"fmt"
	"io"
	"runtime"
	"testing"

	"cxkit/device/wire"
)

// endless makes a pcap of total equal frames without holding it.
type endless struct {
	record []byte
	total  int
	head   []byte
	off    int
}

func newEndless(total int) *endless {
	return &endless{
		head:   pcap(le, 0xa1b2c3d4, 1).b,
		record: (&builder{order: le}).record(1, 2, 64, data(64, 3)).b,
		total:  total,
	}
}

func (e *endless) size() int64 { return int64(len(e.head)) + int64(e.total*len(e.record)) }

func (e *endless) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if len(e.head) > 0 {
			k := copy(p[n:], e.head)
			e.head = e.head[k:]
			n += k
			continue
		}
		if e.total == 0 {
			return n, io.EOF
		}
		k := copy(p[n:], e.record[e.off:])
		n += k
		if e.off += k; e.off == len(e.record) {
			e.off = 0
			e.total--
		}
	}
	return n, nil
}

func TestFiveMillionFramesInConstantMemory(t *testing.T) {
	total := 5_000_000
	if raceDetector {
		total = 200_000
	}
	src := newEndless(total)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	p, err := NewPlayer("endless", src, src.size(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	frames := make([][]byte, 64)
	seen := 0
	for n := p.Receive(frames); n > 0; n = p.Receive(frames) {
		seen += n
	}
	runtime.ReadMemStats(&after)
	if seen != total || p.Err() != nil {
		t.Errorf("%d frames of %d, %v", seen, total, p.Err())
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 4<<20 {
		t.Errorf("allocated %d bytes for %d frames", grown, total)
	}
}

func TestPlayerDoesNotAllocate(t *testing.T) {
	for _, ng := range []bool{false, true} {
		w := pcap(le, 0xa1b2c3d4, 1)
		if ng {
			w = pcapng(le).iface(1)
		}
		for i := range 10_000 {
			if ng {
				w.enhanced(0, 0, 200, data(200, i))
			} else {
				w.record(0, 0, 200, data(200, i))
			}
		}
		var p wire.Port = newPlayer(t, w.b, Options{})
		frames := make([][]byte, 32)
		if n := testing.AllocsPerRun(200, func() {
			if p.Receive(frames) == 0 {
				t.Fatal("the capture is too short for this test")
			}
		}); n != 0 {
			t.Errorf("pcapng %v: %v allocations for a burst", ng, n)
		}
	}
}

// repeated plays the same records without end, like endless, from a capture in memory.
type repeated struct {
	head, records []byte
	off           int
}

func (r *repeated) Read(p []byte) (n int, err error) {
	if len(r.head) > 0 {
		n = copy(p, r.head)
		r.head = r.head[n:]
		return n, nil
	}
	n = copy(p, r.records[r.off:])
	if r.off += n; r.off == len(r.records) {
		r.off = 0
	}
	return n, nil
}

func BenchmarkPlayer(b *testing.B) {
	for _, format := range []string{"pcap", "pcapng"} {
		for _, size := range []int{64, 1514} {
			for _, burst := range []int{1, 32, 64} {
				b.Run(fmt.Sprintf("%s/size=%d/burst=%d", format, size, burst), func(b *testing.B) {
					head, body := pcap(le, 0xa1b2c3d4, 1), &builder{order: le}
					if format == "pcapng" {
						head = pcapng(le).iface(1)
					}
					for i := range 1000 {
						if format == "pcapng" {
							body.enhanced(0, 0, size, data(size, i))
						} else {
							body.record(0, 0, size, data(size, i))
						}
					}
					p, err := NewPlayer("bench", &repeated{head: head.b, records: body.b}, 0, Options{})
					if err != nil {
						b.Fatal(err)
					}
					frames := make([][]byte, burst)
					n := 0
					for b.Loop() {
						n += p.Receive(frames)
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/frame")
				})
			}
		}
	}
}
