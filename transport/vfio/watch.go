//go:build linux

package vfio

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"cxkit/pci"
	"cxkit/transport/internal/irq"
)

const (
	// lookInterval is the time between two looks at the card, and onesLimit how many in a row must see ones:
	// what is gone is noticed within a second.
	lookInterval = 200 * time.Millisecond
	onesLimit    = 3
)

// state is whether the card answers.
type state struct {
	mu     sync.Mutex // guards the rest
	why    error      // for good: the kernel wants the device back, or says that it is broken
	absent error      // while the card reads as ones
	ones   int        // looks in a row that saw ones
	armed  bool       // the card has been seen to answer since its last reset
}

// reason is nil or ErrGone with the reason.
func (s *state) reason() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.why != nil {
		return s.why
	}
	return s.absent
}

// expectOnes is called before a reset: for a while after it the card may read as ones.
func (s *state) expectOnes() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.armed, s.ones = false, 0
}

// saw takes what a look found and reports whether the card has just gone.
func (s *state) saw(ones error) (gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ones == nil {
		s.armed, s.ones, s.absent = true, 0, nil
		return false
	}
	if !s.armed || s.absent != nil {
		return false
	}
	if s.ones++; s.ones < onesLimit {
		return false
	}
	s.absent = fmt.Errorf("%w: %w", pci.ErrGone, ones)
	return true
}

// lose says that the card is gone for good. The first reason counts.
func (s *state) lose(why error) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.why != nil {
		return false
	}
	s.why = fmt.Errorf("%w: %w", pci.ErrGone, why)
	return true
}

// watch is who looks whether the card is still there: a goroutine for looks, and one for each of the
// kernel's two announcements. They end with Close.
type watch struct {
	group         sync.WaitGroup
	end           context.CancelFunc // nil until it was started
	announcements []*irq.Vector
}

// startWatch starts the watch. Kernels without announcements leave the looks.
func (f *Function) startWatch() {
	w := &f.watch
	ctx, cancel := context.WithCancel(context.Background())
	w.end = cancel
	for index, why := range map[uint32]error{
		irqError:   errors.New("the bus reports an error of the device that can't be corrected"),
		irqRequest: errors.New("the kernel wants the device back: it was unplugged or unbound"),
	} {
		v, err := f.announcement(index)
		if err != nil {
			f.config.Log.Debug("no announcements of the kernel", "index", index, "err", err)
			continue
		}
		w.announcements = append(w.announcements, v)
		w.group.Go(func() {
			if v.Wait(ctx, func() error { return nil }) != nil {
				return
			}
			if index == irqRequest && f.recalled(ctx) {
				return
			}
			f.lose(why)
		})
	}
	w.group.Go(func() { f.look(ctx) })
}

// recalled tells who has the card that the kernel wants it back, and leaves time to stop it. closed: it was closed
// in that time.
func (f *Function) recalled(ctx context.Context) (closed bool) {
	tell := f.config.Recalled
	if tell == nil {
		return false
	}
	f.config.Log.Warn("the kernel wants the device back", "device", f.info.Address, "within", f.config.recallTime)
	tell()
	over := time.NewTimer(f.config.recallTime)
	defer over.Stop()
	select {
	case <-over.C:
		return false
	case <-ctx.Done():
		return true
	}
}

// announcement enables one of the kernel's interrupts of its own.
func (f *Function) announcement(index uint32) (*irq.Vector, error) {
	n, err := f.interrupts(index)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, errors.ErrUnsupported
	}
	v, err := irq.New()
	if err != nil {
		return nil, err
	}
	if _, err := f.enable(index, []*irq.Vector{v}); err != nil {
		v.Close()
		return nil, err
	}
	return v, nil
}

// stopWatch ends the goroutines. Runs once, in Close.
func (f *Function) stopWatch() {
	if f.watch.end == nil {
		return
	}
	f.watch.end()
	f.watch.group.Wait()
}

// look looks until Close.
func (f *Function) look(ctx context.Context) {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if !f.resetting.TryLock() {
			continue
		}
		ones := f.readsOnes()
		f.resetting.Unlock()
		if f.state.saw(ones) {
			f.config.Log.Error("device does not answer", "device", f.info.Address, "why", ones)
			f.wakeAll()
		}
	}
}

// readsOnes is an error that says where the card reads as ones, nil if it does not.
func (f *Function) readsOnes() error {
	// Not the identifiers: the kernel makes up those of virtual functions.
	var b [2]byte
	if err := f.conf.read(f.config.kernel, configStatus, b[:]); err != nil {
		return err
	}
	if b == [2]byte{0xff, 0xff} {
		return errors.New("configuration space reads as ones: it was unplugged, or its bus is down")
	}
	p := f.config.Probe
	if p.Size == 0 || p.BAR < 0 || p.BAR >= len(f.bars) || f.bars[p.BAR] == nil {
		return nil
	}
	if bar := f.bars[p.BAR]; p.Off%4 == 0 && p.Off+4 <= bar.region.size && uint32(bar.Load(p.Off, 4)) == 0xffffffff {
		return fmt.Errorf("BAR %d reads as ones at %#x", p.BAR, p.Off)
	}
	return nil
}

// lose gives the card up for good: registers read as ones from now on.
func (f *Function) lose(why error) {
	if !f.state.lose(why) {
		return
	}
	f.config.Log.Error("device is gone", "device", f.info.Address, "why", why)
	for _, b := range f.bars {
		if b != nil {
			b.turnOff()
		}
	}
	f.wakeAll()
}

func (f *Function) wakeAll() {
	for _, v := range f.vectors {
		v.Wake()
	}
}
