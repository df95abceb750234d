//go:build linux

package vfio

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cxkit/dma"
	"cxkit/pci"
	"cxkit/transport/transporttest"
)

// The suite on every interface of the kernel's that translates addresses.
func TestTransportByGroup(t *testing.T)   { runSuite(t, func(*fake) {}) }
func TestTransportByIOMMUFD(t *testing.T) { runSuite(t, (*fake).cdev) }

func runSuite(t *testing.T, prepare func(*fake)) {
	transporttest.Run(t, transporttest.Options{
		Open: func(t testing.TB) pci.Function {
			k := newFake(t, transporttest.NewCard())
			prepare(k)
			return mustOpen(t, k.settings())
		},
		Kinds: []dma.Kind{dma.Private, dma.Shared, dma.Reserved},
	})
}

func mustOpen(t testing.TB, c Config) *Function {
	t.Helper()
	f, err := Open(t.Context(), address, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func TestErrorsSayWhatToType(t *testing.T) {
	device := pciDevices + "/" + address
	for name, c := range map[string]struct {
		break_ func(k *fake, c *Config)
		want   []string
	}{
		"another driver has it": {
			func(k *fake, _ *Config) { k.addDevice(address, "mlx5_core", "13") },
			[]string{"mlx5_core", "cxkit bind 0000:08:00.0", "cxkit unbind 0000:08:00.0"},
		},
		"no driver has it": {
			func(k *fake, _ *Config) { os.Remove(k.root + device + "/driver") },
			[]string{"cxkit bind 0000:08:00.0"},
		},
		"no IOMMU": {
			func(k *fake, _ *Config) { k.link(device+"/iommu_group", "none") },
			[]string{"intel_iommu=on", "VT-d", "no-IOMMU"},
		},
		"no IOMMU, and a kernel that does without": {
			func(k *fake, _ *Config) { k.file("/sys/kernel/iommu_groups/13/name", "vfio-noiommu\n") },
			[]string{"no IOMMU", "by name"},
		},
		"no-IOMMU where there is one": {
			func(_ *fake, c *Config) { c.NoIOMMU = true },
			[]string{"there is an IOMMU"},
		},
		"a group shared with another device": {
			func(k *fake, _ *Config) {
				k.viable = false
				k.addDevice("0000:08:00.1", "mlx5_core", "13")
				k.addDevice("0000:00:01.0", "pcieport", "13")
			},
			[]string{"group 13", "0000:08:00.1 (mlx5_core)", "cxkit bind 0000:08:00.1"},
		},
		"no rights": {
			func(k *fake, _ *Config) { k.refuse["/dev/vfio/13"] = unix.EACCES },
			[]string{"sudo chown $USER /dev/vfio/13"},
		},
		"another process has it": {
			func(k *fake, _ *Config) { k.refuse["/dev/vfio/13"] = unix.EBUSY },
			[]string{"another process", "fuser -v /dev/vfio/13"},
		},
		"VFIO is not loaded": {
			func(k *fake, _ *Config) { k.refuse["/dev/vfio/vfio"] = unix.ENOENT },
			[]string{"modprobe vfio-pci"},
		},
		"no type1v2": {
			func(k *fake, _ *Config) { k.noType1 = true },
			[]string{"modprobe vfio_iommu_type1"},
		},
		"interrupts are not remapped": {
			func(k *fake, _ *Config) { k.unsafe = true },
			[]string{"interrupt remapping", "allow_unsafe_interrupts"},
		},
		"iommufd is not there": {
			func(_ *fake, c *Config) { c.Interface = IOMMUFD },
			[]string{"no iommufd"},
		},
		"it reads as ones": {
			func(k *fake, _ *Config) { k.ones = true },
			[]string{"reads as ones"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newFake(t, transporttest.NewCard())
			config := k.settings()
			c.break_(k, &config)
			f, err := Open(t.Context(), address, config)
			if err == nil {
				f.Close()
				t.Fatal("it was opened")
			}
			for _, w := range append(c.want, address) {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%v\ndoes not say %q", err, w)
				}
			}
		})
	}
}

func TestAddressesThatAreNoneAreRefused(t *testing.T) {
	k := newFake(t, nil)
	for _, a := range []string{"", "eth0", "08:00", "08:00.8", "../../08:00.0", "0000:08:00.0/..", "08:20.0", "zz:00.0"} {
		if _, err := Open(t.Context(), a, k.settings()); err == nil {
			t.Errorf("%q was opened", a)
		}
	}
	if a, err := ParseAddress("0A:1f.7"); err != nil || a != "0000:0a:1f.7" {
		t.Errorf("%q, %v", a, err)
	}
	_, err := Open(t.Context(), "0000:99:00.0", k.settings())
	if err == nil || !strings.Contains(err.Error(), "cxkit devices") {
		t.Errorf("a device that is not there: %v", err)
	}
}

func TestOpenUndoesWhatItDidWhenAnyCallFails(t *testing.T) {
	for _, prepare := range []func(*fake){func(*fake) {}, (*fake).cdev} {
		for at := 1; ; at++ {
			k := newFake(t, transporttest.NewCard())
			prepare(k)
			k.failAt = at
			f, err := Open(t.Context(), address, k.settings())
			if err == nil {
				// The kernel's announcements come last, and a card can do without.
				if err := f.Close(); err != nil {
					t.Error(err)
				}
				if at > 30 || k.calls < at {
					break
				}
				continue
			}
			if !errors.Is(err, unix.EIO) {
				t.Errorf("call %d failed: %v, want its error", at, err)
			}
			if left := k.left(); len(left) > 0 {
				t.Fatalf("call %d failed, left open: %v", at, left)
			}
		}
	}
}

func TestMemlockIsCheckedBeforeAndExplained(t *testing.T) {
	k := newFake(t, transporttest.NewCard())
	k.unlimited, k.limit = false, 64<<10
	f := mustOpen(t, k.settings())
	a, err := f.NewArena(40<<10, dma.Auto)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.NewArena(4<<20, dma.Auto)
	if !errors.Is(err, ErrMemlock) {
		t.Fatalf("4 MiB under a limit of 64 KiB: %v, want ErrMemlock", err)
	}
	for _, want := range []string{"64 KiB", "40 KiB are in use", "4136 KiB are needed", "ulimit -l", "LimitMEMLOCK", "cap_ipc_lock"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\ndoes not say %q", err, want)
		}
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if a, err = f.NewArena(64<<10, dma.Reserved); err != nil {
		t.Fatalf("after memory was given back: %v", err)
	}
	a.Close()
}

func TestMemoryIsPutOnTheCardsNode(t *testing.T) {
	k := newFake(t, transporttest.NewCard())
	f := mustOpen(t, k.settings())
	a, err := f.NewArena(dma.PageSize, dma.Auto)
	if err != nil {
		t.Fatal(err)
	}
	a.Close()
	if got := k.nodesAsked(); !slices.Equal(got, []int{1}) {
		t.Errorf("nodes %v, want 1", got)
	}
}

func TestFewerInterruptsThanVectors(t *testing.T) {
	k := newFake(t, transporttest.NewCard())
	k.vectors = 5
	f := mustOpen(t, k.settings())
	if got := f.Info().Vectors; got != 5 {
		t.Errorf("%d vectors, want the machine's 5", got)
	}
	config := k.settings()
	k2 := newFake(t, transporttest.NewCard())
	config = k2.settings()
	config.Vectors = 3
	if got := mustOpen(t, config).Info().Vectors; got != 3 {
		t.Errorf("%d vectors, want the 3 that were asked for", got)
	}
}

func TestMappedBARsAreTheCardsMemoryUntilClose(t *testing.T) {
	k := newFake(t, nil)
	k.mappedBAR = true
	f := mustOpen(t, k.settings())
	w, err := f.Window(0)
	if err != nil {
		t.Fatal(err)
	}
	w.Store32(0x100, 0x01020304)
	w.Store64(0x108, 0x1112131415161718)
	var got [16]byte
	if _, err := k.memory.ReadAt(got[:], 0x100); err != nil {
		t.Fatal(err)
	}
	if want := []byte{1, 2, 3, 4, 0, 0, 0, 0, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18}; !bytes.Equal(got[:], want) {
		t.Errorf("the card has % x, want % x", got, want)
	}
	if v := w.Load64(0x108); v != 0x1112131415161718 {
		t.Errorf("reads %#x", v)
	}
	if n := testing.AllocsPerRun(100, func() { w.Store64(0x108, uint64(w.Load32(0x100))) }); n != 0 {
		t.Errorf("an access allocates %v times", n)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	w.Store32(0x100, 0xdead)
	if v := w.Load32(0x100); v != 0xffffffff {
		t.Errorf("reads %#x after Close, want ones", v)
	}
	if _, err := k.memory.ReadAt(got[:4], 0x100); err != nil || !bytes.Equal(got[:4], []byte{1, 2, 3, 4}) {
		t.Errorf("the card's register is % x after a store behind Close, %v", got[:4], err)
	}
	k.memory.Close()
}

// noticed waits for a vector that never comes and returns what ends it, and how long after lose.
func noticed(t *testing.T, f *Function, lose func()) (after time.Duration, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ended := make(chan error)
	go func() { ended <- f.Wait(ctx, 1) }()
	lose()
	began := time.Now()
	err = <-ended
	return time.Since(began), err
}

func TestUnplugIsNoticedAtOnce(t *testing.T) {
	for index, want := range map[uint32]string{irqRequest: "unplugged", irqError: "error of the device"} {
		k := newFake(t, nil)
		k.mappedBAR = true
		f := mustOpen(t, k.settings())
		w, err := f.Window(0)
		if err != nil {
			t.Fatal(err)
		}
		after, err := noticed(t, f, func() { k.raise(index, 0) })
		if !errors.Is(err, pci.ErrGone) || !strings.Contains(err.Error(), want) {
			t.Errorf("wait: %v, want ErrGone and %q", err, want)
		}
		if after > time.Second {
			t.Errorf("noticed after %v, want a second at most", after)
		}
		if v := w.Load32(0); v != 0xffffffff {
			t.Errorf("a register reads %#x, want ones", v)
		}
		if _, err := f.NewArena(1, dma.Auto); !errors.Is(err, pci.ErrGone) {
			t.Errorf("arena: %v, want ErrGone", err)
		}
		k.memory.Close()
	}
}

// Who is told that the kernel wants the card back has it for a while, and may stop it by its registers.
func TestARecalledCardWorksUntilItIsClosed(t *testing.T) {
	k := newFake(t, nil)
	k.mappedBAR = true
	c := k.settings()
	told := make(chan struct{})
	c.Recalled, c.recallTime = func() { close(told) }, time.Hour
	f := mustOpen(t, c)
	w, err := f.Window(0)
	if err != nil {
		t.Fatal(err)
	}
	k.raise(irqRequest, 0)
	<-told
	if v := w.Load32(0); v == 0xffffffff {
		t.Error("registers read as ones")
	}
	a, err := f.NewArena(1, dma.Auto)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

func TestARecalledCardIsGoneWhenNobodyClosesIt(t *testing.T) {
	k := newFake(t, nil)
	c := k.settings()
	told := make(chan struct{})
	c.Recalled, c.recallTime = func() { close(told) }, time.Millisecond
	f := mustOpen(t, c)
	_, err := noticed(t, f, func() { k.raise(irqRequest, 0) })
	if !errors.Is(err, pci.ErrGone) || !strings.Contains(err.Error(), "wants the device back") {
		t.Errorf("wait: %v, want ErrGone", err)
	}
	<-told
}

func TestACardThatReadsAsOnesIsNoticedWithinASecond(t *testing.T) {
	for name, lose := range map[string]func(k *fake, f *Function) func(bool){
		"configuration space": func(k *fake, _ *Function) func(bool) { return k.setOnes },
		"a register": func(_ *fake, f *Function) func(bool) {
			w, err := f.Window(0)
			if err != nil {
				t.Fatal(err)
			}
			return func(ones bool) {
				if ones {
					w.Store32(0x40, 0xffffffff)
				} else {
					w.Store32(0x40, 7)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newFake(t, nil)
			k.mappedBAR = true
			config := k.settings()
			config.Probe = Probe{BAR: 0, Off: 0x40, Size: 4}
			f := mustOpen(t, config)
			set := lose(k, f)
			set(false)
			for !f.state.seen() { // until it has been seen to answer
				select {
				case <-time.After(lookInterval / 4):
				case <-t.Context().Done():
					t.Fatal("never looked at")
				}
			}
			after, err := noticed(t, f, func() { set(true) })
			if !errors.Is(err, pci.ErrGone) || !strings.Contains(err.Error(), "ones") {
				t.Errorf("wait: %v, want ErrGone", err)
			}
			t.Logf("noticed after %v", after)
			if limit := 5 * time.Second; after > limit { // a second, on a machine that does nothing else
				t.Errorf("noticed after %v", after)
			}
			set(false)
			for f.alive() != nil {
				select {
				case <-time.After(lookInterval / 4):
				case <-t.Context().Done():
					t.Fatal("a card that answers again is still gone")
				}
			}
			k.memory.Close()
		})
	}
}

// seen: the card has been seen to answer.
func (s *state) seen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.armed
}

// A kernel with both gives such a card a name below vfio-dev, and no file of its own.
func TestACardWithoutIOMMUIsAskedForByName(t *testing.T) {
	k := newFake(t, nil)
	k.cdev()
	k.file("/sys/kernel/iommu_groups/13/name", "vfio-noiommu\n")
	if _, err := Open(t.Context(), address, k.settings()); err == nil || !strings.Contains(err.Error(), "ask for no-IOMMU by name") {
		t.Errorf("opened without asking for it: %v", err)
	}
}

func TestWithoutIOMMUBusAddressesArePhysical(t *testing.T) {
	k := newFake(t, nil)
	k.file("/sys/kernel/iommu_groups/13/name", "vfio-noiommu\n")
	k.frames = []uint64{9 << 30, 7 << 30, 5<<30 + hugePage, 5 << 30, 5<<30 + 2*hugePage, 1 << 30}
	config := k.settings()
	config.NoIOMMU = true
	var said bytes.Buffer
	config.Log = slog.New(slog.NewTextHandler(&said, nil))
	f := mustOpen(t, config)
	if !strings.Contains(said.String(), "level=WARN") || !strings.Contains(said.String(), "overwrite all memory") {
		t.Errorf("no warning: %s", &said)
	}
	arena := func(size int) *dma.Arena {
		t.Helper()
		a, err := f.NewArena(size, dma.Auto)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	// Small ones share a huge page, each in one piece.
	a, b := arena(3*dma.PageSize), arena(hugePage-5*dma.PageSize)
	if a.Bus() != 9<<30 || b.Bus() != 9<<30+3*dma.PageSize || a.Backing() != "hugetlb" {
		t.Errorf("bus addresses %#x and %#x on %q, want one behind the other at %#x", a.Bus(), b.Bus(), a.Backing(), uint64(9<<30))
	}
	copy(a.Bytes(), "what was there before")
	a.Close()
	if c := arena(2 * dma.PageSize); c.Bus() != 9<<30 || !bytes.Equal(c.Bytes(), make([]byte, 2*dma.PageSize)) {
		t.Errorf("at %#x: want the place that got free, of zeros", c.Bus())
	} else {
		c.Close()
	}
	b.Close()
	if k.unmapped != hugePage {
		t.Errorf("%d bytes went back to the pool, want a huge page when nothing of it is left", k.unmapped)
	}
	// Large ones are huge pages that lie side by side, whichever way the pool gives them out.
	d := arena(3*hugePage - dma.PageSize)
	if d.Bus() != 5<<30 || d.Size() != 3*hugePage-dma.PageSize || !slices.Equal(k.dropped, []int{0, 1, 5}) {
		t.Errorf("%d bytes at %#x, dropped %v; want the pages at %#x and the rest back in the pool", d.Size(), d.Bus(), k.dropped, uint64(5<<30))
	}
	for i, want := range []byte{4, 3, 5} {
		if got := d.Bytes()[i*hugePage]; got != want {
			t.Errorf("huge page %d is number %d of the pool's, want %d", i, got, want)
		}
	}
	d.Close()
	for _, size := range []int{4 * hugePage, 7 * hugePage} {
		if _, err := f.NewArena(size, dma.Auto); err == nil || !strings.Contains(err.Error(), "nr_hugepages") {
			t.Errorf("%d bytes in one piece: %v, want what to type", size, err)
		}
	}
	if _, err := f.NewArena(0, dma.Auto); !errors.Is(err, dma.ErrSize) {
		t.Errorf("no bytes: %v", err)
	}
	if _, err := f.NewArena(dma.PageSize, dma.Kind(99)); !errors.Is(err, dma.ErrKind) {
		t.Errorf("a kind that there is not: %v", err)
	}
}
