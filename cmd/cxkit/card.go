package main

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"

	"cxkit/device"
	"cxkit/internal/control"
	"cxkit/stats"
	"cxkit/trace"
)

// card is what the control socket reaches of a run.
type card struct{ s *session }

// Info says what runs.
func (c card) Info(context.Context) (control.Info, error) {
	s := c.s
	info, link := s.nic.Info(), s.nic.Link()
	return control.Info{
		Command: "cxkit " + strings.Join(s.w.args, " "), PID: os.Getpid(), Started: s.started,
		Device: s.c.Device, Seed: s.c.Seed,
		Address: info.Address, Model: info.Model, Firmware: info.Firmware.String(),
		MAC: s.nic.MAC().String(), MTU: s.nic.MTU(), Queues: s.nic.Queues(),
		LinkUp: link.Up, SpeedMbps: link.Speed, Port: s.c.portName(),
	}, nil
}

// portName says what the card is plugged into.
func (c *runCommand) portName() string {
	if c.Play != "" {
		return "play:" + c.Play
	}
	return c.Port
}

// Stats reads the counters.
func (c card) Stats(ctx context.Context) (stats.Snapshot, error) { return c.s.nic.Stats(ctx) }

// VportStats reads the counters of a port of the e-switch.
func (c card) VportStats(ctx context.Context, vport uint16) (stats.Snapshot, error) {
	return vportStats(ctx, c.s.nic, vport)
}

// SetLink pulls the plug out of the card's port or puts it in.
func (c card) SetLink(_ context.Context, up bool) error {
	if c.s.rig == nil {
		return errOutside
	}
	c.s.plug.SetLink(up)
	return nil
}

// Books compares what driver and card have out.
func (c card) Books(context.Context) ([]control.Book, error) {
	d := c.s.nic.Lent()
	books := []control.Book{{Name: "firmware pages", Driver: d.FirmwarePages}, {Name: "commands", Driver: d.CommandSlots}}
	if c.s.rig != nil {
		f := c.s.rig.Card.Books().Functions[0]
		books[0].Card, books[1].Card = &f.Pages, &f.Running
		books = append(books, objectBooks(d.Objects, f.Objects)...)
	} else {
		for _, name := range slices.Sorted(maps.Keys(d.Objects)) {
			books = append(books, control.Book{Name: name, Driver: d.Objects[name]})
		}
	}
	posted, sending := c.s.buffers()
	return append(books,
		control.Book{Name: "mailboxes", Driver: d.Mailboxes},
		control.Book{Name: "buffers posted", Driver: posted},
		control.Book{Name: "buffers being sent", Driver: sending},
		control.Book{Name: "buffers with the NIC or in use", Driver: c.s.nic.Config().Buffers - posted - sending},
	), nil
}

// buffers counts those with the card, as of each queue's latest burst.
func (s *session) buffers() (posted, sending int) {
	for _, w := range s.workers {
		posted += int(w.posted.Load())
		sending += int(w.sending.Load())
	}
	return posted, sending
}

// Overview is what the driver knows.
func (c card) Overview(ctx context.Context) (control.Overview, error) {
	info, err := c.Info(ctx)
	if err != nil {
		return control.Overview{}, err
	}
	nic := c.s.nic
	posted, sending := c.s.buffers()
	commands, health := nic.CommandStats(), nic.Health()
	return control.Overview{
		Info: info, Stats: nic.QuickAllStats(), Commands: &commands, Health: &health, Pages: nic.FunctionPages(),
		Buffers: []control.Buffers{{Holder: "posted", Count: posted}, {Holder: "sending", Count: sending},
			{Holder: "elsewhere", Count: nic.Config().Buffers - posted - sending}},
	}, nil
}

// objectBooks lists the objects of both sides by name.
func objectBooks(driver, card map[string]int) []control.Book {
	names := maps.Clone(driver)
	maps.Copy(names, card)
	var books []control.Book
	for _, name := range slices.Sorted(maps.Keys(names)) {
		n := card[name]
		books = append(books, control.Book{Name: name, Driver: driver[name], Card: &n})
	}
	return books
}

// Reclaim begins a storm of firmware pages.
func (c card) Reclaim(_ context.Context, pages int) error {
	if c.s.rig == nil {
		return errOutside
	}
	return c.s.rig.Card.StormPages(0, device.PageFunction{}, pages)
}

// Storm says how far the latest one has come.
func (c card) Storm(context.Context) (control.Storm, error) {
	if c.s.rig == nil {
		return control.Storm{}, errOutside
	}
	return storm(c.s.rig.Card)
}

// storm reads what a card knows of its latest storm of pages.
func storm(c *device.Card) (control.Storm, error) {
	s, err := c.Storm(0, device.PageFunction{})
	if err != nil {
		return control.Storm{}, err
	}
	return control.Storm{
		Phase: string(s.Phase), Pages: s.Pages, Hoarded: s.Hoarded, Refused: s.Refused,
		Gives: s.Gives, Offers: s.Offers, Takes: s.Takes, Returned: s.Returned, Filled: s.Filled, Took: s.Took,
		Held: c.Books().Functions[0].Pages,
	}, nil
}

// Health is what the driver has seen.
func (c card) Health(context.Context) (stats.Health, error) { return c.s.nic.Health(), nil }

// Trace returns the flight recorder's latest records.
func (c card) Trace(_ context.Context, n int) ([]trace.Record, uint64, error) {
	return c.s.rec.Last(n), c.s.rec.Lost(), nil
}
