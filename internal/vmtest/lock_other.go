//go:build !linux

package vmtest

import (
	"errors"
	"runtime"
)

func (Cache) lock() (unlock func() error, err error) {
	return nil, errors.New("guests need Linux: QEMU's vfio-user-pci shares memory by memfd; this is " + runtime.GOOS)
}
