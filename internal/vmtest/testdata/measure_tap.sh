# Measures a card of each kind against the host, over a TAP interface each: all kinds in turn, round after round.
. /root/pair.sh

rounds=5
bytes=50000000

modprobe virtio_pci 2>/dev/null
nets() { for d in /sys/bus/*/drivers/$1/*/net/*; do [ ! -e $d ] || basename $d; done; }
n=0
kinds=
for kind in mlx5_core mlx5_mapped e1000e vmxnet3 virtio_net; do
	n=$((n + 1))
	driver=$(echo $kind | sed 's/mlx5_mapped/mlx5_core/')
	modprobe $driver 2>/dev/null || { echo "no module $driver"; continue; }
	which=1
	[ $kind != mlx5_mapped ] || which=2
	for tenth in $(seq 100); do
		net=$(nets $driver | sed -n ${which}p)
		[ -z "$net" ] || break
		usleep 100000
	done
	ip addr add 10.1.$n.2/24 dev $net
	ip link set $net up
	try ping -q -c 1 -w 20 10.1.$n.1
	kinds="$kinds $kind:$n"
done
for round in $(seq $rounds); do
	for kind in $kinds; do
		n=${kind#*:}
		for task in "stream 10.1.$n.1:7000 $bytes" "echo 10.1.$n.1:7000 500 64" "blast 10.1.$n.1:7000 1s 60"; do
			agent $task | sed "s/^/result ${kind%:*} /"
		done
	done
done
try quiet_log
[ $problems = 0 ]
