//go:build linux

package server_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cxkit/pci"
	"cxkit/transport/transporttest"
	"cxkit/transport/vfiouser"
	"cxkit/transport/vfiouser/internal/sock"
	"cxkit/transport/vfiouser/server"
)

// qemuVersion is what QEMU 11.1 says first.
const qemuVersion = `{"capabilities": {"pgsizes": 4096, "max_msg_fds": 16, "max_dma_maps": 65535, "max_data_xfer_size": 1048576, "migration": {"max_bitmap_size": 268435456, "pgsize": 4096}, "write_multiple": true}}`

// card is the suite's card with its host in the test's hands, which plays the engine.
type card struct {
	*transporttest.Card
	hosts chan pci.Host
}

func newCard() *card { return &card{transporttest.NewCard(), make(chan pci.Host, 1)} }

func (c *card) Attach(h pci.Host) error {
	err := c.Card.Attach(h)
	if err == nil {
		select { // the last one counts
		case <-c.hosts:
		default:
		}
		c.hosts <- h
	}
	return err
}

// raw is a client that says what the test wants.
type raw struct {
	testing.TB
	conn *sock.Conn
	id   uint16
	host pci.Host // of the card at the other end
}

// listen serves a card at a socket until the test ends.
func listen(t testing.TB, c pci.Endpoint, config server.Config) *server.Server {
	t.Helper()
	s, err := server.Listen(filepath.Join(t.TempDir(), "s"), c, config)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Serve(context.Background()); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	t.Cleanup(func() { s.Close(); wg.Wait() })
	return s
}

// connect makes a client that has said nothing yet.
func connect(t testing.TB, s *server.Server) *raw {
	t.Helper()
	socket, err := net.Dial("unix", s.Path())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := sock.New(socket.(*net.UnixConn))
	if err != nil {
		t.Fatal(err)
	}
	conn.SetReadDeadline(time.Now().Add(time.Minute))
	t.Cleanup(func() { conn.Close() })
	return &raw{TB: t, conn: conn}
}

// client makes a server with a client that has said its version.
func client(t testing.TB, config server.Config) *raw {
	t.Helper()
	c := newCard()
	r := connect(t, listen(t, c, config))
	r.hello()
	r.host = <-c.hosts
	return r
}

func (r *raw) hello() {
	r.Helper()
	if _, err := r.ask(vfiouser.Version, versionPayload(0, qemuVersion)); err != nil {
		r.Fatalf("version: %v", err)
	}
}

func versionPayload(major byte, text string) []byte {
	return append([]byte{major, 0, 0, 0}, append([]byte(text), 0)...)
}

// frame is a request.
func (r *raw) frame(command vfiouser.Command, flags uint32, payload []byte) []byte {
	r.id++
	h := vfiouser.Header{ID: r.id, Command: command, Size: uint32(vfiouser.HeaderSize + len(payload)), Flags: flags}
	return append(h.Append(nil), payload...)
}

func (r *raw) send(b []byte, fds ...int) {
	r.Helper()
	if err := r.conn.Send(b, fds...); err != nil {
		r.Fatalf("send: %v", err)
	}
}

// next is the next message, or the end of the connection.
func (r *raw) next() (m sock.Message, err error) {
	for {
		m, ok, err := r.conn.Next()
		if err != nil || ok {
			return m, err
		}
		if err := r.conn.Fill(); err != nil {
			return m, err
		}
	}
}

// ask sends a request and returns the reply's payload or its error number.
func (r *raw) ask(command vfiouser.Command, payload []byte, fds ...int) ([]byte, error) {
	r.Helper()
	r.send(r.frame(command, 0, payload), fds...)
	return r.reply(command)
}

func (r *raw) reply(command vfiouser.Command) ([]byte, error) {
	r.Helper()
	m, err := r.next()
	if err != nil {
		return nil, err
	}
	if !m.Reply() || m.Command != command || m.ID != r.id || len(m.FDs) != 0 {
		r.Fatalf("got %+v with %d fds, want the reply to %v %d", m.Header, len(m.FDs), command, r.id)
	}
	if m.Flags&vfiouser.FlagError != 0 {
		return nil, unix.Errno(m.Errno)
	}
	return append([]byte(nil), m.Payload...), nil
}

// must is ask that succeeds.
func (r *raw) must(command vfiouser.Command, payload []byte, fds ...int) []byte {
	r.Helper()
	p, err := r.ask(command, payload, fds...)
	if err != nil {
		r.Fatalf("%v: %v", command, err)
	}
	return p
}

// refused is ask that fails in a way, after which the connection lives.
func (r *raw) refused(want error, command vfiouser.Command, payload []byte, fds ...int) {
	r.Helper()
	if _, err := r.ask(command, payload, fds...); !errors.Is(err, want) {
		r.Errorf("%v: %v, want %v", command, err, want)
	}
	r.must(vfiouser.DeviceGetInfo, (&vfiouser.DeviceInfo{}).Append(nil))
}

// dropped checks that the server ends the connection.
func (r *raw) dropped() {
	r.Helper()
	for {
		m, err := r.next()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			r.Fatal("the server keeps a client that it should drop")
		}
		if err != nil {
			return
		}
		if m.Reply() && m.Flags&vfiouser.FlagError == 0 {
			r.Fatalf("the server goes on: %+v", m.Header)
		}
	}
}

func access(region uint32, off uint64, n int, data ...byte) []byte {
	a := vfiouser.RegionAccess{Offset: off, Region: region, Count: uint32(n)}
	return append(a.Append(nil), data...)
}

func mapRequest(flags uint32, address, size, offset uint64) []byte {
	return (&vfiouser.MapRequest{Flags: flags, Address: address, Size: size, Offset: offset}).Append(nil)
}

func unmapRequest(flags uint32, address, size uint64) []byte {
	return (&vfiouser.UnmapRequest{Flags: flags, Address: address, Size: size}).Append(nil)
}

const readWrite = vfiouser.MapRead | vfiouser.MapWrite

// memfd makes a file of memory, closed when the test ends.
func memfd(t testing.TB, size int64, flags int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|flags)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func eventFD(t testing.TB) int {
	t.Helper()
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// count reads an eventfd: 0 if it was not signalled.
func count(fd int) int {
	var b [8]byte
	if n, err := unix.Read(fd, b[:]); err != nil || n != 8 {
		return 0
	}
	return int(b[0])
}

func openFiles(t testing.TB) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

func mappings(t testing.TB, name string) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(b), name)
}
