package stats

import (
	"context"
	"encoding/binary"
	"fmt"

	"cxkit/prm"
	"cxkit/stats"
)

// priorities of a port. Its global pause is counted with those of the first one.
const priorities = 8

// Counters of a priority's traffic, and of its pause (reference counters §6).
func trafficRows(p int) []row {
	return []row{
		{stats.RxPriority(p, "bytes"), 0x00}, {stats.RxPriority(p, "packets"), 0x20},
		{stats.RxPriority(p, "discards"), 0x78},
		{stats.TxPriority(p, "bytes"), 0x28}, {stats.TxPriority(p, "packets"), 0x48},
	}
}

// pauseRows are those of a priority, "prio3", or of the whole port, "global".
func pauseRows(of string) []row {
	return []row{
		{"rx_" + of + "_pause", 0x50}, {"rx_" + of + "_pause_duration", 0x58},
		{"tx_" + of + "_pause", 0x60}, {"tx_" + of + "_pause_duration", 0x68},
		{"rx_" + of + "_pause_transition", 0x70},
	}
}

// stallRows are counted while the card watches for pause storms.
func stallRows() []row {
	return []row{{"tx_pause_storm_warning_events", 0x80}, {"tx_pause_storm_error_events", 0x88}}
}

// priorityTable lists the rows of the group: of which priority's set each is, and of which setting.
type priorityRow struct {
	row
	priority int
	pause    bool // counted with pause on: that of the priority, or the port's
	global   bool
	stall    bool
}

func priorityTable() (all []priorityRow) {
	for p := range priorities {
		for _, r := range trafficRows(p) {
			all = append(all, priorityRow{row: r, priority: p})
		}
	}
	for p := range priorities {
		for _, r := range pauseRows(fmt.Sprintf("prio%d", p)) {
			all = append(all, priorityRow{row: r, priority: p, pause: true})
		}
	}
	for _, r := range pauseRows("global") {
		all = append(all, priorityRow{row: r, pause: true, global: true})
	}
	for _, r := range stallRows() {
		all = append(all, priorityRow{row: r, stall: true})
	}
	return all
}

func (r reader) priorityFields() (fields []field) {
	for _, row := range priorityTable() {
		fields = append(fields, field{row.name, 64})
	}
	return fields
}

// hide leaves out what is there with pause only.
func hide(hidden []bool) {
	for i, row := range priorityTable() {
		hidden[i] = row.pause || row.stall
	}
}

// priorities reads the set of each priority, and how pause is set up: it says which counters there are
// (Linux en_stats.c, mlx5e_query_pfc_combined, mlx5e_query_global_pause_combined).
func (r reader) priorities(ctx context.Context, v *values) error {
	pause := prm.RegPFCC{LocalPort: r.LocalPort}
	if err := r.access(ctx, prm.RegIDPFCC, &pause); err != nil {
		return err
	}
	var sets [priorities][248]byte
	for p := range sets {
		var err error
		if sets[p], err = r.counterSet(ctx, prm.PPCNTGroupPerPriority, uint8(p)); err != nil {
			return err
		}
	}
	enabled := pause.PFCTX | pause.PFCRX
	for i, row := range priorityTable() {
		v.raw[i] = binary.BigEndian.Uint64(sets[row.priority][row.off:])
		switch {
		case row.stall:
			v.hidden[i] = !r.PortFeatures.PFCCMask
		case row.global:
			v.hidden[i] = !pause.PPTX && !pause.PPRX
		case row.pause:
			v.hidden[i] = enabled>>row.priority&1 == 0
		}
	}
	return nil
}
