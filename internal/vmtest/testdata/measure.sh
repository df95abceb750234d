# Measures cards, and two of each of QEMU's own network cards, in one guest and one run: each pair on a wire of
# its own, the second one in a network namespace, and all pairs in turn, round after round. Machines are noisy:
# compare what one run gives.
. /root/pair.sh

rounds=3
bytes=20000000

# clock is the time in the guest; since prints what passed, in seconds.
# cut and awk run in about 20 ms under an emulated processor: that is the measure of error.
clock() { cut -d' ' -f1 /proc/uptime; }
since() { echo "$1 $(clock)" | awk '{printf "%.2f", $2 - $1}'; }

modprobe virtio_pci 2>/dev/null
# Cloud kernels lack e1000e.
kinds=
for driver in mlx5_core e1000e vmxnet3 virtio_net; do
	if ! modprobe $driver 2>/dev/null; then echo "no module $driver"; continue; fi
	kinds="$kinds $driver"
	[ $driver != mlx5_core ] || kinds="$kinds mlx5_mapped"
done
# nets lists a driver's network interfaces, pair those of a kind. Of mlx5's, the second two are of cards whose
# doorbells are mapped.
nets() { for d in /sys/bus/*/drivers/$1/*/net/*; do [ ! -e $d ] || basename $d; done; }
driver_of() { echo $1 | sed 's/mlx5_mapped/mlx5_core/'; }
pair() {
	case $1 in
	mlx5_core) nets mlx5_core | sed -n 1,2p ;;
	mlx5_mapped) nets mlx5_core | sed -n 3,4p ;;
	*) nets $1 ;;
	esac
}
for round in $(seq $rounds); do
	for kind in $kinds; do
		driver=$(driver_of $kind)
		until [ "$(pair $kind | wc -l)" = 2 ]; do usleep 10000; done
		all=$(nets $driver | wc -l)
		at=$(readlink -f /sys/class/net/$(pair $kind | head -n 1)/device)
		began=$(clock)
		echo $(basename $at) >$at/driver/unbind
		echo "result $kind remove $(since $began) s"
		began=$(clock)
		echo $(basename $at) >/sys/bus/$(basename $(readlink -f $at/subsystem))/drivers/$driver/bind
		until [ "$(nets $driver | wc -l)" = $all ]; do usleep 1000; done
		echo "result $kind probe $(since $began) s"
	done
done

# An interface in another namespace is not listed any more.
n=0
for kind in $kinds; do
	n=$((n + 1))
	eval "pair$n='$(echo $(pair $kind))'"
done
n=0
for kind in $kinds; do
	n=$((n + 1))
	eval "set -- \$pair$n"
	eval "near$n=$1 irqs$n='$(for net in $1 $2; do
		at=$(readlink -f /sys/class/net/$net/device)
		ls $at/msi_irqs 2>/dev/null || ls $(dirname $at)/msi_irqs
	done | tr '\n' ' ')'"
	ip netns add far$n
	ip link set $2 netns far$n
	ip addr add 10.0.$n.1/24 dev $1
	ip -n far$n addr add 10.0.$n.2/24 dev $2
	began=$(clock)
	ip link set $1 up
	ip -n far$n link set $2 up
	until ping -c 1 -w 1 10.0.$n.2 >/dev/null; do usleep 10000; done
	echo "result $kind up-to-first-ping $(since $began) s"
	ip netns exec far$n agent serve 10.0.$n.2:7000 >/dev/null &
done

# interrupts counts those of interrupt numbers.
interrupts() {
	awk -v list="$*" 'BEGIN {split(list, l, " "); for (i in l) want[l[i] ":"] = 1}
		$1 in want {for (i = 2; i <= NF && $i ~ /^[0-9]+$/; i++) s += $i} END {print s + 0}' /proc/interrupts
}

for round in $(seq $rounds); do
	n=0
	for kind in $kinds; do
		n=$((n + 1))
		eval "irqs=\$irqs$n"
		before=$(interrupts $irqs)
		agent transfer 10.0.$n.2:7000 $bytes | sed "s/^/result $kind /"
		echo "result $kind interrupts-of-a-transfer-both-ways $(($(interrupts $irqs) - before)) interrupts"
		for task in "echo 10.0.$n.2:7000 300 64" "blast 10.0.$n.2:7000 2s 60"; do
			agent $task | sed "s/^/result $kind /"
		done
	done
done

# What a command costs, and registers without a message in between. near1 is trapped, near2 mapped.
for round in $(seq $rounds); do
	agent file /sys/class/net/$near1/speed 200 | sed 's/^/result mlx5_core /'
	agent file /sys/class/net/$near2/speed 200 | sed 's/^/result mlx5_mapped /'
done

cards=$(for n in $near1 $near2; do basename $(readlink -f /sys/class/net/$n/device); done)
n=0
for kind in $kinds; do
	n=$((n + 1))
	ip netns del far$n
done
try rmmod mlx5_core
set -- $cards
for card in $cards; do echo 1 >/sys/bus/pci/devices/$card/enable; done
for round in $(seq $rounds); do
	agent registers /sys/bus/pci/devices/$1/resource0 | sed 's/^/result mlx5_core /'
	agent registers /sys/bus/pci/devices/$2/resource0 | sed 's/^/result mlx5_mapped /'
done
try quiet_log
[ $problems = 0 ]
