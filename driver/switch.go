package driver

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"cxkit/driver/internal/eswitch"
	"cxkit/driver/internal/fwpages"
	"cxkit/prm"
)

// Mode is how a physical function's e-switch forwards.
type Mode uint8

const (
	// Legacy: by address, as the drivers of virtual functions ask for them.
	Legacy Mode = iota
	// Switchdev: by rules, and through representors what no rule takes.
	Switchdev
)

func (m Mode) String() string {
	if m == Switchdev {
		return "switchdev"
	}
	return "legacy"
}

// Vport is a port of the e-switch: 0 is the physical function's, n that of virtual function n.
type Vport uint16

// Uplink is the port to the wire.
const Uplink Vport = eswitch.Uplink

var (
	// ErrNoSwitch: the function manages no e-switch (it is virtual, or the card has none).
	ErrNoSwitch = errors.New("the function manages no e-switch")
	// ErrBusy: what is to change is in use.
	ErrBusy = errors.New("in use")
	// ErrMode: the e-switch is in the other mode.
	ErrMode = errors.New("not in this mode of the e-switch")
)

// vswitch is a physical function's e-switch and its virtual functions.
type vswitch struct {
	// managed elsewhere: the card's own processor has the e-switch, and gives virtual functions their pages. What
	// is left is to enable them.
	elsewhere bool

	turn   chan struct{} // one slot: who has filled it changes things, with commands
	wake   chan struct{} // one slot: some vport's context has changed
	mode   Mode
	vfs    []*vf // enabled; nil: the e-switch has no tables
	pages  []fwpages.Function
	root   uint32 // TSAR that vports with a rate hang on; 0: none yet
	legacy *eswitch.Legacy
	dev    *switchdev
	cancel func() // of the event handler

	mu      sync.Mutex // guards the two below
	changed map[Vport]bool
	reps    []*Representor // for who stops queues
}

// vf is a virtual function and what its manager has set.
type vf struct {
	number  Vport
	config  VFConfig
	acl     *eswitch.ACL
	element uint32 // scheduling element; 0: none
}

// startSwitch prepares the e-switch of a function that manages one, or has virtual functions. It is off until
// there are virtual functions.
func (n *NIC) startSwitch(context.Context) error {
	manager := n.base.general.ESwitchManager
	if !manager && n.hca.TotalVFs == 0 {
		return nil
	}
	s := &vswitch{elsewhere: !manager, turn: make(chan struct{}, 1), wake: make(chan struct{}, 1), changed: map[Vport]bool{}}
	s.cancel = n.base.events.OnOther(func(e prm.EQE) {
		if e.EventType() != prm.EventNICVportChange {
			return
		}
		var d prm.NICVportChangeEvent
		d.Get(e.Data()[:])
		s.note(Vport(d.VportNum))
	})
	n.esw = s
	n.base.undo.Add("disable virtual functions", func(ctx context.Context) error {
		s.cancel()
		select { // a change under way ends first
		case s.turn <- struct{}{}:
			defer func() { <-s.turn }()
		case <-ctx.Done():
			return ctx.Err()
		}
		return n.endVFs(ctx)
	})
	n.watch.Go(n.followVports)
	return nil
}

// note takes down that a vport's context has changed. Event handlers call it.
func (s *vswitch) note(v Vport) {
	s.mu.Lock()
	s.changed[v] = true
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// lockSwitch waits for the turn to change the e-switch.
func (n *NIC) lockSwitch(ctx context.Context) (s *vswitch, unlock func(), err error) {
	if n.esw == nil {
		return nil, nil, ErrNoSwitch
	}
	s = n.esw
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	unlock = func() { <-s.turn }
	if n.isClosed() {
		unlock()
		return nil, nil, ErrNICClosed
	}
	return s, unlock, nil
}

// followVports keeps the addresses of the legacy mode as the vports' drivers want them. It ends when Close
// begins.
func (n *NIC) followVports() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stop := make(chan struct{})
	defer close(stop)
	go func() { // a command under way ends with the NIC
		select {
		case <-n.shutdown:
			cancel()
		case <-stop:
		}
	}()
	for {
		select {
		case <-n.esw.wake:
		case <-n.shutdown:
			return
		}
		s, unlock, err := n.lockSwitch(ctx)
		if err != nil {
			return
		}
		s.mu.Lock()
		changed := s.changed
		s.changed = map[Vport]bool{}
		s.mu.Unlock()
		for v := range changed {
			if int(v) > len(s.vfs) || s.legacy == nil {
				continue
			}
			if err := n.followVport(ctx, v); err != nil && ctx.Err() == nil {
				n.log.Warn("addresses of a vport", "vport", v, "err", err)
			}
		}
		unlock()
	}
}

