package stats

import (
	"context"

	"cxkit/prm"
)

// representorGroup is the one group of a representor: its vport's counters. Receive and transmit are those of
// the switch's port, so what the vport's function sends is received (Linux en_rep.c, vport_rep).
func (r reader) representorGroup() group {
	g := group{name: "vport", link: true, commands: 1}
	for _, name := range []string{"vport_rx_packets", "vport_rx_bytes", "vport_tx_packets", "vport_tx_bytes"} {
		g.fields = append(g.fields, field{name, 64})
	}
	g.read = func(ctx context.Context, v *values) error {
		var out prm.QueryVportCounterOut
		in := prm.QueryVportCounterIn{OtherVport: true, VportNumber: r.Represents}
		if err := r.Exec.Exec(ctx, &in, &out); err != nil {
			return err
		}
		for _, k := range vportKinds {
			from, to := k.tx(&out), k.rx(&out)
			v.raw[0] += from.Packets
			v.raw[1] += from.Octets
			v.raw[2] += to.Packets
			v.raw[3] += to.Octets
		}
		return nil
	}
	return g
}
