package gro

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"cxkit/device/wire/capture"
)

// runner is the Merger with a caller's store.
type runner struct {
	Merger
	store [Flows][][]byte
	out   [][]byte
	most  int // segments in a packet
}

func (r *runner) deliver(at int) {
	r.out = append(r.out, slices.Concat(r.store[at]...))
	r.most = max(r.most, len(r.store[at]))
	r.store[at] = nil
}

func (r *runner) add(f *Frame, now time.Duration) {
	d := r.Add(f, now)
	if d.Before != None {
		r.deliver(d.Before)
	}
	switch {
	case d.Flow == None:
		r.out = append(r.out, f.Data)
	case d.First:
		r.store[d.Flow] = [][]byte{f.Data}
	default:
		r.store[d.Flow] = append(r.store[d.Flow], f.Data[d.Header:])
	}
	if d.Last {
		r.deliver(d.Flow)
	}
}

func (r *runner) flush(before time.Duration) {
	for at := r.Flush(before); at != None; at = r.Flush(before) {
		r.deliver(at)
	}
}

// compare runs frames through both, with the end of a poll after every batch, and returns how many packets
// came out.
func compare(t testing.TB, n, batch int, next func() (Frame, bool)) (packets, most int) {
	t.Helper()
	var got runner
	var want reference
	for done := 0; done < n; {
		for range batch {
			f, ok := next()
			if !ok {
				n = 0
				break
			}
			want.add(&f)
			own := f
			own.Data = slices.Clone(f.Data)
			got.add(&own, 0)
			done++
		}
		got.flush(0)
		want.end()
		if len(got.out) != len(want.out) {
			t.Fatalf("after %d frames: %d packets, want %d", done, len(got.out), len(want.out))
		}
		for i := range want.out {
			if !bytes.Equal(got.out[i], want.out[i]) {
				d := decode(&Frame{Data: want.out[i], Verified: true})
				t.Fatalf("after %d frames, packet %d of %d:\n got %d bytes % .90x\nwant %d bytes % .90x\nfields %v %v", done, i, len(want.out),
					len(got.out[i]), got.out[i], len(want.out[i]), want.out[i], d.fields, d.keys())
			}
		}
		packets += len(got.out)
		got.out, want.out = nil, nil
	}
	if got.Held() != 0 {
		t.Errorf("%d flows held", got.Held())
	}
	return packets, got.most
}

// Segments of many flows, reordered, duplicated, damaged, padded, with options, PSH, FIN, SYN, RST, URG,
// ECN and VLAN tags, come out as the reference has them. CXKIT_LONG=1 takes 10^6 instead of a few.
func TestEqualsReferenceOnGeneratedSegments(t *testing.T) {
	total := 24_000
	if os.Getenv("CXKIT_LONG") != "" {
		total = 1_000_000
	}
	const each = 4000
	packets, most := 0, 0
	for seed := range total / each {
		g := newGenerator(uint64(seed))
		n, m := compare(t, each, 1+g.IntN(300), func() (Frame, bool) { return g.next(), true })
		packets, most = packets+n, max(most, m)
	}
	t.Logf("%d segments made %d packets, of %d segments at most", total, packets, most)
	if most < MaxSegments*2/3 || most > MaxSegments || packets > total*9/10 {
		t.Errorf("%d segments made %d packets, of %d at most: little was merged", total, packets, most)
	}
}

// The captures of real programs, one poll after the other, and all in one.
func TestEqualsReferenceOnCaptures(t *testing.T) {
	names, err := filepath.Glob("../../../testdata/captures/*.pcap*")
	if err != nil || len(names) < 5 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			frames := frames(t, name)
			for _, batch := range []int{64, len(frames)} {
				i := 0
				packets, most := compare(t, len(frames), batch, func() (Frame, bool) {
					if i == len(frames) {
						return Frame{}, false
					}
					i++
					return Frame{Data: frames[i-1], Verified: i%2 == 0}, true
				})
				t.Logf("%d frames, polls of %d: %d packets, of %d segments at most", len(frames), batch, packets, most)
			}
		})
	}
}

func frames(tb testing.TB, name string) (list [][]byte) {
	tb.Helper()
	file, err := os.Open(name)
	if err != nil {
		tb.Fatal(err)
	}
	defer file.Close()
	r, err := capture.NewReader(name, file)
	if err != nil {
		tb.Fatal(err)
	}
	for {
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			tb.Fatal(err)
		}
		list = append(list, slices.Clone(f.Data))
	}
}

