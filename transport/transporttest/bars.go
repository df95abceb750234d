package transporttest

import "sync"

var barChecks = []check{
	{"RegistersKeepEveryWidth", registersKeepEveryWidth},
	{"BARsAreSeparate", barsAreSeparate},
	{"AbsentBARsAreRefused", absentBARsAreRefused},
	{"ReadsSeeEarlierWrites", readsSeeEarlierWrites},
	{"PostedWritesArriveInOrder", postedWritesArriveInOrder},
	{"WritersInParallelKeepTheirOrder", writersInParallelKeepTheirOrder},
	{"ReadersInParallelGetTheirOwnAnswer", readersInParallelGetTheirOwnAnswer},
}

func registersKeepEveryWidth(b *bench) {
	b.reg.Store64(regScratch, 0x0102030405060708)
	b.reg.Store32(regScratch+8, 0x090a0b0c)
	for off, want := range map[uint64]uint32{0: 0x01020304, 4: 0x05060708, 8: 0x090a0b0c, 12: 0} {
		if got := b.reg.Load32(regScratch + off); got != want {
			b.Errorf("dword at %d: %#x, want %#x", off, got, want)
		}
	}
	if got := b.reg.Load64(regScratch); got != 0x0102030405060708 {
		b.Errorf("qword: %#x", got)
	}
	b.reg.Store32(regScratch+4, 0xfffffffe)
	if got := b.reg.Load64(regScratch); got != 0x01020304fffffffe {
		b.Errorf("qword after its lower half was written: %#x", got)
	}
	if got := b.reg.Size(); got != bar0Size {
		b.Errorf("window of %#x bytes, want %#x", got, bar0Size)
	}
}

func barsAreSeparate(b *bench) {
	w, err := b.f.Window(2)
	if err != nil {
		b.Fatal(err)
	}
	if w.Size() != bar2Size {
		b.Errorf("BAR 2 has %#x bytes, want %#x", w.Size(), bar2Size)
	}
	w.Store32(regScratch, 0x22222222)
	w.Store64(bar2Size-8, 0x3333333344444444)
	b.reg.Store32(regScratch, 0x11111111)
	if got := w.Load32(regScratch); got != 0x22222222 {
		b.Errorf("BAR 2 reads %#x", got)
	}
	if got := w.Load64(bar2Size - 8); got != 0x3333333344444444 {
		b.Errorf("the end of BAR 2 reads %#x", got)
	}
	if got := b.reg.Load32(regScratch); got != 0x11111111 {
		b.Errorf("BAR 0 reads %#x", got)
	}
}

func absentBARsAreRefused(b *bench) {
	for _, bar := range []int{-1, 1, 3, 4, 5, 6, 7, 8, 1 << 20} {
		if w, err := b.f.Window(bar); err == nil {
			b.Errorf("BAR %d has a window of %#x bytes", bar, w.Size())
		}
	}
}

func readsSeeEarlierWrites(b *bench) {
	for i := range uint32(500) {
		b.reg.Store32(regScratch, i)
		if got := b.reg.Load32(regScratch); got != i {
			b.Fatalf("wrote %d, read %d", i, got)
		}
	}
}

// readLog returns what was appended.
func (b *bench) readLog() []uint32 {
	log := make([]uint32, b.reg.Load32(regLogLen))
	for i := range log {
		b.reg.Store32(regLogAt, uint32(i))
		log[i] = b.reg.Load32(regLog)
	}
	return log
}

func postedWritesArriveInOrder(b *bench) {
	const n = 3000
	for i := range uint32(n) {
		b.reg.Store32(regAppend, i)
	}
	log := b.readLog()
	if len(log) != n {
		b.Errorf("%d writes arrived, want %d", len(log), n)
	}
	for i, v := range log {
		if v != uint32(i) {
			b.Fatalf("write %d carries %d", i, v)
		}
	}
}

func writersInParallelKeepTheirOrder(b *bench) {
	const writers, each = 4, 400
	var wg sync.WaitGroup
	for w := range uint32(writers) {
		wg.Go(func() {
			for i := range uint32(each) {
				b.reg.Store32(regAppend, w<<16|i)
			}
		})
	}
	wg.Wait()
	var next [writers]uint32
	log := b.readLog()
	if len(log) != writers*each {
		b.Errorf("%d writes arrived, want %d", len(log), writers*each)
	}
	for _, v := range log {
		w, i := v>>16, v&0xffff
		if w >= writers || i != next[w] {
			b.Fatalf("%#x arrived, want write %d of writer %d", v, next[w%writers], w)
		}
		next[w]++
	}
}

func readersInParallelGetTheirOwnAnswer(b *bench) {
	for i := range uint64(scratchSize / 8) {
		b.reg.Store64(regScratch+i*8, i*0x0101010101010101)
	}
	var wg sync.WaitGroup
	for i := range uint64(scratchSize / 8) {
		wg.Go(func() {
			for range 100 {
				if got, want := b.reg.Load64(regScratch+i*8), i*0x0101010101010101; got != want {
					b.Errorf("reader %d got %#x", i, got)
					return
				}
			}
		})
	}
	wg.Wait()
}
