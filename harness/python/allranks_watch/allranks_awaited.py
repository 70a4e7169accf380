"""Finds the thread that the main thread waits for: one that it joins, or the only one that can end its wait.

That another thread is in a call does not mean that the main thread waits for it: beside training there are threads for
heartbeats and metrics. So the thread is found by what the main thread waits on: the thread that it joins, the future
that a thread computes, or a queue, event or condition whose methods the code of the thread names.
"""

from __future__ import annotations

import os
import threading

from allranks_frames import caller, current_frames, is_finished, is_own
from allranks_loop import loop_of, main_task, waited_futures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import CodeType, FrameType
    from typing import Any

    from allranks_place import Inside

    #: The innermost frame of each thread, by thread id.
    Frames = dict[int, FrameType]

#: A blocking function of Python's library, by the end of its file's path and its name -> the methods that end its wait.
_WAKING_METHODS = {
    ("/queue.py", "get"): {"put", "put_nowait"},
    ("/queue.py", "put"): {"get", "get_nowait"},
    ("/queue.py", "join"): {"task_done"},
    ("/threading.py", "wait"): {"set", "notify", "notify_all", "wait"},
    ("/threading.py", "acquire"): {"release"},
}
#: The largest number of threads in a chain of which each waits for the next.
_STEPS = 8
#: The number of frames of a thread whose code is looked at.
_FRAMES = 20
#: The number of functions, each named by the one before, that are looked at.
_CALLS = 2
#: `CO_OPTIMIZED` of a code object: its variables are not in a dictionary of their own.
_OPTIMIZED = 1


def awaited_call(inside: dict[int, Inside], groups: set[str]) -> Inside | None:
    """Returns the call of the thread that the main thread waits for; None if none is known to be awaited.

    Args:
        inside: thread id -> the call that the thread is in.
        groups: the keys of the groups that the process has called on.
    """
    frames = current_frames()
    if is_finished():
        return last_call(frames, inside)
    main = frames.get(threading.main_thread().ident or 0)
    if main is None:
        return None
    if any("/torch/autograd/" in name for name, _ in waiting_files(main)):
        return oldest(inside, (ident for ident in inside if is_native(frames.get(ident))))
    loop = loop_of(main)
    if loop is not None:
        return call_of_loop(main, loop, frames, inside, groups)
    return oldest(inside, awaited_by(main, frames, inside))


def oldest(inside: dict[int, Inside], threads: Iterable[int]) -> Inside | None:
    """Returns the call that one of these threads has been in for longest; None if none is in a call."""
    return min((inside[ident] for ident in threads if ident in inside), key=lambda call: call[1], default=None)


def waiting_files(frame: FrameType | None) -> list[tuple[str, FrameType]]:
    """Returns the files and frames of libraries below the program's innermost line, innermost first."""
    found = []
    while frame is not None and not is_own(frame):
        found.append((frame.f_code.co_filename.replace(os.sep, "/"), frame))
        frame = frame.f_back
    return found


def is_native(frame: FrameType | None) -> bool:
    """Returns whether a thread was not started by Python, as the threads of a backward pass are not."""
    return frame is not None and caller(frame, "/threading.py", "_bootstrap") is None


def last_call(frames: Frames, inside: dict[int, Inside]) -> Inside | None:
    """Returns the call that keeps a process from ending after its program has: Python then waits for other threads.

    None if one of these threads is neither in a call nor waits for another thread.
    """
    kept = {thread.ident or 0 for thread in threading.enumerate() if thread.is_alive() and not thread.daemon}
    kept -= {threading.main_thread().ident or 0}
    others = [frames[ident] for ident in kept if ident in frames and ident not in inside]
    return oldest(inside, kept) if all(wait_of(frame) is not None for frame in others) else None


def awaited_by(frame: FrameType, frames: Frames, inside: dict[int, Inside]) -> set[int]:
    """Returns the threads in a call that the thread of this frame waits for, directly or through other threads.

    There are several if it waits for several futures together. Empty if that is not known.
    """
    for _ in range(_STEPS):
        threads = next_threads(frame, frames)
        if not threads or threads <= set(inside):
            return threads
        if len(threads) > 1 or not threads <= set(frames):
            return set()
        frame = frames[threads.pop()]
    return set()


def next_threads(frame: FrameType, frames: Frames) -> set[int]:
    """Returns the threads that the thread of this frame waits for; empty if that is not known."""
    for name, step in waiting_files(frame):
        function = step.f_code.co_name
        if name.endswith("/threading.py") and function == "join":
            joined = getattr(step.f_locals.get("self"), "ident", None)
            return set() if joined is None else {joined}
        if name.endswith("/concurrent/futures/_base.py") and function == "result":
            return threads_of([step.f_locals.get("self")], frames)
        if name.endswith("/concurrent/futures/_base.py") and function in ("wait", "as_completed"):
            pending = [one for one in step.f_locals.get("fs") or () if not one.done()]
            running = threads_of(pending, frames)
            return running if len(running) == len(pending) else set()
    wait = wait_of(frame)
    return set() if wait is None else waking_threads(*wait, frames)


def wait_of(frame: FrameType | None) -> tuple[list[Any], set[str], bool] | None:
    """Returns what a thread waits on: the objects, the methods that end the wait, and whether it is not a queue.

    None if it is in no blocking function of Python's library, or has a timeout on something other than a queue.
    """
    objects: list[Any] = []
    methods: set[str] = set()
    is_queue = is_limited = False
    for name, step in waiting_files(frame):
        function = step.f_code.co_name
        found = [ends for (end, waits), ends in _WAKING_METHODS.items() if waits == function and name.endswith(end)]
        if not found:
            break
        objects.append(step.f_locals.get("self"))
        is_queue = name.endswith("/queue.py")
        # The methods of the queue end the wait, not those of the condition inside the queue.
        methods = found[0] if is_queue else methods | found[0]
        is_limited = is_limited or step.f_locals.get("timeout") is not None
    if not objects or is_limited and not is_queue:
        return None
    return objects[-1:] if is_queue else objects, methods, not is_queue


