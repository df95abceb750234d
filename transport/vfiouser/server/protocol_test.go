//go:build linux

package server_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"net"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cxkit/dma"
	"cxkit/pci"
	"cxkit/transport/vfiouser"
	"cxkit/transport/vfiouser/server"
)

func TestVersionReplyFitsQEMU(t *testing.T) {
	for name, text := range map[string]string{"QEMU's": qemuVersion, "short": `{}`, "shorter than any": ``} {
		r := connect(t, listen(t, newCard(), server.Config{WriteMulti: true}))
		request := versionPayload(0, text)
		if text == "" {
			request = request[:4]
		}
		p := r.must(vfiouser.Version, request)
		if len(p) > len(request) {
			t.Errorf("%s request of %d bytes is answered with %d", name, len(request), len(p))
		}
		var v vfiouser.VersionMessage
		if err := v.Parse(p); err != nil || v.Major != 0 || v.Minor != 0 {
			t.Errorf("%s: %+v, %v", name, v, err)
		}
		if name == "QEMU's" {
			if want := (vfiouser.Capabilities{MaxMsgFDs: 16, MaxDataXferSize: 1 << 20, PageSizes: 4096, MaxDMAMaps: 65535, WriteMultiple: true}); v.Capabilities != want {
				t.Errorf("capabilities %+v, want %+v", v.Capabilities, want)
			}
			if !json.Valid(p[4:len(p)-1]) || p[len(p)-1] != 0 {
				t.Errorf("version text %q", p[4:])
			}
		}
	}
}

func TestBadVersionsEndTheConnection(t *testing.T) {
	s := listen(t, newCard(), server.Config{})
	for name, p := range map[string][]byte{
		"nothing":               {},
		"three bytes":           {0, 0, 0},
		"another major":         versionPayload(1, qemuVersion),
		"no NUL":                []byte("\x00\x00\x00\x00{}"),
		"no JSON":               versionPayload(0, "capabilities"),
		"a string for a number": versionPayload(0, `{"capabilities":{"max_msg_fds":"16"}}`),
		"a negative number":     versionPayload(0, `{"capabilities":{"max_data_xfer_size":-1}}`),
		"huge pages only":       versionPayload(0, `{"capabilities":{"pgsizes":2097152}}`),
	} {
		r := connect(t, s)
		if _, err := r.ask(vfiouser.Version, p); err != unix.EINVAL {
			t.Errorf("%s: %v, want EINVAL", name, err)
		}
		r.dropped()
	}
}

func TestNothingIsDoneBeforeTheVersion(t *testing.T) {
	r := connect(t, listen(t, newCard(), server.Config{}))
	if _, err := r.ask(vfiouser.DeviceGetInfo, (&vfiouser.DeviceInfo{}).Append(nil)); err != unix.EINVAL {
		t.Errorf("got %v, want EINVAL", err)
	}
	r.dropped()
}

func TestASilentClientIsDropped(t *testing.T) {
	s := listen(t, newCard(), server.Config{HandshakeTimeout: 20 * time.Millisecond})
	silent := connect(t, s)
	next := connect(t, s)
	silent.dropped()
	next.hello()
}

func TestStreamsThatMakeNoSenseAreDropped(t *testing.T) {
	s := listen(t, newCard(), server.Config{})
	header := func(size, flags uint32) []byte {
		h := vfiouser.Header{ID: 9, Command: vfiouser.DeviceGetInfo, Size: size, Flags: flags}
		return h.Append(nil)
	}
	for name, b := range map[string][]byte{
		"a size below the header":      header(15, 0),
		"size 0":                       header(0, 0),
		"a size above all limits":      header(vfiouser.MaxMessage+1, 0),
		"a type that does not exist":   header(16, 7),
		"a reply nobody asked for":     header(16, vfiouser.FlagReply),
		"an error nobody asked for":    header(16, vfiouser.FlagReply|vfiouser.FlagError),
		"everything at once: all ones": bytes.Repeat([]byte{0xff}, 64),
	} {
		r := connect(t, s)
		r.hello()
		r.send(b)
		r.dropped()
		_ = name
	}
	r := connect(t, s) // and the next is served
	r.hello()
}

