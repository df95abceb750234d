# Reboots in the middle of traffic, and drives the cards again.
. /root/pair.sh

ask boot
boot=$answer
pair_up
try ping -q -c 3 -W 10 $b
try serve
try agent transfer $b:7000 1000000
try quiet_log
[ $problems = 0 ] || { echo "$problems problems"; exit 1; }
if [ "$boot" = first ]; then
	agent blast $b:7000 60s 60 &
	usleep 300000
	reboot -f
	sleep 60
fi
