//go:build linux

package server_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"cxkit/pci"
	"cxkit/transport/vfiouser"
	"cxkit/transport/vfiouser/server"
)

func TestMapsWithAFileAreSharedMemory(t *testing.T) {
	r := client(t, server.Config{})
	fd := memfd(t, 3*4096, 0)
	mine, err := unix.Mmap(fd, 0, 3*4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mine)
	r.must(vfiouser.DMAMap, mapRequest(readWrite, 0x100000, 0x1000, 0x1000), fd)
	r.must(vfiouser.DMAMap, mapRequest(vfiouser.MapRead, 0x101000, 0x1000, 0x2000), fd)
	mem := r.host.Memory()
	mem.Enter()
	defer mem.Leave()
	copy(mem.View(0x100010, 4, pci.Write), "card")
	if got := string(mine[0x1010:0x1014]); got != "card" {
		t.Errorf("the client reads %q", got)
	}
	copy(mine[0x2000:], "client")
	if got := mem.View(0x101000, 6, pci.Read); string(got) != "client" {
		t.Errorf("the card reads %q", got)
	}
	if mem.View(0x101000, 6, pci.Write) != nil || mem.View(0x101000, 6, pci.Read|pci.Write) != nil {
		t.Error("the card may write read-only memory")
	}
	var e *pci.DMAError
	if err := mem.WriteAt(make([]byte, 32), 0x100ff0); !errors.As(err, &e) || e.Why != "read only" {
		t.Errorf("write into read-only memory: %v", err)
	}
	if err := mem.ReadAt(make([]byte, 0x2000), 0x100000); err != nil {
		t.Errorf("read across two maps: %v", err)
	}
}

