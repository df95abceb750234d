//go:build linux

package client_test

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cxkit/dma"
	"cxkit/pci"
	"cxkit/transport/transporttest"
	"cxkit/transport/vfiouser"
	"cxkit/transport/vfiouser/client"
	"cxkit/transport/vfiouser/internal/sock"
	"cxkit/transport/vfiouser/server"
)

// answers makes the reply to a request: its payload, or an error number.
type answers func(m *sock.Message) ([]byte, unix.Errno)

// honest answers like a function with one BAR of 4 KiB and two vectors.
func honest(m *sock.Message) ([]byte, unix.Errno) {
	switch m.Command {
	case vfiouser.Version:
		v := vfiouser.VersionMessage{Capabilities: vfiouser.DefaultCapabilities()}
		return v.Append(nil), 0
	case vfiouser.DeviceGetInfo:
		d := vfiouser.DeviceInfo{Flags: vfiouser.DevicePCI | vfiouser.DeviceResets, Regions: 9, IRQs: 5}
		return d.Append(nil), 0
	case vfiouser.DeviceGetRegion:
		var r vfiouser.RegionInfo
		r.Parse(m.Payload)
		if r.Index == 0 {
			r.Size, r.Flags = 0x1000, vfiouser.RegionReadable|vfiouser.RegionWritable
		}
		return r.Append(nil, r.Room), 0
	case vfiouser.DeviceGetIRQ:
		i := vfiouser.IRQInfo{Index: vfiouser.IRQMSIX, Count: 2, Flags: vfiouser.IRQEventFD}
		return i.Append(nil), 0
	case vfiouser.RegionRead:
		n := binary.NativeEndian.Uint32(m.Payload[12:])
		return append(m.Payload[:16:16], make([]byte, n)...), 0
	case vfiouser.RegionWrite:
		return m.Payload[:16], 0
	case vfiouser.DMAUnmap:
		return m.Payload, 0
	}
	return nil, 0
}

// fakeServer answers requests at one end of a socket pair until the connection ends.
type fakeServer struct {
	conn *sock.Conn
	wg   sync.WaitGroup
	mu   sync.Mutex // guards seen
	seen map[vfiouser.Command]int
	dma  chan sock.Message // replies to the server's own requests
}

func fake(t testing.TB, answer answers) (s *fakeServer, open func() (*client.Function, error)) {
	t.Helper()
	ends := socketPair(t)
	conn, err := sock.New(ends[0])
	if err != nil {
		t.Fatal(err)
	}
	s = &fakeServer{conn: conn, seen: map[vfiouser.Command]int{}, dma: make(chan sock.Message, 16)}
	s.wg.Go(func() { s.run(answer) })
	t.Cleanup(func() { conn.Shutdown(); s.wg.Wait(); conn.Close() })
	return s, func() (*client.Function, error) {
		f, err := client.New(context.Background(), ends[1], "fake", client.Config{Timeout: 200 * time.Millisecond})
		if err == nil {
			t.Cleanup(func() { f.Close() })
		}
		return f, err
	}
}

func (s *fakeServer) run(answer answers) {
	for {
		m, ok, err := s.conn.Next()
		if err != nil {
			return
		}
		if !ok {
			if s.conn.Fill() != nil {
				return
			}
			continue
		}
		m.CloseFDs()
		if m.Reply() {
			m.Payload = append([]byte(nil), m.Payload...)
			s.dma <- m
			continue
		}
		s.mu.Lock()
		s.seen[m.Command]++
		s.mu.Unlock()
		if !m.Wanted() {
			continue
		}
		p, errno := answer(&m)
		h := vfiouser.Header{ID: m.ID, Command: m.Command, Flags: vfiouser.FlagReply, Size: uint32(16 + len(p))}
		if errno == silent {
			continue
		}
		if errno != 0 {
			h.Flags, h.Errno, p, h.Size = h.Flags|vfiouser.FlagError, uint32(errno), nil, 16
		}
		if s.conn.Send(append(h.Append(nil), p...)) != nil {
			return
		}
	}
}

// silent is the error of a request that is not answered.
const silent = unix.Errno(1 << 20)

func (s *fakeServer) count(c vfiouser.Command) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[c]
}

// instead answers one command in another way.
func instead(c vfiouser.Command, other answers) answers {
	return func(m *sock.Message) ([]byte, unix.Errno) {
		if m.Command == c {
			return other(m)
		}
		return honest(m)
	}
}

func payload(p []byte) answers { return func(*sock.Message) ([]byte, unix.Errno) { return p, 0 } }

