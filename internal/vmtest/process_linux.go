package vmtest

import (
	"os/exec"
	"syscall"
)

// dieWithParent makes the kernel end QEMU when this process dies without a chance to.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
