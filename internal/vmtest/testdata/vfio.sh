# Our driver on the guest kernel's own VFIO: the conformance suites of package inguest, and cxkit as a user runs it.
. /root/pair.sh

# address_of VENDOR:DEVICE prints where a function is.
address_of() {
	for d in /sys/bus/pci/devices/*; do
		[ "$(cat $d/vendor):$(cat $d/device)" = "$1" ] && basename $d
	done
}

# has PATTERN FILE: a line of the file is like it.
has() { grep -qE "$1" $2 || { echo "no '$1' in $2:"; cat $2; return 1; }; }

# refuses PATTERN COMMAND...: it fails, and says so.
refuses() {
	pattern=$1
	shift
	if "$@" >/tmp/refusal 2>&1; then
		echo "not refused: $*"
		return 1
	fi
	has "$pattern" /tmp/refusal
}

suite=$(address_of 0x1b36:0x0c0d)
nic=$(address_of 0x15b3:0x1017)
export CXKIT_GUEST_SUITE_CARD=$suite CXKIT_GUEST_NIC=$nic
card=vfio:$nic
echo 160 >/proc/sys/vm/nr_hugepages
modprobe virtio_pci 2>/dev/null # built in or a module
modprobe virtio_console 2>/dev/null

# The kernel's driver has the card: cxkit says what to type, and does it.
modprobe mlx5_core
ask begin
try cxkit devices
cxkit devices >/tmp/devices
try has "$nic +ConnectX-5 +mlx5_core" /tmp/devices
try refuses "driver mlx5_core has it: type cxkit bind $nic" cxkit stat --device $card
unsafe=/sys/module/vfio/parameters/enable_unsafe_noiommu_mode
if [ ! -e /sys/bus/pci/devices/$nic/iommu_group ] && [ -e $unsafe ]; then
	export CXKIT_GUEST_NO_IOMMU=1
	echo 1 >$unsafe
fi
try cxkit bind $nic
if [ -n "$CXKIT_GUEST_NO_IOMMU" ]; then
	try refuses 'no IOMMU keeps it.*ask for no-IOMMU by name' cxkit stat --device $card
	card=vfio-noiommu:$nic
fi
try refuses "$suite is no ConnectX.*--force" cxkit bind $suite
try cxkit bind --force $suite
cxkit devices >/tmp/devices
try has "$nic +ConnectX-5 +vfio-pci" /tmp/devices

# An IOMMU that does not remap interrupts: cxkit says what to type.
unsafe=/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts
if [ -e /sys/module/virtio_iommu ]; then
	try refuses "echo 1 > $unsafe" cxkit stat --device $card
	echo 1 >$unsafe
fi

# The suites' results, and all of their output if one failed.
if ! inguest $(cat /root/suite.args) >/tmp/suite 2>&1; then
	tail -n 150 /tmp/suite
	try false
fi
grep -E '^ *--- |guest_test.go' /tmp/suite
try has '^--- PASS: TestTransport ' /tmp/suite
try has '^ *--- PASS: TestCard/NIC/SendAndReceiveAtTheSameTime ' /tmp/suite
try has '^ *--- PASS: TestCard/Speed ' /tmp/suite
ask idle

# Another driver for it, rdma-core's: what it sends is compared outside.
if [ -e /usr/bin/secondopinion ]; then
	ask opinion
	try secondopinion $nic 40 >/tmp/opinion 2>&1
	sed 's/^/second opinion: /' /tmp/opinion
	ask heard
	ask idle
fi

# To mlx5_core and back five times; each side finds a card that works.
for round in 1 2 3 4 5; do
	try cxkit unbind $nic >/dev/null
	for tenth in $(seq 100); do
		[ ! -e /sys/bus/pci/devices/$nic/net ] || break
		usleep 100000
	done
	try [ -e /sys/bus/pci/devices/$nic/net ]
	try cxkit bind $nic >/tmp/bound
	cxkit stat --device $card >/tmp/stat || try false
	try has 'rx_packets_phy' /tmp/stat
done

# under_traffic starts cxkit run and waits until it receives.
under_traffic() {
	cxkit run --device $card --stats-period 100ms --show 0 >/tmp/run 2>&1 &
	run=$!
	for tenth in $(seq 200); do
		! grep -qE 'received [1-9]' /tmp/run || return 0
		usleep 100000
	done
	echo "no traffic:"
	cat /tmp/run
	return 1
}

# Killed in the middle of traffic; a clean start afterwards.
ask flood
try under_traffic
kill -9 $run
wait $run 2>/dev/null
try cxkit run --device $card --count 200 --show 0 >/tmp/run
try has '^ *rx_packets +[0-9]+|200' /tmp/run
try cxkit capture -i $card -c 50 -w /tmp/c.pcapng ether proto 0x88b5 2>/tmp/captured
try has '^50 packets captured' /tmp/captured
try [ $(wc -c </tmp/c.pcapng) -gt 10000 ]

# A report on the card: this one differs from its model only where the kernel shows another configuration space.
cd /tmp
report=$(sh /root/card-report.sh $nic 100ms) || try false
cat $report/differs-from-model
! grep -vE '^(PART|config) ' $report/differs-from-model || try false
try cxkit caps --device $card --diff $report/caps.json
try has '"address": "'$nic /tmp/$report/devices.json
try has 'rx_packets_phy' $report/counters.json
try has '"device": "'$card $report/run.json
try [ $(wc -c <$report/run.trace) -gt 1000 ]

# By which of the kernel's interfaces.
interface='VFIO container, type1v2'
[ ! -e /dev/iommu ] || interface=iommufd
[ -z "$CXKIT_GUEST_NO_IOMMU" ] || interface='no IOMMU'
cxkit caps -vv --device $card >/dev/null 2>/tmp/opened || try false
try has "msg=opened .*interface=\"?$interface" /tmp/opened

# Without rights, with a limit on locked memory. Nobody else than root may use a card without an IOMMU.
if [ -z "$CXKIT_GUEST_NO_IOMMU" ]; then
	files=$(sed -n 's/^for use without root: sudo chown .USER //p' /tmp/bound)
	try refuses "sudo chown .USER /dev/vfio/" agent as 1000 cxkit stat --device $card
	chown 1000:1000 $files
	try refuses 'RLIMIT_MEMLOCK.*ulimit -l' agent as 1000 sh -c "ulimit -l 64; exec cxkit stat --device $card"
	ulimit -l unlimited
	try agent as 1000 cxkit stat --device $card >/dev/null
fi

try quiet_log

# Removed in the middle of traffic: the kernel waits until cxkit has stopped the card and lets go. Nobody can reset a
# card that is being removed: it is the next driver's as cxkit has left it.
try under_traffic
began=$(cut -d. -f1 /proc/uptime)
echo 1 >/sys/bus/pci/devices/$nic/remove
ended=$(cut -d. -f1 /proc/uptime)
! wait $run || try false
try has 'the kernel wants the device back' /tmp/run
[ $((ended - began)) -le 9 ] || try false # the kernel asks again after ten seconds
ask removed
echo 1 >/sys/bus/pci/rescan
for tenth in $(seq 100); do
	[ ! -e /sys/bus/pci/devices/$nic/net ] || break
	usleep 100000
done
cxkit devices >/tmp/devices
try has "$nic +ConnectX-5 +mlx5_core" /tmp/devices
ask end
exit $problems