func TestUnknownRequestsAreRefused(t *testing.T) {
	r := client(t, server.Config{})
	for _, c := range []vfiouser.Command{0, vfiouser.DeviceGetIOFDs, vfiouser.DMARead, vfiouser.DMAWrite, vfiouser.DirtyPages,
		vfiouser.DeviceFeature, vfiouser.MigrationDataRead, vfiouser.MigrationDataWrite, 19, 0xffff} {
		r.refused(unix.EOPNOTSUPP, c, make([]byte, 32))
	}
	r.refused(unix.EINVAL, vfiouser.Version, versionPayload(0, qemuVersion))
}

func TestShortPayloadsAreRefused(t *testing.T) {
	r := client(t, server.Config{})
	for c, n := range map[vfiouser.Command]int{
		vfiouser.DMAMap: 32, vfiouser.DMAUnmap: 24, vfiouser.DeviceGetInfo: 16, vfiouser.DeviceGetRegion: 32,
		vfiouser.DeviceGetIRQ: 16, vfiouser.DeviceSetIRQs: 20, vfiouser.RegionRead: 16, vfiouser.RegionWrite: 16,
		vfiouser.RegionWriteMulti: 8,
	} {
		for _, short := range []int{0, 1, n - 1} {
			r.refused(unix.EINVAL, c, make([]byte, short))
		}
	}
}

func TestDeviceRegionsAndInterruptsAreDescribed(t *testing.T) {
	r := client(t, server.Config{})
	var d vfiouser.DeviceInfo
	if err := d.Parse(r.must(vfiouser.DeviceGetInfo, d.Append(nil))); err != nil || d != (vfiouser.DeviceInfo{Flags: 3, Regions: 9, IRQs: 3}) {
		t.Errorf("device %+v, %v", d, err)
	}
	sizes := map[uint32]uint64{0: 0x8000, 2: 0x1000, vfiouser.RegionConfig: 4096}
	for i := range uint32(9) {
		q := vfiouser.RegionInfo{Room: 32, Index: i}
		var got vfiouser.RegionInfo
		p := r.must(vfiouser.DeviceGetRegion, q.AppendRequest(nil))
		if err := got.Parse(p); err != nil || got.Size != sizes[i] || got.Index != i || len(p) != 32 || got.Room != 32 {
			t.Errorf("region %d: %+v in %d bytes, %v, want %#x", i, got, len(p), err, sizes[i])
		}
		if want := map[bool]uint32{true: vfiouser.RegionReadable | vfiouser.RegionWritable}[sizes[i] > 0]; got.Flags != want {
			t.Errorf("region %d: flags %#x, want %#x (a mappable one would end QEMU's posted writes)", i, got.Flags, want)
		}
	}
	q := vfiouser.RegionInfo{Room: 32, Index: 9}
	r.refused(unix.EINVAL, vfiouser.DeviceGetRegion, q.AppendRequest(nil))
	for i := range uint32(3) {
		info := vfiouser.IRQInfo{Index: i}
		if err := info.Parse(r.must(vfiouser.DeviceGetIRQ, info.Append(nil))); err != nil || info.Count != map[uint32]uint32{2: 24}[i] {
			t.Errorf("interrupt %d: %+v, %v", i, info, err)
		}
		if info.Flags&vfiouser.IRQNoResize != 0 {
			t.Errorf("interrupt %d can't be resized", i)
		}
	}
	info := vfiouser.IRQInfo{Index: vfiouser.IRQErr}
	r.refused(unix.EINVAL, vfiouser.DeviceGetIRQ, info.Append(nil))
}

// mappable is a card with memory in a part of BAR 0.
type mappable struct {
	*card
	memory *dma.Arena
}

func (m mappable) Info() pci.Info {
	i := m.card.Info()
	i.Mapped = &pci.Mapped{BARRange: pci.BARRange{Off: 0x6000, Len: 0x2000}, Memory: m.memory}
	return i
}

