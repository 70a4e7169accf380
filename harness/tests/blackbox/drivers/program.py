"""A program of two ranks, without torch, in which rank 1 (or whoever is named) has one vice: `program.py VICE`.

Every other rank says `ready` and `rank N of 2: done`, and exits with 0.
"""

import os
import signal
import subprocess
import sys
import time

RANK = int(os.environ["RANK"])
# In a folder that goes with the run.
DONE = os.path.join(os.environ["ALLRANKS_WATCH"], "done")


def say(text):
    print(text, flush=True)


def wait_for_rank_0():
    """Wait until rank 0 has ended, and its wrapper has seen it: a launcher ends the other ranks when one fails."""
    while not os.path.exists(DONE):
        time.sleep(0.01)
    with open(DONE) as done:
        pid = int(done.read())
    while os.path.exists(f"/proc/{pid}"):
        time.sleep(0.01)


def exits_42():
    say("ready")
    say("rank 1 of 2: done")
    wait_for_rank_0()
    sys.exit(42)


def killed():
    say("ready")
    say("rank 1 of 2: done")
    wait_for_rank_0()
    os.kill(os.getpid(), signal.SIGKILL)


def silent():
    pass


def says_something_else():
    say("ready")
    say("rank 0 of 2: done")


def leaves_early():
    say("ready")


def swapped():
    say("rank 1 of 2: done")
    say("ready")


def complains():
    say("ready")
    say("WARNING: forbidden")
    say("rank 1 of 2: done")


def hangs():
    say("ready")
    time.sleep(3600)


def ignores_sigterm():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    hangs()


def leaves_a_grandchild():
    """In a session of its own, where no process group reaches it."""
    say("ready")
    say("rank 1 of 2: done")
    subprocess.Popen(["sleep", "3600"], start_new_session=True)


def kills_its_group():
    """Whoever waits for it goes too."""
    say("ready")
    say("rank 1 of 2: done")
    wait_for_rank_0()
    os.killpg(0, signal.SIGKILL)


def floods():
    """Megabytes, most of them one line; the last line is the one that is asked for."""
    say("ready")
    for _ in range(64):
        sys.stdout.write("x" * (1 << 18))
    say("")
    say("rank 1 of 2: done")


def goes_well():
    say("ready")
    say(f"rank {RANK} of 2: done")
    with open(DONE + ".new", "w") as done:
        done.write(str(os.getpid()))
    os.rename(DONE + ".new", DONE)


def busy():
    """Every rank, for as long as it takes to be killed; with a child in a session of its own."""
    say("ready")
    subprocess.Popen(["sleep", "3600"], start_new_session=True)
    time.sleep(3600)


if __name__ == "__main__":
    vice = globals()[sys.argv[1]]
    (vice if RANK == 1 or vice is busy else goes_well)()
