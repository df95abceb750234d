//go:build !linux

package wire

import (
	"errors"
	"fmt"
	"runtime"
)

// TAP is a port plugged into a TAP interface of this host: Linux only.
type TAP struct{ *Source }

// OpenTAP returns an error that is errors.ErrUnsupported: TAP ports need Linux.
func OpenTAP(name string, ring int) (*TAP, error) {
	return nil, fmt.Errorf("TAP %s: TAP ports need Linux, this is %s: %w", name, runtime.GOOS, errors.ErrUnsupported)
}

// Name is the interface's name.
func (t *TAP) Name() string { return "" }

// IsUp reports whether the interface is set up.
func (t *TAP) IsUp() bool { return false }
