package driver

import (
	"context"
	"fmt"

	"cxkit/driver/internal/cmdif"
	"cxkit/prm"
)

// hardwareOverhead is what the card's MTU counts beside the payload: Ethernet header, one VLAN tag, FCS
// (Linux MLX5E_ETH_HARD_MTU).
const hardwareOverhead = ethernetHeader + vlanTag + 4

// localPort is the card's port of the function, in registers.
const localPort = 1

// MTU is the largest payload of a frame, in bytes without Ethernet header.
func (n *NIC) MTU() int {
	n.addrs.mu.Lock()
	defer n.addrs.mu.Unlock()
	return n.addrs.mtu
}

// SetMTU changes the MTU of port and virtual port. It fails for an MTU whose frames do not fit
// Config.BufferSize. Frames in flight are not lost.
func (n *NIC) SetMTU(ctx context.Context, mtu int) error {
	switch {
	case mtu < MinMTU || mtu > MaxMTU:
		return fmt.Errorf("MTU %d: want %d to %d", mtu, MinMTU, MaxMTU)
	case mtu+n.config.overhead() > n.config.BufferSize:
		return fmt.Errorf("MTU %d: frames of %d bytes do not fit buffers of %d (Config.BufferSize)", mtu, mtu+n.config.overhead(), n.config.BufferSize)
	}
	unlock, err := n.lock(ctx)
	if err != nil {
		return fmt.Errorf("set MTU %d: %w", mtu, err)
	}
	defer unlock()
	return n.setMTU(ctx, mtu)
}

// setMTU writes the port's MTU and then the virtual port's, which may not be larger (Linux
// mlx5e_set_mtu). The caller has the turn to make changes.
func (n *NIC) setMTU(ctx context.Context, mtu int) error {
	frame := uint16(mtu + hardwareOverhead)
	if err := n.forgive("MTU (PMTU)", n.setPortMTU(ctx, mtu, frame)); err != nil {
		return err
	}
	in := &prm.ModifyNICVportContextIn{FieldSelectMTU: true, NICVportContext: prm.NICVportContext{MTU: frame}}
	if err := n.base.objects.Exec(ctx, in, &prm.ModifyNICVportContextOut{}); err != nil {
		return fmt.Errorf("set virtual port MTU %d: %w", mtu, err)
	}
	n.addrs.mu.Lock()
	n.addrs.mtu = mtu
	n.addrs.mu.Unlock()
	n.maxFrame.Store(int32(mtu + frameOverhead))
	return nil
}

// Op_mods of ACCESS_REG.
const (
	accessWrite = 0
	accessRead  = 1
)

// image is a register's structure.
type image interface {
	Len() int
	Put([]byte)
	Get([]byte)
}

// setPortMTU writes the port's MTU; frame is the length that the port counts.
func (n *NIC) setPortMTU(ctx context.Context, mtu int, frame uint16) error {
	reg := prm.RegPMTU{LocalPort: localPort}
	if err := n.register(ctx, prm.RegIDPMTU, accessRead, &reg); err != nil {
		return fmt.Errorf("query port MTU: %w", err)
	}
	if reg.MaxMTU != 0 && frame > reg.MaxMTU {
		return fmt.Errorf("MTU %d: the port's largest is %d", mtu, int(reg.MaxMTU)-hardwareOverhead)
	}
	reg = prm.RegPMTU{LocalPort: localPort, AdminMTU: frame}
	if err := n.register(ctx, prm.RegIDPMTU, accessWrite, &reg); err != nil {
		return fmt.Errorf("set port MTU %d: %w", mtu, err)
	}
	return nil
}

// register writes or reads a register; reg holds what is sent and then what came back.
func (n *NIC) register(ctx context.Context, id prm.RegisterID, opMod uint16, reg image) error {
	return accessRegister(ctx, n.base.objects, id, opMod, reg)
}

func accessRegister(ctx context.Context, exec cmdif.Executor, id prm.RegisterID, opMod uint16, reg image) error {
	in := &prm.AccessRegIn{OpMod: opMod, RegisterID: id, RegisterData: make([]byte, reg.Len())}
	reg.Put(in.RegisterData)
	out := &prm.AccessRegOut{RegisterData: make([]byte, reg.Len())}
	if err := exec.Exec(ctx, in, out); err != nil {
		return fmt.Errorf("register %v: %w", id, err)
	}
	reg.Get(out.RegisterData)
	return nil
}
