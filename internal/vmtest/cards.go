//go:build linux

package vmtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"

	"cxkit/device"
	"cxkit/device/wire"
	"cxkit/trace"
	"cxkit/transport/vfiouser/server"
)

// CardsConfig describes the host's side of guests.
type CardsConfig struct {
	// Sockets are where cards are served, one card each, of one port. A card with an empty one is not: who has
	// it drives its function 0 in this process.
	Sockets []string
	// Ports are what the cards' ports are plugged into; nil plugs all into one switch. The caller closes
	// them, after the cards.
	Ports []wire.Port
	// Device is what the cards are like; MAC addresses and PCI addresses differ from card to card.
	Device device.Config
	// Server is how they are served.
	Server server.Config
	// Trace records what guests and cards say; nil means one of TraceRecords records is made.
	Trace  *trace.Recorder
	Logger *slog.Logger
}

// TraceRecords is how many trace records a failure shows.
const TraceRecords = 200

// Cards are cards of this process that run and are served at sockets. Guests may come and go, and reboot.
type Cards struct {
	cards   []*device.Card
	servers []*server.Server // of function 0 of each card; nil: it is not served
	server  server.Config
	ctx     context.Context // of what runs
	sw      *wire.Switch    // nil if the ports were given
	trace   *trace.Recorder
	stop    context.CancelFunc
	running sync.WaitGroup

	mu  sync.Mutex // guards err
	err error
}

// ServeCards makes cards and serves them. The caller closes them, after the guests.
func ServeCards(c CardsConfig) (*Cards, error) {
	if c.Ports != nil && len(c.Ports) != len(c.Sockets) {
		return nil, fmt.Errorf("%d ports for %d cards", len(c.Ports), len(c.Sockets))
	}
	ctx, stop := context.WithCancel(context.Background())
	c.Server.Logger = c.Logger
	s := &Cards{trace: c.Trace, stop: stop, server: c.Server, ctx: ctx}
	if s.trace == nil {
		s.trace = trace.New(trace.Config{Records: 4096})
	}
	if c.Ports == nil {
		s.sw = wire.NewSwitch(wire.SwitchOptions{})
	}
	for i, socket := range c.Sockets {
		if err := s.add(ctx, i, socket, c); err != nil {
			return nil, errors.Join(fmt.Errorf("card %d: %w", i, err), s.Close())
		}
	}
	return s, nil
}

// firstMAC is the first card's address.
func firstMAC() [6]byte { return [6]byte{0x0c, 0x42, 0xa1, 0xc0, 0x00, 0x00} }

// add makes one card and serves it.
func (s *Cards) add(ctx context.Context, i int, socket string, c CardsConfig) error {
	config := c.Device
	config.Trace, config.Logger = s.trace, c.Logger
	if config.MAC == [6]byte{} {
		config.MAC = firstMAC()
	}
	config.MAC[4] += byte(i)
	if config.Address == "" {
		config.Address = fmt.Sprintf("0000:%02x:00.0", i+1)
	}
	card, err := device.New(config)
	if err != nil {
		return err
	}
	s.cards = append(s.cards, card)
	port, err := s.port(i, c)
	if err != nil {
		return err
	}
	if _, err := card.Plug(0, port); err != nil {
		return err
	}
	s.goRun(ctx, "engine", card.Run)
	if socket == "" {
		s.servers = append(s.servers, nil)
		return nil
	}
	v, err := s.serve(card, 0, socket)
	s.servers = append(s.servers, v)
	return err
}

// serve serves a function of a card.
func (s *Cards) serve(card *device.Card, function int, socket string) (*server.Server, error) {
	v, err := server.Listen(socket, card.Function(function), s.server)
	if err != nil {
		return nil, err
	}
	s.goRun(s.ctx, "socket "+filepath.Base(socket), v.Serve)
	return v, nil
}

// ServeVirtual serves the first virtual functions of card i, which have been enabled, at a socket each. stop drops
// their guests; Close does it, too.
func (s *Cards) ServeVirtual(i int, sockets []string) (stop func() error, err error) {
	var servers []*server.Server
	stop = func() (err error) {
		for _, v := range servers {
			err = errors.Join(err, v.Close())
		}
		servers = nil
		return err
	}
	for n, socket := range sockets {
		v, err := s.serve(s.cards[i], s.cards[i].VF(0, n+1), socket)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("virtual function %d: %w", n+1, err), stop())
		}
		servers = append(servers, v)
	}
	return stop, nil
}

func (s *Cards) port(i int, c CardsConfig) (wire.Port, error) {
	if s.sw == nil {
		return c.Ports[i], nil
	}
	return s.sw.NewPort()
}

// goRun runs f until Close, and keeps its error.
func (s *Cards) goRun(ctx context.Context, what string, f func(context.Context) error) {
	s.running.Go(func() {
		if err := f(ctx); err != nil && !errors.Is(err, context.Canceled) {
			s.mu.Lock()
			s.err = errors.Join(s.err, fmt.Errorf("%s: %w", what, err))
			s.mu.Unlock()
		}
	})
}

// Card is card i.
func (s *Cards) Card(i int) *device.Card { return s.cards[i] }

// Server is what serves card i.
func (s *Cards) Server(i int) *server.Server { return s.servers[i] }

// Recorder is the trace of all cards.
func (s *Cards) Recorder() *trace.Recorder { return s.trace }

// LastRecords is the end of the trace as text.
func (s *Cards) LastRecords() string {
	var b strings.Builder
	if err := trace.WriteText(&b, s.trace.Last(TraceRecords)); err != nil {
		return err.Error()
	}
	return b.String()
}

// Close drops the guests that are left and ends the cards.
func (s *Cards) Close() error {
	var errs []error
	for _, v := range s.servers {
		if v != nil {
			errs = append(errs, v.Close())
		}
	}
	s.stop()
	s.running.Wait()
	for _, c := range s.cards {
		errs = append(errs, c.Close())
	}
	if s.sw != nil {
		errs = append(errs, s.sw.Close())
	}
	return errors.Join(append(errs, s.err)...)
}
