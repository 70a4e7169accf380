#!/bin/sh
# A job of two ranks on two hosts, h1 and h2, each under a watch of that job: network namespaces on a bridge in a user namespace,
# with an address (10.79.0.11, 10.79.0.12), a name and an /etc/hosts of their own. The job meets at h1, port 29500.
#
#   unshare --user --map-root-user --net --mount --uts sh job.sh BINARY OUT FAULT COMMAND ARGUMENT...
#
# FAULT is `none`, or befalls host h2 from the start:
#   master     h1 takes no connection from it at the port of the rendezvous
#   others     h1 takes connections from it at that port only, and it takes none from h1
# Prints the exit codes of both watches, in order. What they say is in OUT.h1 and OUT.h2.
set -eu
binary=$1 out=$2 fault=$3
shift 3
ip link set lo up
ip link add bridge0 type bridge
ip link set bridge0 up
printf '127.0.0.1 localhost\n10.79.0.11 h1\n10.79.0.12 h2\n' >"$out.hosts"

watches=
for number in 1 2; do
    unshare --net --mount --uts sh -eu -c '
        number=$1 fault=$2 binary=$3 out=$4
        shift 4
        until ip link show eth0 >/dev/null 2>&1; do sleep 0.05; done
        hostname "h$number"
        ip link set lo up
        ip address add "10.79.0.1$number/24" dev eth0
        ip link set eth0 up
        mount --bind "$out.hosts" /etc/hosts
        drop() {
            nft add table inet fault
            nft add chain inet fault input "{ type filter hook input priority 0; }"
            nft add rule inet fault input ip saddr "$1" $2 tcp flags "& (syn | ack) == syn" drop
        }
        case "$number$fault" in
        1master) drop 10.79.0.12 "tcp dport 29500" ;;
        1others) drop 10.79.0.12 "tcp dport != 29500" ;;
        2others) drop 10.79.0.11 "" ;;
        esac
        export RANK=$((number - 1)) WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=10.79.0.11 MASTER_PORT=29500
        export GLOO_SOCKET_IFNAME=eth0
        exec "$binary" watch --job one --evidence "$out.evidence" --json "$out.json" --kill-on-verdict --patience 6 -- env "$@"
    ' host "$number" "$fault" "$binary" "$out" "$@" >"$out.h$number" 2>&1 &
    watch=$!
    watches="$watches $watch"
    until [ "$(readlink "/proc/$watch/ns/net")" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
    ip link add "port$number" type veth peer name eth0 netns "$watch"
    ip link set "port$number" master bridge0 up
done

codes=
for process in $watches; do
    code=0
    wait "$process" || code=$?
    codes="$codes $code"
done
echo "codes$codes"
