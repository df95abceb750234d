package driver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cxkit/driver/internal/eswitch"
	"cxkit/prm"
	"cxkit/stats"
)

// LinkPolicy is what the link of a virtual function follows.
type LinkPolicy uint8

const (
	// LinkAuto follows the port.
	LinkAuto LinkPolicy = iota
	// LinkUp is up whatever the port does: virtual functions reach each other.
	LinkUp
	// LinkDown is down.
	LinkDown
)

// VFConfig is what `ip link set vf` sets of a virtual function. The zero value is what a new one has.
type VFConfig struct {
	// MAC is the permanent address; zero lets its driver choose one.
	MAC MAC
	// VLAN tags what it sends and takes the tag from what it gets (VST), 1 to 4094; 0: not. Priority is the
	// tag's, 0 to 7. Legacy mode.
	VLAN     uint16
	Priority uint8
	// SpoofCheck drops what it sends from another address than MAC, which must be set. Legacy mode.
	SpoofCheck bool
	// Trust lets it receive what is not its own: promiscuous and all-multicast mode. Legacy mode.
	Trust bool
	// MaxRate bounds what it sends, in Mbit/s; 0: not.
	MaxRate uint32
	// Link is what its link follows.
	Link LinkPolicy
}

func (c *VFConfig) check() error {
	switch {
	case c.MAC.multicast():
		return fmt.Errorf("address %v is a group address", c.MAC)
	case c.VLAN > 4094, c.Priority > 7:
		return fmt.Errorf("VLAN %d with priority %d: 0 to 4094, 0 to 7", c.VLAN, c.Priority)
	case c.SpoofCheck && c.MAC == MAC{}:
		return errors.New("spoof check needs an address")
	case c.Link > LinkDown:
		return fmt.Errorf("link policy %d does not exist", c.Link)
	}
	return nil
}

// findVF returns virtual function i, from 1.
func (s *vswitch) findVF(i int) (*vf, error) {
	if i < 1 || i > len(s.vfs) {
		return nil, fmt.Errorf("virtual function %d: %d are enabled", i, len(s.vfs))
	}
	return s.vfs[i-1], nil
}

// VF returns how virtual function i, from 1, is configured.
func (n *NIC) VF(ctx context.Context, i int) (VFConfig, error) {
	s, unlock, err := n.lockManaged(ctx)
	if err != nil {
		return VFConfig{}, err
	}
	defer unlock()
	v, err := s.findVF(i)
	if err != nil {
		return VFConfig{}, err
	}
	return v.config, nil
}

// SetVF configures virtual function i, from 1. A MAC counts when its driver is opened next. On an error what
// was changed is changed back as far as the card lets.
func (n *NIC) SetVF(ctx context.Context, i int, c VFConfig) error {
	s, unlock, err := n.lockManaged(ctx)
	if err != nil {
		return fmt.Errorf("configure virtual function %d: %w", i, err)
	}
	defer unlock()
	v, err := s.findVF(i)
	if err == nil {
		err = c.check()
	}
	if err != nil {
		return fmt.Errorf("configure virtual function %d: %w", i, err)
	}
	old := v.config
	if err := n.configureVF(ctx, v, c); err != nil {
		back := context.WithoutCancel(ctx)
		return fmt.Errorf("configure virtual function %d: %w", i, errors.Join(err, n.configureVF(back, v, old)))
	}
	return nil
}

// configureVF makes v what c says. The turn is the caller's.
func (n *NIC) configureVF(ctx context.Context, v *vf, c VFConfig) error {
	old := v.config
	v.config = c
	if c.MAC != old.MAC {
		in := &prm.ModifyNICVportContextIn{OtherVport: true, VportNumber: uint16(v.number), FieldSelectPermanentAddress: true}
		in.NICVportContext.PermanentAddress = c.MAC
		if err := n.base.objects.Exec(ctx, in, &prm.ModifyNICVportContextOut{}); err != nil {
			return fmt.Errorf("set address %v: %w", c.MAC, err)
		}
	}
	if c.Link != old.Link {
		state := map[LinkPolicy]prm.VportAdminState{LinkAuto: prm.VportAdminAuto, LinkUp: prm.VportAdminUp, LinkDown: prm.VportAdminDown}[c.Link]
		in := &prm.ModifyVportStateIn{OpMod: uint16(prm.VportStateESwitch), OtherVport: true, VportNumber: uint16(v.number), AdminState: state}
		if err := n.base.objects.Exec(ctx, in, &prm.ModifyVportStateOut{}); err != nil {
			return fmt.Errorf("set link policy: %w", err)
		}
	}
	if c.MaxRate != old.MaxRate {
		if err := n.setRate(ctx, v, c.MaxRate); err != nil {
			return fmt.Errorf("bound the rate to %d Mbit/s: %w", c.MaxRate, err)
		}
	}
	if n.esw.legacy == nil {
		return nil
	}
	if c.VLAN != old.VLAN || c.Priority != old.Priority || c.SpoofCheck != old.SpoofCheck || c.MAC != old.MAC {
		if err := n.applyPolicy(ctx, v, true); err != nil {
			return err
		}
	}
	if c.Trust != old.Trust {
		return n.followVport(ctx, v.number)
	}
	return nil
}

// clearVF takes back what was set of a virtual function.
func (n *NIC) clearVF(ctx context.Context, v *vf) error {
	if v.config == (VFConfig{}) && v.acl == nil && v.element == 0 {
		return nil
	}
	return n.configureVF(ctx, v, VFConfig{})
}

