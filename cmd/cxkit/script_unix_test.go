//go:build unix

package main

import (
	"os"
	"os/exec"
	"syscall"
)

// nobody is the user without rights.
const nobody = 65534

// withoutRights makes a cxkit that runs as nobody if this process may choose, else as itself, which then
// has no special rights either.
func withoutRights(args []string) (*exec.Cmd, error) {
	path, err := copyOfCxkit()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, args...)
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	return cmd, nil
}
