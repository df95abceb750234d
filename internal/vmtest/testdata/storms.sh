# Firmware asks for pages that nothing needs and gives all of them back, again and again; the kernel's own
# count of what firmware has, and the card's, stay the same.
. /root/pair.sh

pages=/sys/kernel/debug/mlx5/$(card_of eth0)/pages
total() { cat "$pages/fw_pages_total"; }

ip link set eth0 up
before=$(total)
[ "$before" -gt 0 ] || { echo "the kernel says that firmware has $before pages"; exit 1; }
ask "same $before"
echo "firmware has $before pages"

# A round is a command of the driver's: the card returns 1,000 pages in one, Linux asks for 50,000 at most.
for storm in $(seq 20); do
	ask "storm $((3000 + storm))"
	ask "same $(total)"
	try [ "$(total)" = "$before" ]
done
ask "storm 60000"
ask "same $(total)"
try [ "$(total)" = "$before" ]
for count in fw_pages_alloc_failed fw_pages_give_dropped fw_pages_reclaim_discard; do
	[ ! -e "$pages/$count" ] || try [ "$(cat "$pages/$count")" = 0 ]
done
echo "after 21 storms firmware has $(total) pages"
try quiet_log
rmmod mlx5_core
ask "same 0"
[ $problems = 0 ] || { echo "$problems problems"; exit 1; }
