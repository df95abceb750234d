# What a netdev must do: link, ping, TCP both ways with every byte checked, down and up, unload and load; settings
# changed under traffic; functions taken away and given back.
. /root/pair.sh
. /root/lifecycle.sh
. /root/settings.sh
. /root/rounds

# tests_itself asks again if it must: the driver gives a frame through the card 200 ms, which is not much to a machine
# that does a lot else.
tests_itself() {
	for time in 1 2 3 4 5; do
		! ethtool -t eth0 >/tmp/itself || return 0
	done
	cat /tmp/itself
	return 1
}

# through_tunnels transfers through VXLAN and GRE, whose segments the card cuts and whose inner checksums it makes.
through_tunnels() {
	modprobe vxlan
	modprobe ip_gre
	for kind in 'vxlan id 42 dstport 4789' gretap; do
		try ip link add inner type $kind local $a remote $b
		try ip -n b link add inner type $kind local $b remote $a
		ip addr add 10.8.0.1/24 dev inner
		ip -n b addr add 10.8.0.2/24 dev inner
		ip link set inner up
		ip -n b link set inner up
		try ping -q -c 2 -w 20 10.8.0.2
		cut=$(ethtool -S eth0 | sed -n 's/^ *tx_tso_inner_packets: //p')
		ip netns exec b agent serve 10.8.0.2:7001 >/tmp/inner &
		inner=$!
		for tenth in $(seq 100); do
			! grep -q serving /tmp/inner || break
			usleep 100000
		done
		try agent transfer 10.8.0.2:7001 1000000
		kill $inner
		try [ $(ethtool -S eth0 | sed -n 's/^ *tx_tso_inner_packets: //p') -gt $cut ]
		ip link del inner
		ip -n b link del inner
	done
}

# losses is how often the first end has lost its link.
losses() { cat /sys/class/net/eth0/carrier_down_count; }

pair_up
ethtool -i eth0
try ping -c 3 -W 5 $b
try ping -c 2 -W 5 -s 1 $b
try ping -c 2 -W 5 -s 1473 $b
try ping -c 2 -W 5 -s 4001 $b
ip addr show eth0 | grep inet
try ping6 -c 2 -W 5 "$(ip -n b -6 addr show eth1 | sed -n 's/.*inet6 \(fe80[^/]*\).*/\1/p')%eth0"
try serve
try agent transfer $b:7000 10000000
try quiet_log

section "VLAN, long frames, promiscuous"
try ip link add link eth0 name v7 type vlan id 7
try ip -n b link add link eth1 name v7 type vlan id 7
ip addr add 10.7.0.1/24 dev v7
ip -n b addr add 10.7.0.2/24 dev v7
ip link set v7 up
ip -n b link set v7 up
try ping -q -c 2 -w 20 10.7.0.2
ip link del v7
ip -n b link del v7
try ip link set eth0 mtu 9978
try ip -n b link set eth1 mtu 9978
try wait_link
try ping -q -c 2 -w 20 -s 9950 $b
try agent transfer $b:7000 1000000
try ip link set eth0 mtu 1500
try ip -n b link set eth1 mtu 1500
try wait_link
# While mlx5 puts its table for promiscuous mode in front of the others, and takes it away, it is empty, and nothing
# follows it: what comes then is lost (rx_steer_missed_packets; en_fs.c mlx5e_create_promisc_table). One of several pings
# is answered.
try ip link set eth0 promisc on
try ping -q -c 4 -w 20 $b
try ip link set eth0 promisc off
through_tunnels
try tests_itself
try ethtool -m eth0 >/dev/null
try ethtool -S eth0 >/dev/null
try wait_link
try quiet_log

section "settings, rules, programs"
show_settings
set_pauses
set_fec
lead_flows
run_programs
try quiet_log

section "down and up"
losses=$(losses)
for round in $(seq $downs); do
	try ip link set eth0 down
	try ip link set eth0 up
	try ip -n b link set eth1 down
	try ip -n b link set eth1 up
	try wait_link
	ip addr replace $a/24 dev eth0
	try ping -q -c 1 -W 10 $b
done
try [ $(losses) -ge $((losses + downs)) ]
try agent transfer $b:7000 1000000
try quiet_log

section "settings under traffic"
traffic_on
for round in $(seq $changes); do
	change_settings
done
try traffic_off
kill $server
wait $server 2>/dev/null
try quiet_log

section "functions taken away and given back"
for round in $(seq $returns); do
	take_and_give
	try ping -q -c 1 -W 10 $b
	try quiet_log
done

section "unload and load"
for round in $(seq $loads); do
	try pair_down
	try rmmod mlx5_core
	ask books
	try modprobe mlx5_core
	pair_up
	try ping -q -c 1 -W 10 $b
	try quiet_log
done
try serve
try agent transfer $b:7000 1000000
kill $server
try pair_down
try rmmod mlx5_core
ask books
try quiet_log

[ $problems = 0 ] || { echo "$problems problems"; exit 1; }
echo "all is well"
