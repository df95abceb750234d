# What forwarding a frame of 64 bytes costs our driver: through the kernel's VFIO on the model outside, and with the
# model in its own process, on the same emulated processor.
. /root/pair.sh
for d in /sys/bus/pci/devices/*; do
	[ "$(cat $d/vendor):$(cat $d/device)" != 0x15b3:0x1017 ] || nic=$(basename $d)
done
echo 64 >/proc/sys/vm/nr_hugepages
# What an access to the card costs by itself.
echo 1 >/sys/bus/pci/devices/$nic/enable
agent registers /sys/bus/pci/devices/$nic/resource0 | sed 's/^/result vfio /'
echo 0 >/sys/bus/pci/devices/$nic/enable
try cxkit bind $nic >/dev/null
ulimit -l unlimited

# sent FILE: how many frames it says were sent.
sent() { sed -n '/"sent"/,/}/p' $1 | sed -n 's/.*"frames": \([0-9]*\).*/\1/p' | head -n 1; }
hundredths() { tr -d . </proc/uptime | cut -d' ' -f1; }

# ticks NAME: what the guest's processor did so far, in hundredths of a second: user, system and interrupts, idle.
ticks() { awk -v name=$1 '$1 == "cpu" { print name, $2 + $3, $4 + $7 + $8, $5 + $6 }' /proc/stat; }

ask blast
cxkit run --device vfio:$nic --mode reflect --duration 14s --show 0 >/tmp/vfio &
run=$!
sleep 4 # it has come up
ask measure
ticks from >/tmp/ticks
sleep 8
ask measure
ticks to >>/tmp/ticks
wait $run || try false
awk '{ for (i = 2; i <= 4; i++) v[$1, i] = $i } END {
	for (i = 2; i <= 4; i++) all += d[i] = v["to", i] - v["from", i]
	print "result guest user", 100 * d[2] / all, "%"
	print "result guest system", 100 * d[3] / all, "%"
	print "result guest idle", 100 * d[4] / all, "%"
}' /tmp/ticks
ask silence
# Start and end without frames are not counted.
began=$(hundredths)
cxkit run --play /root/one.pcapng --mode reflect --show 0 --json >/tmp/one || try false
middle=$(hundredths)
cxkit run --play /root/many.pcapng --mode reflect --show 0 --json >/tmp/many || try false
ended=$(hundredths)
echo "result inside forward $(((ended - middle - middle + began) * 10000000 / $(sent /tmp/many))) ns"
exit $problems
