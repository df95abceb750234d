//go:build linux

package client

import (
	"context"
	"errors"
	"fmt"

	"cxkit/pci"
	"cxkit/transport/internal/irq"
)

func (f *Function) makeVectors() error {
	made, err := irq.NewList(f.info.Vectors)
	if err != nil {
		return err
	}
	f.endMu.Lock() // lose goes through them
	defer f.endMu.Unlock()
	f.vectors = made
	return nil
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