func failing(e unix.Errno) answers {
	return func(*sock.Message) ([]byte, unix.Errno) { return nil, e }
}

func TestServersThatMakeNoSenseAreRefused(t *testing.T) {
	region := func(size uint64) []byte { return (&vfiouser.RegionInfo{Room: 32, Size: size}).Append(nil, 32) }
	irqs := func(i vfiouser.IRQInfo) []byte { return i.Append(nil) }
	version := func(v vfiouser.VersionMessage) []byte { return v.Append(nil) }
	files := openFiles(t)
	for name, a := range map[string]answers{
		"no version":            instead(vfiouser.Version, failing(unix.EINVAL)),
		"an empty version":      instead(vfiouser.Version, payload(nil)),
		"another major":         instead(vfiouser.Version, payload(version(vfiouser.VersionMessage{Major: 1, Capabilities: vfiouser.DefaultCapabilities()}))),
		"huge pages only":       instead(vfiouser.Version, payload([]byte("\x00\x00\x00\x00{\"capabilities\":{\"pgsizes\":2097152}}\x00"))),
		"silence":               instead(vfiouser.DeviceGetInfo, failing(silent)),
		"no PCI device":         instead(vfiouser.DeviceGetInfo, payload((&vfiouser.DeviceInfo{Regions: 9, IRQs: 5}).Append(nil))),
		"a short device":        instead(vfiouser.DeviceGetInfo, payload(make([]byte, 15))),
		"few regions":           instead(vfiouser.DeviceGetInfo, payload((&vfiouser.DeviceInfo{Flags: 2, Regions: 7, IRQs: 5}).Append(nil))),
		"a refused region":      instead(vfiouser.DeviceGetRegion, failing(unix.EINVAL)),
		"an endless BAR":        instead(vfiouser.DeviceGetRegion, payload(region(1<<63))),
		"a short region":        instead(vfiouser.DeviceGetRegion, payload(make([]byte, 31))),
		"no configuration":      instead(vfiouser.RegionRead, failing(unix.EIO)),
		"a short configuration": instead(vfiouser.RegionRead, payload(make([]byte, 20))),
		"a million vectors":     instead(vfiouser.DeviceGetIRQ, payload(irqs(vfiouser.IRQInfo{Index: 2, Count: 1 << 20, Flags: 1}))),
		"no eventfds":           instead(vfiouser.DeviceGetIRQ, payload(irqs(vfiouser.IRQInfo{Index: 2, Count: 2}))),
		"refused eventfds":      instead(vfiouser.DeviceSetIRQs, failing(unix.EBADF)),
	} {
		_, open := fake(t, a)
		if f, err := open(); err == nil {
			f.Close()
			t.Errorf("%s: opened", name)
		}
	}
	if now := openFiles(t); now > files+16 { // the servers' ends, which the test closes
		t.Errorf("%d files open, were %d", now, files)
	}
}

func openFiles(t testing.TB) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

func TestReadsOfAStrangeLengthAreOnes(t *testing.T) {
	_, open := fake(t, func(m *sock.Message) ([]byte, unix.Errno) {
		if m.Command == vfiouser.RegionRead && binary.NativeEndian.Uint32(m.Payload[8:]) == 0 {
			return m.Payload, 0 // without data
		}
		return honest(m)
	})
	f, err := open()
	if err != nil {
		t.Fatal(err)
	}
	w, err := f.Window(0)
	if err != nil {
		t.Fatal(err)
	}
	if got := w.Load32(0); got != 0xffffffff {
		t.Errorf("read %#x, want ones", got)
	}
}