// followVport reads what a vport wants to receive, tells the tables, and asks to be told of the next change.
// The event is armed first, so that no change is lost.
func (n *NIC) followVport(ctx context.Context, v Vport) error {
	if err := n.armVport(ctx, v, true); err != nil {
		return err
	}
	s, w := n.esw, eswitch.Wants{}
	trusted := v == 0 || s.vfs[v-1].config.Trust
	for _, kind := range []prm.AllowedListType{prm.AllowedListUC, prm.AllowedListMC} {
		limit := n.base.general.LogMaxCurrentUCList
		if kind == prm.AllowedListMC {
			limit = n.base.general.LogMaxCurrentMCList
		}
		out := prm.QueryNICVportContextOut{AddressList: make([]uint64, 1<<min(limit, 11))}
		in := &prm.QueryNICVportContextIn{OtherVport: true, VportNumber: uint16(v), AllowedListType: kind}
		if err := n.base.objects.Exec(ctx, in, &out); err != nil {
			return err
		}
		ctx := &out.NICVportContext
		for _, a := range out.AddressList[:min(int(ctx.AllowedListSize), len(out.AddressList))] {
			mac := eswitch.MAC{byte(a >> 40), byte(a >> 32), byte(a >> 24), byte(a >> 16), byte(a >> 8), byte(a)}
			if mac.Group() == (kind == prm.AllowedListMC) && mac != (eswitch.MAC{}) {
				w.Addresses = append(w.Addresses, mac)
			}
		}
		w.Promiscuous = trusted && ctx.PromiscAll
		w.Multicast = trusted && (ctx.PromiscMC || ctx.PromiscAll)
	}
	return s.legacy.Set(ctx, uint16(v), w)
}

// armVport asks to be told of a change of a vport's addresses and modes, or not to be told any more.
func (n *NIC) armVport(ctx context.Context, v Vport, on bool) error {
	in := &prm.ModifyNICVportContextIn{OtherVport: true, VportNumber: uint16(v), FieldSelectChangeEvent: true}
	c := &in.NICVportContext
	c.ArmChangeEvent, c.EventOnUCAddressChange, c.EventOnMCAddressChange, c.EventOnPromiscChange = on, on, on, on
	return n.base.objects.Exec(ctx, in, &prm.ModifyNICVportContextOut{})
}

// lockManaged is lockSwitch for what only the e-switch's manager can do.
func (n *NIC) lockManaged(ctx context.Context) (*vswitch, func(), error) {
	if n.esw != nil && n.esw.elsewhere {
		return nil, nil, ErrNoSwitch
	}
	return n.lockSwitch(ctx)
}

