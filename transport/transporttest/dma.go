package transporttest

import (
	"errors"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"cxkit/dma"
)

var dmaChecks = []check{
	{"ArenasOfEveryKindCarryDMA", arenasOfEveryKindCarryDMA},
	{"KindsNotOfferedAreRefused", kindsNotOfferedAreRefused},
	{"ArenaSizesAreChecked", arenaSizesAreChecked},
	{"ArenasAreApart", arenasAreApart},
	{"LargeArenasAreReachedFromEndToEnd", largeArenasAreReachedFromEndToEnd},
	{"DMAOutsideArenasIsRefused", dmaOutsideArenasIsRefused},
	{"ClosedArenasAreUnmapped", closedArenasAreUnmapped},
	{"ClosingAnArenaWaitsForTheStep", closingAnArenaWaitsForTheStep},
	{"GenerationChangesWhenMemoryGoes", generationChangesWhenMemoryGoes},
	{"OwnershipWordsHandBodiesOver", ownershipWordsHandBodiesOver},
	{"ManyArenasComeAndGo", manyArenasComeAndGo},
	{"ArenasComeAndGoInParallelWithDMA", arenasComeAndGoInParallelWithDMA},
}

func arenasOfEveryKindCarryDMA(b *bench) {
	for _, kind := range append([]dma.Kind{dma.Auto}, b.o.Kinds...) {
		a := b.arena(3*dma.PageSize, kind)
		if kind != dma.Auto && a.Kind() != kind {
			b.Errorf("asked for %v, got %v", kind, a.Kind())
		}
		if !slices.Contains(b.o.Kinds, a.Kind()) {
			b.Errorf("asked for %v, got %v, which is not offered", kind, a.Kind())
		}
		for _, cmds := range []struct {
			how       string
			fill, sum uint32
		}{{"views", cmdFill, cmdSum}, {"copies", cmdFillAt, cmdSumAt}} {
			for _, r := range []struct{ off, n int }{{0, 1}, {5, 7}, {0, 3 * dma.PageSize}, {dma.PageSize - 3, 6}, {3*dma.PageSize - 1, 1}} {
				if crosses := r.off/dma.PageSize != (r.off+r.n-1)/dma.PageSize; crosses && b.o.Scattered && cmds.fill == cmdFill {
					continue
				}
				at := a.Bus() + uint64(r.off)
				b.must("fill", command{op: b.fillAnywhere(), dest: a.Bus(), length: a.Size(), arg: 0})
				b.must("fill", command{op: cmds.fill, dest: at, length: r.n, arg: 0xa5})
				if got := sum(a.Bytes()); got != uint64(r.n)*0xa5 {
					b.Errorf("%v, %s: the card filled %d bytes at %d, the driver sees %d", kind, cmds.how, r.n, r.off, got/0xa5)
				}
				a.Bytes()[r.off] = 1
				if got, want := b.must("sum", command{op: cmds.sum, source: at, length: r.n}), uint64(r.n-1)*0xa5+1; got != want {
					b.Errorf("%v, %s: the card sums %d bytes at %d to %d, want %d", kind, cmds.how, r.n, r.off, got, want)
				}
			}
		}
	}
	from, to := b.arena(dma.PageSize, b.kind()), b.arena(dma.PageSize, b.kind())
	for i := range from.Bytes() {
		from.Bytes()[i] = byte(i * 13)
	}
	b.must("copy", command{op: cmdCopy, source: from.Bus(), dest: to.Bus(), length: dma.PageSize})
	if !slices.Equal(from.Bytes(), to.Bytes()) {
		b.Error("the copy differs")
	}
}

func kindsNotOfferedAreRefused(b *bench) {
	for _, kind := range []dma.Kind{dma.Heap, dma.Private, dma.Shared, dma.Reserved, dma.Kind(99)} {
		if slices.Contains(b.o.Kinds, kind) {
			continue
		}
		if a, err := b.f.NewArena(dma.PageSize, kind); !errors.Is(err, dma.ErrKind) {
			if a != nil {
				a.Close()
			}
			b.Errorf("%v: %v, want dma.ErrKind", kind, err)
		}
	}
}

