//go:build !linux || !amd64

package main

import "errors"

func xdp(string, string) error { return errors.ErrUnsupported }

func xsk(string, int, int, string) error { return errors.ErrUnsupported }
