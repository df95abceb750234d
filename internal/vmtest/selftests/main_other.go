//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "selftests: guests run on Linux hosts only")
	os.Exit(1)
}
