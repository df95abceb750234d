package main

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// as becomes a user without rights, and then a command.
func as(user string, command []string) error {
	id, err := strconv.Atoi(user)
	if err != nil {
		return err
	}
	path, err := exec.LookPath(command[0])
	if err != nil {
		return err
	}
	if err := syscall.Setgroups(nil); err != nil {
		return err
	}
	if err := syscall.Setgid(id); err != nil {
		return err
	}
	if err := syscall.Setuid(id); err != nil {
		return err
	}
	return syscall.Exec(path, command, os.Environ())
}
