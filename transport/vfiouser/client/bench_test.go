//go:build linux

package client_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"cxkit/dma"
	"cxkit/transport/transporttest"
)

// BenchmarkEchoFloor is what a round trip over the same kind of socket costs when nobody looks at the
// bytes: the floor of BenchmarkRegisterRead.
func BenchmarkEchoFloor(b *testing.B) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		p := make([]byte, 64)
		for {
			n, err := unix.Read(fds[1], p)
			if err != nil || n == 0 {
				return
			}
			unix.Write(fds[1], p[:n])
		}
	}()
	p := make([]byte, 32)
	for b.Loop() {
		unix.Write(fds[0], p)
		if _, err := unix.Read(fds[0], p); err != nil {
			b.Fatal(err)
		}
	}
	unix.Shutdown(fds[0], unix.SHUT_RDWR)
	<-done
	unix.Close(fds[0])
	unix.Close(fds[1])
}

func BenchmarkRegisterRead(b *testing.B) {
	w, err := openPair(b).Window(2)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		w.Load32(0x40)
	}
}

func BenchmarkRegisterReadInAnotherProcess(b *testing.B) {
	path, _ := otherProcess(b)
	f := dialPath(b, path)
	w, err := f.Window(2)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		w.Load32(0x40)
	}
}

func BenchmarkPostedWrite(b *testing.B) {
	w, err := openPair(b).Window(2)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		w.Store32(0x40, 1)
	}
	w.Load32(0x40) // all have arrived
}

// BenchmarkInterrupt is a command that raises a vector, and its wait: a posted write, the card's engine, an
// eventfd and the wake-up.
func BenchmarkInterrupt(b *testing.B) {
	raise := transporttest.Raiser(b, openPair(b))
	b.ReportAllocs()
	for b.Loop() {
		raise()
	}
}

func BenchmarkArena(b *testing.B) {
	f := openPair(b)
	for b.Loop() {
		a, err := f.NewArena(4096, dma.Shared)
		if err != nil {
			b.Fatal(err)
		}
		a.Close()
	}
}

func TestRegisterAccessAllocatesNothing(t *testing.T) {
	w, err := openPair(t).Window(2)
	if err != nil {
		t.Fatal(err)
	}
	// Both ends are in this process: what the server allocates counts too.
	if n := testing.AllocsPerRun(300, func() {
		w.Store32(0x40, 1)
		w.Store64(0x48, 1)
		w.Load32(0x40)
		w.Load64(0x48)
	}); n != 0 {
		t.Errorf("%v allocations in four accesses", n)
	}
}
