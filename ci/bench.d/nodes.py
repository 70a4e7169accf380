"""Starts runs on two nodes: under a Slurm of its own, and with two agents on this machine."""

import contextlib
import pathlib
import subprocess
import time

HERE = pathlib.Path(__file__).resolve().parent
SLURM = HERE.parent.parent / "harness/tests/blackbox/hosts/slurm.sh"
#: The command that srun starts as each rank. The program reads its rank from torch's variables.
RANK = 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS exec "$@"'


@contextlib.contextmanager
def allocation(folder):
    """Returns the environment of an allocation of two nodes, both on this machine."""
    folder.mkdir()
    told = folder / "environment"
    over = folder / "over"
    hold = f'env -0 > "{told}.part" && mv "{told}.part" "{told}" && until [ -e "{over}" ]; do sleep 0.2; done'
    slurm = subprocess.Popen(["sh", SLURM, folder / "slurm", "2", "sh", "-c", hold], stdout=subprocess.DEVNULL)
    try:
        while not told.exists():
            if slurm.poll() is not None:
                raise RuntimeError(f"Slurm ended with {slurm.returncode}; `ci/setup --with engines` installs it")
            time.sleep(0.05)
        pairs = (line.partition("=") for line in told.read_text().split("\0") if line)
        yield {name: value for name, _, value in pairs}
    finally:
        over.touch()
        slurm.wait()


def srun(python, ranks, port):
    """Returns the command that starts the ranks of `one_all_reduce.py` on two nodes."""
    words = ["srun", "--nodes=2", f"--ntasks={ranks}", f"--ntasks-per-node={ranks // 2}", "--overcommit", "--cpu-bind=none"]
    words += [f"--export=ALL,MASTER_ADDR=127.0.0.1,MASTER_PORT={port},OMP_NUM_THREADS=1"]
    return [*words, "sh", "-c", RANK, "sh", python, HERE / "one_all_reduce.py"]


@contextlib.contextmanager
def agents(allranks, credentials):
    """Starts two node agents, which wait for a run that writes this file."""
    wait = 'until [ -s "$1" ]; do sleep 0.05; done; exec "$0" node --credentials "$1"'
    words = ["sh", "-c", wait, str(allranks), str(credentials)]
    started = [subprocess.Popen(words, stderr=subprocess.DEVNULL) for _ in range(2)]
    try:
        yield
    finally:
        for one in started:
            one.terminate()
            one.wait()
