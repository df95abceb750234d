# What mlx5_core says of a card that breaks: the lines that operators alert on, and a guest that lives on.
# The card tells the driver to wait a second for a command.
. /root/pair.sh

# fresh begins a part: log prints what the kernel has said since.
mark=0
fresh() {
	mark=$((mark + 1))
	echo "cxkit part $mark" >/dev/kmsg
}
log() { dmesg | sed "1,/cxkit part $mark\$/d"; }

# says PATTERN [SECONDS]: the kernel has printed a line like it in this part, or does so in time.
says() {
	end=$(($(cut -d. -f1 /proc/uptime) + ${2:-20}))
	while [ "$(cut -d. -f1 /proc/uptime)" -lt $end ]; do
		log | grep -qE "$1" && { log | grep -m 1 -E "$1"; return 0; }
		usleep 200000
	done
	echo "not in dmesg: $1"
	log | tail -n 40
	return 1
}

# alive: the driver still works, and the kernel is well.
alive() {
	try ethtool -S eth0 >/dev/null
	if dmesg | grep -E 'BUG:|Oops|general protection|Kernel panic'; then
		return 1
	fi
}

# up brings the interface up and waits for its link.
up() {
	ip addr add $a/24 dev eth0
	ip link set eth0 up
	for tenth in $(seq 200); do
		ip link show eth0 | grep -q LOWER_UP && return
		usleep 100000
	done
}
up

# Of a command without mailboxes: Linux frees those of a command that timed out, and firmware that answers
# late writes to memory that is in use for something else, on real cards as here.
echo "== a late completion"
fresh
ask inject late opcode=QUERY_VPORT_STATE delay=9s times=1
ip link set eth0 down
ip link set eth0 up
try says 'cmd\[[0-9]+\]: QUERY_VPORT_STATE\(0x750\) No done completion'
try says 'QUERY_VPORT_STATE\(0x750\) timeout\. Will cause a leak of a command resource'
try says 'Command completion arrived after timeout \(entry idx = [0-9]+\)'
try alive

echo "== lost interrupts"
fresh
ask inject lost-interrupt vector=0 times=1
ethtool -m eth0 >/dev/null 2>&1
ethtool -S eth0 >/dev/null
try says 'Recovered [0-9]+ EQEs on cmd_eq'
try says 'recovered after timeout'
try alive

echo "== a refused register"
fresh
ask inject bad-status opcode=ACCESS_REG status=bad_operation syndrome=0x1 times=1
ethtool -m eth0 >/dev/null 2>&1
try says 'ACCESS_REG\(0x805\) op_mod\(0x[01]\) failed, status bad operation\(0x2\)'
try alive

echo "== the slot's power, the module's temperature, the cable"
fresh
ask inject power watts=27 for=1s
try says 'Detected insufficient power on the PCIe slot \(27W\)'
ask inject module module_status=error module_error=high_temperature
try says 'Port module event\[error\]: module 0, Cable error, High Temperature'
ask inject unplug for=3s
try says 'Port module event: module 0, Cable unplugged'
try says 'Port module event: module 0, Cable plugged'
try says 'Link up'
try alive

echo "== a failure that asks for a reset, and the recovery"
fresh
ask inject health synd=0x8 rfr=true severity=2
try says 'Fatal error 5 detected' 30
try says 'synd 0x8: unrecoverable hardware error'
try says 'mlx5_error_sw_reset.*: start'
try says 'Issuing FW Reset'
try says 'mlx5_error_sw_reset.*: end'
try says 'starting health recovery flow'
try says 'health recovery succeeded' 60
if log | grep -E 'Failed to (set gw space|lock SW reset semaphore)|NIC IFC still'; then
	problems=$((problems + 1))
fi
up
try alive

# What follows leaves slots in Linux's hands for good: its recovery would wait for them without end
# (mlx5_cmd_flush).
echo "== lost completion events"
fresh
ask inject lost-eqe opcode=ACCESS_REG times=2
for time in 1 2; do
	ethtool -m eth0 >/dev/null 2>&1
done
try says 'ACCESS_REG\(0x805\) timeout\. Will cause a leak of a command resource'
# Slot 0 can't be named to the card: 0 is "the next one".
slot=$(log | sed -n 's/.*cmd\[\([1-9][0-9]*\)\]: ACCESS_REG(0x805) No done completion.*/\1/p' | tail -n 1)
[ -n "$slot" ] || { echo "no slot is left"; log; exit 1; }

# A ghost: the first event for a slot that Linux has given up, and not one of its command. An event for a slot
# that has no command is another matter: Linux 6.12 keeps a pointer to the freed command and follows it
# (cmd_free_index, mlx5_cmd_comp_handler).
echo "== a completion event that names slot $slot instead of its own"
fresh
ask inject wrong-slot opcode=ACCESS_REG "to=$slot" times=1
ethtool -m eth0 >/dev/null 2>&1
try says "Command completion arrived after timeout \(entry idx = $slot\)"
try says 'cmd\[[0-9]+\]: ACCESS_REG\(0x805\) No done completion'
try says 'ACCESS_REG\(0x805\) timeout\. Will cause a leak of a command resource'
try alive

# Nothing else may be sent meanwhile: the next doorbell tells of what is posted before it, too.
echo "== lost doorbells of a send queue"
fresh
echo 1 >/proc/sys/net/ipv6/conf/eth0/disable_ipv6
# The watchdog looks at stopped queues only. With a byte limit of one the first packet that stays stops the
# queue; the limit takes effect at the next completion.
for limit in /sys/class/net/eth0/queues/tx-*/byte_queue_limits/limit_max; do
	echo 1 >"$limit"
done
ping -q -c 1 -w 2 $b >/dev/null
usleep 500000
ask inject lost-doorbell doorbell=sq for=5s
ping -q -c 1 -w 2 $b >/dev/null
try says 'TX timeout detected' 60
try says 'TX timeout on queue: 0, SQ: 0x[0-9a-f]+, CQ: 0x[0-9a-f]+, SQ Cons: 0x[0-9a-f]+ SQ Prod: 0x'
try alive

echo "== an assertion of firmware, with the whole health buffer"
fresh
ask inject health for=20s
try says 'assert_var\[0\] 0x0521945b' 30
try says 'assert_exit_ptr 0x21492f38'
try says 'assert_callra 0x2102d5f0'
try says 'irisc_index 3'
try says 'synd 0x1: firmware internal error'
try says 'ext_synd 0x8f7a'
try says 'health compromised - reached miss count' 30

[ $problems = 0 ] || { echo "$problems problems"; exit 1; }
echo "all is well"
