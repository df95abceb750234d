//go:build !linux

package main

import "errors"

// errNoGuests: guests share their memory with cards by memfd.
var errNoGuests = errors.New("guests and vfio-user need Linux")

// serveCommand is `cxkit serve` where there is none.
type serveCommand struct {
	Args []string `arg:"" optional:"" passthrough:""`
}

func (serveCommand) Run(*world) error { return errNoGuests }

// vmCommand is `cxkit vm` where there is none.
type vmCommand struct {
	Args []string `arg:"" optional:"" passthrough:""`
}

func (vmCommand) Run(*world) error { return errNoGuests }
