//go:build linux

package server_test

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"

	"cxkit/transport/vfiouser"
	"cxkit/transport/vfiouser/server"
)

func setIRQs(flags, index, start, count uint32, bools ...byte) []byte {
	return (&vfiouser.IRQSet{Flags: flags, Index: index, Start: start, Count: count, Bools: bools}).Append(nil)
}

const (
	toEventFD = vfiouser.IRQDataEventFD | vfiouser.IRQTrigger
	now       = vfiouser.IRQDataNone | vfiouser.IRQTrigger
	msix      = vfiouser.IRQMSIX
)

// pending reads the first pending bits of the BAR.
func (r *raw) pending() byte { return r.must(vfiouser.RegionRead, access(0, 0x6000, 1))[16] }

func TestVectorsSignalTheirEventFD(t *testing.T) {
	r := client(t, server.Config{})
	a, b, c := eventFD(t), eventFD(t), eventFD(t)
	files := openFiles(t)
	r.must(vfiouser.DeviceSetIRQs, setIRQs(toEventFD, msix, 2, 2), a, b)
	r.host.Raise(2)
	r.host.Raise(3)
	r.host.Raise(3)
	if x, y := count(a), count(b); x != 1 || y != 2 {
		t.Errorf("signalled %d and %d times, want 1 and 2", x, y)
	}
	r.must(vfiouser.DeviceSetIRQs, setIRQs(toEventFD, msix, 3, 1), c) // replaces b
	r.host.Raise(3)
	if x, y := count(b), count(c); x != 0 || y != 1 {
		t.Errorf("the old eventfd was signalled %d times, the new one %d", x, y)
	}
	if got := openFiles(t); got != files+2 {
		t.Errorf("%d files open, want %d", got, files+2)
	}
	r.must(vfiouser.DeviceSetIRQs, setIRQs(toEventFD, msix, 2, 1)) // takes a away
	r.host.Raise(2)
	if count(a) != 0 || r.pending() != 1<<2 {
		t.Errorf("a vector without an eventfd: pending %#x", r.pending())
	}
	r.must(vfiouser.DeviceSetIRQs, setIRQs(toEventFD, msix, 2, 1), a) // has been pending
	if count(a) != 1 || r.pending() != 0 {
		t.Error("a pending vector was not delivered to its new eventfd")
	}
	r.must(vfiouser.DeviceSetIRQs, setIRQs(now, msix, 0, 0)) // disables all
	r.host.Raise(3)
	if count(c) != 0 || openFiles(t) != files {
		t.Errorf("disabled: %d files open, want %d", openFiles(t), files)
	}
}

func TestClientsTriggerAndMaskVectors(t *testing.T) {
	r := client(t, server.Config{})
	a, b := eventFD(t), eventFD(t)
	r.must(vfiouser.DeviceSetIRQs, setIRQs(toEventFD, msix, 0, 2), a, b)
	r.must(vfiouser.DeviceSetIRQs, setIRQs(now, msix, 0, 2))
	r.must(vfiouser.DeviceSetIRQs, setIRQs(vfiouser.IRQDataBool|vfiouser.IRQTrigger, msix, 0, 2, 0, 1))
	if x, y := count(a), count(b); x != 1 || y != 2 {
		t.Errorf("signalled %d and %d times, want 1 and 2", x, y)
	}
	r.must(vfiouser.DeviceSetIRQs, setIRQs(vfiouser.IRQDataNone|vfiouser.IRQMask, msix, 0, 1))
	r.host.Raise(0)
	r.host.Raise(1)
	if x, y := count(a), count(b); x != 0 || y != 1 || r.pending() != 1 {
		t.Errorf("masked: signalled %d and %d times, pending %#x", x, y, r.pending())
	}
	r.must(vfiouser.DeviceSetIRQs, setIRQs(vfiouser.IRQDataBool|vfiouser.IRQUnmask, msix, 0, 2, 1, 0))
	if count(a) != 1 {
		t.Error("not delivered when unmasked")
	}
}

