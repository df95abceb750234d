//go:build linux

package sock

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// receiver is what recvmsg wants, kept so that receiving allocates nothing (unix.Recvmsg makes an address
// each time).
type receiver struct {
	header unix.Msghdr
	vector unix.Iovec
}

// recv receives into p and oob, which are not empty. The kernel uses the pointers during the call only,
// and the receiver keeps what they point to alive.
func (r *receiver) recv(fd uintptr, p, oob []byte, flags int) (n, oobn, recvFlags int, err error) {
	r.vector.Base = unsafe.SliceData(p)
	r.vector.SetLen(len(p))
	r.header = unix.Msghdr{Iov: &r.vector, Control: unsafe.SliceData(oob)}
	r.header.SetIovlen(1)
	r.header.SetControllen(len(oob))
	got, _, errno := unix.Syscall(unix.SYS_RECVMSG, fd, uintptr(unsafe.Pointer(&r.header)), uintptr(flags))
	if errno != 0 {
		return 0, 0, 0, errno
	}
	return int(got), int(r.header.Controllen), int(r.header.Flags), nil
}
