# A virtual function in each of two guests: they ping one another through the e-switch, in both modes.
. /root/pair.sh

ask who
me=$answer
other=$((3 - me))
echo "== virtual function $me"
ethtool -i eth0
ip link set eth0 up
ip addr add 10.9.0.$me/24 dev eth0
for mode in legacy switchdev legacy; do
	ask "mode $mode"
	echo "== $mode"
	try ping -q -c 5 -w 60 10.9.0.$other
	try ping -q -c 2 -w 30 -s 4001 10.9.0.$other
	ask "done $mode"
done
received=$(ethtool -S eth0 | sed -n 's/.*rx_vport_unicast_packets: //p')
echo "received $received frames"
try [ "$received" -ge 20 ]
try quiet_log
[ $problems = 0 ] || { echo "$problems problems"; exit 1; }
