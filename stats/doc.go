// Package stats is counters as cxkit hands them around: a Snapshot is a list of names and values read at
// one time. Names are those that ethtool -S prints for mlx5, in its order.
//
// The package is a leaf: the driver fills snapshots, the model compares its own books with them, and
// metrics and the command line print them.
package stats
