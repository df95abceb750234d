package driver

import (
	"context"
	"errors"
	"fmt"

	"cxkit/prm"
)

// Frame check sequences of received frames: Config.ReceiveFCS.

// fcsLength is the bytes of a frame check sequence.
const fcsLength = 4

// checkFCS checks what goes with check sequences. Linux drops LRO for them, too (net/core/dev.c, netdev_fix_features).
func (c *Config) checkFCS() error {
	switch {
	case !c.ReceiveFCS:
		return nil
	case c.LargeReceive:
		return errors.New("check sequences of received frames with large receives, which have none")
	case c.GRO:
		return errors.New("check sequences of received frames with GRO: they are no payload")
	case c.Program != nil:
		return errors.New("check sequences of received frames with a program, which would send them")
	}
	return nil
}

// overhead is what a received frame may hold beside the MTU.
func (c *Config) overhead() int {
	if c.ReceiveFCS {
		return frameOverhead + fcsLength
	}
	return frameOverhead
}

// uncoverFCS has the card leave check sequences where a card may put time stamps in their place (Linux en_main.c,
// mlx5e_set_rx_port_ts).
func (n *NIC) uncoverFCS(ctx context.Context) error {
	if !n.config.ReceiveFCS || !n.base.general.PortsCheck {
		return nil
	}
	reg := prm.RegPCMR{LocalPort: localPort}
	if err := n.register(ctx, prm.RegIDPCMR, accessRead, &reg); err != nil {
		return fmt.Errorf("query checks of the port: %w", err)
	}
	if !reg.RXTSOverCRCCap || !reg.RXTSOverCRC {
		return nil
	}
	reg.LocalPort, reg.RXTSOverCRC = localPort, false
	if err := n.register(ctx, prm.RegIDPCMR, accessWrite, &reg); err != nil {
		return fmt.Errorf("uncover check sequences: %w", err)
	}
	return nil
}
