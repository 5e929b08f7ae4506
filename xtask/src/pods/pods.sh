# Two pods that talk over TCP; every program is busybox's, so that this runs in a bare virtual machine, too.
# $1: the busybox; $2: a directory for control groups (version 2); $3: a directory for files, in which `watched`
# appears once the agent watches, and `exchanged` once everything was said.
set -eu
box=$1 groups=$2 files=$3
uid_a=0f6b1c2e-4a1d-4c55-9d8e-2f1f6f0a7b01
uid_b=0f6b1c2e-4a1d-4c55-9d8e-2f1f6f0a7b02

group() { echo "$groups/kubepods/burstable/pod$1/container"; }

until_there() {
    until [ -s "$1" ]; do "$box" sleep 0.1; done
}

# Runs a program in a pod's control group.
confine() { # UID, program and arguments
    "$box" sh -c 'echo $$ > "$0/cgroup.procs"; exec "$@"' "$(group "$1")" "$@"
}

# A pod: a control group as a kubelet names it, a network namespace, and a process that keeps both.
pod() { # name, UID
    "$box" mkdir -p "$(group "$2")"
    "$box" sh -c 'echo $$ > "$0/cgroup.procs"; exec "$1" unshare -n "$1" sh -c "echo \$\$ > $2; exec $1 sleep 900"' \
        "$(group "$2")" "$box" "$files/$1.pid" &
    until_there "$files/$1.pid"
}

# Runs one of busybox's programs in a pod.
within() { # name, UID, program and arguments
    pid=$("$box" cat "$files/$1.pid") group=$(group "$2")
    shift 2
    "$box" sh -c 'echo $$ > "$0/cgroup.procs"; exec "$@"' "$group" "$box" nsenter -t "$pid" -n "$box" "$@"
}
a() { within a "$uid_a" "$@"; }
b() { within b "$uid_b" "$@"; }

# Listens in b until the peer has ended. Its own input stays open: end of input would end the connection.
listen() { # port
    "$box" sleep 900 | b nc -l -p "$1" > "$files/got-$1" &
    until b netstat -ltn | "$box" grep -q ":$1 "; do "$box" sleep 0.1; done
}

zeros() { "$box" dd if=/dev/zero bs=1000 count="$1" 2> /dev/null; }

pod a "$uid_a"
pod b "$uid_b"
a ip link add eth0 type veth
a ip link set veth0 netns "$("$box" cat "$files/b.pid")"
b ip link set veth0 name eth0
a ip addr add 10.77.0.1/24 dev eth0
b ip addr add 10.77.0.2/24 dev eth0
a ip link set eth0 up
b ip link set eth0 up
# b routes nothing: what is sent through it vanishes.
a ip route add 10.78.0.0/24 via 10.77.0.2

# Older than the agent.
listen 29501
{ zeros 100; until_there "$files/watched"; "$box" sleep 4; zeros 200; "$box" sleep 2; } | a nc 10.77.0.2 29501 &
older=$!
until_there "$files/got-29501"
echo yes > "$files/waiting"
until_there "$files/watched"

# One of a megabyte, which begins as PyTorch's store does.
listen 29500
{ "$box" sleep 1; "$box" printf '\000\316\367\205\074\001'; "$box" sleep 1; zeros 1000; "$box" sleep 2; } | a nc 10.77.0.2 29500
# Nobody listens.
a nc 10.77.0.2 29502 < /dev/null 2> /dev/null || true
# Nobody answers.
a nc -w 4 10.78.0.1 29503 < /dev/null 2> /dev/null || true
wait "$older"
echo yes > "$files/exchanged"