func TestBadMapsAreRefused(t *testing.T) {
	r := client(t, server.Config{})
	fd := memfd(t, 0x4000, 0)
	r.must(vfiouser.DMAMap, mapRequest(readWrite, 0x100000, 0x2000, 0), fd)
	pipe := [2]int{}
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	path := filepath.Join(t.TempDir(), "read-only")
	if err := os.WriteFile(path, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	readOnly, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer readOnly.Close()
	before := openFiles(t)
	for _, c := range []struct {
		what    string
		want    error
		request []byte
		fds     []int
	}{
		{"the same again", unix.EEXIST, mapRequest(readWrite, 0x100000, 0x2000, 0), []int{fd}},
		{"overlap at the start", unix.EEXIST, mapRequest(readWrite, 0xff000, 0x2000, 0), []int{fd}},
		{"overlap at the end", unix.EEXIST, mapRequest(readWrite, 0x101000, 0x2000, 0), nil},
		{"around another", unix.EEXIST, mapRequest(readWrite, 0, 1<<40, 0), nil},
		{"size 0", unix.EINVAL, mapRequest(readWrite, 0x200000, 0, 0), []int{fd}},
		{"odd address", unix.EINVAL, mapRequest(readWrite, 0x200800, 0x1000, 0), []int{fd}},
		{"odd size", unix.EINVAL, mapRequest(readWrite, 0x200000, 0x800, 0), []int{fd}},
		{"odd offset", unix.EINVAL, mapRequest(readWrite, 0x200000, 0x1000, 0x10), []int{fd}},
		{"wraps", unix.EINVAL, mapRequest(readWrite, 1<<64-0x1000, 0x2000, 0), nil},
		{"no access", unix.EINVAL, mapRequest(0, 0x200000, 0x1000, 0), []int{fd}},
		{"unknown flags", unix.EINVAL, mapRequest(0xff, 0x200000, 0x1000, 0), []int{fd}},
		{"behind the file", unix.EINVAL, mapRequest(readWrite, 0x200000, 0x1000, 0x4000), []int{fd}},
		{"across the file's end", unix.EINVAL, mapRequest(readWrite, 0x200000, 0x2000, 0x3000), []int{fd}},
		{"offset that wraps", unix.EINVAL, mapRequest(readWrite, 0x200000, 0x2000, 1<<64-0x1000), []int{fd}},
		{"offset without a file", unix.EINVAL, mapRequest(readWrite, 0x200000, 0x1000, 0x1000), nil},
		{"two files", unix.EINVAL, mapRequest(readWrite, 0x200000, 0x1000, 0), []int{fd, fd}},
		{"a pipe", unix.EINVAL, mapRequest(readWrite, 0x200000, 0x1000, 0), []int{pipe[0]}},
		{"a read-only file", unix.EACCES, mapRequest(readWrite, 0x200000, 0x1000, 0), []int{int(readOnly.Fd())}},
		{"short", unix.EINVAL, mapRequest(readWrite, 0x200000, 0x1000, 0)[:31], []int{fd}},
	} {
		t.Log(c.what)
		r.refused(c.want, vfiouser.DMAMap, c.request, c.fds...)
	}
	r.must(vfiouser.DMAMap, mapRequest(vfiouser.MapRead, 0x200000, 0x1000, 0), int(readOnly.Fd()))
	if now := openFiles(t); now != before {
		t.Errorf("%d files open, want %d", now, before)
	}
}

func TestTenThousandMapsOfOneFileAreOneMapping(t *testing.T) {
	const n = 10000
	r := client(t, server.Config{MaxMaps: n})
	fd := memfd(t, n*4096, 0)
	files := openFiles(t)
	for i := range uint64(n) {
		r.must(vfiouser.DMAMap, mapRequest(readWrite, i*0x3000, 0x1000, (n-1-i)*0x1000), fd)
	}
	if now := openFiles(t); now != files {
		t.Errorf("%d files open, want %d", now, files)
	}
	if got := mappings(t, "memfd:test"); got != 1 {
		t.Errorf("the file is mapped %d times, want once", got)
	}
	r.refused(unix.ENOSPC, vfiouser.DMAMap, mapRequest(readWrite, 1<<40, 0x1000, 0), fd)
	mem := r.host.Memory()
	mem.View(5000*0x3000, 4, pci.Write)[0] = 0x77
	if _, err := unix.Pread(fd, make([]byte, 1), 0); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	unix.Pread(fd, b, (n-1-5000)*0x1000)
	if b[0] != 0x77 {
		t.Errorf("page of map 5000 holds %#x", b[0])
	}
	// Guests with an IOMMU unmap in powers of two that match no map, up to 2^64.
	for _, u := range []struct{ address, size uint64 }{{0, 1 << 20}, {1 << 20, 1 << 20}, {1 << 21, 1 << 21}, {1 << 22, 1<<64 - 1<<22}} {
		p, err := r.ask(vfiouser.DMAUnmap, unmapRequest(0, u.address, u.size))
		if errors.Is(err, unix.EINVAL) { // the power of two cuts a map: 3 pages are no power of two
			continue
		}
		if err != nil || !bytes.Equal(p, unmapRequest(0, u.address, u.size)) {
			t.Errorf("unmap %#x+%#x: % x, %v", u.address, u.size, p, err)
		}
	}
	r.must(vfiouser.DMAUnmap, unmapRequest(vfiouser.UnmapAll, 0, 0))
	if mappings(t, "memfd:test") != 0 {
		t.Error("the file is still mapped")
	}
}

func TestUnmapTakesWholeMapsOnly(t *testing.T) {
	r := client(t, server.Config{})
	fd := memfd(t, 0x4000, 0)
	top := uint64(1<<64 - 0x2000)
	for _, at := range []uint64{0x10000, 0x12000, top} {
		r.must(vfiouser.DMAMap, mapRequest(readWrite, at, 0x2000, 0), fd)
	}
	for _, c := range []struct {
		flags         uint32
		address, size uint64
		want          error
	}{
		{0, 0x10000, 0x1000, unix.EINVAL}, {0, 0x11000, 0x2000, unix.EINVAL}, {0, 0x11000, 0x1000, unix.EINVAL},
		{0, 0x10000, 0, unix.EINVAL}, {0, top + 0x1000, 0x2000, unix.EINVAL}, {8, 0x10000, 0x2000, unix.EINVAL},
		{vfiouser.UnmapDirty, 0x10000, 0x2000, unix.EOPNOTSUPP}, {vfiouser.UnmapAll, 0x10000, 0x2000, unix.EINVAL},
	} {
		r.refused(c.want, vfiouser.DMAUnmap, unmapRequest(c.flags, c.address, c.size))
	}
	mem := r.host.Memory()
	gen := mem.Generation()
	r.must(vfiouser.DMAUnmap, unmapRequest(0, 0x40000, 0x1000)) // nothing there: no error, no effect
	if mem.Generation() != gen {
		t.Error("the generation changed without an unmap")
	}
	r.must(vfiouser.DMAUnmap, unmapRequest(0, 0x10000, 0x4000))
	if mem.View(0x10000, 1, pci.Read) != nil || mem.View(0x13fff, 1, pci.Read) != nil || mem.Generation() == gen {
		t.Error("two maps in one range are still there")
	}
	r.must(vfiouser.DMAUnmap, unmapRequest(0, 1<<63, 1<<63)) // address+size is 2^64
	if mem.View(top, 1, pci.Read) != nil {
		t.Error("the last map is still there")
	}
}

// A receive can hold messages without files before the one with a file: the file is the last one's.
func TestFilesBelongToTheMessageTheyCameWith(t *testing.T) {
	r := client(t, server.Config{})
	fd := memfd(t, 0x1000, 0)
	expect := func(n int) {
		for range n {
			m, err := r.next()
			if err != nil || m.Flags != vfiouser.FlagReply {
				t.Fatalf("reply %+v, %v", m.Header, err)
			}
		}
	}
	mem := r.host.Memory()
	for round := range uint64(50) {
		at := 0x100000 + round*0x10000
		r.send(r.frame(vfiouser.DMAMap, 0, mapRequest(readWrite, at, 0x1000, 0)))            // by messages
		r.send(r.frame(vfiouser.DMAMap, 0, mapRequest(readWrite, at+0x1000, 0x1000, 0)), fd) // shared
		r.send(r.frame(vfiouser.DMAMap, 0, mapRequest(readWrite, at+0x2000, 0x1000, 0)))     // by messages
		two := append(r.frame(vfiouser.DMAMap, 0, mapRequest(readWrite, at+0x3000, 0x1000, 0)),
			r.frame(vfiouser.RegionRead, 0, access(2, 0, 4))...)
		r.send(two, fd) // the first of the two asks for it
		expect(5)
		for i, shared := range []bool{false, true, false, true} {
			if got := mem.View(at+uint64(i)*0x1000, 4096, pci.Read) != nil; got != shared {
				t.Fatalf("round %d: map %d is shared: %v, want %v", round, i, got, shared)
			}
		}
	}
}

func TestFilesForRequestsThatTakeNoneAreClosed(t *testing.T) {
	r := client(t, server.Config{})
	fd := memfd(t, 0x1000, 0)
	before := openFiles(t)
	for range 20 {
		r.must(vfiouser.DeviceGetInfo, (&vfiouser.DeviceInfo{}).Append(nil), fd, fd, fd)
		r.must(vfiouser.RegionRead, access(2, 0, 4), fd)
		r.refused(unix.EOPNOTSUPP, vfiouser.DeviceFeature, make([]byte, 16), fd)
	}
	if now := openFiles(t); now != before {
		t.Errorf("%d files open, want %d", now, before)
	}
	many := make([]int, vfiouser.MaxFDs+1)
	for i := range many {
		many[i] = fd
	}
	r.send(r.frame(vfiouser.DeviceGetInfo, 0, (&vfiouser.DeviceInfo{}).Append(nil)), many...)
	r.dropped()
	if now := openFiles(t); now > before {
		t.Errorf("%d files open after too many at once, want %d", now, before)
	}
}

func TestTruncatedMemoryEndsItsClientOnly(t *testing.T) {
	other := client(t, server.Config{})
	other.must(vfiouser.DMAMap, mapRequest(readWrite, 0x10000, 0x1000, 0), memfd(t, 4096, 0))
	for _, how := range []string{"view", "copy"} {
		r := client(t, server.Config{})
		fd := memfd(t, 0x2000, 0) // can't be sealed
		r.must(vfiouser.DMAMap, mapRequest(readWrite, 0x10000, 0x2000, 0), fd)
		if err := unix.Ftruncate(fd, 0); err != nil {
			t.Fatal(err)
		}
		mem := r.host.Memory()
		var err error
		if how == "view" {
			err = pci.Guard(mem, func() { mem.View(0x11000, 8, pci.Write)[3] = 1 })
		} else {
			mem.Enter()
			err = mem.WriteAt(make([]byte, 16), 0x11000)
			mem.Leave()
		}
		var e *pci.DMAError
		if !errors.As(err, &e) || e.Why != "memory vanished" {
			t.Errorf("%s: %v, want memory vanished", how, err)
		}
		r.dropped()
	}
	other.host.Memory().View(0x10000, 8, pci.Write)[0] = 1
	other.must(vfiouser.DeviceGetInfo, (&vfiouser.DeviceInfo{}).Append(nil))
}

func TestSealableMemoryIsSealed(t *testing.T) {
	r := client(t, server.Config{})
	fd := memfd(t, 0x2000, unix.MFD_ALLOW_SEALING)
	r.must(vfiouser.DMAMap, mapRequest(readWrite, 0x10000, 0x2000, 0), fd)
	if err := unix.Ftruncate(fd, 0); err == nil {
		t.Error("memory that the card uses can be truncated")
	}
}

func TestGuardLetsOtherPanicsPass(t *testing.T) {
	r := client(t, server.Config{})
	mem := r.host.Memory()
	for name, f := range map[string]func(){
		"a nil pointer":    func() { var p *int; *p = 1 },
		"a bug":            func() { panic("bug") },
		"memory of no one": func() { elsewhere(t)[0] = 1 },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			pci.Guard(mem, f)
		}()
	}
	mem.Enter() // the gate is not left behind
	mem.Leave()
	r.must(vfiouser.DMAUnmap, unmapRequest(vfiouser.UnmapAll, 0, 0))
}

