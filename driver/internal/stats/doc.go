// Package stats is where a NIC's counters come from: counters that the owners of queues keep (Counter),
// and groups that the card keeps and commands read (Card). A Source puts the two together, so that any
// number of readers costs the card a bounded number of commands:
//
//	Quick  returns what was read last and asks for a refresh, which the source's worker does: the groups
//	       that an interface's own counters are made of (3 commands on a physical function, 2 on a
//	       virtual one), at most once an interval (Linux mlx5e_get_stats, and "Cut workqueue traffic of
//	       firmware commands and stats").
//	Full   reads all groups and waits for them (ethtool -S). Callers at the same time share a reading that
//	       began after their call.
//
// There is one refresh of a source at a time, whoever asked for it. Where firmware says by event that a
// counter of errors moved (Monitor), Quick asks for nothing but the driver's own counters.
package stats
