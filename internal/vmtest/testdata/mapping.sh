# What it takes to let a card reach 1 GiB: BenchmarkMapAGibibyte of package vfio, on the kernel's own.
. /root/pair.sh
for d in /sys/bus/pci/devices/*; do
	[ "$(cat $d/vendor):$(cat $d/device)" != 0x15b3:0x1017 ] || nic=$(basename $d)
done
echo 600 >/proc/sys/vm/nr_hugepages
try cxkit bind $nic >/dev/null
ulimit -l unlimited
CXKIT_GUEST_NIC=$nic vfiotest -test.run XXX -test.bench MapAGibibyte -test.benchtime 5x >/tmp/mapping || try false
cat /tmp/mapping
# NAME N VALUE UNIT VALUE UNIT...
awk '/^BenchmarkMapAGibibyte/ { for (i = 3; i < NF; i += 2) if (sub("-ms", "", $(i + 1))) print "result vfio", $(i + 1), $i, "ms" }' /tmp/mapping
exit $problems
