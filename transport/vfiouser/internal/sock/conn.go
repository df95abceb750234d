//go:build linux

package sock

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cxkit/transport/vfiouser"
)

const (
	bufferSize = 128 << 10
	// sendLimit is how long a peer may leave what it is sent unread.
	sendLimit = 5 * time.Second
)

// ErrProtocol: the peer sent what no peer may send; the stream can't be understood any more.
var ErrProtocol = errors.New("vfio-user protocol error")

// Conn is one end of a connection. One goroutine receives; any may send.
type Conn struct {
	socket *net.UnixConn
	raw    syscall.RawConn

	// Owned by the receiver.
	buf        []byte
	start, end int // buf[start:end] has been received and not been returned
	files      []fileGroup
	oob        []byte
	recvmsg    func(fd uintptr) bool // bound once, so that receiving allocates nothing
	receiver   receiver
	received   recvResult

	sendMu  sync.Mutex // guards what follows, and keeps messages whole
	sendmsg func(fd uintptr) bool
	sending sendState
}

// fileGroup is the file descriptors of the message that starts at buf[at].
type fileGroup struct {
	at  int
	fds []int
}

type recvResult struct {
	n, oobn, flags int
	err            error
}

type sendState struct {
	b, oob []byte
	wait   bool // wait for room
	err    error
}

// Message is one message as it lies in the receiver's buffer: Payload is valid until the next Fill. The
// receiver owns FDs and calls CloseFDs; what it keeps it sets to -1.
type Message struct {
	vfiouser.Header
	Payload []byte
	FDs     []int
}

// CloseFDs closes the file descriptors that nobody kept.
func (m *Message) CloseFDs() {
	for _, fd := range m.FDs {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	m.FDs = nil
}

// New makes a Conn of a connected socket, which it owns.
func New(socket *net.UnixConn) (*Conn, error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil, err
	}
	c := &Conn{socket: socket, raw: raw, buf: make([]byte, bufferSize), oob: make([]byte, unix.CmsgSpace(4*vfiouser.MaxFDs))}
	c.recvmsg, c.sendmsg = c.tryRecv, c.trySend
	return c, nil
}

// Pair makes two connected Conns.
func Pair() (a, b *Conn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	ends := [2]*Conn{}
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "vfio-user")
		socket, err := net.FileConn(f)
		f.Close()
		if err == nil {
			ends[i], err = New(socket.(*net.UnixConn))
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return ends[0], ends[1], nil
}

