//go:build linux

package client_test

import (
	"context"
	"testing"

	"golang.org/x/sys/unix"

	"cxkit/dma"
	"cxkit/pci"
	"cxkit/transport/transporttest"
	"cxkit/transport/vfiouser"
	"cxkit/transport/vfiouser/client"
	"cxkit/transport/vfiouser/internal/sock"
	"cxkit/transport/vfiouser/server"
)

// mappable is the suite's card with memory in the upper part of its BAR 0.
type mappable struct {
	*transporttest.Card
	memory *dma.Arena
}

const mappedAt = 0x6000

func newMappable(t *testing.T) mappable {
	t.Helper()
	c := transporttest.NewCard()
	memory, err := dma.NewExported(int(c.Info().BARs[0]), dma.Reserved)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { memory.Close() })
	return mappable{c, memory}
}

func (m mappable) Info() pci.Info {
	i := m.Card.Info()
	i.Mapped = &pci.Mapped{BARRange: pci.BARRange{Off: mappedAt, Len: i.BARs[0] - mappedAt}, Memory: m.memory}
	return i
}

func TestRegistersInMemoryAreWrittenWithoutAMessage(t *testing.T) {
	card := newMappable(t)
	ends := socketPair(t)
	served := make(chan error, 1)
	go func() { served <- server.ServeConn(context.Background(), ends[0], card, server.Config{}) }()
	f, err := client.New(t.Context(), ends[1], "mapped", client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := f.Window(0)
	if err != nil {
		t.Fatal(err)
	}
	w.Store32(mappedAt, 0x01020304)
	w.Store64(mappedAt+8, 0x1112131415161718)
	w.Store32(card.Info().BARs[0]-4, 0x21222324)
	// There was no message that the card could still be busy with.
	b := card.memory.Bytes()
	if v := dma.LoadBE32(b, mappedAt); v != 0x01020304 {
		t.Errorf("32 bits arrived as %#x", v)
	}
	if v := dma.TakeBE64(b, mappedAt+8); v != 0x1112131415161718 {
		t.Errorf("64 bits arrived as %#x", v)
	}
	if v := dma.LoadBE32(b, len(b)-4); v != 0x21222324 {
		t.Errorf("the last register arrived as %#x", v)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	w.Store32(mappedAt, 5) // to nobody
	if err := <-served; err != nil {
		t.Error(err)
	}
	if v := dma.LoadBE32(b, mappedAt); v != 0x01020304 {
		t.Errorf("a closed function wrote %#x", v)
	}
}

// TestPartsThatCanNotBeMappedAreReachedByMessages: a server that describes memory which could fault.
func TestPartsThatCanNotBeMappedAreReachedByMessages(t *testing.T) {
	const sealed = unix.F_SEAL_SHRINK
	page := vfiouser.Area{Size: 0x1000}
	for name, c := range map[string]struct {
		size  int64
		seals int
		info  vfiouser.RegionInfo
		taken bool
	}{
		"a good one":        {0x1000, sealed, vfiouser.RegionInfo{Sparse: []vfiouser.Area{page}}, true},
		"not sealed":        {0x1000, 0, vfiouser.RegionInfo{Sparse: []vfiouser.Area{page}}, false},
		"a short file":      {0x800, sealed, vfiouser.RegionInfo{Sparse: []vfiouser.Area{page}}, false},
		"behind the file":   {0x1000, sealed, vfiouser.RegionInfo{Offset: 0x1000, Sparse: []vfiouser.Area{page}}, false},
		"an offset no page": {0x2000, sealed, vfiouser.RegionInfo{Offset: 0x10, Sparse: []vfiouser.Area{page}}, false},
		"a huge offset":     {0x1000, sealed, vfiouser.RegionInfo{Offset: ^uint64(0xfff), Sparse: []vfiouser.Area{page}}, false},
		"outside the BAR":   {0x3000, sealed, vfiouser.RegionInfo{Sparse: []vfiouser.Area{{Offset: 0x1000, Size: 0x1000}}}, false},
		"a huge part":       {0x1000, sealed, vfiouser.RegionInfo{Sparse: []vfiouser.Area{{Size: ^uint64(0xfff)}}}, false},
		"half a page":       {0x1000, sealed, vfiouser.RegionInfo{Sparse: []vfiouser.Area{{Size: 0x800}}}, false},
		"no page":           {0x1000, sealed, vfiouser.RegionInfo{Sparse: []vfiouser.Area{{}}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			if err := unix.Ftruncate(fd, c.size); err != nil {
				t.Fatal(err)
			}
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, c.seals); err != nil {
				t.Fatal(err)
			}
			info := c.info
			info.Size, info.Flags = 0x1000, vfiouser.RegionReadable|vfiouser.RegionWritable|vfiouser.RegionMappable
			s, open := fakeWithFile(t, fd, info)
			f, err := open()
			if err != nil {
				t.Fatal(err)
			}
			w, err := f.Window(0)
			if err != nil {
				t.Fatal(err)
			}
			before := s.count(vfiouser.RegionWrite)
			w.Store32(0, 1)
			w.Load32(0) // behind the write
			if wrote := s.count(vfiouser.RegionWrite) - before; wrote != map[bool]int{true: 0, false: 1}[c.taken] {
				t.Errorf("%d messages for a write", wrote)
			}
		})
	}
}

// fakeWithFile is a server whose BAR 0 is described by info and comes with a file.
func fakeWithFile(t *testing.T, fd int, info vfiouser.RegionInfo) (*fakeServer, func() (*client.Function, error)) {
	var s *fakeServer
	made := make(chan struct{})
	s, open := fake(t, func(m *sock.Message) ([]byte, unix.Errno) {
		<-made
		var r vfiouser.RegionInfo
		if m.Command != vfiouser.DeviceGetRegion || r.Parse(m.Payload) != nil || r.Index != 0 {
			return honest(m)
		}
		p := info.Append(nil, r.Room)
		h := vfiouser.Header{ID: m.ID, Command: m.Command, Flags: vfiouser.FlagReply, Size: uint32(16 + len(p))}
		if err := s.conn.Send(append(h.Append(nil), p...), fd); err != nil {
			t.Error(err)
		}
		return nil, silent
	})
	close(made)
	return s, open
}
