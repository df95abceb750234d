//go:build !linux

package device

import (
	"errors"
	"time"
)

// napper is Linux's: elsewhere no host rings by memory.
type napper struct{}

func newNapper() (*napper, error) { return nil, errors.ErrUnsupported }

func (*napper) arm(time.Duration) {}

func (*napper) nap() {}

func (*napper) wake() {}
