"""A zygote: imports torch once, then forks ranks on request. ``python -m allranks_rank.zygote``.

In: ``fork`` and ``kill`` frames. Out: ``zygote`` (torch is imported), then ``forked``, ``fork_failed`` and ``exited``.
A fork costs milliseconds where a fresh process costs seconds. It is safe only while this process has one thread and
has touched no device, so every fork looks first and is refused otherwise.
"""

import gc
import os
import selectors
import signal
import socket
import sys
import time
from typing import NamedTuple

# Before torch is imported: a thread pool made here would not exist in the ranks, and they would wait for it for ever.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

from . import VERSION, pages, rank
from .life import PR_SET_CHILD_SUBREAPER, control, die_with_parent, finish
from .wire import Closed, dial

#: The variable that marks every process of a world.
TOKEN = "ALLRANKS_TOKEN"
#: How many seconds killed processes may take to go. What waits for a device and cannot be interrupted may never go.
PATIENCE = 5.0


def import_torch():
    """Imports whatever ranks would import one by one; torch's version."""
    import encodings.idna  # noqa: F401  host names are looked up through it

    import torch
    import torch.distributed as dist

    from . import calls, tensors  # noqa: F401

    dist.distributed_c10d  # noqa: B018  with everything it imports
    return torch.__version__


def threads():
    """How many threads this process has."""
    return len(os.listdir("/proc/self/task"))


def own_children():
    """Processes whose parent is this one: ranks, and orphans of ranks that have ended."""
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return [int(pid) for pid in file.read().split()]


def send_signal(pid, number):
    """Signals the process group that a child leads, or the child alone if it leads none (yet)."""
    for kill in os.killpg, os.kill:
        try:
            return kill(pid, number)
        except ProcessLookupError:
            pass


def ended(pid, within=0.0):
    """Whether a child has ended, or does so within some seconds; it stays to be reaped."""
    until = time.monotonic() + within
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() >= until:
            return False
        time.sleep(0.001)
    return True


def state(pid):
    """The letter that ``/proc`` has for the state of a process, ``D`` where it waits and cannot be interrupted."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return "gone"


class Forked(NamedTuple):
    """A rank: the harness's name for it, and the token that whatever it starts is started with."""

    id: int
    token: str | None