// RefreshVports makes the e-switch of the legacy mode know every address that vports want by now. It does so
// by itself, soon after the card has told of a change.
func (n *NIC) RefreshVports(ctx context.Context) error {
	s, unlock, err := n.lockManaged(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if s.legacy == nil {
		return nil
	}
	for v := range Vport(len(s.vfs) + 1) {
		if err := n.followVport(ctx, v); err != nil {
			return fmt.Errorf("addresses of vport %d: %w", v, err)
		}
	}
	return nil
}

// TotalVFs is how many virtual functions the function may have.
func (n *NIC) TotalVFs() int {
	if n.esw == nil {
		return 0
	}
	return n.hca.TotalVFs
}

// VFs is how many virtual functions are enabled.
func (n *NIC) VFs(ctx context.Context) (int, error) {
	s, unlock, err := n.lockSwitch(ctx)
	if err != nil {
		return 0, err
	}
	defer unlock()
	return len(s.vfs), nil
}

// Mode is the e-switch's mode: the one that it goes to once there are virtual functions.
func (n *NIC) Mode(ctx context.Context) (Mode, error) {
	s, unlock, err := n.lockManaged(ctx)
	if err != nil {
		return Legacy, err
	}
	defer unlock()
	return s.mode, nil
}

// EnableVFs enables count virtual functions, from 1 to TotalVFs, and 0 disables them. Their number is changed
// by way of 0 only (ErrBusy), as in Linux. A virtual function is a PCI function of its own, to be opened as
// any, by who has it; its firmware works in pages of this NIC's. Disabling ends virtual functions that are
// still in use: their drivers find firmware gone. The function of a card's own processor has none, and this driver
// does not manage the host's for it (UnsupportedError; SetMode, too).
func (n *NIC) EnableVFs(ctx context.Context, count int) error {
	s, unlock, err := n.lockSwitch(ctx)
	if err != nil {
		return fmt.Errorf("enable %d virtual functions: %w", count, err)
	}
	defer unlock()
	switch {
	case n.hca.Embedded && count != 0:
		return fmt.Errorf("enable %d virtual functions: %w", count, n.unsupported(hostsSwitch))
	case count < 0 || count > n.hca.TotalVFs:
		return fmt.Errorf("enable %d virtual functions: the function has %d", count, n.hca.TotalVFs)
	case count == len(s.vfs):
		return nil
	case count == 0:
		return n.endVFs(ctx)
	case len(s.vfs) > 0:
		return fmt.Errorf("enable %d virtual functions: %d are enabled: %w", count, len(s.vfs), ErrBusy)
	}
	if err := n.beginVFs(ctx, count); err != nil {
		return fmt.Errorf("enable %d virtual functions: %w", count, errors.Join(err, n.endVFs(context.WithoutCancel(ctx))))
	}
	return nil
}

func (n *NIC) beginVFs(ctx context.Context, count int) error {
	s := n.esw
	for i := range count {
		s.vfs = append(s.vfs, &vf{number: Vport(i + 1)})
	}
	if err := n.enterMode(ctx, s.mode); err != nil {
		return err
	}
	for _, v := range s.vfs {
		id := uint16(v.number)
		if s.elsewhere {
			if err := n.base.objects.Exec(ctx, &prm.EnableHCAIn{FunctionID: id}, &prm.EnableHCAOut{}); err != nil {
				return fmt.Errorf("enable virtual function %d: %w", id, err)
			}
			continue
		}
		f := fwpages.Function{ID: id}
		if n.base.general.ICMMngFunctionIDMode {
			var out prm.QueryHCACapOut
			in := &prm.QueryHCACapIn{OpMod: prm.CapOpMod(prm.CapGroupGeneral, prm.CapCurrent), OtherFunction: true, FunctionID: id}
			if err := n.base.objects.Exec(ctx, in, &out); err != nil {
				return fmt.Errorf("capabilities of virtual function %d: %w", id, err)
			}
			var g prm.CapGeneral
			g.Get(out.Capability[:])
			f.ID = g.VHCAID
		}
		n.hca.Pages.Enable(f)
		s.pages = append(s.pages, f)
		if err := n.base.objects.Exec(ctx, &prm.EnableHCAIn{FunctionID: id}, &prm.EnableHCAOut{}); err != nil {
			return fmt.Errorf("enable virtual function %d: %w", id, err)
		}
	}
	return n.hca.SetVFs(count)
}

// endVFs disables all virtual functions and takes the e-switch's tables down. It has the turn, or the NIC is
// being closed.
func (n *NIC) endVFs(ctx context.Context) error {
	s := n.esw
	if len(s.vfs) == 0 {
		return nil
	}
	errs := []error{n.hca.SetVFs(0)}
	for i, v := range s.vfs {
		if !s.elsewhere && i >= len(s.pages) {
			break // not enabled
		}
		var refused *prm.CommandError
		err := n.base.objects.Exec(ctx, &prm.DisableHCAIn{FunctionID: uint16(v.number)}, &prm.DisableHCAOut{})
		if err != nil && !errors.As(err, &refused) {
			errs = append(errs, err)
		}
	}
	// Pages of all of them are on their way back before the first is waited for.
	for _, f := range s.pages {
		errs = append(errs, n.hca.Pages.Disable(ctx, f))
	}
	s.pages = nil
	if s.elsewhere {
		s.vfs = nil
		return errors.Join(errs...)
	}
	for _, v := range s.vfs {
		errs = append(errs, n.clearVF(ctx, v))
	}
	if s.root != 0 {
		errs = append(errs, n.destroyElement(ctx, s.root))
		s.root = 0
	}
	_, err := n.leaveMode(ctx)
	errs = append(errs, err)
	s.vfs = nil
	return errors.Join(errs...)
}

// hostsSwitch is what this driver can't do on a card's own processor, whose e-switch joins functions of the host:
// the host enables them, and it learns of them from QUERY_ESW_FUNCTIONS.
const hostsSwitch = "the e-switch of a host's virtual functions"

// SetMode changes the e-switch's mode. The tables of the new mode are whole before they take over, so that
// no frame meets a switch without rules. What the mode had of its own goes: rules and representors of
// Switchdev, and what VLAN, spoof check and trust of virtual functions mean in Legacy, which comes back with
// it. The owners of representors' queues need not have stopped: what nobody has polled there, and what was posted
// and is not known to be sent, is lost, and Lost says how much.
//
// An error leaves the mode as it was, or is about taking down what the old one had; Mode tells.
func (n *NIC) SetMode(ctx context.Context, mode Mode) (Lost, error) {
	s, unlock, err := n.lockManaged(ctx)
	if err != nil {
		return Lost{}, fmt.Errorf("set mode %v: %w", mode, err)
	}
	defer unlock()
	if mode > Switchdev {
		return Lost{}, fmt.Errorf("set mode %d: there are legacy and switchdev", mode)
	}
	if s.mode == mode {
		return Lost{}, nil
	}
	if n.hca.Embedded {
		return Lost{}, fmt.Errorf("set mode %v: %w", mode, n.unsupported(hostsSwitch))
	}
	if len(s.vfs) == 0 {
		s.mode = mode
		return Lost{}, nil
	}
	lost, err := n.switchMode(ctx, mode)
	if err != nil {
		return lost, fmt.Errorf("set mode %v: %w", mode, err)
	}
	return lost, nil
}

// switchMode goes from one mode to the other.
func (n *NIC) switchMode(ctx context.Context, mode Mode) (Lost, error) {
	s := n.esw
	legacy, dev := s.legacy, s.dev
	s.legacy, s.dev = nil, nil
	if err := n.enterMode(ctx, mode); err != nil {
		ctx = context.WithoutCancel(ctx)
		newLegacy, newDev := s.legacy, s.dev
		s.legacy, s.dev = legacy, dev
		if legacy != nil {
			err = errors.Join(err, legacy.Root(ctx))
		} else {
			err = errors.Join(err, dev.tables.Root(ctx))
		}
		lost, e := n.closeMode(ctx, newLegacy, newDev)
		return lost, errors.Join(err, e)
	}
	s.mode = mode
	return n.closeMode(ctx, legacy, dev)
}

// enterMode makes the tables of a mode and puts them into force.
func (n *NIC) enterMode(ctx context.Context, mode Mode) error {
	s, config := n.esw, n.switchConfig()
	if s.elsewhere {
		return nil
	}
	if mode == Switchdev {
		dev, err := n.newSwitchdev(ctx, config)
		if err != nil {
			return err
		}
		s.dev = dev
		for _, v := range s.vfs {
			if err := n.applyPolicy(ctx, v, false); err != nil {
				return err
			}
		}
		return nil
	}
	l, err := eswitch.NewLegacy(ctx, config)
	if err != nil {
		return err
	}
	s.legacy = l
	for v := range Vport(len(s.vfs) + 1) {
		if err := n.followVport(ctx, v); err != nil {
			return errors.Join(err, n.dropLegacy(ctx, l))
		}
	}
	for _, v := range s.vfs {
		if err := n.applyPolicy(ctx, v, true); err != nil {
			return errors.Join(err, n.dropLegacy(ctx, l))
		}
	}
	if err := l.Root(ctx); err != nil {
		return errors.Join(err, n.dropLegacy(ctx, l))
	}
	return nil
}

func (n *NIC) dropLegacy(ctx context.Context, l *eswitch.Legacy) error {
	n.esw.legacy = nil
	return l.Close(context.WithoutCancel(ctx))
}

// leaveMode leaves the e-switch without tables.
func (n *NIC) leaveMode(ctx context.Context) (Lost, error) {
	s, config := n.esw, n.switchConfig()
	if s.legacy == nil && s.dev == nil {
		return Lost{}, nil
	}
	err := eswitch.Disconnect(ctx, &config)
	legacy, dev := s.legacy, s.dev
	s.legacy, s.dev = nil, nil
	lost, e := n.closeMode(ctx, legacy, dev)
	return lost, errors.Join(err, e)
}

// closeMode takes down the tables of a mode that is over, and returns what its representors had.
func (n *NIC) closeMode(ctx context.Context, l *eswitch.Legacy, dev *switchdev) (lost Lost, err error) {
	var errs []error
	if l != nil {
		for v := range Vport(len(n.esw.vfs) + 1) {
			errs = append(errs, n.armVport(ctx, v, false))
		}
		errs = append(errs, l.Close(ctx))
	}
	if dev != nil {
		lost, err = n.closeSwitchdev(ctx, dev)
		errs = append(errs, err)
	}
	return lost, errors.Join(errs...)
}

func (n *NIC) switchConfig() eswitch.Config {
	return eswitch.Config{Exec: n.base.objects, Objects: n.base.objects, LogMaxSize: n.base.fdbLogSize}
}
