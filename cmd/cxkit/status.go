package main

import "fmt"

// exitStatus is the exit code that a command in a guest ended with.
type exitStatus int

func (s exitStatus) Error() string {
	return fmt.Sprintf("the guest's command ended with status %d", int(s))
}
