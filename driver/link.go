package driver

import (
	"context"
	"fmt"
	"sync"

	"cxkit/driver/internal/event"
	"cxkit/prm"
)

// Link is the state of the NIC's port as its virtual port sees it.
type Link struct {
	// Up tells whether frames can be sent and received.
	Up bool
	// Speed in Mbit/s; 0 if the card does not say or the link is down.
	Speed int
	// Changes counts the changes of Up since Open.
	Changes uint64
}

func (l Link) String() string {
	switch {
	case !l.Up:
		return "down"
	case l.Speed == 0:
		return "up"
	}
	return fmt.Sprintf("up at %d Mbit/s", l.Speed)
}

// linkState is the port's state as last read, and who is told of changes.
type linkState struct {
	port *event.Signal // raised at port events

	mu       sync.Mutex // guards all below
	now      Link
	watchers map[*linkWatcher]struct{}
	ended    bool
}

// linkWatcher is one receiver of changes. Its channel holds the latest state nobody took.
type linkWatcher struct{ c chan Link }

// startLink brings the port up, reads its state, and starts the worker that reads it again at each port
// event: event handlers cannot execute commands.
func (n *NIC) startLink(ctx context.Context) error {
	l := &n.link
	l.port, l.watchers = event.NewSignal(), make(map[*linkWatcher]struct{})
	cancelEvents := n.base.events.OnPort(func(event.PortEvent) { l.port.Raise() })
	work, stop := context.WithCancel(context.Background())
	var worker sync.WaitGroup
	n.base.undo.Add("stop the link worker", func(context.Context) error {
		cancelEvents()
		stop()
		worker.Wait()
		n.endLinkWatches()
		return nil
	})
	if err := n.forgive("link (PAOS)", n.SetLink(ctx, true)); err != nil {
		return err
	}
	if err := n.readLink(ctx); err != nil {
		return err
	}
	worker.Go(func() { n.followLink(work) })
	return nil
}

// followLink reads the port's state after each port event until work ends.
func (n *NIC) followLink(work context.Context) {
	for {
		select {
		case <-n.link.port.C():
		case <-work.Done():
			return
		}
		if err := n.readLink(work); err != nil && work.Err() == nil {
			n.log.Warn("port event: state not read", "err", err)
		}
	}
}

// readLink queries the port's state and tells the watchers of a change.
func (n *NIC) readLink(ctx context.Context) error {
	var out prm.QueryVportStateOut
	if err := n.base.objects.Exec(ctx, &prm.QueryVportStateIn{OpMod: uint16(prm.VportStateNIC)}, &out); err != nil {
		return fmt.Errorf("query link state: %w", err)
	}
	up := out.State == prm.VportUp
	speed := 0
	if up {
		speed = n.readSpeed(ctx)
	}

	l := &n.link
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.now
	l.now.Up, l.now.Speed = up, speed
	if before.Up != up {
		l.now.Changes++
		// Like mlx5e (en_main.c, mlx5e_update_carrier).
		n.log.Info(map[bool]string{true: "Link up", false: "Link down"}[up], "address", n.base.info.Address)
	}
	if before != l.now {
		for w := range l.watchers {
			w.tell(l.now)
		}
	}
	return nil
}

// tell leaves the state for the receiver in place of an older one. linkState.mu is held, so there is one
// sender.
func (w *linkWatcher) tell(now Link) {
	select {
	case <-w.c:
	default:
	}
	w.c <- now
}

// Link returns the port's state as last seen: it is queried at Open and after each port event.
func (n *NIC) Link() Link {
	n.link.mu.Lock()
	defer n.link.mu.Unlock()
	return n.link.now
}

// LinkChanges delivers the port's state now and after each change until ctx ends or the NIC is closed;
// then the channel is closed. A slow receiver gets the latest state.
func (n *NIC) LinkChanges(ctx context.Context) <-chan Link {
	l := &n.link
	w := &linkWatcher{c: make(chan Link, 1)}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		close(w.c)
		return w.c
	}
	w.c <- l.now
	l.watchers[w] = struct{}{}
	context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.end(w)
	})
	return w.c
}

// end closes a watcher's channel once; the caller holds mu.
func (l *linkState) end(w *linkWatcher) {
	if _, watching := l.watchers[w]; watching {
		delete(l.watchers, w)
		close(w.c)
	}
}

func (n *NIC) endLinkWatches() {
	l := &n.link
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	for w := range l.watchers {
		l.end(w)
	}
}

// SetLink asks the card to bring its side of the link up or down (PAOS).
func (n *NIC) SetLink(ctx context.Context, up bool) error {
	reg := prm.RegPAOS{LocalPort: localPort, AdminStatus: prm.PortAdminDown, ASE: true}
	if up {
		reg.AdminStatus = prm.PortAdminUp
	}
	if n.isClosed() {
		return ErrNICClosed
	}
	if err := n.register(ctx, prm.RegIDPAOS, accessWrite, &reg); err != nil {
		return fmt.Errorf("set link %s: %w", map[bool]string{true: "up", false: "down"}[up], err)
	}
	return nil
}

// readSpeed reads the speed in force; 0 if the card does not say.
func (n *NIC) readSpeed(ctx context.Context) int {
	const ethernet = 1 << 2
	reg := prm.RegPTYS{LocalPort: localPort, ProtoMask: ethernet}
	if err := n.register(ctx, prm.RegIDPTYS, accessRead, &reg); err != nil {
		n.log.Debug("speed not read", "err", err)
		return 0
	}
	if s := speedOf(reg.EthProtoOper); s != 0 {
		return s
	}
	return int(reg.DataRateOper) * 100
}

// speedOf is the speed of a legacy eth_proto_oper bit in Mbit/s (Linux port.c, mlx5e_link_speed).
func speedOf(oper uint32) int {
	speeds := [32]int{
		0: 1000, 1: 1000, 2: 10000, 3: 10000, 4: 10000, 5: 20000, 6: 40000, 7: 40000, 8: 56000,
		12: 10000, 13: 10000, 14: 10000, 15: 40000, 16: 40000, 18: 50000, 20: 100000, 21: 100000, 22: 100000, 23: 100000,
		24: 100, 25: 1000, 26: 10000, 27: 25000, 28: 25000, 29: 25000, 30: 50000, 31: 50000,
	}
	for bit, s := range speeds {
		if oper>>bit&1 != 0 && s != 0 {
			return s
		}
	}
	return 0
}
