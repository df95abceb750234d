# What users do to interfaces under traffic, and managers to functions. Sourced by other scripts, after pair.sh.

# traffic_on transfers both ways, with every byte checked, again and again until traffic_off; and beside that has
# iperf3 send by four streams each way, test after test.
traffic_on() {
	rm -f /tmp/enough
	streams >/tmp/streams 2>&1 &
	streams=$!
	(
		while [ ! -e /tmp/enough ]; do
			agent transfer $b:7000 2000000 >/dev/null || { counted; exit 1; }
			echo transferred
		done >/tmp/traffic
	) &
	traffic=$!
}

# streams runs tests of iperf3's, each to its end, whatever is changed meanwhile.
streams() {
	while [ ! -e /tmp/enough ]; do
		stream 8 || return 1
	done
}

# stream runs one test, of $1 seconds; $2 says whether all is settled.
stream() {
	rm -f /tmp/listens
	ip netns exec b timeout 120 iperf3 -s -1 -B $b --forceflush >/tmp/listens 2>&1 &
	listener=$!
	for tenth in $(seq 300); do
		! grep -q listening /tmp/listens || break
		usleep 100000
	done
	timeout 120 iperf3 -c $b --bidir -P 4 -t $1 -J >/tmp/iperf3 || { cat /tmp/iperf3 /tmp/listens; return 1; }
	wait $listener || { cat /tmp/listens; return 1; }
	agent iperf /tmp/iperf3 $2 && return
	counted
	agent iperf /tmp/iperf3 $2
}

# counted prints what both ends have counted and where their queues are, to find out where frames went.
counted() {
	for port in $(devlink port | sed -n 's/^\([^ ]*\): .*/\1/p'); do
		devlink health diagnose $port reporter rx
		devlink health diagnose $port reporter tx
	done
	ethtool -S eth0 | grep -v ': 0$'
	ip netns exec b ethtool -S eth1 | grep -v ': 0$'
	cat /proc/net/snmp /proc/net/netstat /proc/net/tcp
	ip netns exec b cat /proc/net/snmp /proc/net/netstat /proc/net/tcp
	ip neigh
	ip -n b neigh
}

# traffic_off fails if a transfer or a test of iperf3's did, or none came to its end, or no new streams find their way
# through all queues.
traffic_off() {
	touch /tmp/enough
	wait $traffic && grep -c transferred /tmp/traffic || { cat /tmp/traffic; return 1; }
	wait $streams && grep 'iperf3: 4 streams each way' /tmp/streams || { cat /tmp/streams; return 1; }
	stream 4 settled
}

# flag sets a private flag if this driver and card have it.
flag() {
	ethtool --show-priv-flags eth0 | grep -q "^$1 " || return 0
	ethtool --set-priv-flags eth0 $1 $2
}

# change_settings changes channels, rings and offloads and puts them back.
change_settings() {
	try ethtool -L eth0 combined 1
	try ethtool -L eth0 combined 2
	try ethtool -G eth0 rx 256 tx 128
	try ethtool -G eth0 rx 1024 tx 1024
	for offload in lro tso gro rx tx rxvlan txvlan sg rx-fcs; do
		on=on off=off
		case $offload in
		lro | rx-fcs) on=off off=on ;; # off as Linux comes up
		esac
		try ethtool -K eth0 $offload $off >/dev/null
		try ethtool -K eth0 $offload $on >/dev/null
	done
	for name in rx_striding_rq skb_tx_mpwqe tx_cqe_moder rx_cqe_moder; do
		try flag $name off
		try flag $name on
	done
	try flag rx_cqe_compress on
	try flag rx_cqe_compress off
	try ethtool -C eth0 rx-usecs 64 rx-frames 16
	try ethtool -C eth0 adaptive-rx on adaptive-tx on
	try wait_link
	try ping -q -c 1 -W 10 $b
}

# put writes a word to a file of sysfs.
put() { echo $1 >$2; }

# appears waits until the function has its interface again.
appears() {
	for tenth in $(seq 300); do
		[ ! -e /sys/bus/pci/devices/$1/net ] || return 0
		usleep 100000
	done
	return 1
}

# take_and_give takes the first card from its driver in all ways there are, and leaves a pair that is up.
take_and_give() {
	function=$(card_of eth0)
	device=/sys/bus/pci/devices/$function
	driver=/sys/bus/pci/drivers/mlx5_core

	# While its interface is up.
	try put $function $driver/unbind
	ask unbound
	try put $function $driver/bind
	try appears $function
	again

	# A reset of a function that no driver has: mlx5_core has no handlers for one that it has, and takes it for a failure.
	try put $function $driver/unbind
	ask unbound
	try shows '^flr' cat $device/reset_method # the first that the kernel tries
	try put 1 $device/reset
	try put $function $driver/bind
	try appears $function
	again

	try put 1 $device/remove
	ask unbound
	try [ ! -e $device ]
	try put 1 /sys/bus/pci/rescan
	try appears $function
	again
}

# again configures the first end anew; Linux gave it the lowest free name.
again() {
	ip addr replace $a/24 dev eth0
	ip link set eth0 up
	try wait_link
}
