// Package study boots Linux guests for the studies in examples/kernel: with `cxkit vm`, on the kernel's own
// mlx5_core or on one that an edit changed, while `cxkit ctl` provokes what is studied. It uses the commands as
// anybody would, and nothing of what is behind them.
package study