def threads_of(futures: list[Any], frames: Frames) -> set[int]:
    """Returns the threads of pools that compute these futures of ``concurrent.futures``."""
    found = set()
    for ident, frame in frames.items():
        item = work_item_of(frame)
        if item is not None and any(item.future is future for future in futures):
            found.add(ident)
    return found


def work_item_of(frame: FrameType | None) -> Any:
    """Returns the work item that a thread of a pool of ``concurrent.futures`` runs.

    None if the thread is not one of such a pool, or is idle.
    """
    run = caller(frame, "/concurrent/futures/thread.py", "run")
    item = None if run is None else run.f_locals.get("self")
    return item if hasattr(item, "future") else None


def waking_threads(objects: list[Any], methods: set[str], is_alone: bool, frames: Frames) -> set[int]:
    """Returns the one thread whose code may end a wait; empty if there is no such thread, or several.

    Args:
        objects: what is waited for: a queue, or an event with the condition within it.
        methods: those that end the wait.
        is_alone: whether the process must have no third thread, because that could end the wait as well.
        frames: the innermost frame of each thread.
    """
    left_out = {threading.main_thread().ident, threading.get_ident()}
    others = {ident: frame for ident, frame in frames.items() if ident not in left_out}
    if is_alone and len(others) > 1:
        return set()
    found = {ident for ident, frame in others.items() if may_wake(frame, objects, methods)}
    return found if len(found) == 1 else set()


def may_wake(frame: FrameType | None, objects: list[Any], methods: set[str]) -> bool:
    """Returns whether the code that a thread runs names one of these objects, and one of these methods."""
    for _ in range(_FRAMES):
        if frame is None:
            return False
        # A debugger may be about to write the variables back.
        if is_own(frame) and frame.f_trace is None and code_may_wake(frame.f_code, variables(frame), objects, methods):
            return True
        frame = frame.f_back
    return False


def variables(frame: FrameType) -> dict[str, Any]:
    """Returns the variables that the code of a frame names, without keeping their values alive in the frame."""
    code = frame.f_code
    known = frame.f_locals
    found = {name: frame.f_globals[name] for name in code.co_names if name in frame.f_globals}
    found |= known
    # Before Python 3.13 the frame keeps this dictionary, and so the values after the program has dropped them.
    if type(known) is dict and code.co_flags & _OPTIMIZED:
        known.clear()
    return found


def code_may_wake(
    code: CodeType, names: dict[str, Any], objects: list[Any], methods: set[str], depth: int = _CALLS
) -> bool:
    """Returns whether code with these variables, or a function that it names, names such an object and method."""
    if methods & set(code.co_names) and any(holds(value, code, objects) for value in names.values()):
        return True
    if not depth:
        return False
    for name, value in names.items():
        calls: list[tuple[Any, dict[str, Any]]] = [(value, {})] if name in code.co_names else []
        if not isinstance(value, type):
            calls += [(getattr(type(value), one, None), {"self": value}) for one in code.co_names]
        for function, bound in calls:
            inner = getattr(function, "__code__", None)
            if inner is None:
                continue
            known = {one: function.__globals__[one] for one in inner.co_names if one in function.__globals__}
            known |= dict(zip(inner.co_freevars, contents(function.__closure__), strict=False))
            if code_may_wake(inner, {**known, **bound}, objects, methods, depth - 1):
                return True
    return False


def contents(cells: Iterable[Any] | None) -> list[Any]:
    """Returns what the cells of a closure hold; None for an empty one."""
    found = []
    for cell in cells or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:
            found.append(None)
    return found


def holds(value: Any, code: CodeType, objects: list[Any]) -> bool:
    """Returns whether a value is one of these objects, or has it as an attribute that the code names or as an item."""
    known = getattr(value, "__dict__", None)
    parts = [value]
    if isinstance(known, dict):
        parts += [known[name] for name in code.co_names if name in known]
    if isinstance(value, (list, tuple)):
        parts += value
    elif isinstance(value, dict):
        parts += list(value.values())
    return any(part is one for part in parts for one in objects)


def call_of_loop(
    main: FrameType, loop: Any, frames: Frames, inside: dict[int, Inside], groups: set[str]
) -> Inside | None:
    """Returns the call that an event loop runs in a thread of a pool, and that the loop's main task awaits.

    If the main task awaits something else, returns the only collective or message that another task awaits, provided
    that the process has called on no other group. Otherwise that task may be one that only reports.
    """
    handed: dict[int, list[Any]] = {}
    for ident, frame in frames.items():
        item = work_item_of(frame)
        if item is None or ident not in inside:
            continue
        callbacks = list(getattr(item.future, "_done_callbacks", ()))
        targets = [part for one in callbacks for part in contents(getattr(one, "__closure__", None))]
        targets = [part for part in targets if hasattr(part, "get_loop") and part.get_loop() is loop]
        if targets:
            handed[ident] = targets
    futures = waited_futures(main_task(main))
    awaited = [ident for ident, targets in handed.items() if any(one is to for one in futures for to in targets)]
    if awaited:
        return oldest(inside, awaited)
    calls = [inside[ident] for ident in handed]
    is_alone = len(calls) == 1 and groups <= {calls[0][0].get("group")}
    return calls[0] if is_alone and calls[0][0]["what"] in ("collective", "message") else None
