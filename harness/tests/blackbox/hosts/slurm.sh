#!/bin/sh
# A Slurm of its own, with two nodes on this machine, and a run in an allocation of both.
#
#   sh slurm.sh FOLDER ALLOCATED_NODES COMMAND...
#
# The daemons' files are in FOLDER, and they are ended with the command. Ends with the command's exit code.
set -eu
folder=$1 allocated=$2
shift 2
mkdir -p "$folder/state"
host=$(hostname -s)
# Ports that are free now, below the range from which the kernel takes the ports of connections, so that none gets them first.
ports=$(python3 -c '
import os, socket
held = []
for port in range(20000 + os.getpid() * 13 % 9000, 32000):
    one = socket.socket()
    try:
        one.bind(("", port))
    except OSError:
        continue
    held.append(one)
    if len(held) == 3:
        break
print(*(one.getsockname()[1] for one in held))')
# shellcheck disable=SC2086  # three words
set -- $ports "$@"
controller=$1 first=$2 second=$3
shift 3
export SLURM_CONF="$folder/slurm.conf"
cat >"$SLURM_CONF" <<EOF
ClusterName=allranks
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$controller
AuthType=auth/none
CredType=cred/none
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool-%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd-%n.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
NodeName=one NodeHostname=$host NodeAddr=127.0.0.1 Port=$first CPUs=2
NodeName=two NodeHostname=$host NodeAddr=127.0.0.1 Port=$second CPUs=2
PartitionName=all Nodes=one,two Default=YES State=UP
EOF
echo 'CgroupPlugin=cgroup/v1' >"$folder/cgroup.conf"

# In the foreground, so that their ids are known.
slurmctld -D -c >"$folder/slurmctld.out" 2>&1 &
daemons=$!
slurmd -D -N one >"$folder/one.out" 2>&1 &
daemons="$daemons $!"
slurmd -D -N two >"$folder/two.out" 2>&1 &
daemons="$daemons $!"
end() {
    # shellcheck disable=SC2086  # a list
    kill $daemons 2>/dev/null || true
    # A daemon may wait for a job that it takes for running.
    for _ in $(seq 200); do
        left=
        for one in $daemons; do
            ! kill -0 "$one" 2>/dev/null || left="$left $one"
        done
        [ -n "$left" ] || break
        sleep 0.1
    done
    # shellcheck disable=SC2086  # a list
    [ -z "$left" ] || kill -KILL $left 2>/dev/null || true
    wait
}
trap end EXIT
trap 'exit 1' INT TERM
until [ "$(sinfo --noheader --states=idle --format=%D 2>/dev/null)" = 2 ]; do
    for daemon in $daemons; do
        kill -0 "$daemon" || { cat "$folder"/*.out "$folder"/*.log; exit 1; }
    done
    sleep 0.1
done
code=0
salloc --quiet --nodes="$allocated" "$@" || code=$?
exit $code
