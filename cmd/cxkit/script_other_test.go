//go:build !unix

package main

import "os/exec"

// withoutRights makes a cxkit of this user, who has no special rights.
func withoutRights(args []string) (*exec.Cmd, error) {
	path, err := copyOfCxkit()
	if err != nil {
		return nil, err
	}
	return exec.Command(path, args...), nil
}
