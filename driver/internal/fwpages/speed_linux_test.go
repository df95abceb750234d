package fwpages

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cxkit/dma"
	"cxkit/driver/internal/cmdif"
	"cxkit/prm"
)

// sizes are how many pages firmware has in the measurements: of a small card, of a large one, and of the
// largest that was seen.
var sizes = []int{10_000, 1_000_000, 8_000_000}

// shuffled returns the addresses in random order, as firmware that has worked for days returns them:
// sixteen at a time, which is how many objects it frees at once.
func shuffled(pas []uint64) []uint64 {
	r := rand.New(rand.NewPCG(1, 2))
	out := make([]uint64, 0, len(pas))
	const run = 16
	for _, k := range r.Perm((len(pas) + run - 1) / run) {
		out = append(out, pas[k*run:min((k+1)*run, len(pas))]...)
	}
	return out
}

// cpuTime is what the calling thread has computed for: unlike the clock, it leaves out what neighbours did
// meanwhile. The caller has locked its thread.
func cpuTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}

// cycle gives n pages and takes all of them back in another order; it returns the time of both.
func cycle(tb testing.TB, l *ledger, pas []uint64, n int, grow func(int) (*dma.Arena, error)) time.Duration {
	begin := cpuTime()
	pas, err := l.take(pas[:0], n, grow)
	if err != nil {
		tb.Fatal(err)
	}
	took := cpuTime() - begin
	order := shuffled(pas)
	begin = cpuTime()
	for _, pa := range order {
		if err := l.put(pa); err != nil {
			tb.Fatal(err)
		}
	}
	return took + cpuTime() - begin
}

func BenchmarkLedger(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			var l ledger
			defer func() { closeAll(l.close()) }()
			grow := space(1 << 32)
			pas := make([]uint64, 0, n)
			var total time.Duration
			for b.Loop() {
				total += cycle(b, &l, pas, n, grow)
			}
			b.ReportMetric(float64(total)/float64(b.N)/float64(n), "ns/page")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// heap is the live heap in bytes, and what a garbage collection takes.
func heap() (live uint64, mark time.Duration) {
	mark = time.Hour
	for range 5 {
		begin := time.Now()
		runtime.GC()
		mark = min(mark, time.Since(begin))
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc, mark
}

// BenchmarkLedgerMemory reports bytes of the heap a page, and the time of a garbage collection with the
// ledger full.
func BenchmarkLedgerMemory(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				before, _ := heap()
				l, _ := full(b, n)
				live, mark := heap()
				b.ReportMetric(float64(int64(live-before))/float64(n), "B/page")
				b.ReportMetric(float64(mark.Nanoseconds()), "ns/GC")
				closeAll(l.close())
			}
		})
	}
}

// full is a ledger with n pages out.
func full(tb testing.TB, n int) (l *ledger, out int) {
	l = new(ledger)
	grow := space(1 << 32)
	var pas []uint64
	for out < n {
		step := min(50_000, n-out)
		var err error
		if pas, err = l.take(pas[:0], step, grow); err != nil {
			tb.Fatal(err)
		}
		out += len(pas)
	}
	return l, out
}

func TestLedgerCostsTheSameAtEightMillionPages(t *testing.T) {
	if raceDetector {
		t.Skip("capability: time of code that is not instrumented")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	best := map[int]float64{}
	var ledgers []*ledger
	defer func() {
		for _, l := range ledgers {
			closeAll(l.close())
		}
	}()
	for range 3 { // interleaved, and the best counts: neighbours come and go
		for _, n := range []int{sizes[0], sizes[2]} {
			l := new(ledger)
			ledgers = append(ledgers, l)
			rounds := 1_000_000 / n
			grow := space(1 << 32)
			pas := make([]uint64, 0, n)
			var total time.Duration
			for range max(rounds, 1) {
				total += cycle(t, l, pas, n, grow)
			}
			per := float64(total) / float64(n*max(rounds, 1))
			if b, ok := best[n]; !ok || per < b {
				best[n] = per
			}
		}
	}
	small, large := best[sizes[0]], best[sizes[2]]
	t.Logf("give and take back: %.1f ns a page at %d, %.1f at %d", small, sizes[0], large, sizes[2])
	// The goal is 3; neighbours on the machine make single runs miss it. More than 10 is another structure.
	if large > 10*small {
		t.Errorf("a page costs %.1f times as much", large/small)
	}

	before, idle := heap()
	l, n := full(t, sizes[2])
	live, mark := heap()
	t.Logf("%.2f bytes a page, garbage collection %v, %v without", float64(int64(live-before))/float64(n), mark, idle)
	if per := float64(int64(live-before)) / float64(n); per > 16 {
		t.Errorf("%.1f bytes a page", per)
	}
	// The goal is 2 and the figure is in the log: a time of a millisecond is at the scheduler's mercy. A
	// ledger that the collector had to walk would cost tens of milliseconds.
	if mark > 2*idle+20*time.Millisecond {
		t.Errorf("a garbage collection takes %v with the ledger, %v without", mark, idle)
	}
	closeAll(l.close())
}

// resident is the process's memory in bytes.
func resident(t *testing.T) int {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip("capability: /proc/self/status")
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	kb := 0
	if _, err := fmt.Sscan(rest, &kb); err != nil {
		t.Fatal(err)
	}
	return kb << 10
}

// 8 million pages are 32 GB: they are addresses, and no memory.
func TestMemoryOfFirmwareIsNeverTouched(t *testing.T) {
	const pages, step = 8_000_000, 50_000
	var space counted
	given := 0
	m := New(Config{
		NewArena: space.arena,
		Exec: exec(func(in cmdif.In, out cmdif.Out) error {
			if x, ok := in.(*prm.ManagePagesIn); ok {
				given += len(x.PAS)
			} else {
				out.(*prm.QueryPagesOut).NumPages = step
			}
			return nil
		}),
	})
	defer m.Release()
	debug.FreeOSMemory()
	before := resident(t)
	if err := m.Boot(t.Context(), prm.QueryPagesBoot); err != nil {
		t.Fatal(err)
	}
	for given < pages {
		if err := m.give(context.Background(), Function{}, step, false); err != nil {
			t.Fatal(err)
		}
	}
	grown := resident(t) - before
	t.Logf("%d pages given, %d MiB of addresses: %d MiB more resident", given, space.bytes>>20, grown>>20)
	if grown > 16<<20 || int64(space.bytes) < int64(pages)*dma.PageSize {
		t.Errorf("%d MiB more resident for %d MiB of addresses", grown>>20, space.bytes>>20)
	}
}

// counted hands out reserved address space and counts it.
type counted struct {
	next  uint64
	bytes int
}

func (s *counted) arena(size int, kind dma.Kind) (*dma.Arena, error) {
	a, err := dma.New(size, kind)
	if err != nil {
		return nil, err
	}
	s.next += 1 << 32
	s.bytes += a.Size()
	a.Place(s.next, nil)
	return a, nil
}
