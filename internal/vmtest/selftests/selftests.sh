# Runs the kernel's own driver tests on each kind of card in turn. /root/plan sets kinds, endpoint and pair: what to
# run against a far end in a network namespace, and what with both interfaces here.
. /root/plan
export PATH=/usr/sbin:/usr/bin:/bin LC_ALL=C PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
export INTERFACE_TIMEOUT=60 WAIT_TIME=2 # of net/forwarding/lib.sh: an emulated cable takes no time to plug
mount -t bpf bpf /sys/fs/bpf
tests=/src/tools/testing/selftests
bad='(fail|err|timeout|timed out|unable|bad |unexpected|leak|not released)'
worse='WARNING:|BUG:|Call Trace|csum failure|NETDEV WATCHDOG|rcu_.*stall'

nets() { for d in /sys/bus/*/drivers/$1/*/net/*; do [ ! -e $d ] || basename $d; done; }

wait_up() {
	for tenth in $(seq 300); do
		ip link show $near | grep -q LOWER_UP && "$@" ip link show $far | grep -q LOWER_UP && return
		sleep 0.1
	done
	return 1
}

# ready configures the near end; a test that took it down cost it its IPv6 address.
ready() {
	ip link set $near up
	ip addr replace $net4.1/24 dev $near
	ip addr replace $net6::1/64 dev $near nodad
}

# apart gives the far end a namespace of its own.
apart() {
	ip netns add far
	ip link set $far netns far
	ip addr flush dev $near
	ready
	ip -n far link set lo up
	ip -n far addr add $net4.2/24 dev $far
	ip -n far addr add $net6::2/64 dev $far nodad
	ip -n far link set $far up
	wait_up ip netns exec far
}

# together takes the namespace away: its interface comes back.
together() {
	ip netns del far
	for tenth in $(seq 300); do
		[ ! -e /sys/class/net/$far ] || break
		sleep 0.1
	done
	ip addr flush dev $near
	ip link set $near down
	ip link set $far down
}

# one runs a test and prints what it says between two lines that the host knows.
one() {
	folder=$(dirname $1) test=$(basename $1)
	shift
	dmesg -C
	began=$SECONDS
	echo "@test $kind $folder/$test"
	set -- ./$test "$@"
	[ $test != csum.py ] || set -- python3 /root/csum_env.py "$@"
	(cd $tests/$folder && timeout -k 5 900 "$@" 2>&1)
	echo "@status $? $((SECONDS - began)) s"
	dmesg | grep -E "$kind.*$bad|$worse" | head -n 5 | sed 's/^/@dmesg /'
	echo "@end"
}

# starts prints how long a start of ethtool takes, in milliseconds: the mean of five.
starts() {
	began=$(date +%s%N)
	for i in 1 2 3 4 5; do ethtool --version >/dev/null; done
	echo $((($(date +%s%N) - began) / 5000000))
}

# speed tells how fast the guest starts a program while nothing else runs and beside the streams of rss_ctx.py
# (lib/py/load.py), which gives one 200 ms.
speed() {
	idle=$(starts)
	iperf3 -s -1 >/dev/null &
	server=$!
	sleep 2
	ip netns exec far iperf3 -c $net4.1 -P 16 -t 86400 >/dev/null &
	client=$!
	sleep 4
	echo "@starts $kind $idle $(starts)"
	kill $client $server
	wait $client $server
}

n=0
for kind in $kinds; do
	n=$((n + 1))
	net4=10.9.$n net6=fd00:9:$n
	modprobe $kind
	for tenth in $(seq 300); do
		[ $(nets $kind | wc -l) -lt 2 ] || break
		sleep 0.1
	done
	set -- $(nets $kind)
	near=$1 far=$2
	export NETIF_NO_CABLE=${3:-none} # cxkit has a third card, without one
	echo "@kind $kind $(ethtool -i $near | tr '\n' ' ')"
	ethtool -K $near ntuple on # which the tests want somebody to have done
	apart || echo "@problem $kind has no link"
	export NETIF=$near LOCAL_V4=$net4.1 LOCAL_V6=$net6::1 REMOTE_V4=$net4.2 REMOTE_V6=$net6::2 REMOTE_TYPE=netns REMOTE_ARGS=far REMOTE_IFNAME=$far
	for t in $endpoint; do
		ready
		[ ${t##*/} != rss_ctx.py ] || speed
		one $t
		wait_up ip netns exec far || echo "@problem $kind has no link after $t"
	done
	together
	unset NETIF LOCAL_V4 LOCAL_V6 REMOTE_V4 REMOTE_V6 REMOTE_TYPE REMOTE_ARGS REMOTE_IFNAME
	for t in $pair; do
		one $t $near $far
	done
done
