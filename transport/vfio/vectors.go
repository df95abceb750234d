//go:build linux

package vfio

import (
	"context"
	"errors"
	"fmt"

	"cxkit/pci"
	"cxkit/transport/internal/irq"
)

// maxVectors is how many a MSI-X table has at most.
const maxVectors = 2048

// openVectors enables MSI-X. A machine that is short of interrupts may have fewer than the card.
func (f *Function) openVectors() error {
	n, err := f.interrupts(irqMSIX)
	if err != nil {
		return err
	}
	if n == 0 {
		return errors.New("it has no MSI-X vectors")
	}
	if n > maxVectors {
		return fmt.Errorf("the kernel says that it has %d MSI-X vectors", n)
	}
	n = min(n, f.config.Vectors)
	if f.vectors, err = irq.NewList(n); err != nil {
		return err
	}
	for n > 0 {
		some, err := f.enable(irqMSIX, f.vectors[:n])
		if err == nil {
			break
		}
		if some <= 0 || some >= n {
			return fmt.Errorf("enable %d MSI-X vectors: %w", n, err)
		}
		n = some // what the kernel can have
	}
	for _, v := range f.vectors[n:] {
		v.Close()
	}
	f.vectors = f.vectors[:n]
	f.info.Vectors = n
	return nil
}

// interrupts is how many interrupts an index of the kernel's has.
func (f *Function) interrupts(index uint32) (int, error) {
	info, err := ask(f.config.kernel, f.device, deviceGetIRQ, words(0, 0, index, 0))
	if err != nil {
		return 0, fmt.Errorf("interrupts of index %d: %w", index, err)
	}
	return int(le32(info, 12)), nil
}

// enable lets interrupts signal eventfds. some is how many the kernel could enable if not all.
func (f *Function) enable(index uint32, list []*irq.Vector) (some int, err error) {
	b := words(uint32(20+4*len(list)), irqDataFD|irqTrigger, index, 0, uint32(len(list)))
	for _, v := range list {
		b = append(b, words(uint32(v.FD()))...)
	}
	some, err = f.config.kernel.ioctl(f.device, deviceSetIRQs, b)
	if err == nil && some > 0 {
		err = fmt.Errorf("the kernel has %d", some)
	}
	return some, err
}

// disableVectors ends interrupts. The device is closed next, which does so as well.
func (f *Function) disableVectors() {
	if len(f.vectors) > 0 {
		_, _ = f.config.kernel.ioctl(f.device, deviceSetIRQs, words(20, irqDataNone|irqTrigger, irqMSIX, 0, 0))
	}
}

// Wait blocks until the card has raised the vector.
func (f *Function) Wait(ctx context.Context, vector int) error {
	if vector < 0 || vector >= len(f.vectors) {
		return fmt.Errorf("%s has no MSI-X vector %d", f.info.Address, vector)
	}
	err := f.vectors[vector].Wait(ctx, f.alive)
	if err == nil || ctx.Err() != nil || errors.Is(err, pci.ErrClosed) || errors.Is(err, pci.ErrGone) {
		return err
	}
	return fmt.Errorf("wait for vector %d: %w", vector, err)
}

// forgetInterrupts drops what was raised before a reset.
func (f *Function) forgetInterrupts() {
	for _, v := range f.vectors {
		v.Take()
	}
}