// TestARegionWithMemoryComesWithItsFile: QEMU asks with room for the short form first.
func TestARegionWithMemoryComesWithItsFile(t *testing.T) {
	memory, err := dma.NewExported(0x8000, dma.Reserved)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { memory.Close() }) // after the server has ended
	c := mappable{newCard(), memory}
	r := connect(t, listen(t, c, server.Config{}))
	r.hello()
	for _, room := range []uint32{32, 64} {
		q := vfiouser.RegionInfo{Room: room, Index: 0}
		other := vfiouser.RegionInfo{Room: 32, Index: 1}
		r.send(append(r.frame(vfiouser.DeviceGetRegion, 0, other.AppendRequest(nil)),
			r.frame(vfiouser.DeviceGetRegion, 0, q.AppendRequest(nil))...))
		if m, err := r.next(); err != nil || len(m.FDs) != 0 {
			t.Fatalf("a region without memory: %d files, %v", len(m.FDs), err)
		}
		m, err := r.next()
		if err != nil || len(m.FDs) != 1 {
			t.Fatalf("room of %d: %d files, %v", room, len(m.FDs), err)
		}
		var got vfiouser.RegionInfo
		if err := got.Parse(m.Payload); err != nil || got.Room != 64 || got.Size != 0x8000 || got.Offset != 0 ||
			got.Flags != vfiouser.RegionReadable|vfiouser.RegionWritable|vfiouser.RegionMappable || len(m.Payload) != int(room) {
			t.Errorf("room of %d: %+v in %d bytes, %v", room, got, len(m.Payload), err)
		}
		if room == 64 && !slices.Equal(got.Sparse, []vfiouser.Area{{Offset: 0x6000, Size: 0x2000}}) {
			t.Errorf("parts %+v", got.Sparse)
		}
		b, err := unix.Mmap(m.FDs[0], 0x6000, 0x1000, unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		b[0] = byte(room)
		unix.Munmap(b)
		m.CloseFDs()
		if memory.Bytes()[0x6000] != byte(room) {
			t.Error("the file is not the card's memory")
		}
	}
}

func TestRegionsAreAccessedInAnyPiece(t *testing.T) {
	r := client(t, server.Config{})
	want := make([]byte, 40)
	for i := range want {
		want[i] = byte(i + 1)
	}
	for off := range uint64(8) { // BAR 2 is memory
		for n := 1; n <= 32; n++ {
			r.must(vfiouser.RegionWrite, access(2, 64+off, n, want[:n]...))
			p := r.must(vfiouser.RegionRead, access(2, 64+off, n))
			if !bytes.Equal(p[vfiouser.RegionAccessSize:], want[:n]) || !bytes.Equal(p[:16], access(2, 64+off, n)) {
				t.Fatalf("%d bytes at %d: % x", n, off, p)
			}
		}
	}
	all := r.must(vfiouser.RegionRead, access(vfiouser.RegionConfig, 0, 4096))
	if len(all) != 16+4096 || binary.LittleEndian.Uint32(all[16:]) != 0x0c0d1b36 {
		t.Errorf("configuration space: %d bytes, % x", len(all)-16, all[16:20])
	}
	r.must(vfiouser.RegionRead, access(0, 0, 0x8000))
}

func TestAccessesOutsideRegionsAreRefused(t *testing.T) {
	r := client(t, server.Config{})
	for _, c := range []struct {
		region uint32
		off    uint64
		n      uint32
	}{{0, 0x8000, 1}, {0, 0x7fff, 2}, {0, 1<<64 - 1, 1}, {0, 1<<64 - 4, 8}, {1, 0, 4}, {6, 0, 4}, {8, 0, 4}, {9, 0, 4},
		{1<<32 - 1, 0, 4}, {vfiouser.RegionConfig, 4095, 2}, {vfiouser.RegionConfig, 4097, 0}, {2, 0, 0x1001}, {2, 0, 1<<32 - 1}} {
		r.refused(unix.EINVAL, vfiouser.RegionRead, access(c.region, c.off, int(c.n)))
		r.refused(unix.EINVAL, vfiouser.RegionWrite, access(c.region, c.off, int(c.n), make([]byte, min(c.n, 64))...))
	}
	r.refused(unix.EINVAL, vfiouser.RegionWrite, access(2, 0, 8, 1, 2, 3)) // less data than said
}

