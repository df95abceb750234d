package driver

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"cxkit/dma"
	"cxkit/prm"
)

// The benchmarks measure the driver alone on a full ring that the writer has prepared, and next to it, in
// turn on rings of its own, a bare loop: the floor. The floor takes three fields of each completion and
// posts the WQE again, or writes the same WQEs and takes their completions; it rings the same doorbells
// once a burst, and does nothing else. Both are timed
// without the writer; the ratio is the median over all turns, which a busy machine moves little.

// contest times a driver and a floor in turn. Both work on n packets a turn.
func contest(b *testing.B, n int, prepare, driver, prepareFloor, floor func()) {
	var times [2][]float64
	var ratios []float64
	timed := func(f func()) float64 {
		begin := time.Now()
		f()
		return float64(time.Since(begin).Nanoseconds()) / float64(n)
	}
	for b.Loop() {
		prepare()
		d := timed(driver)
		prepareFloor()
		f := timed(floor)
		times[0], times[1] = append(times[0], d), append(times[1], f)
		ratios = append(ratios, d/f)
	}
	b.ReportMetric(median(times[0]), "ns/packet")
	b.ReportMetric(median(times[1]), "floor-ns/packet")
	b.ReportMetric(median(ratios), "ratio")
	b.ReportMetric(0, "ns/op") // preparation included: says nothing
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

func bursts(b *testing.B, f func(b *testing.B, burst int)) {
	for _, burst := range []int{1, 32, 64} {
		b.Run(fmt.Sprintf("burst=%d", burst), func(b *testing.B) { f(b, burst) })
	}
}

// turn is how many packets one turn takes: most of a ring of 1024.
const turn = 960

func BenchmarkRx(b *testing.B) {
	bursts(b, func(b *testing.B, burst int) {
		w, f := newWriter(b, Config{Arena: dma.Private}), newFloor(b)
		pkts := make([]Packet, burst)
		contest(b, turn,
			func() { w.receive(turn, 64) },
			func() {
				for left := turn; left > 0; {
					k := w.rx.Poll(pkts[:min(burst, left)])
					w.rx.Release(pkts[:k])
					left -= k
				}
			},
			func() { f.receive(turn, 64) },
			func() { f.takeAll(turn, burst) },
		)
	})
}

// BenchmarkRxLinked is BenchmarkRx with a linked queue, next to the same with the usual one.
func BenchmarkRxLinked(b *testing.B) {
	bursts(b, func(b *testing.B, burst int) {
		linked, usual := newWriter(b, Config{Arena: dma.Private, Offloads: Offloads{LinkedReceive: true}}), newWriter(b, Config{Arena: dma.Private})
		pkts := make([]Packet, burst)
		run := func(w *writer) func() {
			return func() {
				for left := turn; left > 0; {
					k := w.rx.Poll(pkts[:min(burst, left)])
					w.rx.Release(pkts[:k])
					left -= k
				}
			}
		}
		contest(b, turn, func() { linked.receive(turn, 64) }, run(linked), func() { usual.receive(turn, 64) }, run(usual))
	})
}

func BenchmarkTx(b *testing.B) {
	bursts(b, func(b *testing.B, burst int) {
		w, f := newWriter(b, Config{Arena: dma.Private}), newFloor(b)
		pkts := make([]Packet, burst)
		contest(b, turn,
			func() { w.complete() },
			func() {
				for left := turn; left > 0; {
					k := w.tx.Get(pkts[:min(burst, left)])
					for i := range pkts[:k] {
						pkts[i].Data = pkts[i].Data[:64]
					}
					left -= w.tx.Send(pkts[:k])
				}
			},
			func() { f.complete() },
			func() { f.sendAll(turn, burst) },
		)
	})
}

// BenchmarkTxPacked is BenchmarkTx with multi-packet WQEs next to the same with one WQE a frame: ratio is what
// packing leaves of the time. The card's saving is not in it.
func BenchmarkTxPacked(b *testing.B) {
	bursts(b, func(b *testing.B, burst int) {
		packed, single := newWriter(b, Config{Arena: dma.Private, Offloads: Offloads{MultiPacket: true}}), newWriter(b, Config{Arena: dma.Private})
		pkts := make([]Packet, burst)
		run := func(w *writer) func() {
			return func() {
				for left := turn; left > 0; {
					k := w.tx.Get(pkts[:min(burst, left)])
					for i := range pkts[:k] {
						pkts[i].Data = pkts[i].Data[:64]
					}
					left -= w.tx.Send(pkts[:k])
				}
			}
		}
		contest(b, turn, func() { packed.complete() }, run(packed), func() { single.complete() }, run(single))
	})
}

func BenchmarkForward(b *testing.B) {
	bursts(b, func(b *testing.B, burst int) {
		w, f := newWriter(b, Config{Arena: dma.Private}), newFloor(b)
		pkts := make([]Packet, burst)
		contest(b, turn,
			func() { w.complete(); w.receive(turn, 64) },
			func() {
				for left := turn; left > 0; {
					k := w.rx.Poll(pkts[:min(burst, left)])
					w.tx.Send(pkts[:k])
					left -= k
				}
			},
			func() { f.complete(); f.receive(turn, 64) },
			func() {
				for left := turn; left > 0; left -= burst {
					f.takeAll(min(burst, left), burst)
					f.sendAll(min(burst, left), burst)
				}
			},
		)
	})
}

// floor is the bare loop over the rings of a writer.
type floor struct {
	*writer
	posted, taken uint32 // receive
	sent, reaped  uint32 // send
	pkts          [64]struct {
		length, hash uint32
		flags        uint8
	}
}

func newFloor(tb testing.TB) *floor {
	w := newUncheckedWriter(tb, Config{Arena: dma.Private})
	return &floor{writer: w, posted: w.rx.rq.Posted}
}

// takeAll takes n completions in bursts.
func (f *floor) takeAll(n, burst int) {
	for n > 0 {
		k := 0
		for ; k < min(burst, n); k++ {
			off := int(f.taken&f.rxCQ.mask) * prm.CQESize
			own := dma.LoadBE32(f.rxCQ.ring, off+prm.CQEOwnOff)
			if own&1 != f.taken>>f.rxCQ.log&1 || own>>4&0xf == 0xf {
				break
			}
			e := (*prm.CQE)(f.rxCQ.ring[off:])
			p := &f.pkts[k]
			p.length, p.hash, p.flags = e.ByteCnt(), e.RSSHashResult(), e.HDSIPExt()
			binary.BigEndian.PutUint64(f.rq[int(f.posted&f.rxCQ.mask)*16+8:], 1<<32+uint64(f.posted&2047)*2048)
			f.posted++
			f.taken++
		}
		dma.StoreBE32(f.rxCQ.db, 0, f.taken&0xffffff)
		dma.StoreBE32(f.rqDB, 0, f.posted&0xffff)
		n -= k
	}
}

// sendAll takes what completions there are and writes n WQEs, in bursts.
func (f *floor) sendAll(n, burst int) {
	for n > 0 {
		for {
			off := int(f.reaped&f.txCQ.mask) * prm.CQESize
			own := dma.LoadBE32(f.txCQ.ring, off+prm.CQEOwnOff)
			if own&1 != f.reaped>>f.txCQ.log&1 || own>>4&0xf == 0xf {
				break
			}
			f.reaped++
		}
		k := min(burst, n)
		for i := range k {
			w := (*[64]byte)(f.sq[(f.sent&f.tx.sq.Mask)*64:])
			ce := uint64(0)
			if i == k-1 {
				ce = 8 << 32
			}
			binary.BigEndian.PutUint64(w[0x00:], uint64(f.sent&0xffff)<<40|0x0a<<32|testSQ<<8|3)
			binary.BigEndian.PutUint64(w[0x08:], ce)
			binary.BigEndian.PutUint64(w[0x10:], 0)
			binary.BigEndian.PutUint64(w[0x18:], 0)
			binary.BigEndian.PutUint64(w[0x20:], 64<<32|testKey)
			binary.BigEndian.PutUint64(w[0x28:], 1<<32+uint64(f.sent&1023)*2048)
			f.sent++
		}
		dma.StoreBE32(f.txCQ.db, 0, f.reaped&0xffffff)
		dma.StoreBE32(f.sqDB, 4, f.sent&0xffff)
		f.window.Store64(prm.UARBlueFlameOff, uint64(f.sent))
		n -= k
	}
}
