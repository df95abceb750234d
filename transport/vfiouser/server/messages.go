//go:build linux

package server

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"cxkit/pci"
	"cxkit/transport/vfiouser"
	"cxkit/transport/vfiouser/internal/sock"
)

// messages reaches memory that the client did not share, with DMA_READ and DMA_WRITE. One message is under
// way at a time. It is an addrspace.Messages.
type messages struct {
	conn    *sock.Conn
	timeout time.Duration
	fail    func(error) // ends the session
	gone    chan struct{}
	once    sync.Once

	turn  sync.Mutex // held by the goroutine whose message is under way; guards what follows
	most  int        // bytes in one message
	id    uint16
	probe probe
	out   []byte
	timer *time.Timer
	ended chan error // of the message under way

	mu   sync.Mutex // guards want
	want *wanted    // nil when no message is under way
}

// wanted is the reply that is waited for.
type wanted struct {
	id      uint16
	command vfiouser.Command
	data    []byte // of a read
	size    int    // of the reply's payload, for probe
	old     bool
}

// probe tells which layout the client's DMA messages have: QEMU's up to 10.2 have a count of 32 bits.
type probe uint8

const (
	probeUnknown probe = iota
	probeSpecified
	probeOld
)

func (d *messages) init(conn *sock.Conn, timeout time.Duration, fail func(error)) {
	d.conn, d.timeout, d.fail, d.most = conn, timeout, fail, vfiouser.MaxData
	d.gone, d.ended = make(chan struct{}), make(chan error, 1)
	d.timer = time.NewTimer(time.Hour)
	d.timer.Stop()
}

// limit is how much data the client takes.
func (d *messages) limit(n int) {
	d.turn.Lock()
	defer d.turn.Unlock()
	d.most = min(n, vfiouser.MaxData)
}

// end makes all messages fail from now on.
func (d *messages) end() { d.once.Do(func() { close(d.gone) }) }

// ReadDMA fills p from addr.
func (d *messages) ReadDMA(p []byte, addr uint64) error {
	return d.transfer(vfiouser.DMARead, p, addr)
}

// WriteDMA writes p to addr.
func (d *messages) WriteDMA(p []byte, addr uint64) error {
	return d.transfer(vfiouser.DMAWrite, p, addr)
}

func (d *messages) transfer(command vfiouser.Command, p []byte, addr uint64) error {
	d.turn.Lock()
	defer d.turn.Unlock()
	access := pci.Read
	if command == vfiouser.DMAWrite {
		access = pci.Write
	}
	if d.probe == probeUnknown {
		if err := d.findOut(addr); err != nil {
			return dmaError(err, addr, len(p), access)
		}
	}
	for len(p) > 0 {
		n := min(len(p), d.most)
		if err := d.exchange(command, p[:n], addr, &wanted{old: d.probe == probeOld}); err != nil {
			return dmaError(err, addr, n, access)
		}
		p, addr = p[n:], addr+uint64(n)
	}
	return nil
}

// findOut writes nothing to addr: clients of the specification answer with a payload, old QEMUs with a
// header only.
func (d *messages) findOut(addr uint64) error {
	w := &wanted{}
	if err := d.exchange(vfiouser.DMAWrite, nil, addr, w); err != nil {
		return err
	}
	d.probe = probeSpecified
	if w.size == 0 {
		d.probe = probeOld
	}
	return nil
}

// exchange sends one message and waits for its reply.
func (d *messages) exchange(command vfiouser.Command, p []byte, addr uint64, w *wanted) error {
	d.id++
	w.id, w.command = d.id, command
	a := vfiouser.DMAAccess{Address: addr, Count: uint64(len(p))}
	h := vfiouser.Header{ID: d.id, Command: command}
	out := h.Append(d.out[:0])
	if w.old {
		out = a.AppendOld(out)
	} else {
		out = a.Append(out)
	}
	if command == vfiouser.DMARead {
		w.data = p
	} else {
		out = append(out, p...)
	}
	h.Size = uint32(len(out))
	h.Put(out)
	d.out = out
	d.expect(w)
	defer d.expect(nil)
	if err := d.conn.Send(out); err != nil {
		d.fail(err)
		return errGone
	}
	d.timer.Reset(d.timeout)
	defer d.timer.Stop()
	select {
	case err := <-d.ended:
		return err
	case <-d.gone:
		return errGone
	case <-d.timer.C:
		d.fail(fmt.Errorf("no reply to %v within %v", command, d.timeout))
		return errGone
	}
}

func (d *messages) expect(w *wanted) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.want = w
	if w == nil {
		select {
		case <-d.ended: // a reply that nobody waits for any more
		default:
		}
	}
}

var errGone = errors.New("peer gone")

// reply takes a reply of the client. One that was not asked for ends the session.
func (d *messages) reply(m *sock.Message) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	w := d.want
	if w == nil || w.id != m.ID || w.command != m.Command {
		return fmt.Errorf("%w: a reply to %v with id %d that was not asked for", sock.ErrProtocol, m.Command, m.ID)
	}
	d.want = nil
	err := w.take(m)
	d.ended <- err // has room: one message is under way
	if errors.Is(err, sock.ErrProtocol) {
		return err
	}
	return nil
}

// take checks a reply and copies its data.
func (w *wanted) take(m *sock.Message) error {
	if m.Flags&vfiouser.FlagError != 0 {
		return unix.Errno(m.Errno)
	}
	w.size = len(m.Payload)
	if w.command == vfiouser.DMAWrite {
		return nil
	}
	data := m.Payload
	if w.old {
		// The data of such a client begins 4 bytes early, in what it takes for padding, and its last 4
		// bytes are zero.
		if len(data) < vfiouser.OldDMAAccessSize {
			return fmt.Errorf("%w: DMA_READ reply of %d bytes", sock.ErrProtocol, len(data))
		}
		data = data[vfiouser.OldDMAAccessSize:]
	} else {
		var a vfiouser.DMAAccess
		var err error
		if data, err = a.Parse(data); err != nil {
			return fmt.Errorf("%w: %w", sock.ErrProtocol, err)
		}
	}
	if len(data) < len(w.data) {
		return fmt.Errorf("%w: DMA_READ reply with %d bytes of %d", sock.ErrProtocol, len(data), len(w.data))
	}
	copy(w.data, data)
	return nil
}

// dmaError is what the card sees.
func dmaError(err error, addr uint64, n int, access pci.Access) error {
	why := err.Error()
	switch {
	case errors.Is(err, unix.ENODEV):
		why = "refused by the client (not bus master, or unmapped)"
	case errors.Is(err, errGone), errors.Is(err, sock.ErrProtocol):
		why = "peer gone"
	}
	return &pci.DMAError{Addr: addr, Len: n, Access: access, Why: why}
}