func arenaSizesAreChecked(b *bench) {
	for _, size := range []int{0, -1, math.MinInt, math.MaxInt} {
		if _, err := b.f.NewArena(size, b.kind()); !errors.Is(err, dma.ErrSize) {
			b.Errorf("%d bytes: %v, want dma.ErrSize", size, err)
		}
	}
	if a := b.arena(1, b.kind()); a.Size() != dma.PageSize {
		b.Errorf("1 byte became %d, want a page", a.Size())
	}
}

func arenasAreApart(b *bench) {
	type span struct{ first, end uint64 }
	var all []span
	for i := range 40 {
		a := b.arena((i%5+1)*dma.PageSize, b.o.Kinds[i%len(b.o.Kinds)])
		s := span{a.Bus(), a.Bus() + uint64(a.Size())}
		if s.first%dma.PageSize != 0 || s.first == 0 {
			b.Errorf("an arena at %#x", s.first)
		}
		for _, o := range all {
			if s.first < o.end && o.first < s.end {
				b.Fatalf("%#x..%#x overlaps %#x..%#x", s.first, s.end, o.first, o.end)
			}
		}
		all = append(all, s)
	}
}

func largeArenasAreReachedFromEndToEnd(b *bench) {
	const size = 32 << 20
	for _, kind := range b.o.Kinds {
		a := b.arena(size, kind)
		for _, off := range []int{0, size/2 - 2, size - 4} {
			b.must("fill", command{op: b.fillAnywhere(), dest: a.Bus() + uint64(off), length: 4, arg: 7})
			if got := sum(a.Bytes()[off : off+4]); got != 28 {
				b.Errorf("%v: at %#x the driver sees %d, want 28", kind, off, got)
			}
		}
		a.Close()
	}
}

func dmaOutsideArenasIsRefused(b *bench) {
	a := b.arena(2*dma.PageSize, b.kind())
	end := a.Bus() + uint64(a.Size())
	for _, c := range []struct {
		what string
		addr uint64
		n    int
	}{
		{"address 0", 0, 4},
		{"below the arena", a.Bus() - 4, 4},
		{"across the start", a.Bus() - 2, 4},
		{"across the end", end - 2, 4},
		{"behind the end", end, 1},
		{"far away", 1 << 60, 64},
		{"across 2^64", math.MaxUint64 - 1, 4},
		{"the last byte of the space", math.MaxUint64, 1},
		{"longer than the arena", a.Bus(), 1 << 18},
	} {
		b.refused("view for writing: "+c.what, statusNoView, command{op: cmdFill, dest: c.addr, length: c.n, arg: 1})
		b.refused("view for reading: "+c.what, statusNoView, command{op: cmdSum, source: c.addr, length: c.n})
		b.refused("write: "+c.what, statusDMAError, command{op: cmdFillAt, dest: c.addr, length: c.n, arg: 0})
		b.refused("read: "+c.what, statusDMAError, command{op: cmdSumAt, source: c.addr, length: c.n})
	}
	b.refused("view of a negative length", statusNoView, command{op: cmdFill, dest: a.Bus(), length: -1})
	if got := sum(a.Bytes()); got != 0 {
		b.Errorf("refused DMA changed the arena (sum %d)", got)
	}
	b.must("a view of nothing", command{op: cmdFill, dest: a.Bus() + 5, length: 0})
}

func closedArenasAreUnmapped(b *bench) {
	for _, kind := range b.o.Kinds {
		a, neighbour := b.arena(dma.PageSize, kind), b.arena(dma.PageSize, kind)
		bus := a.Bus()
		b.must("fill", command{op: cmdFill, dest: bus, length: 8, arg: 1})
		if err := a.Close(); err != nil {
			b.Fatal(err)
		}
		if err := a.Close(); err != nil {
			b.Errorf("second close: %v", err)
		}
		b.refused("view of a closed arena", statusNoView, command{op: cmdFill, dest: bus, length: 8, arg: 1})
		b.refused("write to a closed arena", statusDMAError, command{op: cmdFillAt, dest: bus, length: 8, arg: 1})
		b.must("fill the neighbour", command{op: cmdFill, dest: neighbour.Bus(), length: 8, arg: 1})
	}
}

