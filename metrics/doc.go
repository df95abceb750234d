// Package metrics exposes the counters of NICs to Prometheus.
//
// A Target is what is known of one NIC; a Collector makes metrics of targets, and a Server answers scrapes.
// A scrape reads what has been read before and has it read again behind its back: it issues no firmware
// command on its own path and never waits for the card.
//
// A counter of ethtool's, rx_out_of_buffer, is the metric mlx5_rx_out_of_buffer_total with labels device and
// port. Those of single queues, rx3_packets, are mlx5_queue_rx_packets_total with label queue, and are left
// out by default: they are most of all counters, and their sums are there. Units are Prometheus' base units:
// pause durations are in seconds and named so, corrected bits are bytes.
package metrics
