#!/bin/sh
# A run whose two nodes are two hosts: network namespaces, joined by a link, in a user namespace. The run and node 1 are on the
# first host, 10.77.0.1; node 2 is on the second, 10.77.0.2. Neither has any other network, nor a resolver that answers.
#
#   unshare --user --map-root-user --net sh two.sh BINARY OUT FAULT ARGUMENT...
#
# FAULT: `none`, or `link`: the link goes down when the run has a result. Prints the exit codes of run, node 1 and node 2.
set -eu
binary=$1 out=$2 fault=$3
shift 3
credentials=$out.credentials

ip link set lo up
ip link add left type veth peer name right
ip address add 10.77.0.1/24 dev left
ip link set left up

unshare --net sh -eu -c '
    until ip link show right >/dev/null 2>&1; do sleep 0.05; done
    ip link set lo up
    ip address add 10.77.0.2/24 dev right
    ip link set right up
    until [ -e "$1" ]; do sleep 0.05; done
    exec "$2" node --credentials "$1"
' second "$credentials" "$binary" >"$out.node2" 2>&1 &
second=$!
until [ "$(readlink /proc/$second/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
ip link set right netns $second

"$binary" run "$@" --launcher attached --nodes 2 --credentials "$credentials" --lost-after 4 --out "$out" \
    >"$out.stdout" 2>"$out.stderr" &
run=$!
until [ -e "$credentials" ] || ! kill -0 $run 2>/dev/null; do sleep 0.05; done
"$binary" node --credentials "$credentials" >"$out.node1" 2>&1 &
first=$!

if [ "$fault" = link ]; then
    until grep -q '"type":"check"' "$out/results.jsonl" 2>/dev/null || ! kill -0 $run 2>/dev/null; do sleep 0.05; done
    ip link set left down
fi

codes=
for process in $run $first $second; do
    code=0
    wait $process || code=$?
    codes="$codes $code"
done
echo "codes$codes"
