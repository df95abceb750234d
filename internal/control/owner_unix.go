//go:build unix

package control

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// notOurs says why a folder can't be trusted, or "".
func notOurs(info fs.FileInfo) string {
	if !info.IsDir() {
		return "is not a folder"
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Getuid() {
		return fmt.Sprintf("belongs to user %d", st.Uid)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Sprintf("can be written by others (mode %04o)", info.Mode().Perm())
	}
	return ""
}

// refused tells whether nobody listens at a socket any more.
func refused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