// elsewhere is memory that faults and was not shared by the client.
func elsewhere(t *testing.T) []byte {
	fd := memfd(t, 0x1000, 0)
	b, err := unix.Mmap(fd, 0, 0x1000, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(b) })
	unix.Ftruncate(fd, 0)
	return b
}

// An unmap waits for the engine, the engine for a message of the client: nobody may wait for both.
func TestUnmapDuringDMAByMessages(t *testing.T) {
	r := client(t, server.Config{})
	r.must(vfiouser.DMAMap, mapRequest(readWrite, 0x10000, 0x1000, 0))
	r.must(vfiouser.DMAMap, mapRequest(readWrite, 0x20000, 0x1000, 0), memfd(t, 4096, 0))
	mem := r.host.Memory()
	var wg sync.WaitGroup
	var err error
	got := make([]byte, 64)
	wg.Go(func() {
		mem.Enter()
		err = mem.ReadAt(got, 0x10000)
		mem.Leave()
	})
	probe, e := r.next()
	if e != nil {
		t.Fatal(e)
	}
	unmap := r.frame(vfiouser.DMAUnmap, 0, unmapRequest(0, 0x20000, 0x1000))
	write := r.frame(vfiouser.RegionWrite, vfiouser.FlagNoReply, access(2, 0, 4, 9, 9, 9, 9))
	read := r.frame(vfiouser.RegionRead, 0, access(2, 0, 4)) // queues up behind the unmap
	r.send(append(append(unmap, write...), read...))
	r.answerDMA(probe.Header, probe.Payload, nil)
	m, e := r.next()
	if e != nil || m.Command != vfiouser.DMARead {
		t.Fatalf("got %+v, %v, want DMA_READ", m.Header, e)
	}
	r.answerDMA(m.Header, m.Payload, bytes.Repeat([]byte{0x42}, 64))
	wg.Wait()
	if err != nil || !bytes.Equal(got, bytes.Repeat([]byte{0x42}, 64)) {
		t.Errorf("read % x, %v", got, err)
	}
	if m, e := r.next(); e != nil || m.Command != vfiouser.DMAUnmap || m.Flags != vfiouser.FlagReply {
		t.Fatalf("got %+v, %v, want the unmap's reply", m.Header, e)
	}
	if p, e := r.reply(vfiouser.RegionRead); e != nil || p[16] != 9 {
		t.Fatalf("read behind the unmap: % x, %v", p, e)
	}
}

