//go:build amd64

package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"runtime"
	"syscall"
	"time"
)

// An AF_XDP socket (Documentation/networking/af_xdp.rst, include/uapi/linux/if_xdp.h).
const (
	afXDP             = 44
	solXDP            = 283
	xdpRXRing         = 2
	xdpTXRing         = 3
	xdpUmemReg        = 4
	xdpFillRing       = 5
	xdpCompletionRing = 6

	xdpCopy       = 2
	xdpZeroCopy   = 4
	xdpNeedWakeup = 8

	// Where the kernel has a ring's fields: each on a cache line of its own (net/xdp/xsk_queue.h).
	ringProducer = 0
	ringConsumer = 128
	ringEntries  = 320

	ringSize  = 512
	frameSize = 4096
	frames    = 2 * ringSize
)

// ring is one of a socket's. Plain loads and stores do: between them and the kernel's there is a system call.
type ring struct {
	mem  []byte
	size int // of an entry
	at   uint32
}

func (r *ring) load(off int) uint32     { return binary.NativeEndian.Uint32(r.mem[off:]) }
func (r *ring) store(off int, v uint32) { binary.NativeEndian.PutUint32(r.mem[off:], v) }

// entry is the ring's entry at its own position, which moves on.
func (r *ring) entry() []byte {
	at := ringEntries + int(r.at%ringSize)*r.size
	r.at++
	return r.mem[at : at+r.size]
}

// socket is an AF_XDP socket on one queue.
type socket struct {
	fd                  int
	memory              []byte
	fill, done, in, out ring
	received, sent      int
}

func interfaceIndex(name string) (int, error) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return 0, err
	}
	return i.Index, nil
}

// openSocket makes a socket whose memory's first half is the card's to fill.
func openSocket() (s *socket, err error) {
	s = &socket{}
	if s.fd, err = syscall.Socket(afXDP, syscall.SOCK_RAW, 0); err != nil {
		return nil, fmt.Errorf("AF_XDP socket: %w", err)
	}
	if s.memory, err = syscall.Mmap(-1, 0, frames*frameSize, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANONYMOUS|syscall.MAP_POPULATE); err != nil {
		return nil, err
	}
	registration := make([]byte, 32)
	binary.NativeEndian.PutUint64(registration[0:], addressOf(s.memory))
	binary.NativeEndian.PutUint64(registration[8:], uint64(len(s.memory)))
	binary.NativeEndian.PutUint32(registration[16:], frameSize)
	if err := syscall.SetsockoptString(s.fd, solXDP, xdpUmemReg, string(registration)); err != nil {
		return nil, fmt.Errorf("register memory: %w", err)
	}
	for _, r := range []struct {
		ring   *ring
		option int
		page   int64
		entry  int
	}{
		{&s.in, xdpRXRing, 0, 16},
		{&s.out, xdpTXRing, 0x80000000, 16},
		{&s.fill, xdpFillRing, 0x100000000, 8},
		{&s.done, xdpCompletionRing, 0x180000000, 8},
	} {
		if err := syscall.SetsockoptInt(s.fd, solXDP, r.option, ringSize); err != nil {
			return nil, fmt.Errorf("ring %d: %w", r.option, err)
		}
		r.ring.size = r.entry
		if r.ring.mem, err = syscall.Mmap(s.fd, r.page, ringEntries+ringSize*r.entry, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED|syscall.MAP_POPULATE); err != nil {
			return nil, fmt.Errorf("map ring %d: %w", r.option, err)
		}
	}
	for i := range ringSize {
		binary.NativeEndian.PutUint64(s.fill.entry(), uint64(i*frameSize))
	}
	s.fill.store(ringProducer, s.fill.at)
	return s, nil
}

// bind ties the socket to a queue.
func (s *socket) bind(index, queue int, flags uint16) error {
	b := make([]byte, 16)
	binary.NativeEndian.PutUint16(b[0:], afXDP)
	binary.NativeEndian.PutUint16(b[2:], flags)
	binary.NativeEndian.PutUint32(b[4:], uint32(index))
	binary.NativeEndian.PutUint32(b[8:], uint32(queue))
	_, _, errno := syscall.Syscall(syscall.SYS_BIND, uintptr(s.fd), uintptr(addressOf(b)), uintptr(len(b)))
	runtime.KeepAlive(b)
	if errno != 0 {
		return fmt.Errorf("bind to queue %d: %w", queue, errno)
	}
	return nil
}