func closingAnArenaWaitsForTheStep(b *bench) {
	for i, kind := range b.o.Kinds {
		vector := 5 + i // the end of the command before may still be pending on its own
		left := b.reg.Load32(regLeft)
		a := b.arena(dma.PageSize, kind)
		b.start(command{op: cmdHold, dest: a.Bus(), length: dma.PageSize, arg: 0x5a, notify: vector})
		b.wait(vector) // the step has begun
		if err := a.Close(); err != nil {
			b.Fatal(err)
		}
		if got := b.reg.Load32(regLeft); got != left+1 {
			b.Errorf("%v: the arena was closed while the card was writing to it", kind)
		}
		// The command's end raises the vector too, but both raises may be reported as one.
		b.must("nothing", command{op: cmdNothing})
	}
}

func generationChangesWhenMemoryGoes(b *bench) {
	a := b.arena(dma.PageSize, b.kind())
	b.must("keep a view", command{op: cmdKeep, dest: a.Bus(), length: 64})
	b.must("use it", command{op: cmdUseKept, arg: 0x11})
	gen := b.must("generation", command{op: cmdGen})
	other := b.arena(dma.PageSize, b.kind())
	b.must("use it after another arena came", command{op: cmdUseKept, arg: 0x22})
	if got := sum(a.Bytes()); got != 64*0x22 {
		b.Errorf("the kept view wrote elsewhere: the arena sums to %d", got)
	}
	other.Close()
	if now := b.must("generation", command{op: cmdGen}); now == gen {
		b.Errorf("generation %d before and after an arena went", gen)
	}
	b.refused("a kept view after an arena went", statusStale, command{op: cmdUseKept, arg: 0x33})
}

func ownershipWordsHandBodiesOver(b *bench) {
	for _, kind := range b.o.Kinds {
		a := b.arena(dma.PageSize, kind)
		for round := uint32(1); round <= 20; round++ {
			b.start(command{op: cmdPublish, dest: a.Bus(), length: 256, arg: round, notify: -1})
			deadline := time.Now().Add(b.patience)
			for dma.LoadBE32(a.Bytes(), 0) != round { // partner: the card's store in cmdPublish
				if time.Now().After(deadline) {
					b.Fatalf("%v: the word of round %d never came", kind, round)
				}
				runtime.Gosched()
			}
			if got, want := sum(a.Bytes()[4:256]), uint64(252*round); got != want {
				b.Fatalf("%v: round %d: the body sums to %d, want %d", kind, round, got, want)
			}
		}
	}
}

func manyArenasComeAndGo(b *bench) {
	var open []*dma.Arena
	for i := range 300 {
		a := b.arena(dma.PageSize, b.o.Kinds[i%len(b.o.Kinds)])
		open = append(open, a)
		if i%3 == 2 {
			open[i/3].Close()
		}
	}
	for i, a := range open {
		if i < 100 {
			continue // closed
		}
		b.must("fill", command{op: cmdFill, dest: a.Bus(), length: 4, arg: uint32(i)})
		if got, want := sum(a.Bytes()), uint64(4*(i&0xff)); got != want {
			b.Fatalf("arena %d sums to %d, want %d", i, got, want)
		}
	}
}

func arenasComeAndGoInParallelWithDMA(b *bench) {
	a := b.arena(dma.PageSize, b.kind())
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range 40 {
				x, err := b.f.NewArena(dma.PageSize, b.kind())
				if err != nil {
					b.Error(err)
					return
				}
				if err := x.Close(); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for i := range 100 {
		b.must("fill", command{op: cmdFill, dest: a.Bus(), length: 128, arg: uint32(i)})
		if got := sum(a.Bytes()); got != uint64(128*i) {
			b.Errorf("round %d: the arena sums to %d, want %d", i, got, 128*i)
		}
	}
	wg.Wait()
}
