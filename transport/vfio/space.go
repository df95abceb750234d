//go:build linux

package vfio

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// space is what a card reaches of this process's memory.
type space interface {
	// place lets the card reach mem, which is pinned, and returns the bus address of its first byte.
	place(mem []byte) (bus uint64, err error)
	// remove ends that: when it returns, the card reaches it no more.
	remove(bus uint64, mem []byte) error
	// close frees what the kernel holds. The device has been closed before.
	close()
	// mode names it, for messages.
	mode() string
}

// mapper maps ranges that the transport chose: the part of a space that differs between interfaces.
type mapper interface {
	mapRange(bus, vaddr, size uint64) error
	unmapRange(bus, size uint64) error
	close()
	mode() string
}

// translated is a space behind an IOMMU.
type translated struct {
	mapper
	places *addresses
}

func (t *translated) place(mem []byte) (bus uint64, err error) {
	if bus, err = t.places.take(len(mem)); err != nil {
		return 0, err
	}
	size := t.places.length(len(mem))
	if err := t.mapRange(bus, addressOf(mem), size); err != nil {
		t.places.give(bus)
		return 0, fmt.Errorf("map %d bytes at %#x: %w", size, bus, err)
	}
	return bus, nil
}

func (t *translated) remove(bus uint64, mem []byte) error {
	size := t.places.length(len(mem))
	if err := t.unmapRange(bus, size); err != nil {
		return fmt.Errorf("unmap %d bytes at %#x: %w", size, bus, err)
	}
	t.places.give(bus)
	return nil
}

// explainMap says what the kernel's refusal of a mapping means.
func explainMap(err error) error {
	switch {
	case errors.Is(err, unix.ENOMEM):
		return fmt.Errorf("%w: %s", err, lockAdvice)
	case errors.Is(err, unix.ENOSPC):
		return fmt.Errorf("%w: the kernel keeps no more mappings: raise dma_entry_limit of module vfio_iommu_type1", err)
	}
	return err
}
