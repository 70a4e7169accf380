"""How a rank ends: with the harness, with its parent, or by itself, and never later than that.

A rank that is blocked in a collective cannot look at its control connection, so a small thread does. Imports no torch.
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


def control(option: int, value: int) -> bool:
    """Calls ``prctl``, where there is one. Returns whether it succeeded."""
    return sys.platform == "linux" and _libc.prctl(option, value, 0, 0, 0) == 0


def die_with_parent(parent: int | None = None, only_if_asked: bool = False) -> None:
    """Has the kernel kill this process when its parent dies.

    Linux means the parent *thread*. A zygote has one, so its ranks always ask for this; a process that the harness
    started asks only if the harness says, by ``ALLRANKS_DIE_WITH_PARENT=1``, that the starting thread lives as long as
    it does.

    Args:
        parent: the process that must still be the parent; if it has died before, this process exits at once.
        only_if_asked: do nothing unless ``ALLRANKS_DIE_WITH_PARENT=1``.
    """
    if only_if_asked and os.environ.get("ALLRANKS_DIE_WITH_PARENT") != "1":
        return
    control(PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os._exit(ORPHANED)  # it died before prctl was called


def outlive_parent() -> None:
    """Takes back what `die_with_parent` has asked the kernel for."""
    control(PR_SET_PDEATHSIG, 0)


class HangupWatch:
    """A thread that ends the process as soon as the control connection is closed at the other end.

    It polls for hang-up only, so it takes no byte from the main thread. In between it calls ``look``, a few times a
    second.
    """

    #: Milliseconds from one look to the next.
    PERIOD = 300

    def __init__(self, sock: socket.socket) -> None:
        """Starts the thread."""
        self.look: Callable[[], object] = lambda: None
        self._is_stopped = False
        self._sock = sock
        threading.Thread(target=self._run, name="allranks-watch", daemon=True).start()

    def _run(self) -> None:
        poll = select.poll()
        # POLLHUP and POLLERR are always reported. POLLRDHUP, on Linux only: the other end will write no more.
        poll.register(self._sock, getattr(select, "POLLRDHUP", 0))
        while not poll.poll(self.PERIOD):
            try:
                self.look()
            except Exception:
                pass  # evidence for a hang is a help; a rank does not fail for want of it
        if not self._is_stopped:
            os._exit(ORPHANED)

    def stop(self) -> None:
        """Expects the connection to close from here on: that no longer ends the process."""
        self._is_stopped = True


def finish(body: Callable[[], int]) -> NoReturn:
    """Calls ``body``, flushes standard output and error, and ends the process with the exit code that ``body`` returns.

    A closed connection is code `ORPHANED`, any other exception code 1. Interpreter shutdown is skipped: it tells
    nothing about the backend (teardown is a step of its own) and costs a forked rank more than all the rest.
    ``ALLRANKS_EXIT=interpreter`` asks for it.
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
            pass  # the log's reader is gone; the exit code is what counts
    _libc.fflush(None)
    os._exit(code or 0)
