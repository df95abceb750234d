package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"cxkit/driver/internal/steer"
	"cxkit/prm"
)

// addresses is which frames the NIC wants, and how the card was told.
type addresses struct {
	turn     chan struct{} // one slot: who has filled it makes changes, with commands; others wait or give up
	steering *steer.Steering

	mu   sync.Mutex // guards all below; never held during a command
	wish wish
	mtu  int
}

// lock waits for the turn to make changes. It fails when ctx ends or the NIC is closed.
func (n *NIC) lock(ctx context.Context) (unlock func(), err error) {
	select {
	case n.addrs.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	unlock = func() { <-n.addrs.turn }
	if n.isClosed() {
		unlock()
		return nil, ErrNICClosed
	}
	return unlock, nil
}

func (n *NIC) currentWish() wish {
	n.addrs.mu.Lock()
	defer n.addrs.mu.Unlock()
	return n.addrs.wish
}

func (n *NIC) setWish(w wish) {
	n.addrs.mu.Lock()
	defer n.addrs.mu.Unlock()
	n.addrs.wish = w
}

// wish is which frames the NIC wants.
type wish struct {
	own          MAC
	unicast      []MAC // further ones
	multicast    []MAC
	promiscuous  bool
	allMulticast bool
	vlanFilter   bool
	vlans        []uint16
}

func (w wish) clone() wish {
	w.unicast, w.multicast, w.vlans = slices.Clone(w.unicast), slices.Clone(w.multicast), slices.Clone(w.vlans)
	return w
}

// rules is the wish as steering takes it.
func (w *wish) rules() *steer.Rules {
	r := &steer.Rules{
		Promiscuous: w.promiscuous, AllMulticast: w.allMulticast,
		VLANFilter: w.vlanFilter, VLANs: w.vlans,
		Addresses: []steer.MAC{steer.MAC(w.own), steer.Broadcast()},
	}
	for _, list := range [][]MAC{w.unicast, w.multicast} {
		for _, mac := range list {
			r.Addresses = append(r.Addresses, steer.MAC(mac))
		}
	}
	return r
}

// startAddresses tells card and steering what is wanted at first, and sets the MTU.
func (n *NIC) startAddresses(ctx context.Context) error {
	var out prm.QueryNICVportContextOut
	if err := n.base.objects.Exec(ctx, &prm.QueryNICVportContextIn{}, &out); err != nil {
		return fmt.Errorf("query permanent address: %w", err)
	}
	c, a := n.config, &n.addrs
	w := wish{
		own: MAC(out.NICVportContext.PermanentAddress), promiscuous: c.Promiscuous,
		allMulticast: c.AllMulticast, vlanFilter: c.VLANFilter,
	}
	if c.MAC != (MAC{}) {
		w.own = c.MAC
	}
	if w.own == (MAC{}) && !n.base.general.VportGroupManager {
		// A virtual function whose manager has given it no address chooses one
		// itself, as Linux's does (en_main.c).
		w.own = randomMAC()
	}
	if w.own.multicast() || w.own == (MAC{}) {
		return fmt.Errorf("the card's permanent address %v is not a unicast address: set Config.MAC", w.own)
	}
	if err := n.setMTU(ctx, c.MTU); err != nil {
		return err
	}
	n.setWish(w)
	if err := a.steering.Grow(ctx, w.rules()); err != nil {
		return err
	}
	if err := n.updateVport(ctx, nil, &w); err != nil {
		return err
	}
	n.base.undo.Add("clear the virtual port's lists", n.clearVport)
	return nil
}

// change applies a change to what is wanted: steering learns what is new, the virtual port all, and then
// steering drops what is not wanted any more. On error the wish stays as it was.
func (n *NIC) change(ctx context.Context, what string, edit func(*wish) error) error {
	unlock, err := n.lock(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	defer unlock()
	a := &n.addrs
	before := n.currentWish()
	after := before.clone()
	if err := edit(&after); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	err = a.steering.Grow(ctx, after.rules())
	if err == nil {
		err = n.updateVport(ctx, &before, &after)
	}
	if err != nil {
		back := context.WithoutCancel(ctx)
		return fmt.Errorf("%s: %w", what, errors.Join(err, n.updateVport(back, &after, &before), a.steering.Shrink(back, before.rules())))
	}
	n.setWish(after)
	if err := a.steering.Shrink(ctx, after.rules()); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// updateVport writes those parts of the virtual port's context in which before and after differ; a nil
// before differs in all.
func (n *NIC) updateVport(ctx context.Context, before, after *wish) error {
	g := &n.base.general
	all := before == nil
	if all || !slices.Equal(before.unicast, after.unicast) || before.own != after.own {
		list := []uint64{after.own.word()}
		for _, mac := range after.unicast {
			list = append(list, mac.word())
		}
		if err := n.setVportList(ctx, prm.AllowedListUC, list, g.LogMaxCurrentUCList); err != nil {
			return err
		}
	}
	if all || !slices.Equal(before.multicast, after.multicast) {
		list := []uint64{MAC(steer.Broadcast()).word()}
		for _, mac := range after.multicast {
			list = append(list, mac.word())
		}
		if err := n.setVportList(ctx, prm.AllowedListMC, list, g.LogMaxCurrentMCList); err != nil {
			return err
		}
	}
	if all && len(after.vlans) > 0 || !all && !slices.Equal(before.vlans, after.vlans) {
		if err := n.setVportVLANs(ctx, after.vlans); err != nil {
			return err
		}
	}
	if all || before.promiscuous != after.promiscuous || before.allMulticast != after.allMulticast {
		return n.setVportPromisc(ctx, after.promiscuous, after.allMulticast)
	}
	return nil
}

// setVportList replaces one of the address lists.
func (n *NIC) setVportList(ctx context.Context, kind prm.AllowedListType, list []uint64, logMax uint8) error {
	if limit := 1 << min(logMax, 11); len(list) > limit {
		return fmt.Errorf("%d addresses of the kind: the card takes %d; use promiscuous or all-multicast mode", len(list), limit)
	}
	in := &prm.ModifyNICVportContextIn{
		FieldSelectAddressesList: true,
		NICVportContext:          prm.NICVportContext{AllowedListType: kind, AllowedListSize: uint16(len(list))},
		AddressList:              list,
	}
	if err := n.base.objects.Exec(ctx, in, &prm.ModifyNICVportContextOut{}); err != nil {
		return fmt.Errorf("set list %v of %d entries: %w", kind, len(list), err)
	}
	return nil
}

// setVportVLANs tells the virtual port which VLANs are in use. Steering filters; like mlx5e the driver
// leaves out what the list has no room for (Linux mlx5e_vport_context_update_vlans).
func (n *NIC) setVportVLANs(ctx context.Context, vlans []uint16) error {
	limit := 1 << min(n.base.general.LogMaxVLANList, 11)
	if len(vlans) > limit {
		n.log.Warn("VLAN list longer than the card's", "vlans", len(vlans), "limit", limit)
		vlans = vlans[:limit]
	}
	list := make([]uint64, len(vlans))
	for i, vid := range vlans {
		list[i] = uint64(vid) << 32
	}
	return n.setVportList(ctx, prm.AllowedListVLAN, list, n.base.general.LogMaxVLANList)
}

func (n *NIC) setVportPromisc(ctx context.Context, all, multicast bool) error {
	in := &prm.ModifyNICVportContextIn{
		FieldSelectPromisc: true,
		NICVportContext:    prm.NICVportContext{PromiscUC: all, PromiscAll: all, PromiscMC: all || multicast},
	}
	if err := n.base.objects.Exec(ctx, in, &prm.ModifyNICVportContextOut{}); err != nil {
		return fmt.Errorf("set promiscuous modes: %w", err)
	}
	return nil
}

// clearVport leaves the virtual port as the driver found it.
func (n *NIC) clearVport(ctx context.Context) error {
	// A change that runs may have seconds to go: its commands end before this one's turn, or with them
	// the device is given up.
	select {
	case n.addrs.turn <- struct{}{}:
		defer func() { <-n.addrs.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	errs := []error{
		n.setVportPromisc(ctx, false, false),
		n.setVportList(ctx, prm.AllowedListUC, nil, 0),
		n.setVportList(ctx, prm.AllowedListMC, nil, 0),
	}
	if len(n.currentWish().vlans) > 0 {
		errs = append(errs, n.setVportList(ctx, prm.AllowedListVLAN, nil, 0))
	}
	return errors.Join(errs...)
}

// MAC is the address of the NIC: the card's permanent one, or Config.MAC.
func (n *NIC) MAC() MAC {
	return n.currentWish().own
}

// SetPromiscuous receives all frames, whatever their address and VLAN, or ends that.
func (n *NIC) SetPromiscuous(ctx context.Context, on bool) error {
	return n.change(ctx, "set promiscuous mode", func(w *wish) error { w.promiscuous = on; return nil })
}

// SetAllMulticast receives all multicast frames, or ends that.
func (n *NIC) SetAllMulticast(ctx context.Context, on bool) error {
	return n.change(ctx, "set all-multicast mode", func(w *wish) error { w.allMulticast = on; return nil })
}

// Errors of address and VLAN changes.
var (
	// ErrPresent: what was to be added is there already.
	ErrPresent = errors.New("present already")
	// ErrAbsent: what was to be removed is not there.
	ErrAbsent = errors.New("not present")
)

func added[T comparable](list []T, v T) ([]T, error) {
	if slices.Contains(list, v) {
		return list, ErrPresent
	}
	return append(list, v), nil
}

func removed[T comparable](list []T, v T) ([]T, error) {
	i := slices.Index(list, v)
	if i < 0 {
		return list, ErrAbsent
	}
	return slices.Delete(list, i, i+1), nil
}

// AddMAC receives frames to a further unicast address; an address that is received already is ErrPresent.
func (n *NIC) AddMAC(ctx context.Context, mac MAC) error {
	return n.change(ctx, fmt.Sprintf("add address %v", mac), func(w *wish) (err error) {
		switch {
		case mac.multicast() || mac == MAC{}:
			return errors.New("not a unicast address")
		case mac == w.own:
			return ErrPresent
		}
		w.unicast, err = added(w.unicast, mac)
		return err
	})
}

// RemoveMAC ends what AddMAC began. The NIC's own address stays.
func (n *NIC) RemoveMAC(ctx context.Context, mac MAC) error {
	return n.change(ctx, fmt.Sprintf("remove address %v", mac), func(w *wish) (err error) {
		w.unicast, err = removed(w.unicast, mac)
		return err
	})
}

// AddMulticast receives frames to a multicast address. Broadcast is always received.
func (n *NIC) AddMulticast(ctx context.Context, mac MAC) error {
	return n.change(ctx, fmt.Sprintf("add multicast address %v", mac), func(w *wish) (err error) {
		switch {
		case !mac.multicast():
			return errors.New("not a multicast address")
		case mac == MAC(steer.Broadcast()):
			return ErrPresent
		}
		w.multicast, err = added(w.multicast, mac)
		return err
	})
}

// RemoveMulticast ends what AddMulticast began.
func (n *NIC) RemoveMulticast(ctx context.Context, mac MAC) error {
	return n.change(ctx, fmt.Sprintf("remove multicast address %v", mac), func(w *wish) (err error) {
		w.multicast, err = removed(w.multicast, mac)
		return err
	})
}

// SetVLANFilter receives untagged frames and those of the VLANs added only, or ends that.
func (n *NIC) SetVLANFilter(ctx context.Context, on bool) error {
	return n.change(ctx, "set VLAN filter", func(w *wish) error { w.vlanFilter = on; return nil })
}

// maxVID is the largest VLAN id; 4095 is reserved by 802.1Q but can be matched.
const maxVID = 4095

// AddVLAN receives frames of an 802.1Q VLAN, 0 to 4095, while the VLAN filter is on.
func (n *NIC) AddVLAN(ctx context.Context, vid uint16) error {
	return n.change(ctx, fmt.Sprintf("add VLAN %d", vid), func(w *wish) (err error) {
		if vid > maxVID {
			return fmt.Errorf("VLAN ids end at %d", maxVID)
		}
		w.vlans, err = added(w.vlans, vid)
		return err
	})
}

// RemoveVLAN ends what AddVLAN began.
func (n *NIC) RemoveVLAN(ctx context.Context, vid uint16) error {
	return n.change(ctx, fmt.Sprintf("remove VLAN %d", vid), func(w *wish) (err error) {
		w.vlans, err = removed(w.vlans, vid)
		return err
	})
}
