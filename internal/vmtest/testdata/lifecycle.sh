# What users do to interfaces under traffic, and managers to functions. Sourced by other scripts, after pair.sh.

# traffic_on transfers both ways, with every byte checked, again and again until traffic_off.
traffic_on() {
	rm -f /tmp/enough
	(
		while [ ! -e /tmp/enough ]; do
			agent transfer $b:7000 2000000 >/dev/null || exit 1
			echo transferred
		done >/tmp/traffic
	) &
	traffic=$!
}

# traffic_off fails if a transfer did, or none came to its end.
traffic_off() {
	touch /tmp/enough
	wait $traffic && grep -c transferred /tmp/traffic
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
