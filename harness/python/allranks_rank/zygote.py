"""Imports torch once, then forks ranks on request: ``python -m allranks_rank.zygote [MODULE...]``.

MODULE are further modules that each rank would take seconds to import. They are imported too, if they are installed.
A ``fork`` frame may also name a script, which then runs in the forked process in place of a rank.

Receives ``fork`` and ``kill`` frames. Sends ``zygote`` (torch is imported), then ``forked``, ``fork_failed`` and
``exited``. A fork costs milliseconds where a fresh process costs seconds. It is safe only while this process has one
thread and has touched no device, so every fork looks first and is refused otherwise.
"""

import gc
import importlib
import io
import os
import selectors
import signal
import socket
import sys
import time
import types
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

# Before torch is imported: a thread pool made here would not exist in the ranks, and they would wait for it for ever.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

from . import VERSION, huge_pages, rank  # noqa: E402
from .process_exit import (  # noqa: E402
    PR_SET_CHILD_SUBREAPER,
    call_prctl,
    die_with_parent,
    finish,
    outlive_parent,
)
from .wire import Closed, Wire, dial  # noqa: E402

#: The variable that marks every process of a world.
TOKEN = "ALLRANKS_TOKEN"
#: Seconds that killed processes may take to end. One in an uninterruptible wait for a device may never end.
KILL_TIMEOUT = 5.0


def import_torch(modules: Sequence[str] = ()) -> str:
    """Imports everything that each rank would import by itself; returns torch's version.

    Args:
        modules: further modules that ranks will import. One that is not installed is left out; the rank that needs it
            will raise.
    """
    import encodings.idna  # noqa: F401  the lookup of host names needs it

    import torch
    import torch.distributed as dist

    from . import calls, tensors  # noqa: F401

    dist.distributed_c10d  # noqa: B018  with everything it imports
    for module in modules:
        with suppress(ImportError):
            importlib.import_module(module)
    return str(torch.__version__)


def thread_count() -> int:
    """Returns how many threads this process has."""
    return len(os.listdir("/proc/self/task"))


def own_children() -> list[int]:
    """Returns the processes whose parent is this one: ranks, and orphans of ranks that have ended."""
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return [int(pid) for pid in file.read().split()]


def send_signal(pid: int, number: int) -> None:
    """Signals the process group that a child leads, or the child alone if it leads none (yet)."""
    for kill in os.killpg, os.kill:
        try:
            kill(pid, number)
            return
        except ProcessLookupError:
            pass


def has_ended(pid: int, within: float = 0.0) -> bool:
    """Returns whether a child has ended, or does so within some seconds. It stays to be reaped."""
    until = time.monotonic() + within
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() >= until:
            return False
        time.sleep(0.001)
    return True


