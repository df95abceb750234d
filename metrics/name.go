package metrics

import (
	"strconv"
	"strings"

	"cxkit/stats"
)

// metric is where a counter goes.
type metric struct {
	name  string  // without prefix and _total
	queue string  // number of the queue, "" if it is of the whole NIC
	scale float64 // from the counter's unit to the metric's
	gauge bool
}

// of finds the metric of a counter by its ethtool name.
func of(name string) metric {
	m := metric{name: name, scale: 1, gauge: stats.Gauge(name)}
	if side, number, rest, ok := perQueue(name); ok {
		m.name, m.queue = "queue_"+side+"_"+rest, number
	}
	switch {
	case strings.HasSuffix(m.name, "_pause_duration"):
		m.name, m.scale = m.name+"_seconds", 1e-6
	case strings.Contains(m.name, "_bits_"):
		m.name, m.scale = strings.Replace(m.name, "_bits_", "_bytes_", 1), 1./8
	case m.gauge:
		m.name, m.scale = m.name+"_ratio", 1./100
	}
	return m
}

// perQueue takes the name of a queue's counter apart: rx3_packets is rx, 3, packets. The NIC's own counters
// have no number there: rx_packets, rx_prio3_packets.
func perQueue(name string) (side, number, rest string, ok bool) {
	if len(name) < 3 {
		return "", "", "", false
	}
	side = name[:2]
	if side != "rx" && side != "tx" && side != "ch" {
		return "", "", "", false
	}
	number, rest, ok = strings.Cut(name[2:], "_")
	if _, err := strconv.ParseUint(number, 10, 16); !ok || err != nil || rest == "" {
		return "", "", "", false
	}
	return side, number, rest, true
}
