#!/bin/busybox sh
# The guest's first process. /cxkit/config holds its settings, /cxkit/command what to run.
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox --install -s /bin
export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=${TERM:-linux} PS1='guest# '
mkdir -p /tmp /run /root /var /dev/pts /dev/shm /sys/kernel/debug
ln -s /run /var/run
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null
ln -s /proc/self/fd /dev/fd
ln -s fd/0 /dev/stdin
ln -s fd/1 /dev/stdout
ln -s fd/2 /dev/stderr
hostname guest
echo /bin/modprobe >/proc/sys/kernel/modprobe
# busybox's shell prefers its own ip and such to the real ones.
[ ! -e /usr/sbin/bash ] || ln -sf /usr/sbin/bash /bin/sh

. /cxkit/config

# The report: what the command prints, between two lines that nobody else can write.
stty -F /dev/ttyS1 raw -echo
exec 3>/dev/ttyS1
uptime() { cut -d' ' -f1 /proc/uptime; }
echo "$nonce begin $(uptime)" >&3

ip link set lo up
for module in $load; do
	modprobe "$module" || echo "modprobe $module failed" >&3
done
cd /root
if [ -e /cxkit/command ]; then
	# By a pipe: programs that see a terminal colour what they print.
	mkfifo /run/output
	cat /run/output >&3 &
	cat=$!
	exec 4>/run/output
	/bin/sh /cxkit/command </dev/null >&4 2>&1 4>&-
	status=$?
	exec 4>&-
	# Processes that the command left behind keep the pipe open: what they print is not waited for.
	for tenth in 1 2 3 4 5 6 7 8 9 10; do
		kill -0 $cat 2>/dev/null || break
		usleep 100000
	done
else
	setsid cttyhack /bin/sh
	status=$?
fi
printf '\n%s exit %d %s\n' "$nonce" "$status" "$(uptime)" >&3
# Reading back the terminal's settings waits until the report is out.
stty -F /dev/ttyS1 >/dev/null
poweroff -f
