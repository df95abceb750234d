# shellcheck shell=bash disable=SC2154
# Readers of /proc/net/dev, $rate times a second each, for $seconds: one, then $readers. The kernel counts commands and
# refreshes.
set -e
mount -t tracefs tracefs /sys/kernel/tracing
cd /sys/kernel/tracing
commands=$(echo /sys/kernel/debug/mlx5/*/commands)
count() { cat "$commands"/*/n | awk '{ s += $1 } END { print s }'; }
quiet() {
	last=-1
	while [ "$(count)" != "$last" ]; do
		last=$(count)
		sleep 1
	done
}
echo 1 >/proc/sys/net/ipv6/conf/eth0/disable_ipv6
ip link set eth0 up
quiet

echo 'p:command_in mlx5_core:mlx5_cmd_do' >kprobe_events
for n in 1 "$readers"; do
	echo 'hist:keys=common_type' >events/kprobes/command_in/trigger
	echo 'hist:keys=function.sym' >events/workqueue/workqueue_queue_work/trigger
	before=$(count)
	began=$(cut -d' ' -f1 /proc/uptime)
	/root/guest read /proc/net/dev "$n" "$rate" "$seconds"
	ended=$(cut -d' ' -f1 /proc/uptime)
	quiet
	echo "@result \"commands $n\" $(($(count) - before))"
	echo "@result \"seconds $n\" $(awk -v a="$began" -v b="$ended" 'BEGIN { print b - a }')"
	cat events/kprobes/command_in/hist >"/tmp/commands-$n"
	cat events/workqueue/workqueue_queue_work/hist >"/tmp/work-$n"
	/root/guest hist "/tmp/commands-$n" "/tmp/work-$n"
	echo '!hist:keys=common_type' >events/kprobes/command_in/trigger
	echo '!hist:keys=function.sym' >events/workqueue/workqueue_queue_work/trigger
done
echo "@result warnings $(dmesg | grep -cE 'WARNING:|BUG:|mlx5_core [0-9a-f:.]+:.*(fail|timed out|timeout|leak)' || true)"
echo "@result kernel \"$(uname -r) $(uname -v)\""
