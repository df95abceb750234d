# Linux is the card's own processor: it manages the e-switch, and bridges the host's virtual functions by their
# representors.
. /root/pair.sh

pci=pci/$(card_of eth0)
# reps prints the representors of a flavour.
reps() { devlink port show | sed -n "s/.*type eth netdev \([^ ]*\) flavour $1 .*/\1/p"; }
# count_reps waits for a number of representors of virtual functions.
count_reps() {
	for tenth in $(seq 100); do
		[ "$(reps pcivf | wc -l)" != "$1" ] || return 0
		sleep 0.5
	done
	devlink port show
	return 1
}
# asks asks the host for something that may fail.
asks() {
	ask "$@"
	[ "$answer" = done ]
}
# packets sums a counter of the representors.
packets() {
	sum=0
	for rep in $vfreps; do
		sum=$((sum + $(cat /sys/class/net/$rep/statistics/$1)))
	done
	echo $sum
}
# learned waits until the bridge knows an address and has given it to the card.
learned() {
	for tenth in $(seq 100); do
		! bridge fdb show br br0 | grep -i "^$1 .*offload" || return 0
		sleep 0.2
	done
	bridge fdb show br br0
	return 1
}

echo "== legacy"
try devlink dev eswitch show $pci
try devlink dev eswitch set $pci mode switchdev
echo "== switchdev"
try devlink dev eswitch show $pci
[ $problems = 0 ] || { dmesg | grep -i mlx5 | tail -n 40; exit 1; }
ip link set eth0 up
try asks enable 8
try count_reps 8
vfreps=$(reps pcivf)
devlink port show

echo "== bridge"
modprobe bridge
ip link add br0 type bridge
for rep in $vfreps; do
	try ip link set $rep up master br0
done
ip link set br0 up
try asks talk 10
ask macs
for mac in $answer; do
	try learned $mac
done
before=$(packets rx_packets)
try asks talk 100
after=$(packets rx_packets)
echo "representors received $before frames, then $((after - before)) of 800"
try [ $((after - before)) -lt 100 ]

echo "== down"
ip link del br0
try asks disable
try count_reps 0
try devlink dev eswitch set $pci mode legacy
try devlink dev eswitch show $pci
try rmmod mlx5_core
try quiet_log
[ $problems = 0 ] || { echo "$problems problems"; exit 1; }
