//go:build !unix

package control

import (
	"errors"
	"io/fs"
	"syscall"
)

// notOurs says why a folder can't be trusted, or "". The user's folder for temporary files is closed to
// others here.
func notOurs(info fs.FileInfo) string {
	if !info.IsDir() {
		return "is not a folder"
	}
	return ""
}

// wsaRefused is WSAECONNREFUSED.
const wsaRefused = syscall.Errno(10061)

// refused tells whether nobody listens at a socket any more.
func refused(err error) bool { return errors.Is(err, wsaRefused) }
