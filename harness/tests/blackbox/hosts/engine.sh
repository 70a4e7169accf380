#!/bin/sh
# A run under an engine whose nodes are two hosts, h1 and h2: network namespaces on a bridge, each with an address (10.78.0.11,
# 10.78.0.12) and a name of its own. The run and the engine's own daemon are on a third one, h0.
#
#   unshare [--user --map-root-user] --net --mount --uts sh engine.sh BINARY OUT ENGINE ARGUMENT...
#
# ENGINE: `slurm`, with a slurmd on each host, not in a user namespace, or `mpi`, whose mpirun starts its daemons with nsenter in place of ssh. Ends with
# the run's exit code.
set -eu
binary=$1 out=$2 engine=$3
shift 3
folder=$out.engine
mkdir -p "$folder/state"
printf '127.0.0.1 localhost\n10.78.0.1 h0\n10.78.0.11 h1\n10.78.0.12 h2\n' >"$folder/hosts"
mount --bind "$folder/hosts" /etc/hosts
hostname h0
ip link set lo up
ip link add bridge0 type bridge
ip address add 10.78.0.1/24 dev bridge0
ip link set bridge0 up

export SLURM_CONF="$folder/slurm.conf"
cat >"$SLURM_CONF" <<EOF
ClusterName=allranks
SlurmctldHost=h0(10.78.0.1)
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
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
NodeName=h1 NodeAddr=10.78.0.11 CPUs=8
NodeName=h2 NodeAddr=10.78.0.12 CPUs=8
PartitionName=all Nodes=h1,h2 Default=YES State=UP
EOF
echo 'CgroupPlugin=cgroup/v1' >"$folder/cgroup.conf"

processes=
for number in 1 2; do
    # shellcheck disable=SC2016  # expanded on the host
    unshare --net --uts sh -eu -c '
        until ip link show eth0 >/dev/null 2>&1; do sleep 0.05; done
        hostname "$1"
        ip link set lo up
        ip address add "$2/24" dev eth0
        ip link set eth0 up
        case "$3" in
        slurm) exec slurmd -D -N "$1" ;;
        mpi) exec sleep 86400 ;;
        esac
    ' "h$number" "h$number" "10.78.0.1$number" "$engine" >"$folder/h$number.out" 2>&1 &
    process=$!
    processes="$processes $process"
    echo $process >"$folder/h$number.process"
    until [ "$(readlink "/proc/$process/ns/net")" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
    ip link add "port$number" type veth peer name eth0 netns "$process"
    ip link set "port$number" master bridge0 up
done
if [ "$engine" = slurm ]; then
    slurmctld -D -c >"$folder/slurmctld.out" 2>&1 &
    processes="$processes $!"
fi
end() {
    # shellcheck disable=SC2086  # a list
    kill $processes 2>/dev/null || true
    # A daemon may wait for a job that it takes for running.
    for _ in $(seq 200); do
        left=
        for one in $processes; do
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

code=0
case "$engine" in
slurm)
    until [ "$(sinfo --noheader --states=idle --format=%D 2>/dev/null)" = 2 ]; do
        for process in $processes; do
            kill -0 "$process" || { cat "$folder"/*.out "$folder"/*.log; exit 1; }
        done
        sleep 0.1
    done
    salloc --quiet --nodes=2 "$binary" run "$@" --launcher slurm --nodes 2 --out "$out" || code=$?
    ;;
mpi)
    cat >"$folder/remote" <<EOF
#!/bin/sh
# In place of ssh: HOST COMMAND...
process=\$(cat "$folder/\$1.process")
shift
exec nsenter --net="/proc/\$process/ns/net" --uts="/proc/\$process/ns/uts" sh -c "\$*"
EOF
    chmod +x "$folder/remote"
    "$binary" run "$@" --launcher mpi --nodes 2 --out "$out" \
        --launcher-options="--host h1:8,h2:8 --map-by ppr:1:node --mca plm_rsh_agent $folder/remote" || code=$?
    ;;
esac
exit $code
