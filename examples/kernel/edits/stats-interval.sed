# edits en_main.c
# Linux 6.12 refreshes an interface's counters whenever somebody reads them and no refresh waits. This keeps refreshes
# of an interface 200 ms apart. When the last one was is kept beside the interface, not in it: a field more would
# change every file of the driver.
/^void mlx5e_queue_update_stats(struct mlx5e_priv \*priv)$/i\
static bool mlx5e_stats_are_fresh(struct mlx5e_priv *priv)\
{\
	static struct { struct mlx5e_priv *of; unsigned long at; } refreshed[64];\
	int i;\
\
	for (i = 0; i < ARRAY_SIZE(refreshed); i++) {\
		if (!refreshed[i].of && !cmpxchg(\&refreshed[i].of, NULL, priv)) {\
			refreshed[i].at = jiffies;\
			return false;\
		}\
		if (refreshed[i].of != priv)\
			continue;\
		if (time_before(jiffies, refreshed[i].at + HZ / 5))\
			return true;\
		refreshed[i].at = jiffies;\
		return false;\
	}\
	return false;\
}\

/^\tqueue_work(priv->wq, &priv->update_stats_work);$/i\
	if (mlx5e_stats_are_fresh(priv))\
		return;
