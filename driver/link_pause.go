package driver

import (
	"context"
	"fmt"
	"strings"

	"cxkit/driver/internal/hca"
	"cxkit/prm"
)

// Pauses says which pause frames a port obeys and which it may send (IEEE 802.3 annexes 31B and 31D).
type Pauses struct {
	// Rx: the port stops sending when the far end asks for it. Tx: it may ask the far end to stop. Both are of the
	// whole port, as with ethtool -A.
	Rx, Tx bool
	// PrioritiesRx and PrioritiesTx are the same of single priorities (PFC), one bit each, bit 0 for priority 0.
	PrioritiesRx, PrioritiesTx uint8
}

// String is what of it is on: "rx tx", "rx-priorities 0x8", "off".
func (p Pauses) String() string {
	var on []string
	if p.Rx {
		on = append(on, "rx")
	}
	if p.Tx {
		on = append(on, "tx")
	}
	if p.PrioritiesRx != 0 {
		on = append(on, fmt.Sprintf("rx-priorities %#x", p.PrioritiesRx))
	}
	if p.PrioritiesTx != 0 {
		on = append(on, fmt.Sprintf("tx-priorities %#x", p.PrioritiesTx))
	}
	if len(on) == 0 {
		return "off"
	}
	return strings.Join(on, " ")
}

// Pauses reads which pauses are set (Linux mlx5_query_port_pause, mlx5_query_port_pfc). Any function may read them;
// a virtual function reads those of its physical function's port. Any goroutine may call it. It fails if the NIC is
// closed, and with a *prm.CommandError if the card refuses.
func (n *NIC) Pauses(ctx context.Context) (Pauses, error) {
	if n.isClosed() {
		return Pauses{}, ErrNICClosed
	}
	r := prm.RegPFCC{LocalPort: localPort}
	if err := n.register(ctx, prm.RegIDPFCC, accessRead, &r); err != nil {
		return Pauses{}, fmt.Errorf("query pauses: %w", err)
	}
	return Pauses{Rx: r.PPRX, Tx: r.PPTX, PrioritiesRx: r.PFCRX, PrioritiesTx: r.PFCTX}, nil
}

// SetPauses sets all of them: read Pauses first to change one. The link stays up, no frame is lost, and what was set
// outlives the NIC, as with ethtool -A. Any goroutine may call it. It fails with an *UnsupportedError, and nothing is
// set, where the port is another function's: that of a virtual function, or where the card lets another one manage it
// (Linux mlx5e_set_pauseparam); and with a *prm.CommandError if the card refuses.
func (n *NIC) SetPauses(ctx context.Context, p Pauses) error {
	if hca.Virtual(n.base.info.DeviceID) || !n.base.general.VportGroupManager {
		return fmt.Errorf("set pauses %v: %w", p, n.unsupported("port of its own, whose pauses it could set"))
	}
	unlock, err := n.lock(ctx)
	if err != nil {
		return fmt.Errorf("set pauses %v: %w", p, err)
	}
	defer unlock()
	// The masks of pprx and pptx are 0, which has both taken; those of the priorities name all that are taken
	// (Linux mlx5_set_port_pause, mlx5_set_port_pfc).
	r := prm.RegPFCC{
		LocalPort: localPort, PPRX: p.Rx, PPTX: p.Tx, PFCRX: p.PrioritiesRx, PFCTX: p.PrioritiesTx,
		PrioMaskRX: 0xff, PrioMaskTX: 0xff,
	}
	if err := n.register(ctx, prm.RegIDPFCC, accessWrite, &r); err != nil {
		return fmt.Errorf("set pauses %v: %w", p, err)
	}
	return nil
}
