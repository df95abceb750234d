//go:build linux

package server

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"cxkit/transport/vfiouser"
	"cxkit/transport/vfiouser/internal/sock"
)

// interruptPin is where configuration space says which INTx wire a function has; 0 is none.
const interruptPin = 0x3d

// hasINTx reports whether the function has an INTx wire. Endpoints signal by MSI-X only, but QEMU connects
// the wire of every function that has a pin, and gives up a device that refuses.
func (s *session) hasINTx() bool { return s.endpoint.ReadConfig(interruptPin, 1) != 0 }

// irqInfo answers DEVICE_GET_IRQ_INFO: MSI-X, and an INTx wire that stays quiet.
func (s *session) irqInfo(m *sock.Message, out []byte) ([]byte, error) {
	var r vfiouser.IRQInfo
	if err := r.Parse(m.Payload); err != nil {
		return out, err
	}
	info := vfiouser.IRQInfo{Index: r.Index}
	switch r.Index {
	case vfiouser.IRQIntX:
		if s.hasINTx() {
			info.Count, info.Flags = 1, vfiouser.IRQEventFD|vfiouser.IRQMaskable
		}
	case vfiouser.IRQMSI:
	case vfiouser.IRQMSIX:
		info.Count, info.Flags = uint32(s.info.Vectors), vfiouser.IRQEventFD|vfiouser.IRQMaskable
	default:
		return out, fmt.Errorf("interrupt index %d", r.Index)
	}
	return answer(m, out, info.Append), nil
}

// setIRQs answers DEVICE_SET_IRQS.
func (s *session) setIRQs(m *sock.Message, out []byte) ([]byte, error) {
	var r vfiouser.IRQSet
	if err := r.Parse(m.Payload); err != nil {
		return out, err
	}
	count := uint32(0)
	switch {
	case r.Index == vfiouser.IRQMSIX:
		count = uint32(s.info.Vectors)
	case r.Index == vfiouser.IRQIntX && s.hasINTx():
		count = 1
	}
	all := r.Count == 0
	switch {
	case r.Index > vfiouser.IRQMSIX:
		return out, fmt.Errorf("interrupt index %d", r.Index)
	case all && (r.Flags != vfiouser.IRQDataNone|vfiouser.IRQTrigger || r.Start != 0):
		return out, fmt.Errorf("interrupt setting %#x of no vectors", r.Flags)
	case !all && (r.Start >= count || r.Count > count-r.Start):
		return out, fmt.Errorf("vectors %d+%d of %d", r.Start, r.Count, count)
	case len(m.FDs) > 0 && r.Flags&vfiouser.IRQDataEventFD == 0:
		return out, fmt.Errorf("file descriptors with interrupt setting %#x", r.Flags)
	}
	if r.Index == vfiouser.IRQMSIX {
		if err := s.applyIRQs(m, &r); err != nil {
			return out, err
		}
	}
	return answer(m, out, func(b []byte) []byte { return b }), nil
}

// applyIRQs performs a checked setting.
func (s *session) applyIRQs(m *sock.Message, r *vfiouser.IRQSet) error {
	first, n := int(r.Start), int(r.Count)
	if n == 0 {
		s.irqs.closeAll()
		return nil
	}
	if r.Flags&vfiouser.IRQDataEventFD != 0 {
		if r.Flags&vfiouser.IRQTrigger == 0 {
			return fmt.Errorf("eventfds that mask: %w", unix.EOPNOTSUPP)
		}
		if err := s.irqs.assign(first, n, m.FDs); err != nil {
			return err
		}
		for v := first; v < first+n; v++ {
			s.msix.Ready(v)
		}
		return nil
	}
	for i := range n {
		if r.Bools != nil && r.Bools[i] == 0 {
			continue
		}
		switch v := first + i; {
		case r.Flags&vfiouser.IRQTrigger != 0:
			s.msix.Raise(v)
		default:
			s.msix.Mask(v, r.Flags&vfiouser.IRQMask != 0)
		}
	}
	return nil
}

// eventFDs are where vectors go.
type eventFDs struct {
	dropped *atomic.Uint64
	one     []byte // what signals an eventfd

	mu  sync.Mutex // guards fds, and keeps them open while they are written
	fds []int      // -1 where there is none
}

func (e *eventFDs) init(vectors int, dropped *atomic.Uint64) {
	e.dropped = dropped
	e.one = binary.NativeEndian.AppendUint64(nil, 1)
	e.fds = make([]int, vectors)
	for v := range e.fds {
		e.fds[v] = -1
	}
}

// signal passes a vector on. Without an eventfd it stays pending.
func (e *eventFDs) signal(v int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fds[v] < 0 {
		return false
	}
	if _, err := unix.Write(e.fds[v], e.one); err != nil {
		// Full: the client has 2^64-1 interrupts that it did not take, and one more changes nothing.
		e.dropped.Add(1)
	}
	return true
}

// assign gives vectors first..first+n-1 their eventfds, or takes them away where fds is empty. It keeps
// fds, or on an error none of them.
func (e *eventFDs) assign(first, n int, fds []int) error {
	if len(fds) != 0 && len(fds) != n {
		return fmt.Errorf("%d file descriptors for %d vectors", len(fds), n)
	}
	for _, fd := range fds {
		if err := checkEventFD(fd); err != nil {
			return err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range n {
		if old := e.fds[first+i]; old >= 0 {
			unix.Close(old)
		}
		e.fds[first+i] = -1
		if len(fds) > 0 {
			e.fds[first+i], fds[i] = fds[i], -1
		}
	}
	return nil
}

// checkEventFD refuses what is no eventfd, for a write to a pipe or a file could block the engine, and
// makes sure that a full eventfd does not.
func checkEventFD(fd int) error {
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return err
	}
	if name != "anon_inode:[eventfd]" {
		return fmt.Errorf("vector signalled by %s, want an eventfd", name)
	}
	return unix.SetNonblock(fd, true)
}

// closeAll takes all eventfds away.
func (e *eventFDs) closeAll() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for v, fd := range e.fds {
		if fd >= 0 {
			unix.Close(fd)
		}
		e.fds[v] = -1
	}
}
