//go:build linux

package vfio

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"cxkit/pci"
	"cxkit/transport/internal/irq"
)

// Function is a pci.Function of a real card.
type Function struct {
	config Config
	info   pci.Info
	node   int // of the card's NUMA, -1 if there is none

	device int // file descriptors, -1 where there is none
	group  int
	space  space
	resets bool // the kernel can reset the device

	conf    region
	flr     int // offset of Device Control's upper byte, 0 if there is none
	bars    [6]*bar
	vectors []*irq.Vector
	arenas  arenas

	mu     sync.RWMutex // held for reading by all that must not overlap Close, for writing by Close
	closed atomic.Bool
	state  state
	watch  watch

	resetting sync.Mutex // one reset at a time
}

var _ pci.Function = (*Function)(nil)

func newFunction(address string, config Config) *Function {
	return &Function{config: config, info: pci.Info{Address: address}, device: -1, group: -1, node: -1}
}

// Info describes the function.
func (f *Function) Info() pci.Info { return f.info }

// use holds off Close; the caller calls f.mu.RUnlock.
func (f *Function) use() error {
	f.mu.RLock()
	if f.closed.Load() {
		f.mu.RUnlock()
		return pci.ErrClosed
	}
	return nil
}

// alive is nil, ErrClosed or ErrGone with the reason.
func (f *Function) alive() error {
	if f.closed.Load() {
		return pci.ErrClosed
	}
	return f.state.reason()
}

// readInfo asks what the kernel has of the device.
func (f *Function) readInfo() error {
	info, err := ask(f.config.kernel, f.device, deviceGetInfo, make([]byte, 20))
	if err != nil {
		return fmt.Errorf("device info: %w", err)
	}
	flags := le32(info, 4)
	if flags&deviceIsPCI == 0 {
		return errors.New("the kernel says that it is no PCI device")
	}
	f.resets = flags&deviceResets != 0
	return nil
}

// Reset performs a function level reset. Arenas stay mapped and vectors enabled.
func (f *Function) Reset(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := f.use(); err != nil {
		return err
	}
	defer f.mu.RUnlock()
	if !f.resets {
		return fmt.Errorf("reset %s: the kernel has no way to reset it alone: %w", f.info.Address, errors.ErrUnsupported)
	}
	f.resetting.Lock()
	defer f.resetting.Unlock()
	f.state.expectOnes()
	if _, err := f.config.kernel.ioctlValue(f.device, deviceReset, 0); err != nil {
		if errors.Is(err, unix.EAGAIN) {
			return fmt.Errorf("reset %s: %w: the kernel is busy with the device", f.info.Address, err)
		}
		return fmt.Errorf("reset %s: %w", f.info.Address, err)
	}
	f.forgetInterrupts()
	// The kernel restores what configuration space held, bus mastering too.
	return nil
}

// Close stops DMA and interrupts, and gives the card back to the kernel, which resets it. Waits end at once.
func (f *Function) Close() error {
	if !f.closed.CompareAndSwap(false, true) {
		return nil
	}
	for _, v := range f.vectors {
		v.Wake()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stopWatch()
	return f.release()
}

// release undoes what open did, as far as it came. Nobody else uses the function.
func (f *Function) release() error {
	k := f.config.kernel
	var errs []error
	for _, b := range f.bars {
		if b != nil {
			errs = append(errs, b.revoke(k))
		}
	}
	if f.device >= 0 {
		f.conf.stopBusMaster(k)
		f.disableVectors()
	}
	if f.space != nil {
		errs = append(errs, f.arenas.removeAll(f.space))
	}
	// In this order: a group leaves its container when the device is closed, and that its IOMMU.
	for _, fd := range []*int{&f.device, &f.group} {
		if *fd >= 0 {
			k.close(*fd)
			*fd = -1
		}
	}
	if f.space != nil {
		f.space.close()
	}
	for _, v := range f.vectors {
		v.Close()
	}
	for _, v := range f.watch.announcements {
		v.Close()
	}
	return errors.Join(errs...)
}