// bulk is a stream of full segments without anything between them.
func bulk(n int) []Frame {
	g := newGenerator(1)
	s := &stream{l2: append(g.some(12), 8, 0), addresses: g.some(8), df: true, mss: 1448, options: []byte{1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2}, ttl: 64}
	var list []Frame
	for range n {
		t := append(append([]byte(nil), s.ports[:]...), 0, 0, 0, 0, 0, 0, 0, 9, 32<<2, 0x10, 1, 0, 0, 0, 0, 0)
		t[4], t[5], t[6], t[7] = byte(s.seq>>24), byte(s.seq>>16), byte(s.seq>>8), byte(s.seq)
		t = append(append(t, s.options...), make([]byte, s.mss)...)
		s.seq += uint32(s.mss)
		list = append(list, Frame{Data: g.plain(s, t), Verified: true})
	}
	return list
}

// plain is network without chances.
func (g *generator) plain(s *stream, t []byte) []byte {
	s.id++
	n := len(t) + 20
	ip := append([]byte{0x45, 0, byte(n >> 8), byte(n), byte(s.id >> 8), byte(s.id), 0x40, 0, 64, 6, 0, 0}, s.addresses...)
	sum := ^naive(ip)
	ip[10], ip[11] = byte(sum>>8), byte(sum)
	return slices.Concat(s.l2, ip, t)
}

// 45 segments of 1448 bytes are one packet of nearly 64 KiB; the 46th begins the next.
func TestBulkMakesPacketsOf45Segments(t *testing.T) {
	var r runner
	for _, f := range bulk(91) {
		r.add(&f, 0)
	}
	r.flush(0)
	if len(r.out) != 3 || r.most != 45 || len(r.out[0]) != 14+52+45*1448 || len(r.out[2]) != 14+52+1448 {
		t.Errorf("%d packets, of %d segments at most, %d bytes in the first", len(r.out), r.most, len(r.out[0]))
	}
}

// What is younger than the time-out stays for the next poll.
func TestFlushByAge(t *testing.T) {
	var r runner
	list := bulk(3)
	r.add(&list[0], 100)
	r.flush(99)
	if len(r.out) != 0 {
		t.Fatal("delivered too early")
	}
	r.add(&list[1], 150)
	r.flush(100)
	if len(r.out) != 1 || r.most != 2 || r.Held() != 0 {
		t.Fatalf("%d packets of %d segments", len(r.out), r.most)
	}
}

func TestAddDoesNotAllocate(t *testing.T) {
	list := bulk(90)
	var m Merger
	if n := testing.AllocsPerRun(20, func() {
		for i := range list {
			m.Add(&list[i], 0)
		}
		for m.Flush(0) != None {
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzAdd(f *testing.F) {
	g := newGenerator(3)
	for range 20 {
		a, b := g.next(), g.next()
		f.Add(a.Data, b.Data, true)
	}
	f.Fuzz(func(t *testing.T, a, b []byte, verified bool) {
		list := []Frame{{Data: a, Verified: verified}, {Data: b, Verified: verified}, {Data: a, Verified: verified}}
		i := 0
		compare(t, len(list), len(list), func() (Frame, bool) { i++; return list[i-1], i <= len(list) })
	})
}

// Segments of 1448 bytes, whose checksums the card has found right.
func BenchmarkMerge(b *testing.B) {
	list := bulk(45 * 64)
	copies := make([]byte, 0, len(list)*1600)
	var heads [][]byte
	for i := range list {
		copies = append(copies, list[i].Data[:66]...)
		heads = append(heads, copies[len(copies)-66:])
	}
	var m Merger
	bits := 0
	start := time.Now()
	for b.Loop() {
		for i := range list {
			copy(list[i].Data, heads[i]) // as the card writes them anew
			m.Add(&list[i], 0)
			bits += 8 * 1448
		}
		for m.Flush(0) != None {
		}
	}
	took := time.Since(start)
	b.ReportMetric(float64(bits)/float64(took.Nanoseconds()), "Gbit/s")
	b.ReportMetric(float64(took.Nanoseconds())*8*1448/float64(bits), "ns/segment")
}
