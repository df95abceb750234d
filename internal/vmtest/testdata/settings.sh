# What ethtool and devlink show and set, XDP programs, and AF_XDP sockets. Sourced by other scripts, after pair.sh.

# shows PATTERN COMMAND...: a line of what the command prints is like it.
shows() {
	pattern=$1
	shift
	"$@" >/tmp/shown 2>&1 && grep -qE "$pattern" /tmp/shown && return
	echo "no '$pattern' in what $* shows:"
	head -n 40 /tmp/shown
	return 1
}

show_settings() {
	function=$(card_of eth0)
	try shows 'driver: mlx5_core' ethtool -i eth0
	try shows 'hw-tc-offload: off \[fixed\]' ethtool -k eth0
	try shows 'tx-udp_tnl-csum-segmentation: on' ethtool -k eth0
	try shows 'RX:.*8192' ethtool -g eth0
	try shows 'Combined:.*2' ethtool -l eth0
	try shows 'Adaptive RX: on' ethtool -c eth0
	try shows 'Autonegotiate:' ethtool -a eth0
	try shows 'toeplitz: on' ethtool -x eth0
	try shows '0 rules' ethtool -n eth0
	try shows 'Base-CR4' ethtool -m eth0
	try shows 'hardware-receive' ethtool -T eth0
	try shows 'rx_packets_phy: [1-9]' ethtool -S eth0
	try shows 'Speed: 100000Mb/s' ethtool eth0
	try shows 'fw.psid' devlink dev info pci/$function
	for reporter in fw fw_fatal; do
		try shows 'state healthy' devlink health show pci/$function reporter $reporter
	done
	for reporter in rx tx; do
		try shows 'state healthy' devlink health show $(devlink port | sed -n "s/^\([^ ]*\): .*netdev eth0 .*/\1/p") reporter $reporter
	done
	# Another table and another hash function, and back. Linux 6.1 refuses what today's ethtool says (input_xfrm) in
	# bytes that were reserved then.
	case $(uname -r) in
	6.1.*) ;;
	*)
		try ethtool -X eth0 equal 1
		try ping -q -c 1 -W 5 $b
		try ethtool -X eth0 hfunc xor
		try ethtool -X eth0 hfunc toeplitz
		try ethtool -X eth0 default
		;;
	esac
	try ethtool -N eth0 rx-flow-hash udp4 sdfn
	try shows 'TCP/UDP dst port' ethtool -n eth0 rx-flow-hash udp4
}

# set_pauses sets what the port asks its peer for and obeys, of all frames and of a priority. The latter takes the link
# down and up.
set_pauses() {
	for state in off on; do
		try ethtool -A eth0 rx $state tx $state
		for way in RX TX; do try shows "^$way:.*$state\$" ethtool -a eth0; done
	done
	for state in on off; do
		try dcb pfc set dev eth0 prio-pfc 3:$state
		try shows "prio-pfc.* 3:$state" dcb pfc show dev eth0
		try wait_link
	done
	try ethtool -A eth0 rx on tx on
}

# set_fec sets how errors of the line are corrected, which takes the link down and up.
set_fec() {
	for kind in off:Off rs:RS baser:RS auto:RS; do # 100GBASE-CR4 has no fire code
		try ethtool --set-fec eth0 encoding ${kind%:*}
		try wait_link
		try shows "Active FEC encoding: ${kind#*:}\$" ethtool --show-fec eth0
	done
	try shows 'Configured FEC encodings: Auto$' ethtool --show-fec eth0
	try shows 'corrected_blocks: 0' ethtool -I --show-fec eth0
	try shows 'uncorrectable_blocks: 0' ethtool -I --show-fec eth0
	try shows 'Supported FEC modes: None.*' ethtool eth0
	if ethtool --set-fec eth0 encoding llrs 2>/dev/null; then try false; fi
}

# received prints how much queue $1 of the first end has got.
received() { ethtool -S eth0 | sed -n "s/^ *rx$1_packets: //p"; }

# lead_flows leads frames by rules, and by what the kernel learns where programs run (aRFS).
lead_flows() {
	try ethtool -K eth0 ntuple on
	for queue in 0 1; do
		try ethtool -N eth0 flow-type udp4 dst-port 9 action $queue loc 7 >/dev/null
		before=$(received $queue)
		ip netns exec b agent blast $a:9 100ms 60 >/dev/null
		try more $queue $((before + 20))
	done
	try ethtool -N eth0 delete 7
	try ethtool -N eth0 flow-type ip4 src-ip $b action -1 loc 3 >/dev/null
	if ping -q -c 1 -W 1 $b >/dev/null; then try false; fi
	try ethtool -N eth0 delete 3
	try ping -q -c 1 -W 10 $b
	for match in 'ether src 02:00:00:00:00:01' 'tcp4 src-port 5' 'ip6 src-ip fe80::1' 'tcp6 dst-port 5' 'udp6 src-port 5'; do
		try ethtool -N eth0 flow-type $match action 1 loc 5 >/dev/null
		try ethtool -N eth0 delete 5
	done
	echo 4096 >/proc/sys/net/core/rps_sock_flow_entries
	for queue in 0 1; do echo 2048 >/sys/class/net/eth0/queues/rx-$queue/rps_flow_cnt; done
	try agent transfer $b:7000 1000000
	try shows 'rx_arfs_err: 0' ethtool -S eth0
	echo 0 >/proc/sys/net/core/rps_sock_flow_entries
	try ethtool -K eth0 ntuple off
}

# more waits until a queue has got so much.
more() {
	for tenth in $(seq 100); do
		[ $(received $1) -lt $2 ] || return 0
		usleep 100000
	done
	ethtool -S eth0 | grep -E 'rx[0-9]+_packets'
	return 1
}

# attached waits until the agent that writes to $1 is ready.
attached() {
	for tenth in $(seq 300); do
		! grep -q attached $1 || return 0
		usleep 100000
	done
	cat $1
	return 1
}

# run_programs has XDP programs judge every frame, and AF_XDP sockets echo datagrams, with and without copying.
run_programs() {
	try ethtool -L eth0 combined 1
	try ip -n b neigh replace $a lladdr $(cat /sys/class/net/eth0/address) dev eth1
	for mode in copy zero; do
		agent xsk eth0 0 100 $mode >/tmp/xsk 2>&1 &
		socket=$!
		try attached /tmp/xsk
		try ip netns exec b agent echo $a:7001 100 600
		wait $socket || try cat /tmp/xsk
		try shows "xsk-echoed 100" cat /tmp/xsk
	done
	try ip -n b neigh del $a dev eth1
	mkfifo /tmp/verdict
	for verdict in pass tx drop; do
		agent xdp eth0 $verdict </tmp/verdict >/tmp/xdp 2>&1 &
		program=$!
		exec 9>/tmp/verdict
		try attached /tmp/xdp
		case $verdict in
		pass) try ping -q -c 1 -W 10 $b ;;
		*)
			if ip netns exec b ping -q -c 1 -W 1 $a >/dev/null; then try false; fi
			try shows "rx_xdp_$verdict(_xmit)?: [1-9]" ethtool -S eth0
			;;
		esac
		exec 9>&-
		try wait $program
	done
	try ping -q -c 1 -W 10 $b
	try ethtool -L eth0 combined 2
}