// lead makes a program lead the queue's frames to the socket.
func (s *socket) lead(index, queue int) error {
	attr := make([]byte, 20)
	binary.NativeEndian.PutUint32(attr[0:], bpfMapXSK)
	binary.NativeEndian.PutUint32(attr[4:], 4)
	binary.NativeEndian.PutUint32(attr[8:], 4)
	binary.NativeEndian.PutUint32(attr[12:], 64)
	sockets, err := bpf(bpfMapCreate, attr)
	if err != nil {
		return err
	}
	key, value, update := make([]byte, 4), make([]byte, 4), make([]byte, 32)
	binary.NativeEndian.PutUint32(key, uint32(queue))
	binary.NativeEndian.PutUint32(value, uint32(s.fd))
	binary.NativeEndian.PutUint32(update[0:], uint32(sockets))
	binary.NativeEndian.PutUint64(update[8:], addressOf(key))
	binary.NativeEndian.PutUint64(update[16:], addressOf(value))
	if _, err := bpf(bpfMapUpdate, update); err != nil {
		return err
	}
	runtime.KeepAlive(key)
	runtime.KeepAlive(value)
	_, err = attach(toSocket(sockets), index)
	return err
}

// xsk echoes count datagrams of a queue through an AF_XDP socket; mode is "zero" or "copy".
func xsk(name string, queue, count int, mode string) error {
	index, err := interfaceIndex(name)
	if err != nil {
		return err
	}
	s, err := openSocket()
	if err != nil {
		return err
	}
	flags := map[string]uint16{"zero": xdpZeroCopy, "copy": xdpCopy}[mode]
	if err := s.bind(index, queue, flags|xdpNeedWakeup); err != nil {
		return err
	}
	if err := s.lead(index, queue); err != nil {
		return err
	}
	fmt.Println("attached")
	for limit := time.Now().Add(deadline); s.sent < count; {
		if err := s.turn(); err != nil {
			return err
		}
		if time.Now().After(limit) {
			return fmt.Errorf("%d of %d datagrams came and %d went in %v", s.received, count, s.sent, deadline)
		}
	}
	result("xsk-echoed", float64(s.sent), "datagrams")
	return nil
}

// turn waits a little, and sends back what has come. A frame goes out from where it came in, and back to the card.
func (s *socket) turn() error {
	poll := make([]byte, 8) // struct pollfd
	binary.NativeEndian.PutUint32(poll, uint32(s.fd))
	binary.NativeEndian.PutUint16(poll[4:], 1)
	_, _, errno := syscall.Syscall(syscall.SYS_POLL, uintptr(addressOf(poll)), 1, 100)
	runtime.KeepAlive(poll)
	if errno != 0 && errno != syscall.EINTR {
		return fmt.Errorf("poll: %w", errno)
	}
	for s.in.at != s.in.load(ringProducer) {
		from := s.in.entry()
		at, n := binary.NativeEndian.Uint64(from), binary.NativeEndian.Uint32(from[8:])
		if at+uint64(n) > uint64(len(s.memory)) {
			return fmt.Errorf("a frame of %d bytes at %#x", n, at)
		}
		s.received++
		if turnRound(s.memory[at : at+uint64(n)]) {
			copy(s.out.entry(), from)
		} else {
			s.refill(at)
		}
	}
	s.in.store(ringConsumer, s.in.at)
	s.out.store(ringProducer, s.out.at)
	if _, _, errno := syscall.Syscall6(syscall.SYS_SENDTO, uintptr(s.fd), 0, 0, syscall.MSG_DONTWAIT, 0, 0); errno != 0 &&
		errno != syscall.EAGAIN && errno != syscall.EBUSY && errno != syscall.ENOBUFS {
		return fmt.Errorf("send: %w", errno)
	}
	for s.done.at != s.done.load(ringProducer) {
		s.refill(binary.NativeEndian.Uint64(s.done.entry()))
		s.sent++
	}
	s.done.store(ringConsumer, s.done.at)
	s.fill.store(ringProducer, s.fill.at)
	return nil
}

// refill gives a frame's memory back to the card.
func (s *socket) refill(at uint64) {
	binary.NativeEndian.PutUint64(s.fill.entry(), at&^(frameSize-1))
}

// turnRound makes a UDP datagram over IPv4 an answer to its sender; the checksums stay what they are.
func turnRound(f []byte) bool {
	if len(f) < 42 || f[12] != 8 || f[13] != 0 || f[14] != 0x45 || f[23] != syscall.IPPROTO_UDP {
		return false
	}
	swap(f[0:6], f[6:12])
	swap(f[26:30], f[30:34])
	swap(f[34:36], f[36:38])
	return true
}

func swap(a, b []byte) {
	for i := range a {
		a[i], b[i] = b[i], a[i]
	}
}
