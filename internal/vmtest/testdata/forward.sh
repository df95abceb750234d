# What forwarding a frame of 64 bytes costs our driver: through the kernel's VFIO on the model outside, and with the
# model in its own process, on the same emulated processor.
. /root/pair.sh
for d in /sys/bus/pci/devices/*; do
	[ "$(cat $d/vendor):$(cat $d/device)" != 0x15b3:0x1017 ] || nic=$(basename $d)
done
echo 64 >/proc/sys/vm/nr_hugepages
try cxkit bind $nic >/dev/null
ulimit -l unlimited

# sent FILE: how many frames it says were sent.
sent() { sed -n '/"sent"/,/}/p' $1 | sed -n 's/.*"frames": \([0-9]*\).*/\1/p' | head -n 1; }
hundredths() { tr -d . </proc/uptime | cut -d' ' -f1; }

ask blast
cxkit run --device vfio:$nic --mode reflect --duration 10s --show 0 --json >/tmp/vfio || try false
echo "result vfio forward $((10000000000 / $(sent /tmp/vfio))) ns"
ask silence
# Start and end without frames are not counted.
began=$(hundredths)
cxkit run --play /root/one.pcapng --mode reflect --show 0 --json >/tmp/one || try false
middle=$(hundredths)
cxkit run --play /root/many.pcapng --mode reflect --show 0 --json >/tmp/many || try false
ended=$(hundredths)
echo "result inside forward $(((ended - middle - middle + began) * 10000000 / $(sent /tmp/many))) ns"
exit $problems
