"""Ends a rank's process: when the harness or its parent process ends, or with an exit code of its own.

A rank that is blocked in a collective cannot look at its control connection, so a thread does. Imports no torch.
"""

import ctypes
import os
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from typing import NoReturn

from .wire import Closed

#: Exit code of a rank whose control connection closed.
ORPHANED = 70

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


def call_prctl(option: int, value: int) -> bool:
    """Calls ``prctl`` on Linux. Returns whether it succeeded; False on other systems."""
    return sys.platform == "linux" and _libc.prctl(option, value, 0, 0, 0) == 0


def die_with_parent(parent: int | None = None, only_if_asked: bool = False) -> None:
    """Has the kernel kill this process when its parent dies.

    The kernel does so when the parent *thread* ends. A zygote has one thread, so its ranks always ask for this. A
    process that the harness started asks for it only if ``ALLRANKS_DIE_WITH_PARENT=1`` says that the thread which
    started it lives as long as the harness.

    Args:
        parent: the process id of the parent; if that has ended already, this process exits at once.
        only_if_asked: do nothing unless ``ALLRANKS_DIE_WITH_PARENT=1``.
    """
    if only_if_asked and os.environ.get("ALLRANKS_DIE_WITH_PARENT") != "1":
        return
    call_prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os._exit(ORPHANED)  # the parent ended before prctl was called


def outlive_parent() -> None:
    """Undoes `die_with_parent`: the kernel no longer kills this process when its parent ends."""
    call_prctl(PR_SET_PDEATHSIG, 0)


class HangupWatch:
    """A thread that ends the process as soon as the control connection is closed at the other end.

    It polls for hang-up only, so it reads no byte that the main thread waits for. Between two polls it calls
    ``on_poll``.
    """

    #: Milliseconds between two polls.
    PERIOD_MS = 300

    def __init__(self, sock: socket.socket) -> None:
        """Starts the thread."""
        self.on_poll: Callable[[], object] = lambda: None
        self._is_stopped = False
        self._sock = sock
        threading.Thread(target=self._run, name="allranks-watch", daemon=True).start()

    def _run(self) -> None:
        poll = select.poll()
        # POLLHUP and POLLERR are always reported. POLLRDHUP, on Linux only: the other end will write no more.
        poll.register(self._sock, getattr(select, "POLLRDHUP", 0))
        while not poll.poll(self.PERIOD_MS):
            try:
                self.on_poll()
            except Exception:
                pass  # it only gathers hang evidence, whose lack must not fail a rank
        if not self._is_stopped:
            os._exit(ORPHANED)

    def stop(self) -> None:
        """Stops the watch: from here on a closed connection no longer ends the process."""
        self._is_stopped = True


def finish(body: Callable[[], int]) -> NoReturn:
    """Calls ``body``, flushes standard output and error, and ends the process with the exit code that ``body`` returns.

    The code is `ORPHANED` if ``body`` raises `Closed`, and 1 for any other exception. Interpreter shutdown is skipped,
    unless ``ALLRANKS_EXIT=interpreter`` is set: it tests nothing of the backend (teardown is a step of its own), and
    takes longer than all else that a forked rank does.
    """
    try:
        code = body()
    except Closed:
        code = ORPHANED
    except SystemExit as request:
        code = request.code if isinstance(request.code, int) else int(request.code is not None)
        if isinstance(request.code, str):
            print(request.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    if os.environ.get("ALLRANKS_EXIT") == "interpreter":
        sys.exit(code)
    for stream in sys.stdout, sys.stderr:
        try:
            stream.flush()
        except (OSError, ValueError):
            pass  # nothing reads the log any more; the exit code is what counts
    _libc.fflush(None)
    os._exit(code or 0)
