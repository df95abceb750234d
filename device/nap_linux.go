package device

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// napper is a short sleep that can be ended. Go's timers end on whole milliseconds when nothing else runs
// (runtime netpoll on Linux), which is ages for a doorbell, and a thread that sleeps in a system call keeps
// others of the process from running. This waits for a timer of the kernel in Go's poller.
type napper struct {
	file *os.File // a timerfd; closed with the last reference to it
	raw  syscall.RawConn
	got  [8]byte
	spec unix.ItimerSpec // of arm; its goroutine's alone

	// Bound once, so that a nap allocates nothing.
	set, end func(fd uintptr)
}

func newNapper() (*napper, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("timerfd: %w", err)
	}
	n := &napper{file: os.NewFile(uintptr(fd), "timerfd")}
	if n.raw, err = n.file.SyscallConn(); err != nil {
		n.file.Close()
		return nil, fmt.Errorf("timerfd: %w", err)
	}
	n.set = func(fd uintptr) { unix.TimerfdSettime(int(fd), 0, &n.spec, nil) }
	now := unix.ItimerSpec{Value: unix.Timespec{Nsec: 1}}
	n.end = func(fd uintptr) { unix.TimerfdSettime(int(fd), 0, &now, nil) }
	return n, nil
}

// arm says how long the nap that follows lasts. One goroutine calls arm and nap.
func (n *napper) arm(d time.Duration) {
	n.spec.Value = unix.NsecToTimespec(max(int64(d), 1))
	n.raw.Control(n.set)
}

// nap sleeps until the armed time has passed. It may return early for any reason.
func (n *napper) nap() { n.file.Read(n.got[:]) }

// wake ends the nap that has been armed. Any goroutine may call it.
func (n *napper) wake() { n.raw.Control(n.end) }