// Next returns the next message that has been received whole. ok is false when there is none: then Fill.
func (c *Conn) Next() (m Message, ok bool, err error) {
	b := c.buf[c.start:c.end]
	if len(b) < vfiouser.HeaderSize {
		return m, false, nil
	}
	if err := m.Header.Parse(b); err != nil {
		return m, false, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	if len(b) < int(m.Size) {
		return m, false, nil
	}
	m.Payload = b[vfiouser.HeaderSize:m.Size:m.Size]
	if len(c.files) > 0 && c.files[0].at == c.start {
		m.FDs = c.files[0].fds
		c.files = c.files[1:]
	}
	c.start += int(m.Size)
	return m, true, nil
}

// Fill blocks until more has been received. io.EOF is the end of the peer.
func (c *Conn) Fill() error {
	c.makeRoom()
	if err := c.raw.Read(c.recvmsg); err != nil {
		return err
	}
	r := c.received
	if r.oobn > 0 || r.flags&unix.MSG_CTRUNC != 0 {
		if err := c.takeFiles(r); err != nil {
			return err
		}
	}
	if r.err != nil {
		return r.err
	}
	if r.n == 0 {
		return io.EOF
	}
	c.end += r.n
	return nil
}

// makeRoom moves an incomplete message to the front and grows the buffer where it does not fit. Next has
// checked its size.
func (c *Conn) makeRoom() {
	if c.start > 0 {
		copy(c.buf, c.buf[c.start:c.end])
		for i := range c.files {
			c.files[i].at -= c.start
		}
		c.start, c.end = 0, c.end-c.start
	}
	if c.end >= vfiouser.HeaderSize {
		var h vfiouser.Header
		if h.Parse(c.buf) == nil && int(h.Size) > len(c.buf) {
			grown := make([]byte, h.Size)
			copy(grown, c.buf[:c.end])
			c.buf = grown
		}
	}
}

// tryRecv receives once; false waits until there is something.
func (c *Conn) tryRecv(fd uintptr) bool {
	r := &c.received
	for {
		r.n, r.oobn, r.flags, r.err = c.receiver.recv(fd, c.buf[c.end:], c.oob, unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
		if r.err != unix.EINTR {
			return r.err != unix.EAGAIN
		}
	}
}

// takeFiles gives the file descriptors of a receive to their message. The kernel ends a receive behind the
// piece that they came with, so they are the last message's that starts in it; where that one can't take
// any (a sender that sends several messages at once), the last that can.
func (c *Conn) takeFiles(r recvResult) error {
	fds, err := parseRights(c.oob[:r.oobn])
	if err == nil && r.flags&unix.MSG_CTRUNC != 0 {
		err = fmt.Errorf("%w: more than %d file descriptors", ErrProtocol, vfiouser.MaxFDs)
	}
	if err != nil || len(fds) == 0 {
		closeAll(fds)
		return err
	}
	at := c.start // the message that is being received, if none starts here
	asks := false
	for next := c.start; next < c.end+r.n; {
		var h vfiouser.Header
		whole := c.end + r.n - next
		known := whole >= vfiouser.HeaderSize && h.Parse(c.buf[next:]) == nil
		can := known && !h.Reply() && (h.Command == vfiouser.DMAMap || h.Command == vfiouser.DeviceSetIRQs) || known && h.Reply()
		if next >= c.end && (can || !asks) {
			at, asks = next, can
		}
		if !known {
			break
		}
		next += int(h.Size)
	}
	if n := len(c.files); n > 0 && c.files[n-1].at >= at {
		closeAll(fds)
		return fmt.Errorf("%w: file descriptors twice for one message", ErrProtocol)
	}
	c.files = append(c.files, fileGroup{at, fds})
	return nil
}

func parseRights(oob []byte) (fds []int, err error) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("%w: control message: %w", ErrProtocol, err)
	}
	for i := range msgs {
		if got, err := unix.ParseUnixRights(&msgs[i]); err == nil {
			fds = append(fds, got...)
		}
	}
	return fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// Send sends whole messages, with fds beside the first byte. Any goroutine may call it. A peer that does
// not read for sendLimit is an error, after which the connection is of no use.
func (c *Conn) Send(b []byte, fds ...int) error {
	if len(b) == 0 {
		return nil
	}
	c.sendMu.Lock()
	defer c.sendMu.Unlock()
	s := &c.sending
	*s = sendState{b: b}
	if len(fds) > 0 {
		s.oob = unix.UnixRights(fds...)
	}
	if err := c.raw.Write(c.sendmsg); err != nil {
		return err
	}
	if s.err == nil && len(s.b) > 0 { // the socket is full
		s.wait = true
		c.socket.SetWriteDeadline(time.Now().Add(sendLimit))
		err := c.raw.Write(c.sendmsg)
		c.socket.SetWriteDeadline(time.Time{})
		if err != nil {
			return err
		}
	}
	err := s.err
	*s = sendState{}
	return err
}

// trySend sends what fits; false waits until there is room for the rest.
func (c *Conn) trySend(fd uintptr) bool {
	s := &c.sending
	for len(s.b) > 0 {
		n, err := unix.SendmsgN(int(fd), s.b, s.oob, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		switch {
		case err == unix.EAGAIN:
			return !s.wait
		case err == unix.EINTR:
			continue
		case err != nil:
			s.err = err
			return true
		}
		s.b, s.oob = s.b[n:], nil
	}
	return true
}

// Shutdown ends the connection in both directions: receivers and senders return. Any goroutine may call it.
func (c *Conn) Shutdown() {
	c.raw.Control(func(fd uintptr) { unix.Shutdown(int(fd), unix.SHUT_RDWR) })
}

// Close ends the connection and closes file descriptors that were received for messages that never came.
// The receiver calls it, or whoever knows that there is none any more.
func (c *Conn) Close() error {
	for _, g := range c.files {
		closeAll(g.fds)
	}
	c.files = nil
	return c.socket.Close()
}

// SetReadDeadline bounds Fill.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.socket.SetReadDeadline(t) }
