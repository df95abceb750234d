//go:build linux

package client

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"cxkit/transport/vfiouser"
	"cxkit/transport/vfiouser/internal/sock"
)

const (
	slotBits  = 6
	slotCount = 1 << slotBits // requests under way at most
)

// slots are the requests under way. A message id is the slot's index below the number of times it was used.
type slots struct {
	free chan int
	all  [slotCount]slot
}

type slot struct {
	done  chan struct{} // has room for one
	timer *time.Timer   // of the goroutine that waits

	mu        sync.Mutex // guards what follows
	id        uint16
	waiting   bool // for a reply
	abandoned bool // by the goroutine that waited: the receiver frees the slot
	command   vfiouser.Command
	payload   []byte // of the reply
	file      int    // that came with it, -1 if none
	errno     uint32
	failed    bool
}

func (s *slots) init() {
	s.free = make(chan int, slotCount)
	for i := range s.all {
		s.all[i].done = make(chan struct{}, 1)
		s.all[i].timer = time.NewTimer(time.Hour)
		s.all[i].timer.Stop()
		s.all[i].id, s.all[i].file = uint16(i), -1
		s.free <- i
	}
}

// expect makes a slot wait for a reply to command and returns the id to ask with.
func (s *slot) expect(command vfiouser.Command) uint16 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id += slotCount
	s.waiting, s.command = true, command
	return s.id
}

// reply takes a reply. ok is false when nobody asked for it.
func (s *slots) reply(m *sock.Message) (ok bool) {
	i := int(m.ID % slotCount)
	t := &s.all[i]
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.waiting || t.id != m.ID || t.command != m.Command {
		return false
	}
	t.waiting = false
	if t.abandoned {
		t.abandoned = false
		s.free <- i
		return true
	}
	t.payload = append(t.payload[:0], m.Payload...)
	if t.command == vfiouser.DeviceGetRegion && len(m.FDs) == 1 {
		t.file, m.FDs[0] = m.FDs[0], -1
	}
	t.failed, t.errno = m.Flags&vfiouser.FlagError != 0, m.Errno
	t.done <- struct{}{}
	return true
}

// takeFile hands over the file that came with the reply, -1 if none did.
func (s *slot) takeFile() (fd int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fd, s.file = s.file, -1
	return fd
}

// closeFiles closes those that nobody took. No reply comes any more.
func (s *slots) closeFiles() {
	for i := range s.all {
		if fd := s.all[i].takeFile(); fd >= 0 {
			unix.Close(fd)
		}
	}
}

// take gets a free slot.
func (f *Function) take(ctx context.Context) (int, error) {
	select {
	case i := <-f.slots.free:
		return i, nil
	default:
	}
	select {
	case i := <-f.slots.free:
		return i, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-f.ended:
		return 0, f.reason()
	}
}

// await waits for slot i's reply. The reply's payload is the slot's until the caller frees it. On an error
// the slot is freed already.
func (f *Function) await(ctx context.Context, i int) (payload []byte, err error) {
	t := &f.slots.all[i]
	t.timer.Reset(f.config.Timeout)
	defer t.timer.Stop()
	select {
	case <-t.done:
		if t.failed {
			err := unix.Errno(t.errno)
			if fd := t.takeFile(); fd >= 0 {
				unix.Close(fd)
			}
			f.slots.free <- i
			return nil, err
		}
		return t.payload, nil
	case <-f.ended:
		return nil, f.reason() // the slot stays taken, as nobody needs it any more
	case <-ctx.Done():
		f.abandon(i)
		return nil, ctx.Err()
	case <-t.timer.C:
		f.lose(fmt.Errorf("no reply to %v within %v", t.command, f.config.Timeout))
		return nil, f.reason()
	}
}

// abandon leaves slot i to the receiver.
func (f *Function) abandon(i int) {
	t := &f.slots.all[i]
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting {
		t.abandoned = true
		return
	}
	<-t.done // the reply has just come
	if t.file >= 0 {
		unix.Close(t.file)
		t.file = -1
	}
	f.slots.free <- i
}

// request asks the server and returns a copy of the reply's payload.
func (f *Function) request(ctx context.Context, command vfiouser.Command, payload []byte, fds []int) (reply []byte, err error) {
	if err := f.alive(); err != nil {
		return nil, err
	}
	return f.ask(ctx, command, payload, fds)
}

// ask is request for Close too.
func (f *Function) ask(ctx context.Context, command vfiouser.Command, payload []byte, fds []int) (reply []byte, err error) {
	reply, file, err := f.exchange(ctx, command, payload, fds)
	if file >= 0 {
		unix.Close(file)
	}
	return reply, err
}

// exchange is ask with the file that came with the reply, which becomes the caller's; -1 if none did.
func (f *Function) exchange(ctx context.Context, command vfiouser.Command, payload []byte, fds []int) (reply []byte, file int, err error) {
	i, err := f.take(ctx)
	if err != nil {
		return nil, -1, err
	}
	h := vfiouser.Header{ID: f.slots.all[i].expect(command), Command: command, Size: uint32(vfiouser.HeaderSize + len(payload))}
	if len(fds) > 0 {
		err = f.send.withFiles(append(h.Append(nil), payload...), fds)
	} else {
		err = f.send.finish(append(h.Append(f.send.begin()), payload...))
	}
	if err != nil {
		f.lose(err)
		return nil, -1, f.reason()
	}
	p, err := f.await(ctx, i)
	if err != nil {
		return nil, -1, err
	}
	reply, file = append(reply, p...), f.slots.all[i].takeFile()
	f.slots.free <- i
	return reply, file, nil
}

// receive takes replies and requests of the server until the connection ends.
func (f *Function) receive() {
	for {
		m, ok, err := f.conn.Next()
		switch {
		case err != nil:
		case !ok:
			err = f.conn.Fill()
		case m.Reply():
			if !f.slots.reply(&m) {
				err = fmt.Errorf("%w: a reply to %v with id %d that was not asked for", sock.ErrProtocol, m.Command, m.ID)
			}
		default:
			err = f.serve(&m)
		}
		m.CloseFDs()
		if err != nil {
			f.lose(err)
			return
		}
	}
}
