package rig

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"cxkit/device"
	"cxkit/device/wire"
	"cxkit/pci"
	"cxkit/transport/inproc"
)

// Config says what to put together. The zero value is one ConnectX-5 with a lossless cable.
type Config struct {
	Device device.Config
	// Transport is how functions reach the card.
	Transport inproc.Config
	// Cable is the wire between port 0 and Far.
	Cable wire.CableOptions
	// Plug is plugged into port 0 instead of a cable, if not nil. The rig does not close it.
	Plug wire.Port
	// Stepped leaves the engine to the caller: nothing moves but by Card.Step. By default a goroutine
	// runs it until Close.
	Stepped bool
}

// Rig is a card in this process with something plugged into it.
type Rig struct {
	Card *device.Card
	// Far is the far end of the cable in port 0; nil if Config.Plug was given.
	Far *wire.End

	near      *wire.End
	transport inproc.Config

	mu   sync.Mutex // guards stop
	stop func() error
}

// New makes a rig. The caller closes it, after the functions it opened.
func New(c Config) (*Rig, error) {
	card, err := device.New(c.Device)
	if err != nil {
		return nil, err
	}
	r := &Rig{Card: card, transport: c.Transport}
	plug := c.Plug
	if plug == nil {
		r.near, r.Far = wire.NewCable(c.Cable)
		plug = r.near
	}
	if _, err := card.Plug(0, plug); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	if !c.Stepped {
		r.Start()
	}
	return r, nil
}

// Function plugs PCI function i of the card into this process.
func (r *Rig) Function(i int) (pci.Function, error) {
	if i < 0 || i >= r.Card.Functions() {
		return nil, fmt.Errorf("function %d: the card has %d", i, r.Card.Functions())
	}
	return inproc.Open(r.Card.Function(i), r.transport)
}

// Start lets a goroutine run the engine until Stop or Close. It does nothing if one does.
func (r *Rig) Start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stop != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Card.Run(ctx) }()
	r.stop = func() error {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			return fmt.Errorf("card engine: %w", err)
		}
		return nil
	}
}

// Stop ends the engine's goroutine; afterwards nothing moves but by Card.Step, until Start.
func (r *Rig) Stop() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stop == nil {
		return nil
	}
	stop := r.stop
	r.stop = nil
	return stop()
}

// Close ends the engine, the card and the cable.
func (r *Rig) Close() error {
	err := errors.Join(r.Stop(), r.Card.Close())
	if r.near != nil {
		err = errors.Join(err, r.near.Close(), r.Far.Close())
	}
	return err
}
