package hca

import (
	"context"
	"errors"
	"fmt"

	"cxkit/prm"
)

// queryCap reads a capability group: what the card can do at most, or what is in force.
func (h *HCA) queryCap(ctx context.Context, group prm.CapGroup, mode prm.CapMode) (*[4096]byte, error) {
	var out prm.QueryHCACapOut
	if err := h.exec(ctx, &prm.QueryHCACapIn{OpMod: prm.CapOpMod(group, mode)}, &out); err != nil {
		return nil, fmt.Errorf("%v capabilities, %v: %w", group, mode, err)
	}
	return &out.Capability, nil
}

// setCaps chooses among what the card offers: a copy of what is in force, edited (04-linux-probe §2).
// Bits without a name stay as they are.
func (h *HCA) setCaps(ctx context.Context) error {
	current, err := h.queryCap(ctx, prm.CapGroupGeneral, prm.CapCurrent)
	if err != nil {
		return err
	}
	highest, err := h.queryCap(ctx, prm.CapGroupGeneral, prm.CapMax)
	if err != nil {
		return err
	}
	var c, most prm.CapGeneral
	c.Get(current[:])
	most.Get(highest[:])
	c.PKeyTableSize = 0                 // 128 keys, as Linux
	c.LogMaxQP = min(18, most.LogMaxQP) // as Linux
	if h.config.Signatures {
		c.CmdifChecksum = most.CmdifChecksum
	} else {
		c.CmdifChecksum = 0 // signatures are neither made nor checked
	}
	c.LogUARPageSz = 0 // doorbell pages of 4 KiB
	c.UAR4k = false    // same
	c.ReleaseAllPages = most.ReleaseAllPages
	c.ICMMngFunctionIDMode = most.ICMMngFunctionIDMode
	c.Patch(current[:])
	in := prm.SetHCACapIn{OpMod: prm.CapOpMod(prm.CapGroupGeneral, 0), Capability: *current}
	if err := h.exec(ctx, &in, &prm.SetHCACapOut{}); err != nil {
		return err
	}
	h.cmd.UseSignatures(c.CmdifChecksum != 0)
	if c.ReleaseAllPages {
		h.Pages.AllowReleaseAll()
	}
	if c.ICMMngFunctionIDMode {
		h.Pages.UseVHCAIDs(c.VHCAID)
	}
	h.General = c
	return nil
}

// readCaps reads what is in force after initialization and checks what the driver can't do without.
func (h *HCA) readCaps(ctx context.Context) error {
	b, err := h.queryCap(ctx, prm.CapGroupGeneral, prm.CapCurrent)
	if err != nil {
		return err
	}
	h.General.Get(b[:])
	switch {
	case h.General.PortType != prm.PortTypeEthernet:
		return fmt.Errorf("port type is %v: this driver needs Ethernet (mlxconfig LINK_TYPE_P1=2)", h.General.PortType)
	case !h.General.EthNetOffloads:
		return errors.New("card lacks capability eth_net_offloads")
	case !h.General.NICFlowTable:
		return errors.New("card lacks capability nic_flow_table")
	}
	if b, err = h.queryCap(ctx, prm.CapGroupEthernetOffloads, prm.CapCurrent); err != nil {
		return err
	}
	h.Eth.Get(b[:])
	if b, err = h.queryCap(ctx, prm.CapGroupFlowTable, prm.CapCurrent); err != nil {
		return err
	}
	h.Flow.Get(b[:])
	if !h.General.ESwitchManager {
		return nil
	}
	if b, err = h.queryCap(ctx, prm.CapGroupESwitchFlowTable, prm.CapCurrent); err != nil {
		return err
	}
	h.FDB.Get(b[:])
	return nil
}

// maxEQs is how many event queues the function may have.
func maxEQs(c *prm.CapGeneral) int {
	if c.MaxNumEQs != 0 {
		return int(c.MaxNumEQs)
	}
	return 1 << c.LogMaxEQ
}