class Zygote:
    """The loop: one connection, one wake-up pipe for SIGCHLD, a table of living ranks."""

    def __init__(self, wire):
        self.wire = wire
        self.ranks = {}  # pid -> Forked; a pid is here exactly as long as it cannot be reused
        self.unkilled = set()  # children that killing did not end, until they are reaped
        self._wake_in, self._wake_out = socket.socketpair()
        for end in self._wake_in, self._wake_out:
            end.setblocking(False)
        signal.set_wakeup_fd(self._wake_out.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the harness's to handle
        self._small = pages.private_regions()
        self._selector = selectors.DefaultSelector()
        self._selector.register(wire.sock, selectors.EVENT_READ)
        self._selector.register(self._wake_in, selectors.EVENT_READ)

    def serve(self):
        """Answers frames until the connection closes. Returns in the ranks it forks, with what to do there."""
        while True:
            # Idle time goes into cheaper forks, a few milliseconds at once.
            ready = {key.fileobj for key, _ in self._selector.select(0 if self._small else None)}
            if not ready:
                pages.collapse(self._small.pop())
            if self._wake_in in ready:
                self._wake_in.recv(4096)
                self.reap()
            if self.wire.sock in ready:
                self.wire.fill()
                while (frame := self.wire.take()) is not None:
                    body = self.obey(frame[0])
                    if body is not None:
                        return body

    def obey(self, frame):
        """Does what one frame says."""
        if frame["frame"] == "fork":
            return self.fork(frame)
        if frame["frame"] == "kill":
            for pid, forked in self.ranks.items():
                if forked.id == frame["id"]:
                    send_signal(pid, frame["signal"])
            return None
        raise ValueError(f"unknown frame {frame['frame']!r}")

    def fork(self, frame):
        """Forks one rank. Returns None here, and in the rank the function that makes it one."""
        try:
            if (count := threads()) != 1:
                raise RuntimeError(f"the zygote has {count} threads; forking it is unsafe")
            parent = os.getpid()
            pid = os.fork()
        except (OSError, RuntimeError) as error:
            self.wire.send({"frame": "fork_failed", "id": frame["id"], "error": str(error)})
            return None
        if pid == 0:
            return lambda: self.become_rank(frame, parent)
        self.ranks[pid] = Forked(frame["id"], frame["env"].get(TOKEN))
        self.wire.send({"frame": "forked", "id": frame["id"], "pid": pid})
        return None

    def become_rank(self, frame, parent):
        """In the forked process: sheds everything that is the zygote's, then runs one rank."""
        os.setsid()
        die_with_parent(parent)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._selector.close()
        for sock in self.wire.sock, self._wake_in, self._wake_out:
            sock.close()
        append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        for fd, path, how in (
            (2, frame["stderr"], append),  # first, so that what goes wrong next has somewhere to go
            (1, frame["stdout"], append),
            (0, os.devnull, os.O_RDONLY),
        ):
            file = os.open(path, how, 0o644)
            os.dup2(file, fd)
            os.close(file)
        sys.stdout.reconfigure(line_buffering=True)
        os.environ.clear()
        os.environ.update(frame["env"])
        if frame.get("cwd"):
            os.chdir(frame["cwd"])
        # What importing read from the zygote's environment, read again from the rank's. (`random` reseeds itself.)
        dist = sys.modules["torch.distributed"]
        if hasattr(dist, "set_debug_level_from_env"):
            dist.set_debug_level_from_env()
        if "numpy.random" in sys.modules:
            sys.modules["numpy.random"].seed()
        return rank.run()

    def reap(self):
        """Reports every rank that has ended, after killing what it left running."""
        while True:
            try:
                # Look first, reap later: until then the pid, and the process group it names, are not reused.
                end = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if end is None:
                return
            pid = end.si_pid
            if pid not in self.ranks:
                os.waitpid(pid, 0)  # an orphan, already dealt with
                self.unkilled.discard(pid)
                continue
            left_behind = self.kill_remains(pid)
            os.waitpid(pid, 0)
            exited = end.si_code == os.CLD_EXITED
            self.wire.send(
                {
                    "frame": "exited",
                    "id": self.ranks.pop(pid).id,
                    "pid": pid,
                    "code": end.si_status if exited else None,
                    "signal": None if exited else end.si_status,
                    "left_behind": left_behind,
                }
            )

    def kill_remains(self, of=None):
        """Kills the orphans of an ended rank, whatever session they fled to; how many of its own were running.

        Orphans come to this process because it is a subreaper. What another rank in the table has left is that rank's
        business, also if it has ended as well and its turn has not come. One that does not go within `PATIENCE` is named on
        standard error and left alone from then on.
        """
        seen = set()
        limit = time.monotonic() + PATIENCE
        running = 0
        while True:
            owners = {pid: self.owner(pid) for pid in own_children() if pid not in self.ranks and pid not in seen | self.unkilled}
            orphans = [pid for pid, owner in owners.items() if of is None or owner in (of, None)]
            if not orphans:
                return running
            running += sum(not ended(pid) for pid in orphans)
            for pid in orphans:
                send_signal(pid, signal.SIGKILL)
            for pid in orphans:
                # Before that, its own children do not come here.
                if not ended(pid, within=limit - time.monotonic()):
                    self.unkilled.add(pid)
                    print(f"allranks: cannot kill pid {pid} (state {state(pid)})", file=sys.stderr, flush=True)
            seen.update(orphans)  # until they are reaped they stay in the list

    def owner(self, pid):
        """The rank in the table whose session an orphan is in, or whose token it was started with; None if neither tells."""
        home = session(pid)
        if home in self.ranks:
            return home
        token = token_of(pid)
        return next((rank for rank, forked in self.ranks.items() if token and forked.token == token), None)

    def kill_everything(self):
        """Leaves no process behind."""
        for pid in self.ranks:
            send_signal(pid, signal.SIGKILL)
        limit = time.monotonic() + PATIENCE
        for pid in self.ranks:
            ended(pid, within=limit - time.monotonic())
        self.kill_remains()


def session(pid):
    """The session of a process, None if it is gone."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def token_of(pid):
    """The token in the environment that a process was started with; None if there is none, or the process is gone."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = dict(variable.partition(b"=")[::2] for variable in file.read().split(b"\0"))
    except OSError:
        return None
    token = variables.get(TOKEN.encode())
    return token and token.decode(errors="replace")


def run():
    """The zygote from first to last; in each rank it forks, the rank from first to last."""
    wire = dial()
    control(PR_SET_CHILD_SUBREAPER, 1)
    torch = import_torch()
    zygote = Zygote(wire)
    gc.collect()
    gc.freeze()  # so that collections in the ranks do not copy every page of it
    wire.send(
        {
            "frame": "zygote",
            "version": VERSION,
            "token": os.environ[TOKEN],
            "pid": os.getpid(),
            "torch": torch,
            "threads": threads(),
        }
    )
    try:
        body = zygote.serve()
    except Closed:
        zygote.kill_everything()
        return 0
    return body()


if __name__ == "__main__":
    die_with_parent(only_if_asked=True)
    finish(run)