// answerDMA answers a DMA message as the specification says.
func (r *raw) answerDMA(h vfiouser.Header, payload, data []byte) {
	r.Helper()
	reply := vfiouser.Header{ID: h.ID, Command: h.Command, Flags: vfiouser.FlagReply, Size: uint32(32 + len(data))}
	r.send(append(append(reply.Append(nil), payload[:16]...), data...))
}

// dmaClient answers DMA messages from memory, in the specification's layout or old QEMU's.
func (r *raw) dmaClient(mem []byte, at uint64, old bool) (stop func() int) {
	var wg sync.WaitGroup
	n := 0
	wg.Go(func() {
		for {
			m, err := r.next()
			if err != nil {
				return
			}
			n++
			head := 16
			if old {
				head = 12
			}
			addr := binary.NativeEndian.Uint64(m.Payload)
			count := uint64(binary.NativeEndian.Uint32(m.Payload[8:]))
			reply := vfiouser.Header{ID: m.ID, Command: m.Command, Flags: vfiouser.FlagReply, Size: 32}
			var p []byte
			switch {
			case m.Command == vfiouser.DMARead && !old:
				p = append(append(p, m.Payload[:16]...), mem[addr-at:][:count]...)
			case m.Command == vfiouser.DMARead:
				p = append(append(p, m.Payload[:12]...), mem[addr-at:][:count]...)
				p = append(p, 0, 0, 0, 0)
			default:
				copy(mem[addr-at:][:count], m.Payload[head:])
				if !old {
					p = m.Payload[:16]
				}
			}
			reply.Size = uint32(16 + len(p))
			if err := r.conn.Send(append(reply.Append(nil), p...)); err != nil {
				return
			}
		}
	})
	return func() int { r.conn.Shutdown(); wg.Wait(); return n }
}