// lost checks that a function whose server is gone says so everywhere, at once.
func lost(t *testing.T, f *client.Function, a *dma.Arena) {
	t.Helper()
	if err := f.Wait(context.Background(), 1); !errors.Is(err, pci.ErrGone) {
		t.Errorf("Wait: %v, want pci.ErrGone", err)
	}
	var p [4]byte
	if err := f.ReadConfig(0, p[:]); !errors.Is(err, pci.ErrGone) {
		t.Errorf("ReadConfig: %v, want pci.ErrGone", err)
	}
	if err := f.WriteConfig(0, p[:]); !errors.Is(err, pci.ErrGone) {
		t.Errorf("WriteConfig: %v, want pci.ErrGone", err)
	}
	if _, err := f.NewArena(1, dma.Shared); !errors.Is(err, pci.ErrGone) {
		t.Errorf("NewArena: %v, want pci.ErrGone", err)
	}
	if err := f.Reset(context.Background()); !errors.Is(err, pci.ErrGone) {
		t.Errorf("Reset: %v, want pci.ErrGone", err)
	}
	a.Bytes()[0] = 1 // still ours
	if err := a.Close(); err != nil {
		t.Errorf("close of an arena: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

func TestAServerThatDiesIsGone(t *testing.T) {
	path, kill := otherProcess(t)
	f := dialPath(t, path)
	w, err := f.Window(0)
	if err != nil {
		t.Fatal(err)
	}
	a, err := f.NewArena(4096, dma.Shared)
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan error)
	go func() { waited <- f.Wait(context.Background(), 3) }()
	kill()
	if err := <-waited; !errors.Is(err, pci.ErrGone) {
		t.Errorf("a wait that was under way: %v, want pci.ErrGone", err)
	}
	for range 1000 {
		w.Store32(0x40, 1)
	}
	if got := w.Load32(0); got != 0xffffffff {
		t.Errorf("a register reads %#x, want ones", got)
	}
	lost(t, f, a)
}

func TestAServerThatDoesNotAnswerIsGone(t *testing.T) {
	_, open := fake(t, func(m *sock.Message) ([]byte, unix.Errno) {
		if m.Command == vfiouser.RegionRead && binary.NativeEndian.Uint32(m.Payload[8:]) == 0 {
			return nil, silent
		}
		return honest(m)
	})
	f, err := open()
	if err != nil {
		t.Fatal(err)
	}
	a, err := f.NewArena(4096, dma.Shared)
	if err != nil {
		t.Fatal(err)
	}
	w, err := f.Window(0)
	if err != nil {
		t.Fatal(err)
	}
	if got := w.Load32(0); got != 0xffffffff {
		t.Errorf("read %#x, want ones", got)
	}
	lost(t, f, a)
}

func TestNonsenseFromTheServerIsTheEnd(t *testing.T) {
	header := func(h vfiouser.Header) []byte { return h.Append(nil) }
	for name, b := range map[string][]byte{
		"a reply nobody asked for": header(vfiouser.Header{ID: 77, Command: vfiouser.RegionRead, Size: 16, Flags: vfiouser.FlagReply}),
		"a size below the header":  header(vfiouser.Header{Size: 3}),
		"an endless message":       header(vfiouser.Header{Size: 1 << 31}),
	} {
		s, open := fake(t, honest)
		f, err := open()
		if err != nil {
			t.Fatal(err)
		}
		if err := s.conn.Send(b); err != nil {
			t.Fatal(err)
		}
		if err := f.Wait(context.Background(), 0); !errors.Is(err, pci.ErrGone) {
			t.Errorf("%s: %v, want pci.ErrGone", name, err)
		}
	}
}

// libvfio-user's servers reach shared memory by messages as well.
func TestTheClientServesItsMemoryByMessages(t *testing.T) {
	s, open := fake(t, honest)
	f, err := open()
	if err != nil {
		t.Fatal(err)
	}
	a, err := f.NewArena(8192, dma.Shared)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(c vfiouser.Command, flags uint32, addr, n uint64, data ...byte) (p []byte, errno unix.Errno) {
		t.Helper()
		d := vfiouser.DMAAccess{Address: addr, Count: n}
		h := vfiouser.Header{ID: 5, Command: c, Flags: flags, Size: uint32(32 + len(data))}
		if err := s.conn.Send(append(d.Append(h.Append(nil)), data...)); err != nil {
			t.Fatal(err)
		}
		if flags&vfiouser.FlagNoReply != 0 {
			return nil, 0
		}
		m := <-s.dma
		if m.ID != 5 || m.Command != c {
			t.Fatalf("reply %+v", m.Header)
		}
		return m.Payload, unix.Errno(m.Errno)
	}
	if p, e := ask(vfiouser.DMAWrite, 0, a.Bus()+4094, 4, 1, 2, 3, 4); e != 0 || len(p) != 16 {
		t.Errorf("write: % x, %v", p, e)
	}
	if got := a.Bytes()[4094:4098]; string(got) != "\x01\x02\x03\x04" {
		t.Errorf("memory % x", got)
	}
	ask(vfiouser.DMAWrite, vfiouser.FlagNoReply, a.Bus(), 1, 9)
	if p, e := ask(vfiouser.DMARead, 0, a.Bus(), 2); e != 0 || len(p) != 18 || p[16] != 9 {
		t.Errorf("read: % x, %v", p, e)
	}
	for _, c := range []struct {
		what    string
		command vfiouser.Command
		addr, n uint64
		data    []byte
		want    unix.Errno
	}{
		{"read behind the arena", vfiouser.DMARead, a.Bus() + 8190, 4, nil, unix.EFAULT},
		{"read of nothing", vfiouser.DMARead, 0, 4, nil, unix.EFAULT},
		{"write across the end", vfiouser.DMAWrite, a.Bus() + 8190, 4, make([]byte, 4), unix.EFAULT},
		{"read of too much", vfiouser.DMARead, a.Bus(), vfiouser.MaxData + 1, nil, unix.E2BIG},
		{"write with less data than said", vfiouser.DMAWrite, a.Bus(), 8, make([]byte, 7), unix.E2BIG},
		{"another request", vfiouser.RegionRead, 0, 4, nil, unix.ENOSYS},
	} {
		if _, e := ask(c.command, 0, c.addr, c.n, c.data...); e != c.want {
			t.Errorf("%s: %v, want %v", c.what, e, c.want)
		}
	}
}

func TestCloseUnmapsAtServersThatDoNotKnowAll(t *testing.T) {
	s, open := fake(t, instead(vfiouser.DMAUnmap, func(m *sock.Message) ([]byte, unix.Errno) {
		if m.Payload[4]&byte(vfiouser.UnmapAll) != 0 {
			return nil, unix.EINVAL
		}
		return m.Payload, 0
	}))
	f, err := open()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := f.NewArena(4096, dma.Shared); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if got := s.count(vfiouser.DMAUnmap); got != 1+3 {
		t.Errorf("%d unmaps, want one of all and three more", got)
	}
}

func TestArenasRespectTheServersLimit(t *testing.T) {
	f := dial(t, serve(t, transporttest.NewCard(), server.Config{MaxMaps: 2}))
	a, err := f.NewArena(1, dma.Shared)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.NewArena(1, dma.Shared); err != nil {
		t.Fatal(err)
	}
	if _, err := f.NewArena(1, dma.Shared); err == nil {
		t.Error("a third arena")
	}
	a.Close()
	if _, err := f.NewArena(1, dma.Shared); err != nil {
		t.Errorf("after one was closed: %v", err)
	}
}

func TestARefusedMapLeavesNothingBehind(t *testing.T) {
	_, open := fake(t, instead(vfiouser.DMAMap, failing(unix.ENOMEM)))
	f, err := open()
	if err != nil {
		t.Fatal(err)
	}
	files := openFiles(t)
	for range 5 {
		if _, err := f.NewArena(4096, dma.Shared); !errors.Is(err, unix.ENOMEM) {
			t.Errorf("%v, want ENOMEM", err)
		}
	}
	if now := openFiles(t); now != files {
		t.Errorf("%d files open, want %d", now, files)
	}
}

func TestTheNextClientFindsAFreshFunction(t *testing.T) {
	s := serve(t, transporttest.NewCard(), server.Config{})
	for round := range 4 {
		f := dial(t, s)
		w, err := f.Window(2)
		if err != nil {
			t.Fatal(err)
		}
		if got := w.Load32(0); got != 0 {
			t.Errorf("round %d: memory of the client before: %#x", round, got)
		}
		w.Store32(0, 0xdead)
		if _, err := f.NewArena(1, dma.Shared); err != nil {
			t.Fatal(err)
		}
		if round%2 == 0 {
			f.Close()
		} else { // the next one comes while this is still there, and is served when it has gone
			defer f.Close()
			go f.Close()
		}
	}
	if got := s.Stats(); got.Clients != 4 {
		t.Errorf("%d clients, want 4", got.Clients)
	}
}

func TestAServerThatClosesIsGone(t *testing.T) {
	s := serve(t, transporttest.NewCard(), server.Config{})
	f := dial(t, s)
	a, err := f.NewArena(1, dma.Shared)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	lost(t, f, a)
}

func TestAContextThatEndsLeavesTheFunctionUsable(t *testing.T) {
	release := make(chan struct{})
	_, open := fake(t, instead(vfiouser.DeviceReset, func(*sock.Message) ([]byte, unix.Errno) {
		<-release
		return nil, 0
	}))
	f, err := open()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go cancel()
	if err := f.Reset(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("reset: %v, want context.Canceled", err)
	}
	close(release) // the reply comes late
	var p [4]byte
	for range 200 { // more than there are slots
		if err := f.ReadConfig(0, p[:]); err != nil {
			t.Fatal(err)
		}
	}
}
