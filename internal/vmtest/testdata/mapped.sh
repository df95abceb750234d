# What a lost doorbell or arm would stop: short frames one by one, transfers, queues that come and go.
. /root/pair.sh

pair_up
try ping -q -c 3 -W 5 $b
try serve
ask before
try agent transfer $b:7000 10000000
ask after
try agent echo $b:7000 200 64
for round in 1 2 3; do
	ip link set eth0 down
	ip link set eth0 up
	try wait_link
	ip addr replace $a/24 dev eth0
	try ping -q -c 1 -W 10 $b
done
try agent transfer $b:7000 1000000
kill $server
try pair_down
try rmmod mlx5_core
ask books
try quiet_log
[ $problems = 0 ] || { echo "$problems problems"; exit 1; }
