# shellcheck shell=bash disable=SC2154
# Readers of /proc/net/dev, $rate times a second each, for $seconds: one, then $readers. The kernel counts commands and
# refreshes. With $vfs virtual functions of a host Linux manages their e-switch first, and has a representor of each.
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
interfaces=eth0
for scope in all default eth0; do echo 1 >/proc/sys/net/ipv6/conf/$scope/disable_ipv6; done
if [ "$vfs" -gt 0 ]; then
	devlink dev eswitch set "pci/$(basename "$(readlink /sys/class/net/eth0/device)")" mode switchdev
	# The host enables its functions once Linux listens for that, which it does when the mode has changed.
	for second in $(seq 120); do
		[ "$(devlink port show | grep -c 'netdev .* flavour pcivf')" != "$vfs" ] || break
		[ "$second" -lt 120 ]
		sleep 1
	done
	interfaces=$(devlink port show | sed -n 's/.*type eth netdev \([^ ]*\) flavour \(physical\|pcivf\) .*/\1/p')
fi
for interface in $interfaces; do ip link set "$interface" up; done
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
# Whoever reads /proc/net/dev has interfaces refreshed that are down, too.
echo "@result shown $(grep -c '^ *eth' /proc/net/dev)"
echo "@result interfaces $(echo "$interfaces" | wc -w)"
awk '{ split(FILENAME, path, "/"); all = all (all ? ", " : "") "\"" path[length(path) - 1] "\": " $1 }
	END { print "@result table {" all "}" }' "$commands"/*/n
echo "@result warnings $(dmesg | grep -cE 'WARNING:|BUG:|mlx5_core [0-9a-f:.]+:.*(fail|timed out|timeout|leak)' || true)"
echo "@result kernel \"$(uname -r) $(uname -v)\""
