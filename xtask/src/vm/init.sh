#!/bin/busybox sh
# The first program in the virtual machine: the agent beside two pods that talk, then everything the agent said goes
# to the second serial port, a section each, and the machine switches itself off.
box=/bin/busybox
$box mount -t proc proc /proc
$box mount -t sysfs sysfs /sys
$box mount -t securityfs securityfs /sys/kernel/security
$box mount -t devtmpfs devtmpfs /dev
$box mount -t tmpfs tmpfs /tmp
$box mount -t cgroup2 cgroup2 /sys/fs/cgroup
$box insmod /veth.ko
$box ip link set lo up
$box stty -F /dev/ttyS1 raw

# At most so many seconds, so that the machine ends in any case.
wait_for() { # seconds, command
    left=$1
    shift
    until "$@"; do
        left=$((left - 1))
        [ $left -gt 0 ] || return 0
        $box sleep 1
    done
}
ready() { $box wget -q -O /tmp/readyz http://127.0.0.1:9745/readyz 2> /dev/null; }

$box mkdir /tmp/pods
$box sh /pods.sh $box /sys/fs/cgroup /tmp/pods > /tmp/pods.log 2>&1 &
wait_for 60 [ -s /tmp/pods/waiting ]
# As a container's: no capabilities but these two.
/bin/setpriv --no-new-privs --bounding-set=-all,+bpf,+perfmon /bin/firedoor agent --node NODE --inventory /inventory \
    --record /tmp/capture --listen 127.0.0.1:9745 --config /firedoor.toml 2> /tmp/agent.log &
agent=$!
wait_for 90 ready
$box sleep 5
echo yes > /tmp/pods/watched
wait_for 60 [ -s /tmp/pods/exchanged ]
kill -TERM $agent
wait $agent

section() {
    echo "== $1"
    $box cat "$2" 2> /dev/null
    echo
}
{
    section kernel /proc/version
    section readyz /tmp/readyz
    section recording /tmp/capture/sockets.jsonl
    section agent /tmp/agent.log
    section pods /tmp/pods.log
    section lockdown /sys/kernel/security/lockdown
    echo "== end"
} > /dev/ttyS1
$box sleep 1
$box poweroff -f