func TestPostedWritesAreDoneInOrderAndNeverAnswered(t *testing.T) {
	r := client(t, server.Config{})
	var batch []byte
	const n = 2000
	for i := range n {
		batch = append(batch, r.frame(vfiouser.RegionWrite, vfiouser.FlagNoReply, access(0, 0x104, 4, 0, 0, byte(i>>8), byte(i)))...)
	}
	batch = append(batch, r.frame(vfiouser.RegionWrite, vfiouser.FlagNoReply, access(0, 1<<40, 4))...) // an error
	batch = append(batch, r.frame(vfiouser.RegionRead, vfiouser.FlagNoReply, access(0, 0x108, 4))...)  // nobody wants to know
	batch = append(batch, r.frame(vfiouser.DeviceFeature, vfiouser.FlagNoReply, make([]byte, 16))...)  // an error
	r.send(append(batch, r.frame(vfiouser.RegionRead, 0, access(0, 0x108, 4))...))
	p, err := r.reply(vfiouser.RegionRead)
	if err != nil || binary.BigEndian.Uint32(p[16:]) != n {
		t.Fatalf("the card's log has %d entries, %v, want %d", binary.BigEndian.Uint32(p[16:]), err, n)
	}
	for _, i := range []uint32{0, 1, n / 2, n - 1} {
		r.must(vfiouser.RegionWrite, access(0, 0x10c, 4, binary.BigEndian.AppendUint32(nil, i)...))
		if got := binary.BigEndian.Uint32(r.must(vfiouser.RegionRead, access(0, 0x110, 4))[16:]); got != i {
			t.Errorf("write %d carries %d", i, got)
		}
	}
}

func TestMultipleWritesAreDoneInOrder(t *testing.T) {
	r := client(t, server.Config{})
	var writes []vfiouser.MultiWrite
	for i := range 200 {
		w := vfiouser.MultiWrite{RegionAccess: vfiouser.RegionAccess{Offset: 0x104, Count: 4}}
		w.Data[3] = byte(i)
		writes = append(writes, w)
	}
	if p := r.must(vfiouser.RegionWriteMulti, vfiouser.AppendMulti(nil, writes)); binary.NativeEndian.Uint64(p) != 200 {
		t.Errorf("%d writes were done", binary.NativeEndian.Uint64(p))
	}
	r.send(r.frame(vfiouser.RegionWriteMulti, vfiouser.FlagNoReply, vfiouser.AppendMulti(nil, writes)))
	if got := binary.BigEndian.Uint32(r.must(vfiouser.RegionRead, access(0, 0x108, 4))[16:]); got != 400 {
		t.Errorf("%d writes arrived, want 400", got)
	}
	r.must(vfiouser.RegionWrite, access(0, 0x10c, 4, 0, 0, 0, 150))
	if got := binary.BigEndian.Uint32(r.must(vfiouser.RegionRead, access(0, 0x110, 4))[16:]); got != 150 {
		t.Errorf("write 150 carries %d", got)
	}
	writes[1].Count = 9
	r.refused(unix.EINVAL, vfiouser.RegionWriteMulti, vfiouser.AppendMulti(nil, writes))
	writes[1].Count, writes[1].Region = 4, 77
	r.refused(unix.EINVAL, vfiouser.RegionWriteMulti, vfiouser.AppendMulti(nil, writes))
	r.refused(unix.EINVAL, vfiouser.RegionWriteMulti, binary.NativeEndian.AppendUint64(nil, 1<<63))
}

func TestDeviceResetIsAPowerCycle(t *testing.T) {
	r := client(t, server.Config{})
	r.must(vfiouser.RegionWrite, access(2, 0, 4, 1, 2, 3, 4))
	r.must(vfiouser.RegionWrite, access(vfiouser.RegionConfig, 4, 2, 6, 0))
	r.must(vfiouser.DMAMap, mapRequest(readWrite, 0x10000, 0x1000, 0), memfd(t, 4096, 0))
	if p := r.must(vfiouser.DeviceReset, nil); len(p) != 0 {
		t.Errorf("a reply with %d bytes", len(p))
	}
	if p := r.must(vfiouser.RegionRead, access(2, 0, 4)); !bytes.Equal(p[16:], make([]byte, 4)) {
		t.Errorf("memory % x after a reset", p[16:])
	}
	if p := r.must(vfiouser.RegionRead, access(vfiouser.RegionConfig, 4, 2)); p[16] != 0 {
		t.Errorf("command register %#x after a reset", p[16])
	}
	if r.host.Memory().View(0x10000, 4096, 3) == nil {
		t.Error("a reset took the client's mappings away")
	}
}