func TestBadInterruptSettingsAreRefused(t *testing.T) {
	r := client(t, server.Config{})
	fd := eventFD(t)
	pipe := [2]int{}
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	files := openFiles(t)
	for _, c := range []struct {
		what    string
		payload []byte
		fds     []int
	}{
		{"vector behind the last", setIRQs(toEventFD, msix, 24, 1), []int{fd}},
		{"vectors across the last", setIRQs(toEventFD, msix, 23, 2), []int{fd, fd}},
		{"a sum that wraps", setIRQs(toEventFD, msix, 1<<32-1, 2), []int{fd, fd}},
		{"fewer files than vectors", setIRQs(toEventFD, msix, 0, 3), []int{fd, fd}},
		{"more files than vectors", setIRQs(toEventFD, msix, 0, 1), []int{fd, fd}},
		{"no vectors", setIRQs(toEventFD, msix, 0, 0), nil},
		{"none of no vectors, from 1", setIRQs(now, msix, 1, 0), nil},
		{"INTx", setIRQs(toEventFD, vfiouser.IRQIntX, 0, 1), []int{fd}},
		{"an index that does not exist", setIRQs(toEventFD, 3, 0, 1), []int{fd}},
		{"a pipe", setIRQs(toEventFD, msix, 0, 1), []int{pipe[1]}},
		{"a file of memory", setIRQs(toEventFD, msix, 0, 1), []int{memfd(t, 4096, 0)}},
		{"a good one and a bad one", setIRQs(toEventFD, msix, 0, 2), []int{fd, pipe[1]}},
		{"files with bools", setIRQs(vfiouser.IRQDataBool|vfiouser.IRQTrigger, msix, 0, 1, 1), []int{fd}},
		{"two kinds of data", setIRQs(toEventFD|vfiouser.IRQDataNone, msix, 0, 1), []int{fd}},
		{"no action", setIRQs(vfiouser.IRQDataNone, msix, 0, 1), nil},
		{"two actions", setIRQs(now|vfiouser.IRQMask, msix, 0, 1), nil},
		{"fewer bools than vectors", setIRQs(vfiouser.IRQDataBool|vfiouser.IRQTrigger, msix, 0, 3, 1, 1), nil},
	} {
		t.Log(c.what)
		r.refused(unix.EINVAL, vfiouser.DeviceSetIRQs, c.payload, c.fds...)
	}
	r.refused(unix.EOPNOTSUPP, vfiouser.DeviceSetIRQs, setIRQs(vfiouser.IRQDataEventFD|vfiouser.IRQMask, msix, 0, 1), fd)
	if got := openFiles(t); got > files+1 { // the test's own memfd
		t.Errorf("%d files open, want %d", got, files+1)
	}
}

// A client may fill its eventfd and let it block: the card's engine must not.
func TestAFullEventFDBlocksNobody(t *testing.T) {
	r := client(t, server.Config{})
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	r.must(vfiouser.DeviceSetIRQs, setIRQs(toEventFD, msix, 0, 1), fd)
	if _, err := unix.Write(fd, bytes.Repeat([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 1)[:8]); err == nil {
		t.Fatal("2^64-1 fits")
	}
	full := []byte{0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	if _, err := unix.Write(fd, full); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		r.host.Raise(0)
	}
}

func TestFunctionLevelResetThroughConfigSpace(t *testing.T) {
	r := client(t, server.Config{})
	fd := eventFD(t)
	r.must(vfiouser.DMAMap, mapRequest(readWrite, 0x10000, 0x1000, 0)) // then config writes go aside
	r.host.Raise(1)                                                    // pending, for it has no eventfd
	r.must(vfiouser.RegionWrite, access(2, 0, 4, 1, 2, 3, 4))
	// Device Control of the card's PCIe capability, as Linux writes it.
	r.must(vfiouser.RegionWrite, access(vfiouser.RegionConfig, 0x48, 2, 0x10, 0x80))
	if p := r.must(vfiouser.RegionRead, access(2, 0, 4)); !bytes.Equal(p[16:], make([]byte, 4)) {
		t.Errorf("memory % x after a reset", p[16:])
	}
	r.must(vfiouser.DeviceSetIRQs, setIRQs(toEventFD, msix, 1, 1), fd)
	if count(fd) != 0 {
		t.Error("a vector from before the reset was delivered")
	}
	r.host.Raise(1)
	if count(fd) != 1 {
		t.Error("eventfds are gone after a reset: they belong to the client")
	}
}