// applyPolicy puts VLAN and spoof check into force, or out of it: the ACLs of before go first, as in Linux.
func (n *NIC) applyPolicy(ctx context.Context, v *vf, on bool) error {
	err := v.acl.Close(ctx)
	v.acl = nil
	if err != nil {
		return fmt.Errorf("end rules of vport %d: %w", v.number, err)
	}
	c := &v.config
	tag := on && (c.VLAN != 0 || c.Priority != 0)
	in := &prm.ModifyESWVportContextIn{
		OtherVport: true, VportNumber: uint16(v.number), FieldSelectVportCVLANStrip: true, FieldSelectVportCVLANInsert: true,
	}
	if tag {
		const always = 3
		in.ESWVportContext = prm.ESWVportContext{VportCVLANStrip: true, VportCVLANInsert: always, CVLANID: c.VLAN, CVLANPCP: c.Priority}
	}
	if err := n.base.objects.Exec(ctx, in, &prm.ModifyESWVportContextOut{}); err != nil {
		return fmt.Errorf("set VLAN %d: %w", c.VLAN, err)
	}
	if !tag && !(on && c.SpoofCheck) {
		return nil
	}
	v.acl, err = eswitch.NewACL(ctx, n.switchConfig(), uint16(v.number), eswitch.Policy{
		Spoof: c.SpoofCheck, MAC: eswitch.MAC(c.MAC), Tag: tag, VLAN: c.VLAN,
	})
	return err
}

// setRate bounds what a virtual function sends, with a scheduling element of its own.
func (n *NIC) setRate(ctx context.Context, v *vf, mbps uint32) error {
	if v.element != 0 && mbps == 0 {
		err := n.destroyElement(ctx, v.element)
		if err == nil {
			v.element = 0
		}
		return err
	}
	if v.element != 0 {
		const maxRate = 1 << 1
		return n.base.objects.Exec(ctx, &prm.ModifySchedulingElementIn{SchedulingHierarchy: prm.SchedulingESwitch, SchedulingElementID: v.element,
			ModifyBitmask: maxRate, ElementType: prm.SchedulingVport, ElementAttributes: uint32(v.number), MaxAverageBW: mbps}, &prm.ModifySchedulingElementOut{})
	}
	if mbps == 0 {
		return nil
	}
	create := func(in *prm.CreateSchedulingElementIn) (uint32, error) {
		in.SchedulingHierarchy = prm.SchedulingESwitch
		var out prm.CreateSchedulingElementOut
		err := n.base.objects.Exec(ctx, in, &out)
		return out.SchedulingElementID, err
	}
	var err error
	if n.esw.root == 0 {
		if n.esw.root, err = create(&prm.CreateSchedulingElementIn{ElementType: prm.SchedulingTSAR}); err != nil {
			return err
		}
	}
	v.element, err = create(&prm.CreateSchedulingElementIn{ElementType: prm.SchedulingVport, ElementAttributes: uint32(v.number),
		ParentElementID: n.esw.root, MaxAverageBW: mbps})
	return err
}

func (n *NIC) destroyElement(ctx context.Context, id uint32) error {
	return n.base.objects.Exec(ctx, &prm.DestroySchedulingElementIn{SchedulingHierarchy: prm.SchedulingESwitch, SchedulingElementID: id},
		&prm.DestroySchedulingElementOut{})
}

// VportStats are the card's counters of a vport: frames and their bytes without FCS. Rx is what the vport's
// function received, Tx what it sent; at the uplink, what came from the wire and what went there.
type VportStats struct {
	RxUnicast, RxMulticast, RxBroadcast Traffic
	TxUnicast, TxMulticast, TxBroadcast Traffic
}

// Traffic counts frames and bytes.
type Traffic struct{ Packets, Bytes uint64 }

// Snapshot is the counters under the names that ethtool -S of the vport's own function has for them.
func (v VportStats) Snapshot() stats.Snapshot {
	s := stats.Snapshot{Time: time.Now()}
	for _, c := range []struct {
		name   string
		rx, tx Traffic
	}{
		{"unicast", v.RxUnicast, v.TxUnicast}, {"multicast", v.RxMulticast, v.TxMulticast}, {"broadcast", v.RxBroadcast, v.TxBroadcast},
	} {
		s.Add("rx_vport_"+c.name+"_packets", c.rx.Packets)
		s.Add("rx_vport_"+c.name+"_bytes", c.rx.Bytes)
		s.Add("tx_vport_"+c.name+"_packets", c.tx.Packets)
		s.Add("tx_vport_"+c.name+"_bytes", c.tx.Bytes)
	}
	return s
}

// VportStats reads the counters of a vport.
func (n *NIC) VportStats(ctx context.Context, v Vport) (VportStats, error) {
	if n.esw == nil || n.esw.elsewhere {
		return VportStats{}, ErrNoSwitch
	}
	var out prm.QueryVportCounterOut
	if err := n.base.objects.Exec(ctx, &prm.QueryVportCounterIn{OtherVport: true, VportNumber: uint16(v)}, &out); err != nil {
		return VportStats{}, fmt.Errorf("counters of vport %d: %w", v, err)
	}
	t := func(c prm.TrafficCounter) Traffic { return Traffic{c.Packets, c.Octets} }
	return VportStats{
		RxUnicast: t(out.ReceivedEthUnicast), RxMulticast: t(out.ReceivedEthMulticast), RxBroadcast: t(out.ReceivedEthBroadcast),
		TxUnicast: t(out.TransmittedEthUnicast), TxMulticast: t(out.TransmittedEthMulticast), TxBroadcast: t(out.TransmittedEthBroadcast),
	}, nil
}
