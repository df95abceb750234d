# Two cards on one switch, the second in a network namespace: the guest talks to itself over the wire.
# Sourced by the other scripts.
a=10.0.0.1 b=10.0.0.2
problems=0

# try runs a command and counts a failure.
try() {
	"$@" && return
	echo "FAILED: $*"
	problems=$((problems + 1))
}

# section says what comes, and when.
section() { echo "== $* (at $(cut -d' ' -f1 /proc/uptime) s)"; }

# card_of prints the PCI address behind a network interface.
card_of() { basename "$(readlink -f "/sys/class/net/$1/device")"; }

# pair_up configures both ends and waits for the links.
pair_up() {
	ip netns add b
	ip link set eth1 netns b
	ip addr add $a/24 dev eth0
	ip -n b addr add $b/24 dev eth1
	ip link set eth0 up
	ip -n b link set eth1 up
	ip -n b link set lo up
	try wait_link
}

# carrier tells whether both ends have a link.
carrier() {
	ip link show eth0 | grep -q LOWER_UP && ip -n b link show eth1 | grep -q LOWER_UP
}

wait_link() {
	for tenth in $(seq 200); do
		carrier && return
		usleep 100000
	done
	return 1
}

# pair_down takes the pair apart: deleting the namespace gives its interface back.
pair_down() {
	ip netns del b
	for tenth in $(seq 100); do
		[ ! -e /sys/class/net/eth1 ] || return 0
		usleep 100000
	done
	return 1
}

# serve starts the agent at the far end.
serve() {
	ip netns exec b agent serve $b:7000 >/tmp/serve &
	server=$!
	for tenth in $(seq 100); do
		grep -q serving /tmp/serve && return
		usleep 100000
	done
	return 1
}

# since_init is what the kernel says since its first process began. What it says before is not about a card, which has no
# driver yet: a busy emulator stalls there.
since_init() { dmesg | awk '/Run \/init as init process/ { n = 0; next } { line[n++] = $0 } END { for (i = 0; i < n; i++) print line[i] }'; }

# quiet_log fails when the kernel has something to say against card or driver.
quiet_log() {
	bad='mlx5.*(fail|err|timeout|timed out|unable|bad |unexpected|leak|not released|WARN)|WARNING:|BUG:|Call Trace|csum failure|NETDEV WATCHDOG|stack guard|rcu_.*stall|refused'
	if since_init | grep -E "$bad"; then
		echo "--- dmesg ---"
		dmesg | tail -n 60
		return 1
	fi
}

# ask lets the host look at the card while the guest waits.
ask() {
	echo "@host $*;"
	read -r answer </dev/console
}
