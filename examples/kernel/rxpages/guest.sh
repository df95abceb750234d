# shellcheck shell=bash disable=SC2154,SC2129
# The interface receives what the host plays, with or without striding receive queues ($striding is on or off). With
# $probe=yes the kernel writes down what GRO merges.
set -e
mount -t tracefs tracefs /sys/kernel/tracing
cd /sys/kernel/tracing
echo 32768 >buffer_size_kb
echo 1 >/proc/sys/net/ipv6/conf/eth0/disable_ipv6
ethtool --set-priv-flags eth0 rx_striding_rq "$striding"
ethtool -K eth0 lro off gro on
ethtool -G eth0 rx 1024
# Packets wait up to 2 ms for segments of a later poll.
echo 2000000 >/sys/class/net/eth0/gro_flush_timeout
echo 10 >/sys/class/net/eth0/napi_defer_hard_irqs
ip link set eth0 promisc on

echo 'p:page_taken page_pool_alloc_pages' >kprobe_events
if [ "$probe" = yes ]; then
	# shellcheck disable=SC2016 # the kernel's variable
	echo 'r128:gro_out skb_gro_receive ret=$retval:s32' >>kprobe_events
	echo 'p:gro_in skb_gro_receive p=p:x64 head=skb->head:x64 rest=skb->data_len:u32' >>kprobe_events
	echo 'p:gro_done inet_gro_complete p=skb:x64 head=skb->head:x64' >>kprobe_events
	for event in gro_in gro_out gro_done; do echo 1 >"events/kprobes/$event/enable"; done
fi
echo 'hist:keys=common_type' >events/kprobes/page_taken/trigger
echo 'hist:keys=common_type' >events/page_pool/page_pool_state_hold/trigger
ip link set eth0 up
sleep 1
echo "@host play"
echo "playing"
received() { cat /sys/class/net/eth0/statistics/rx_packets; }
last=-1
for _ in $(seq 60); do
	now=$(received)
	[ "$now" = 0 ] || [ "$now" != "$last" ] || break
	last=$now
	sleep 1
done
cat trace >/tmp/trace
cat events/kprobes/page_taken/hist >/tmp/taken
cat events/page_pool/page_pool_state_hold/hist >/tmp/fresh
[ "$probe" != yes ] || /root/guest gro /tmp/trace
/root/guest hist /tmp/taken /tmp/fresh
echo "@result counters {$(ethtool -S eth0 | sed -n 's/^ *\([a-z_0-9]*\): \([0-9]*\)$/"\1": \2,/p' | tr '\n' ' ') \"\": 0}"
echo "@result warnings $(dmesg | grep -cE 'WARNING:|BUG:|mlx5_core [0-9a-f:.]+:.*(fail|timed out|timeout|leak)' || true)"
echo "@result kernel \"$(uname -r) $(uname -v)\""
