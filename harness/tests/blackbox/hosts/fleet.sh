#!/bin/sh
# Hosts h1, h2, ... as network namespaces on a bridge, in a user namespace: each has an address (10.78.0.11, 10.78.0.12, ...), a name
# and an /etc/hosts of its own. A command of allranks runs beside them, at 10.78.0.1, and a node agent on each host.
#
#   unshare --user --map-root-user --net --mount --uts sh fleet.sh BINARY OUT COUNT FAULT COMMAND ARGUMENT...
#
# FAULT is `none`, or befalls host h2. From the start:
#   loopback   its own name stands for 127.0.1.1, as Debian has it
#   torch      its Python has another torch
#   small      its /dev/shm has 1 MiB
#   into       nothing connects to it from other hosts
#   one-way    h1 does not connect to it
#   pair       it and h1 do not connect to each other
#   others     it and h3 do not connect to each other
#   data       it and h1 connect to each other on ports below 32768 only, where rendezvous are and no listeners of backends
#   rendezvous it and h1 do not connect to each other on ports below 32768
#   slow       its link carries 256 kbit/s
#   mtu        packets of more than 900 bytes are dropped on the way to it, and nothing says so
# or when the run has a result:
#   link       its link goes down
#   back       its link goes down, and up again after 5 s
#   drops      the same three times, for 2 s each
#   agent      its agent is killed
#   gone       everything on it is killed, and its link is removed
#   filtered   h1 takes no new connection from it
# Prints the exit codes of the command and of the agents, in order.
set -eu
binary=$1 out=$2 count=$3 fault=$4
shift 4
credentials=$out.credentials
ip link set lo up
ip link add bridge0 type bridge
ip address add 10.78.0.1/24 dev bridge0
ip link set bridge0 up

numbers=$(seq 1 "$count")
agents=
for number in $numbers; do
    name=h$number address=10.78.0.1$number
    unshare --net --mount --uts sh -eu -c '
        name=$1 address=$2 fault=$3 credentials=$4 binary=$5 out=$6
        until ip link show eth0 >/dev/null 2>&1; do sleep 0.05; done
        hostname "$name"
        ip link set lo up
        ip address add "$address/24" dev eth0
        ip link set eth0 up
        # A packet is then no larger than what the link carries: those of several segments would pass unseen.
        [ "$fault" != mtu ] || ip link set eth0 gso_max_segs 1
        own=$address
        if [ "$name" = h2 ]; then
            [ "$fault" != loopback ] || own=127.0.1.1
            [ "$fault" != small ] || mount -t tmpfs -o size=1m tmpfs /dev/shm
            [ "$fault" != slow ] || tc qdisc add dev eth0 root tbf rate 256kbit burst 4k latency 4s
            [ "$fault" != torch ] || export ALLRANKS_PYTHON="$out.python"
            case "$fault" in
            into) from="10.78.0.2-10.78.0.255" ;;
            one-way | pair) from="10.78.0.11" ;;
            others) from="10.78.0.13" ;;
            *) from= ;;
            esac
            if [ -n "$from" ]; then
                nft add table inet fault
                nft add chain inet fault input "{ type filter hook input priority 0; }"
                nft add rule inet fault input ip saddr "$from" ct state new tcp flags syn drop
            fi
            case "$fault" in
            pair | others)
                nft add chain inet fault output "{ type filter hook output priority 0; }"
                nft add rule inet fault output ip daddr "$from" tcp flags "& (syn | ack) == syn" drop
                ;;
            esac
        fi
        case "$name$fault" in
        h[12]data) ports=32768-65535 ;;
        h[12]rendezvous) ports=20000-32767 ;;
        *) ports= ;;
        esac
        if [ -n "$ports" ]; then
            nft add table inet fault
            nft add chain inet fault input "{ type filter hook input priority 0; }"
            nft add rule inet fault input iifname eth0 ip saddr 10.78.0.11-10.78.0.12 ct state new tcp dport "$ports" drop
        fi
        printf "127.0.0.1 localhost\n%s %s\n" "$own" "$name" >"$out.$name.hosts"
        mount --bind "$out.$name.hosts" /etc/hosts
        until [ -s "$credentials" ]; do sleep 0.05; done
        # Ranks meet on the host that comes first, which reaches both.
        case "$name$fault" in
        h[23]others) until grep -q "is here: h1" "$out.stderr" 2>/dev/null; do sleep 0.05; done ;;
        esac
        exec "$binary" node --credentials "$credentials"
    ' "$name" "$name" "$address" "$fault" "$credentials" "$binary" "$out" >"$out.$name" 2>&1 &
    agent=$!
    agents="$agents $agent"
    until [ "$(readlink "/proc/$agent/ns/net")" != "$(readlink /proc/self/ns/net)" ]; do
        kill -0 "$agent" || exit 1
        sleep 0.05
    done
    ip link add "port$number" type veth peer name eth0 netns "$agent"
    ip link set "port$number" master bridge0 up
    [ "$number$fault" != 2mtu ] || ip link set port2 mtu 900
done

"$binary" "$@" --launcher attached --nodes "$count" --credentials "$credentials" --listen 10.78.0.1:0 \
    >"$out.stdout" 2>"$out.stderr" &
command=$!

# A host that fails before its agent has come would be waited for: then it is over, and what the host said is shown.
until [ "$(grep -c "is here" "$out.stderr")" -ge "$count" ] || ! kill -0 $command 2>/dev/null; do
    for number in $numbers; do
        # shellcheck disable=SC2086  # a list
        agent=$(echo $agents | cut -d " " -f "$number")
        kill -0 "$agent" 2>/dev/null && continue
        kill -TERM $command 2>/dev/null || break
        echo "the agent of h$number has ended:" && cat "$out.h$number"
        break 2
    done
    sleep 0.05
done

# shellcheck disable=SC2086  # a list
set -- $agents
case "$fault" in
link | back | drops | agent | gone | filtered)
    until grep -q '"type":"check"' "$out/results.jsonl" 2>/dev/null || ! kill -0 $command 2>/dev/null; do sleep 0.05; done
    ;;
esac
case "$fault" in
link) ip link set port2 down ;;
back)
    ip link set port2 down
    sleep 5
    ip link set port2 up
    ;;
drops)
    for _ in 1 2 3; do
        ip link set port2 down
        sleep 2
        ip link set port2 up
        sleep 1
    done
    ;;
agent) kill -KILL "$2" ;;
gone)
    # Everything that has the host's network.
    place=$(readlink "/proc/$2/ns/net")
    for process in /proc/[0-9]*; do
        [ "$(readlink "$process/ns/net" 2>/dev/null)" != "$place" ] || kill -KILL "${process#/proc/}" 2>/dev/null || true
    done
    # Mostly it has gone with the host.
    ip link delete port2 2>/dev/null || true
    ;;
filtered)
    nsenter --net="/proc/$1/ns/net" sh -eu -c '
        nft add table inet fault
        nft add chain inet fault input "{ type filter hook input priority 0; }"
        nft add rule inet fault input ip saddr 10.78.0.12 ct state new tcp flags syn drop'
    ;;
esac

codes=
for process in $command "$@"; do
    code=0
    wait "$process" || code=$?
    codes="$codes $code"
done
echo "codes$codes"
