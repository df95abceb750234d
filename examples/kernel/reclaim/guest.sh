# shellcheck shell=bash disable=SC2154
# Firmware asks for $pages pages and gives them back; the kernel traces how it takes them. One processor.
set -e
mount -t tracefs tracefs /sys/kernel/tracing
cd /sys/kernel/tracing
echo mono >trace_clock
echo 1 >options/funcgraph-abstime
echo "$buffer" >buffer_size_kb
echo reclaim_pages >set_graph_function
echo reclaim_pages dma_pool_free >set_ftrace_filter
echo function_graph >current_tracer

card=$(echo /sys/kernel/debug/mlx5/*)
total() { cat "$card/pages/fw_pages_total"; }
commands() { cat "$card/commands/MANAGE_PAGES/n"; }

/root/guest probe /root/delays &
probe=$!
base=$(total)
before=$(commands)
# The end of a line reaches the host with the next line.
echo "@host reclaim $pages"
echo "firmware has $base pages"
# The storm is over when firmware has given back what it got, and no command follows.
last=-1
while [ "$(commands)" = "$before" ] || [ "$(total)" != "$base" ] || [ "$(commands)" != "$last" ]; do
	last=$(commands)
	usleep 300000
done
echo 0 >tracing_on
kill "$probe"
wait "$probe"
lost=$(sed -n 's/^overrun: //p' per_cpu/cpu0/stats)
[ "$lost" = 0 ] || { echo "the trace lost $lost records of $buffer KiB"; exit 1; }
/root/guest reclaim trace /root/delays
echo "@result kernel \"$(uname -r) $(uname -v)\""
echo "@result stalls $(dmesg | grep -c 'detected stalls' || true)"
dmesg | grep -E "WARNING:|BUG:|stall|mlx5_core [0-9a-f:.]+:.*(fail|timed out|timeout|leak)" | head -5 || true
