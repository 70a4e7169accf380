"""Event loops of asyncio, as seen from another thread: which task they wait for, and what could wake them."""

from __future__ import annotations

import os
import sys
import threading

from allranks_frames import caller, current_frames, is_own

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any


def loop_of(frame: FrameType | None) -> Any:
    """Returns the event loop of asyncio that a thread is in while it waits for what comes next; else None."""
    if frame is None or not frame.f_code.co_filename.replace(os.sep, "/").endswith("/selectors.py"):
        return None
    step = caller(frame, "/asyncio/base_events.py", "_run_once")
    return None if step is None else step.f_locals.get("self")


#: Packages whose native threads may wake an event loop, so that it has to watch no file for that.
_NATIVE_WAKERS = ("grpc", "ray", "uvloop", "zmq")


def is_deserted(loop: Any) -> bool:
    """Returns whether nothing could wake an event loop: it has no file but its own, no timer, signal or thread."""
    try:
        own = {loop._ssock.fileno(), loop._csock.fileno()}
        files = {key.fd for key in loop._selector.get_map().values()}
        timers = any(not timer.cancelled() for timer in list(loop._scheduled)) or bool(loop._signal_handlers)
        agent = sys.modules.get("torch.distributed.rpc")
        has_rpc = agent is not None and getattr(agent, "_is_current_rpc_agent_set", lambda: True)()
        known = {threading.main_thread().ident, threading.get_ident()}
        others = any(ident not in known for ident in current_frames())
        native = has_rpc or any(name in sys.modules for name in _NATIVE_WAKERS)
        return files <= own and not timers and not loop._ready and not others and not native
    except Exception:
        return False


def is_unwoken(loop: Any) -> bool:
    """Returns whether an event loop that waits has callbacks which are ready to run.

    It sees them before it waits: they came from another thread, and not by ``call_soon_threadsafe``, which wakes it.
    For a moment that is so of any callback from another thread.
    """
    try:
        return any(not handle.cancelled() for handle in list(loop._ready))
    except Exception:
        return False


def main_task(frame: FrameType | None) -> Any:
    """Returns the task that `asyncio.run` waits for in the thread of this frame; None if there is none."""
    run = caller(frame, "/asyncio/base_events.py", "run_until_complete")
    return None if run is None else run.f_locals.get("future")


#: The number of tasks that are followed, each awaited by the one before.
_TASKS = 200


def waited_futures(task: Any) -> list[Any]:
    """Returns the futures whose results a task awaits, directly or by other tasks."""
    found: list[Any] = []
    steps = [task]
    for step in steps:
        if step is None or len(steps) > _TASKS or step.done():
            continue
        children = getattr(step, "_children", None)
        if hasattr(step, "get_coro"):
            steps.append(getattr(step, "_fut_waiter", None))
        elif children is not None:
            steps += children
        else:
            found.append(step)
    return found


def awaited(frame: FrameType | None) -> FrameType | None:
    """Returns the program's innermost frame in the task that `asyncio.run` waits for; None if there is none."""
    if loop_of(frame) is None:
        return None
    try:
        task = main_task(frame)
        step: Any = None if task is None else task.get_coro()
        found = None
        while step is not None:
            inner = getattr(step, "cr_frame", None)
            if inner is not None and is_own(inner):
                found = inner
            step = getattr(step, "cr_await", None)
        return found
    except Exception:
        return None
