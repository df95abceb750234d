# shellcheck shell=bash disable=SC2154
# $loops loops read all counters of one interface $rounds times each; the kernel counts work items and times commands.
set -e
mount -t tracefs tracefs /sys/kernel/tracing
cd /sys/kernel/tracing
commands=$(echo /sys/kernel/debug/mlx5/*/commands)
count() { cat "$commands"/*/"$1" | awk '{ s += $1 } END { print s }'; }
# Bringing the interface up has work that goes on for a while; IPv6 would go on asking for addresses.
quiet() {
	last=-1
	while [ "$(count n)" != "$last" ]; do
		last=$(count n)
		sleep 1
	done
}
echo 1 >/proc/sys/net/ipv6/conf/eth0/disable_ipv6
ip link set eth0 up
ethtool -S eth0 >/dev/null
quiet

echo 'p:command_in mlx5_core:mlx5_cmd_do' >kprobe_events
echo 'r128:command_out mlx5_core:mlx5_cmd_do' >>kprobe_events
echo 'command u64 lat' >synthetic_events
echo 'hist:keys=common_pid:ts0=common_timestamp:size=32768' >events/kprobes/command_in/trigger
# shellcheck disable=SC2016 # the kernel's variable
echo 'hist:keys=common_pid:lat=common_timestamp-$ts0:onmatch(kprobes.command_in).command($lat):size=32768' >events/kprobes/command_out/trigger
echo 'hist:keys=lat.log2:vals=lat' >events/synthetic/command/trigger
echo 'hist:keys=workqueue,function.sym' >events/workqueue/workqueue_queue_work/trigger

before=$(count n)
failures=$(count failed)
began=$(cut -d' ' -f1 /proc/uptime)
for _ in $(seq "$loops"); do
	(for _ in $(seq "$rounds"); do ethtool -S eth0 >/dev/null || echo failed; done) &
done >/tmp/failures
wait
ended=$(cut -d' ' -f1 /proc/uptime)
quiet
echo "@result commands $(($(count n) - before))"
echo "@result failed $(($(count failed) - failures + $(wc -l </tmp/failures)))"
echo "@result seconds $(awk -v a="$began" -v b="$ended" 'BEGIN { print b - a }')"
cat events/workqueue/workqueue_queue_work/hist >/tmp/work
cat events/synthetic/command/hist >/tmp/latency
/root/guest hist /tmp/work /tmp/latency
echo "@result warnings $(dmesg | grep -cE 'WARNING:|BUG:|mlx5_core [0-9a-f:.]+:.*(fail|timed out|timeout|leak)' || true)"
echo "@result kernel \"$(uname -r) $(uname -v)\""