func TestMapsWithoutAFileAreReachedByMessages(t *testing.T) {
	for _, old := range []bool{false, true} {
		r := client(t, server.Config{})
		r.must(vfiouser.DMAMap, mapRequest(readWrite, 0x10000, 0x400000, 0))
		r.must(vfiouser.DMAMap, mapRequest(vfiouser.MapRead, 0x500000, 0x1000, 0))
		theirs := make([]byte, 0x400000)
		stop := r.dmaClient(theirs, 0x10000, old)
		mem := r.host.Memory()
		mem.Enter()
		if mem.View(0x10000, 4, pci.Read) != nil {
			t.Error("a view of memory that is not here")
		}
		want := make([]byte, 3<<20) // more than one message's
		for i := range want {
			want[i] = byte(i * 5)
		}
		if err := mem.WriteAt(want, 0x10100); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(want))
		if err := mem.ReadAt(got, 0x10100); err != nil || !bytes.Equal(got, want) {
			t.Errorf("old %v: read back something else, %v", old, err)
		}
		if err := mem.WriteAt(want[:4], 0x500000); err == nil {
			t.Error("wrote read-only memory")
		}
		mem.Leave()
		if n := stop(); n != 1+3+3 {
			t.Errorf("old %v: %d messages, want a probe and 3 each way", old, n)
		}
		if !bytes.Equal(theirs[0x100:0x100+len(want)], want) {
			t.Errorf("old %v: the client has something else than was written", old)
		}
	}
}

func TestBadAnswersToDMAMessages(t *testing.T) {
	for _, c := range []struct {
		name    string
		answer  func(r *raw, m vfiouser.Header, payload []byte)
		dropped bool
	}{
		{"an error", func(r *raw, m vfiouser.Header, _ []byte) {
			h := vfiouser.Header{ID: m.ID, Command: m.Command, Flags: vfiouser.FlagReply | vfiouser.FlagError, Size: 16, Errno: uint32(unix.ENODEV)}
			r.send(h.Append(nil))
		}, false},
		{"another id", func(r *raw, m vfiouser.Header, p []byte) { m.ID++; r.answerDMA(m, p, make([]byte, 64)) }, true},
		{"another command", func(r *raw, m vfiouser.Header, p []byte) {
			m.Command = vfiouser.DMAMap
			r.answerDMA(m, p, make([]byte, 64))
		}, true},
		{"less data than asked for", func(r *raw, m vfiouser.Header, p []byte) { r.answerDMA(m, p, make([]byte, 63)) }, true},
		{"no data at all", func(r *raw, m vfiouser.Header, _ []byte) {
			h := vfiouser.Header{ID: m.ID, Command: m.Command, Flags: vfiouser.FlagReply, Size: 16}
			r.send(h.Append(nil))
		}, true},
		{"silence", func(*raw, vfiouser.Header, []byte) {}, true},
		{"the end", func(r *raw, _ vfiouser.Header, _ []byte) { r.conn.Shutdown() }, true},
	} {
		r := client(t, server.Config{DMATimeout: 50_000_000})
		r.must(vfiouser.DMAMap, mapRequest(readWrite, 0x10000, 0x1000, 0))
		mem := r.host.Memory()
		var wg sync.WaitGroup
		var err error
		wg.Go(func() {
			mem.Enter()
			defer mem.Leave()
			err = mem.ReadAt(make([]byte, 64), 0x10000)
		})
		m, e := r.next()
		if e != nil {
			t.Fatal(e)
		}
		r.answerDMA(m.Header, m.Payload, nil) // the probe
		if m, e = r.next(); e != nil {
			t.Fatal(e)
		}
		c.answer(r, m.Header, m.Payload)
		wg.Wait()
		var d *pci.DMAError
		if !errors.As(err, &d) {
			t.Errorf("%s: the card sees %v, want a DMAError", c.name, err)
		} else if (d.Why == "peer gone") != c.dropped {
			t.Errorf("%s: the card sees %v", c.name, err)
		}
		if c.dropped {
			r.dropped()
		} else {
			r.must(vfiouser.DeviceGetInfo, (&vfiouser.DeviceInfo{}).Append(nil))
		}
	}
}