def state(pid: int) -> str:
    """Returns the letter that ``/proc`` has for the state of a process: ``D`` is a wait that no signal interrupts."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except OSError:
        return "gone"


class Forked(NamedTuple):
    """A living rank, with what its children inherit from it."""

    #: The ``id`` of its ``fork`` frame.
    request: int
    #: The token in its environment.
    token: str | None
    #: The paths of the files that its standard output and standard error go to.
    output: tuple[str, ...] = ()

    def writes_to(self, files: frozenset[str]) -> bool:
        """Returns whether its output goes to one of these files, given by their real paths."""
        return any(os.path.realpath(path) in files for path in self.output if path != os.devnull)


class Zygote:
    """The loop: one connection, one wake-up pipe for SIGCHLD, a table of living ranks."""

    def __init__(self, wire: Wire) -> None:
        """Installs the signal handlers of this process."""
        self.wire = wire
        #: Process id -> rank. An id is here exactly as long as it cannot be reused.
        self.ranks: dict[int, Forked] = {}
        #: Children that were killed and did not end within `KILL_TIMEOUT`, until they are reaped.
        self.unkilled: set[int] = set()
        #: Orphan whose rank is not known -> the ranks that may have left it and have not ended, by process id.
        self.candidates: dict[int, set[int]] = {}
        self._wake_in, self._wake_out = socket.socketpair()
        for end in self._wake_in, self._wake_out:
            end.setblocking(False)
        signal.set_wakeup_fd(self._wake_out.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the harness's to handle
        #: Number of forks so far.
        self._forks = 0
        #: Addresses of memory that is not in huge pages yet.
        self._not_huge = huge_pages.candidate_addresses()
        self._selector = selectors.DefaultSelector()
        self._selector.register(wire.sock, selectors.EVENT_READ)
        self._selector.register(self._wake_in, selectors.EVENT_READ)

    def serve(self) -> Callable[[], int]:
        """Answers frames until the connection closes, which raises `Closed`.

        Returns only in the ranks that it forks: the function that runs the rank and returns its exit code.
        """
        while True:
            # Idle time goes into cheaper forks, a few milliseconds at a time; in busy times `fork` does the same.
            is_worth_it = self._not_huge and self._forks >= huge_pages.FEW_FORKS
            ready = {key.fileobj for key, _ in self._selector.select(0 if is_worth_it else None)}
            if not ready:
                huge_pages.collapse(self._not_huge.pop())
            if self._wake_in in ready:
                self._wake_in.recv(4096)
                self.reap()
            if self.wire.sock in ready:
                self.wire.fill()
                while (frame := self.wire.take()) is not None:
                    body = self.answer(frame[0])
                    if body is not None:
                        return body

    def answer(self, frame: dict[str, Any]) -> Callable[[], int] | None:
        """Answers one frame. Returns None, but in a rank that the frame forked what `serve` returns there.

        Raises:
            ValueError: an unknown frame.
        """
        if frame["frame"] == "fork":
            return self.fork(frame)
        if frame["frame"] == "kill":
            for pid, forked in self.ranks.items():
                if forked.request == frame["id"]:
                    send_signal(pid, frame["signal"])
            return None
        raise ValueError(f"unknown frame {frame['frame']!r}")

    def fork(self, frame: dict[str, Any]) -> Callable[[], int] | None:
        """Forks one rank. Returns None here, and in the rank the function that runs it."""
        try:
            if (count := thread_count()) != 1:
                raise RuntimeError(f"the zygote has {count} threads; forking it is unsafe")
            # Each fork moves one piece more than the last: a world waits little, and sixteen forks later all are moved.
            for _ in range(min(self._forks - huge_pages.FEW_FORKS, len(self._not_huge))):
                huge_pages.collapse(self._not_huge.pop())
            self._forks += 1
            parent = os.getpid()
            pid = os.fork()
        except (OSError, RuntimeError) as error:
            self.wire.send({"frame": "fork_failed", "id": frame["id"], "error": str(error)})
            return None
        if pid == 0:
            return lambda: self.become_rank(frame, parent)
        output = frame["stdout"], frame["stderr"]
        self.ranks[pid] = Forked(frame["id"], frame["env"].get(TOKEN), output)
        self.wire.send({"frame": "forked", "id": frame["id"], "pid": pid})
        return None

    def become_rank(self, frame: dict[str, Any], parent: int) -> int:
        """Runs one rank, or the script of the frame, in the forked process; returns its exit code.

        Before that it closes the zygote's sockets and takes the session, output and environment of the rank.
        """
        os.setsid()
        die_with_parent(parent)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._selector.close()
        for sock in self.wire.sock, self._wake_in, self._wake_out:
            sock.close()
        append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        for descriptor, path, flags in (
            (2, frame["stderr"], append),  # first, so that what goes wrong next has somewhere to go
            (1, frame["stdout"], append),
            (0, os.devnull, os.O_RDONLY),
        ):
            file = os.open(path, flags, 0o644)
            os.dup2(file, descriptor)
            os.close(file)
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)
        os.environ.clear()
        os.environ.update(frame["env"])
        if frame.get("cwd"):
            os.chdir(frame["cwd"])
        # Torch read this variable from the zygote's environment when it was imported. (`random` reseeds itself.)
        dist = sys.modules["torch.distributed"]
        if hasattr(dist, "set_debug_level_from_env"):
            dist.set_debug_level_from_env()
        if "numpy.random" in sys.modules:
            sys.modules["numpy.random"].seed()
        script = frame.get("script")
        return rank.run() if script is None else run_script(script["text"], script["argument"])

    def reap(self) -> None:
        """Sends ``exited`` for every rank that has ended, after killing what it left running."""
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
                self.candidates.pop(pid, None)
                continue
            left_behind = self.kill_orphans(pid)
            os.waitpid(pid, 0)
            exited = end.si_code == os.CLD_EXITED
            self.wire.send(
                {
                    "frame": "exited",
                    "id": self.ranks.pop(pid).request,
                    "pid": pid,
                    "code": end.si_status if exited else None,
                    "signal": None if exited else end.si_status,
                    "left_behind": left_behind,
                }
            )

    def kill_orphans(self, of: int | None = None) -> int:
        """Kills the orphans of an ended rank, whatever session they are in; returns how many of them were running.

        Orphans come to this process because it is a subreaper. An orphan that belongs to another rank in the table is
        left until that rank is reaped. If several ranks in the table may have left it, it is killed when the last of
        them is reaped, and counted for none. One that does not end within `KILL_TIMEOUT` is named on standard error and
        left alone from then on.

        Args:
            of: the rank's process id; None kills the orphans of all ranks.
        """
        seen: set[int] = set()
        limit = time.monotonic() + KILL_TIMEOUT
        running = 0
        for candidates in self.candidates.values():
            candidates.discard(of)
        while True:
            left_alone = self.ranks.keys() | seen | self.unkilled
            orphans = [pid for pid in own_children() if pid not in left_alone and self.may_kill(pid, of)]
            if not orphans:
                return running
            running += sum(not has_ended(pid) for pid in orphans if pid not in self.candidates)
            for pid in orphans:
                send_signal(pid, signal.SIGKILL)
            for pid in orphans:
                # Only when it has ended do its own children become children of this process.
                if not has_ended(pid, within=limit - time.monotonic()):
                    self.unkilled.add(pid)
                    print(f"allranks: cannot kill pid {pid} (state {state(pid)})", file=sys.stderr, flush=True)
            seen.update(orphans)  # until they are reaped they stay among `own_children`

    def may_kill(self, pid: int, of: int | None) -> bool:
        """Returns whether no rank in the table but `of`, which has ended, can have left an orphan; None stands for all.

        Notes the candidates of an orphan that several ranks may have left.
        """
        if of is None:
            return True
        if pid in self.candidates:
            return not self.candidates[pid]
        owner = self.owner(pid)
        others = self.ranks.keys() - {of}
        if owner is None and others:
            self.candidates[pid] = set(others)
            return False
        return owner in (of, None)

    def owner(self, pid: int) -> int | None:
        """Returns the rank in the table that an orphan belongs to; None if that cannot be known.

        Its session tells, or else the token in the environment that it was started with, or else, for a process that
        a rank has forked, the files that its standard output and standard error go to.
        """
        leader = session(pid)
        if leader in self.ranks:
            return leader
        token = token_of(pid)  # the zygote's own, if the process has been forked alone
        marked = [rank for rank, forked in self.ranks.items() if token and forked.token == token]
        if marked:
            return marked[0]
        output = output_of(pid)
        writers = [rank for rank, forked in self.ranks.items() if forked.writes_to(output)]
        return writers[0] if len(writers) == 1 else None

    def kill_everything(self) -> None:
        """Kills all ranks and all their orphans."""
        for pid in self.ranks:
            send_signal(pid, signal.SIGKILL)
        limit = time.monotonic() + KILL_TIMEOUT
        for pid in self.ranks:
            has_ended(pid, within=limit - time.monotonic())
        self.kill_orphans()


def run_script(text: str, argument: str) -> int:
    """Runs a script as ``python -c TEXT ARGUMENT`` would; returns its exit code."""
    sys.argv = ["-c", argument]
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    exec(compile(text, "<string>", "exec"), main.__dict__)
    return 0


def session(pid: int) -> int | None:
    """Returns the session of a process, None if the process is gone."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def token_of(pid: int) -> str | None:
    """Returns the token in the environment that a process was started with.

    None if there is none, or the process is gone.
    """
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = dict(variable.partition(b"=")[::2] for variable in file.read().split(b"\0"))
    except OSError:
        return None
    token = variables.get(TOKEN.encode())
    return None if token is None else token.decode(errors="replace")


def output_of(pid: int) -> frozenset[str]:
    """Returns the files that the standard output and standard error of a process go to; none if it is gone."""
    files = set()
    for descriptor in 1, 2:
        with suppress(OSError):
            files.add(os.readlink(f"/proc/{pid}/fd/{descriptor}"))
    return frozenset(files)


def run() -> int:
    """Runs the zygote, and in each process that it forks a rank; returns the exit code."""
    wire = dial()
    call_prctl(PR_SET_CHILD_SUBREAPER, 1)
    gc.disable()  # imports make objects that stay: looking for garbage among them would take a fifth of the time
    torch_version = import_torch(sys.argv[1:])
    # From here on `serve` notices the end of the connection, and all ranks and orphans are killed before this ends.
    outlive_parent()
    zygote = Zygote(wire)
    # Collections in the ranks then do not copy the pages of these objects. There is no collection before it, as the
    # documentation of `gc.freeze` advises: one would leave holes in pages, and take a tenth of a second.
    gc.freeze()
    gc.enable()
    wire.send(
        {
            "frame": "zygote",
            "version": VERSION,
            "token": os.environ[TOKEN],
            "pid": os.getpid(),
            "torch": torch_version,
            "threads": thread_count(),
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
