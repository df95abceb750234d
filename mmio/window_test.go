package mmio

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// page is 8-byte aligned memory that plays a BAR.
func page() []byte { return make([]byte, 4096) }

func TestMappedRegistersAreBigEndian(t *testing.T) {
	mem := page()
	w := NewMapped(mem)
	w.Store32(8, 0x01020304)
	w.Store64(16, 0x1112131415161718)
	want := []byte{1, 2, 3, 4, 0, 0, 0, 0, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0}
	if !bytes.Equal(mem[8:25], want) {
		t.Errorf("memory % x, want % x", mem[8:25], want)
	}
	if got := w.Load32(8); got != 0x01020304 {
		t.Errorf("Load32: %#x", got)
	}
	if got := w.Load64(16); got != 0x1112131415161718 {
		t.Errorf("Load64: %#x", got)
	}
	if got := w.Load32(20); got != 0x15161718 {
		t.Errorf("the lower half: %#x", got)
	}
	if !w.Mapped() || w.Size() != 4096 {
		t.Errorf("mapped %v, size %d", w.Mapped(), w.Size())
	}
}

// recorder is a Trap that writes down what reaches it.
type recorder struct{ calls []string }

func (r *recorder) Load(off uint64, size int) uint64 {
	r.calls = append(r.calls, fmt.Sprintf("load%d %#x", size, off))
	return 0xa1a2a3a4a5a6a7a8
}

func (r *recorder) Store(off uint64, size int, v uint64) {
	r.calls = append(r.calls, fmt.Sprintf("store%d %#x %#x", size, off, v))
}

func TestTrappedAccessesReachTheDeviceOnceEach(t *testing.T) {
	var r recorder
	w := NewTrapped(&r, 0x1000)
	w.Store32(4, 1)
	w.Store32(4, 1) // not merged
	w.Store64(8, 2)
	if got := w.Load32(0xffc); got != 0xa5a6a7a8 {
		t.Errorf("Load32: %#x, want the lower half", got)
	}
	if got := w.Load64(0xff8); got != 0xa1a2a3a4a5a6a7a8 {
		t.Errorf("Load64: %#x", got)
	}
	want := "store4 0x4 0x1, store4 0x4 0x1, store8 0x8 0x2, load4 0xffc, load8 0xff8"
	if got := strings.Join(r.calls, ", "); got != want {
		t.Errorf("device saw %s\nwant       %s", got, want)
	}
	if w.Mapped() {
		t.Error("a trapped window says it is mapped")
	}
}

func TestAccessesOutsideTheWindowPanic(t *testing.T) {
	for name, w := range map[string]*Window{"mapped": NewMapped(page()), "trapped": NewTrapped(&recorder{}, 4096), "empty": NewMapped(nil)} {
		for _, off := range []uint64{4096, 4094, 1, 2, 3, math.MaxUint64, math.MaxUint64 - 3, 1 << 63} {
			mustPanic(t, fmt.Sprintf("%s Load32(%#x)", name, off), func() { w.Load32(off) })
			mustPanic(t, fmt.Sprintf("%s Store32(%#x)", name, off), func() { w.Store32(off, 0) })
		}
		for _, off := range []uint64{4096, 4092, 4, 1, math.MaxUint64 - 7} {
			mustPanic(t, fmt.Sprintf("%s Load64(%#x)", name, off), func() { w.Load64(off) })
			mustPanic(t, fmt.Sprintf("%s Store64(%#x)", name, off), func() { w.Store64(off, 0) })
		}
	}
	odd := NewMapped(page()[:6])
	odd.Store32(0, 1)
	mustPanic(t, "a register that ends outside", func() { odd.Store32(4, 1) })
	mustPanic(t, "a register that ends outside", func() { odd.Store64(0, 1) })
}

func TestMappedWindowsStartAligned(t *testing.T) {
	mustPanic(t, "window at an odd address", func() { NewMapped(page()[4:]) })
}

func TestWideStoresAreNeverTorn(t *testing.T) {
	w := NewMapped(page())
	var done atomic.Bool
	var wg sync.WaitGroup
	for _, v := range []uint64{0, math.MaxUint64} {
		wg.Go(func() {
			for range 20000 {
				w.Store64(64, v)
			}
			done.Store(true)
		})
	}
	for !done.Load() {
		if v := w.Load64(64); v != 0 && v != math.MaxUint64 {
			t.Fatalf("half of each: %#x", v)
		}
		runtime.Gosched()
	}
	wg.Wait()
}

// One access per call, and a plain one: the assembly is small enough to be read by a test.
func TestAssemblyMakesOneAccessPerCall(t *testing.T) {
	for file, operand := range map[string]string{"access_amd64.s": `\(AX\)`, "access_arm64.s": `\(R0\)`} {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		functions := strings.Split(string(src), "TEXT ·")[1:]
		if len(functions) != 6 {
			t.Errorf("%s: %d functions, want 4 accesses and 2 barriers", file, len(functions))
		}
		for _, f := range functions {
			name := f[:strings.Index(f, "(")]
			want := 1
			if strings.HasSuffix(name, "Barrier") {
				want = 0
			}
			if got := len(regexp.MustCompile(operand).FindAllString(f, -1)); got != want {
				t.Errorf("%s: %s makes %d accesses, want %d", file, name, got, want)
			}
			if bad := regexp.MustCompile(`LOCK|XCHG|STLR|LDAR|CAS|SWP`).FindString(f); bad != "" {
				t.Errorf("%s: %s uses %s", file, name, bad)
			}
		}
	}
}

func TestAccessesAllocateNothing(t *testing.T) {
	w := NewMapped(page())
	if n := testing.AllocsPerRun(100, func() {
		w.Store32(0, w.Load32(4))
		w.Store64(8, w.Load64(16))
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkMappedStore32(b *testing.B) {
	w := NewMapped(page())
	for b.Loop() {
		w.Store32(64, 1)
	}
}

func BenchmarkMappedLoad32(b *testing.B) {
	w := NewMapped(page())
	for b.Loop() {
		w.Load32(64)
	}
}

func mustPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s: no panic", what)
		}
	}()
	f()
}