func TestMessagesArriveInAnyCut(t *testing.T) {
	r := client(t, server.Config{})
	b := r.frame(vfiouser.RegionWrite, vfiouser.FlagNoReply, access(2, 0, 4, 1, 2, 3, 4))
	b = append(b, r.frame(vfiouser.RegionRead, 0, access(2, 0, 4))...)
	for i := range b {
		r.send(b[i : i+1])
	}
	if p, err := r.reply(vfiouser.RegionRead); err != nil || !bytes.Equal(p[16:], []byte{1, 2, 3, 4}) {
		t.Errorf("% x, %v", p, err)
	}
	big := make([]byte, 0x1000)
	for i := range big {
		big[i] = byte(i * 3)
	}
	// Larger than what is received at once: 600 writes of 4 KiB.
	var batch []byte
	for range 600 {
		batch = append(batch, r.frame(vfiouser.RegionWrite, vfiouser.FlagNoReply, access(2, 0, len(big), big...))...)
	}
	r.send(append(batch, r.frame(vfiouser.RegionRead, 0, access(2, 0, 0x1000))...))
	if p, err := r.reply(vfiouser.RegionRead); err != nil || !bytes.Equal(p[16:], big) {
		t.Errorf("%d bytes, %v", len(p), err)
	}
}

func TestAClientThatDiesInAMessageIsCleanedUp(t *testing.T) {
	c := newCard()
	s := listen(t, c, server.Config{})
	files := 0
	for i := range 5 {
		r := connect(t, s)
		r.hello()
		host := <-c.hosts
		r.must(vfiouser.DMAMap, mapRequest(readWrite, 0x10000, 0x1000, 0), memfd(t, 4096, 0))
		b := r.frame(vfiouser.DMAMap, 0, mapRequest(readWrite, 0x20000, 0x1000, 0))
		r.send(b[:20], memfd(t, 4096, 0)) // half a message, with a file
		r.conn.Close()
		next := connect(t, s) // is served once the other is gone
		next.hello()
		<-c.hosts
		if host.Memory().View(0x10000, 16, 1) != nil {
			t.Error("memory of a client that is gone")
		}
		if got := s.Stats().Maps; got != 0 {
			t.Errorf("%d mappings left", got)
		}
		next.conn.Close()
		if now := openFiles(t) - 2*i; i > 0 && now > files { // the test itself keeps two memfds a round
			t.Errorf("round %d: %d files open, want %d", i, now, files)
		} else if i == 0 {
			files = now + 2
		}
	}
}

func TestAClientThatDoesNotReadIsDropped(t *testing.T) {
	if testing.Short() {
		t.Skip("takes the server's 5 seconds")
	}
	c := newCard()
	s := listen(t, c, server.Config{})
	r := connect(t, s)
	r.hello()
	ask := r.frame(vfiouser.RegionRead, 0, access(0, 0, 0x8000))
	for err := error(nil); err == nil; { // until the server, which can't answer, reads no more and gives up
		err = r.conn.Send(ask)
	}
	next := connect(t, s)
	next.hello()
}

func TestServersShareNothing(t *testing.T) {
	good := client(t, server.Config{})
	for range 3 {
		bad := client(t, server.Config{})
		bad.send(bytes.Repeat([]byte{0xff}, 64))
		bad.dropped()
	}
	good.must(vfiouser.RegionWrite, access(2, 0, 4, 1, 2, 3, 4))
	if p := good.must(vfiouser.RegionRead, access(2, 0, 4)); !bytes.Equal(p[16:], []byte{1, 2, 3, 4}) {
		t.Errorf("% x", p)
	}
}

func TestListenTakesAnAbandonedSocketOnly(t *testing.T) {
	s := listen(t, newCard(), server.Config{})
	if _, err := server.Listen(s.Path(), newCard(), server.Config{}); err == nil {
		t.Error("listens where another server does")
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.Path() + "2", Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close() // the file stays, as after a crash
	again, err := server.Listen(s.Path()+"2", newCard(), server.Config{})
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}
