"""How a rank ends: with the harness, with its parent, or by itself, and never later than that.

A rank blocked in a collective cannot look at its control connection, so a small thread does. Imports no torch.
"""

import ctypes
import os
import select
import signal
import sys
import threading
import traceback

from .wire import Closed

#: Exit code of a rank whose control connection closed.
ORPHANED = 70

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


def control(option, value):
    """``prctl`` where there is one; says whether it worked."""
    return sys.platform == "linux" and _libc.prctl(option, value, 0, 0, 0) == 0


def die_with_parent(parent=None, only_if_asked=False):
    """Has the kernel kill this process when its parent dies.

    Linux means the parent *thread*. A zygote has one, so it always asks for this; a process that the harness started
    asks only if the harness says, by ``ALLRANKS_DIE_WITH_PARENT=1``, that the starting thread lives as long as it does.
    """
    if only_if_asked and os.environ.get("ALLRANKS_DIE_WITH_PARENT") != "1":
        return
    control(PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os._exit(ORPHANED)  # it died before we asked


class Watch:
    """A thread that ends the process as soon as the control connection is closed at the other end.

    It polls for hang-up only, so it takes no byte from the main thread. In between it calls ``look``, a few times a second.
    """

    #: Milliseconds from one look to the next.
    PERIOD = 300

    def __init__(self, sock):
        self.look = lambda: None
        self._over = False
        self._sock = sock
        threading.Thread(target=self._watch, name="allranks-watch", daemon=True).start()

    def _watch(self):
        poll = select.poll()
        # POLLHUP and POLLERR are always reported; POLLRDHUP is Linux's word for "no more to read".
        poll.register(self._sock, getattr(select, "POLLRDHUP", 0))
        while not poll.poll(self.PERIOD):
            try:
                self.look()
            except Exception:
                pass  # what it looks for is a help and no more
        if not self._over:
            os._exit(ORPHANED)

    def stop(self):
        """From here on a closed connection is what the rank expects."""
        self._over = True


def finish(body):
    """Calls ``body``, flushes everything, and ends the process with its exit code.

    Interpreter shutdown is skipped: it tells nothing about the backend (teardown is a step of its own) and costs a
    forked rank more than all the rest. ``ALLRANKS_EXIT=interpreter`` asks for it.
    """
    try:
        code = body()
    except Closed:
        code = ORPHANED
    except SystemExit as exit:
        code = exit.code if isinstance(exit.code, int) else int(exit.code is not None)
        if isinstance(exit.code, str):
            print(exit.code, file=sys.stderr)
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
