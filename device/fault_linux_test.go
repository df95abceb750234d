package device

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cxkit/pci"
	"cxkit/prm"
)

// shrinking is an endpoint whose host has a piece of memory more, behind a file that can be truncated.
type shrinking struct {
	pci.Endpoint
	extra *extraMemory
}

func (e shrinking) Attach(h pci.Host) error {
	e.extra.Memory = h.Memory()
	return e.Endpoint.Attach(extraHost{h, e.extra})
}

type extraHost struct {
	pci.Host
	memory pci.Memory
}

func (h extraHost) Memory() pci.Memory { return h.memory }

// extraMemory is memory with a mapped file at extraBus.
type extraMemory struct {
	pci.Memory
	file   int
	bytes  []byte
	faults int
}

const (
	extraBus  = 1 << 45
	extraSize = 64 << 10
)

func newExtraMemory(t *testing.T) *extraMemory {
	t.Helper()
	fd, err := unix.MemfdCreate("cxkit-test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	m := &extraMemory{file: fd}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Ftruncate(fd, extraSize); err != nil {
		t.Fatal(err)
	}
	if m.bytes, err = unix.Mmap(fd, 0, extraSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(m.bytes) })
	return m
}

func (m *extraMemory) View(addr uint64, n int, access pci.Access) []byte {
	if addr-extraBus < extraSize && uint64(n) <= extraSize-(addr-extraBus) {
		return m.bytes[addr-extraBus:][:n:n]
	}
	return m.Memory.View(addr, n, access)
}

// Fault is pci.Faulter's: only this memory can vanish, and only here is it touched.
func (m *extraMemory) Fault(uintptr) bool {
	m.faults++
	return true
}

// TestTruncatedMemoryLosesOneFunction truncates memory that a function receives to and sends from.
func TestTruncatedMemoryLosesOneFunction(t *testing.T) {
	for _, c := range []struct {
		name  string
		touch func(*testing.T, *dataBench)
	}{
		{"receive", func(t *testing.T, b *dataBench) {
			q := b.receiver(4, 256)
			q.post(2)
			segment(q.wqe(1), 256, b.key, extraBus+4096)
			b.receive(testFrame(60, 1), testFrame(60, 2), testFrame(60, 3))
			if n := len(q.cq.take()); n > 1 {
				t.Errorf("%d completions", n)
			}
		}},
		{"send", func(t *testing.T, b *dataBench) {
			q := b.sender(4)
			w := eth{}.bytes(b)
			var d [16]byte
			segment(d[:], 900, b.key, extraBus)
			q.put(prm.WQESend, prm.CompletionAlways, append(w, append(d[:], d[:]...)...))
			q.ring0()
			if len(b.port.tx) != 0 || q.cq.next() != nil {
				t.Error("a frame of vanished memory was sent")
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			first := newBench(t, Config{Ports: 2})
			first.fn.Close()
			extra := newExtraMemory(t)
			first.wrap = func(e pci.Endpoint) pci.Endpoint { return shrinking{e, extra} }
			first.attach(0)
			lost := dataBenchOn(t, first)
			second := &bench{TB: t, card: first.card, clock: first.clock, nextPA: 1 << 44, memory: first.memory, mailboxes: first.mailboxes}
			second.rest = second.step
			second.attach(1)
			t.Cleanup(func() { second.fn.Close() })
			kept := dataBenchOn(t, second)
			if err := unix.Ftruncate(extra.file, 0); err != nil {
				t.Fatal(err)
			}
			c.touch(t, lost)
			if extra.faults != 1 {
				t.Fatalf("%d faults, want 1: the function is not to touch memory after the first", extra.faults)
			}
			if got := lost.regs.Load32(regHealthCounter) >> 24; got != uint32(prm.HealthICMFetchPCI) {
				t.Errorf("health syndrome %#x, want %#x", got, prm.HealthICMFetchPCI)
			}

			q := kept.receiver(4, 256)
			q.post(1)
			kept.receive(testFrame(60, 4))
			if n := len(q.cq.take()); n != 1 {
				t.Errorf("the other function got %d frames, want 1", n)
			}

			// A reset brings the function back, without the file.
			if err := lost.fn.Reset(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := lost.fn.WriteConfig(4, []byte{0x06, 0x04}); err != nil {
				t.Fatal(err)
			}
			lost.clock.advance(time.Second)
			again := *lost.bench
			b := dataBenchOn(t, &again)
			q = b.receiver(4, 256)
			q.post(1)
			b.receive(testFrame(60, 5))
			if n := len(q.cq.take()); n != 1 {
				t.Errorf("after a reset %d frames, want 1", n)
			}
		})
	}
}

// TestOtherPanicsGoOn: a guard is for vanished memory only.
func TestOtherPanicsGoOn(t *testing.T) {
	b := newBench(t, Config{})
	defer func() {
		if r := recover(); r != "mine" {
			t.Errorf("recovered %v", r)
		}
	}()
	b.card.Do(func() { panic("mine") })
}
