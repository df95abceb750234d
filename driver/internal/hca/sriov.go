package hca

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
)

// The SR-IOV capability (SR-IOV 1.1 §3.3).
const (
	extended     = 0x100 // where extended capabilities begin
	idSRIOV      = 0x0010
	sriovControl = 0x08
	sriovTotal   = 0x0e
	sriovNumVFs  = 0x10

	vfEnable = 1 << 0
	vfMemory = 1 << 3 // VF MSE
)

// sriov finds the SR-IOV capability; 0: there is none. A list that does not end is none either.
func (h *HCA) sriov() (int, error) {
	for at, hops := extended, 0; at >= extended && hops < 64; hops++ {
		var b [4]byte
		if err := h.config.Function.ReadConfig(at, b[:]); err != nil {
			return 0, err
		}
		head := binary.LittleEndian.Uint32(b[:])
		if head == 0 || head == allOnes {
			return 0, nil
		}
		if head&0xffff == idSRIOV {
			return at, nil
		}
		at = int(head >> 20 &^ 3)
	}
	return 0, nil
}

// findVFs reads how many virtual functions there may be.
func (h *HCA) findVFs(context.Context) error {
	at, err := h.sriov()
	if err != nil || at == 0 {
		return nil // a function without SR-IOV, or behind something that hides it
	}
	var b [2]byte
	if err := h.config.Function.ReadConfig(at+sriovTotal, b[:]); err != nil {
		return err
	}
	h.TotalVFs = int(binary.LittleEndian.Uint16(b[:]))
	return nil
}

// ErrNoSRIOV: the function has no virtual functions.
var ErrNoSRIOV = errors.New("the function has no virtual functions")

// SetVFs makes the host see n virtual functions, 0 for none.
func (h *HCA) SetVFs(n int) error {
	at, err := h.sriov()
	switch {
	case err != nil:
		return err
	case at == 0:
		return ErrNoSRIOV
	}
	write := func(off int, v uint16) error {
		if err := h.config.Function.WriteConfig(at+off, binary.LittleEndian.AppendUint16(nil, v)); err != nil {
			return fmt.Errorf("write SR-IOV capability: %w", err)
		}
		return nil
	}
	if err := write(sriovControl, 0); err != nil || n == 0 {
		return err
	}
	if err := write(sriovNumVFs, uint16(n)); err != nil {
		return err
	}
	return write(sriovControl, vfEnable|vfMemory)
}
