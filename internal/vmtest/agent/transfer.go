package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// A transfer starts with 9 bytes: what the server does, and how many bytes follow.
const (
	serverReceives = 'r'
	serverSends    = 's'
	serverDiscards = 'd'
	serverFills    = 'f'
)

// task is what a transfer does at the client's end.
type task struct {
	name  string // of the result
	sends bool
	do    func(io.ReadWriter, int64) error
}

func taskOf(what byte) task {
	switch what {
	case serverReceives:
		return task{"tcp-out", true, func(c io.ReadWriter, n int64) error { return send(c, n) }}
	case serverSends:
		return task{"tcp-in", false, func(c io.ReadWriter, n int64) error { return receive(c, n) }}
	case serverDiscards:
		return task{"stream-out", true, func(c io.ReadWriter, n int64) error { return fill(c, n) }}
	}
	return task{"stream-in", false, func(c io.ReadWriter, n int64) error { return discard(c, n) }}
}

// deadline bounds one transfer.
const deadline = 2 * time.Minute

// pattern is an endless stream of bytes that both ends know (xorshift64): a byte that is wrong, missing,
// twice or at the wrong place is seen.
type pattern struct{ state uint64 }

func newPattern() *pattern { return &pattern{0x9e3779b97f4a7c15} }

// fill writes the next bytes; len(p) is a multiple of 8.
func (r *pattern) fill(p []byte) {
	s := r.state
	for i := 0; i+8 <= len(p); i += 8 {
		s ^= s << 13
		s ^= s >> 7
		s ^= s << 17
		binary.LittleEndian.PutUint64(p[i:], s)
	}
	r.state = s
}

// chunk is how much is sent and compared at a time, in bytes.
const chunk = 64 << 10

// send writes n bytes of the pattern.
func send(w io.Writer, n int64) error {
	r, buf := newPattern(), make([]byte, chunk)
	for n > 0 {
		r.fill(buf)
		k := min(n, chunk)
		if _, err := w.Write(buf[:k]); err != nil {
			return err
		}
		n -= k
	}
	return nil
}

// receive reads n bytes and compares them.
func receive(src io.Reader, n int64) error {
	r, want, got := newPattern(), make([]byte, chunk), make([]byte, chunk)
	for at := int64(0); at < n; {
		k := min(n-at, chunk)
		if _, err := io.ReadFull(src, got[:k]); err != nil {
			return fmt.Errorf("after %d of %d bytes: %w", at, n, err)
		}
		r.fill(want)
		for i := range got[:k] {
			if got[i] != want[i] {
				return fmt.Errorf("byte %d of %d is %#x, not %#x", at+int64(i), n, got[i], want[i])
			}
		}
		at += k
	}
	return nil
}

// serve serves transfers by TCP, and sends back datagrams, until the process is ended.
func serve(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	p, err := net.ListenPacket("udp", address)
	if err != nil {
		return err
	}
	go sendBack(p)
	fmt.Println("serving")
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			if err := serveOne(c); err != nil {
				fmt.Println("agent: serve:", err)
			}
		}()
	}
}

func serveOne(c net.Conn) error {
	defer c.Close()
	c.SetDeadline(time.Now().Add(deadline))
	var head [9]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return err
	}
	n := int64(binary.BigEndian.Uint64(head[1:]))
	var err error
	switch head[0] {
	case serverSends:
		return send(c, n)
	case serverFills:
		return fill(c, n)
	case serverDiscards:
		err = discard(c, n)
	default:
		err = receive(c, n)
	}
	if err != nil {
		// The client has to know: it waits for one byte.
		return err
	}
	_, err = c.Write(head[:1])
	return err
}

// fill writes n bytes of anything, discard reads them.
func fill(w io.Writer, n int64) error {
	for buf := make([]byte, 4*chunk); n > 0; n -= int64(len(buf)) {
		if _, err := w.Write(buf[:min(n, int64(len(buf)))]); err != nil {
			return err
		}
	}
	return nil
}

func discard(r io.Reader, n int64) error {
	for buf := make([]byte, 4*chunk); n > 0; {
		k, err := r.Read(buf[:min(n, int64(len(buf)))])
		if n -= int64(k); err != nil && n > 0 {
			return err
		}
	}
	return nil
}

// sendBack sends datagrams back, but those of a single byte pattern's start that ask for nothing.
func sendBack(p net.PacketConn) {
	buf := make([]byte, 64<<10)
	for {
		n, from, err := p.ReadFrom(buf)
		if err != nil {
			return
		}
		if n > 0 && buf[0] == wantsEcho {
			p.WriteTo(buf[:n], from)
		}
	}
}

// transfer does tasks of n bytes one after the other.
func transfer(address string, n int64, what ...byte) error {
	for _, w := range what {
		took, err := transferOne(address, w, n)
		if err != nil {
			return fmt.Errorf("%s: %w", taskOf(w).name, err)
		}
		result(taskOf(w).name, float64(n)*8/1e6/took.Seconds(), "Mbit/s")
	}
	return nil
}

func transferOne(address string, what byte, n int64) (time.Duration, error) {
	c, err := net.DialTimeout("tcp", address, deadline) // a SYN lost to traffic and changes is sent again after up to 32 s
	if err != nil {
		return 0, err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(deadline))
	began := time.Now()
	var head [9]byte
	head[0] = what
	binary.BigEndian.PutUint64(head[1:], uint64(n))
	if _, err := c.Write(head[:]); err != nil {
		return 0, err
	}
	task := taskOf(what)
	if err := task.do(c, n); err != nil || !task.sends {
		return time.Since(began), err
	}
	if _, err := io.ReadFull(c, head[:1]); err != nil {
		return 0, errors.Join(errors.New("the server did not confirm the bytes"), err)
	}
	return time.Since(began), nil
}
