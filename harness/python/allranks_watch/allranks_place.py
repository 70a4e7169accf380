"""Where the main thread is: the call that it waits for, its line of the program, and what it is in there."""

from __future__ import annotations

import os
import sys
import threading

from allranks_awaited import awaited_call
from allranks_frames import caller, current_frames, files_of, is_own, line_of, main_frame, own_frame
from allranks_loop import awaited, is_deserted, is_unwoken, loop_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

    #: A call as the trace has it: an object of JSON.
    Entry = dict[str, Any]
    #: A call that a thread is in, and since when, in seconds since 1970.
    Inside = tuple[Entry, float]
    #: The text of a line of the program, its file and line number, and what it is in there (see `kind_of_place`).
    Line = tuple[str, str, str] | None
    #: The name of a thread, the text of the line that it is at, and its file and line number.
    AwaitedThread = tuple[str, str, str]


def current_call(inside: dict[int, Inside], polled: Inside | None, groups: set[str]) -> Inside | None:
    """Returns the call that the main thread is in, or that it waits for; None if there is none.

    Args:
        inside: thread id -> the call that the thread is in.
        polled: the call that the main thread makes again and again.
        groups: the keys of the groups that the process has called on.
    """
    main = threading.main_thread().ident or 0
    if main in inside or polled is not None:
        return inside.get(main, polled)
    # Backward passes run on threads of their own, and the main thread waits for them; a main thread that has ended has
    # left its work to others, and one that waits for the result of another thread waits for the same ranks as that one.
    return awaited_call(inside, groups) if inside else None


#: The number of threads that are told of.
_TOLD_THREADS = 4


def awaited_threads() -> list[AwaitedThread]:
    """Returns name, innermost own line and location of the threads whose end the main thread waits for."""
    frames = current_frames()
    first = frames.get(threading.main_thread().ident or 0)
    if caller(first, "/threading.py", "_shutdown") is not None:
        threads: list[Any] = [one for one in threading.enumerate() if one.is_alive() and not one.daemon]
    else:
        join = caller(first, "/threading.py", "join")
        threads = [] if join is None else [join.f_locals.get("self")]
    known = [thread for thread in threads if isinstance(thread, threading.Thread)]
    places = [(thread.name, frames.get(thread.ident or 0)) for thread in known[:_TOLD_THREADS]]
    return [(name, *line_of(frame)) for name, frame in places if frame is not None]


def kind_of_place(frame: FrameType | None) -> str:
    """Returns what a thread is in, by the frames of libraries between the program's own line and the innermost frame.

    It is one of ``breakpoint``, ``data loader``, ``backward``, ``device``, ``torch``, ``child process``,
    ``unwoken event loop``, ``event loop``, ``requests``, ``lock``, ``connection``, or nothing.
    """
    own = own_frame(frame)
    files = files_of(frame)
    between = files[: len(files) - len(files_of(own))] if own is not frame else []
    names = [name.replace(os.sep, "/") for name, _ in between]
    if any(name.endswith(("/bdb.py", "/pdb.py", "/debugpy/server/api.py")) for name in names):
        return "breakpoint"
    if any("/torch/utils/data/" in name for name in names):
        return "data loader"
    if any("/torch/autograd/" in name for name in names):
        return "backward"
    if (own is frame or names and "/torch/" in names[0]) and waits_for_device(own):
        return "device"
    # The answer of a call by RPC: another rank has it.
    if any(name.endswith("/torch/futures/__init__.py") for name in names) or own is frame and waits_for_rpc(own):
        return "requests"
    if names and "/torch/" in names[0]:
        return "torch"
    if any(name.endswith("/subprocess.py") for name in names):
        return "child process"
    loop = loop_of(frame)
    if loop is not None and is_unwoken(loop):
        return "unwoken event loop"
    if loop is not None and is_deserted(loop):
        return "event loop"
    if is_serving(frame):
        return "requests"
    waiting = ("/threading.py", "/queue.py")
    if any(name.endswith(waiting) or "/multiprocessing/" in name for name in names):
        return "lock"
    if any(name.endswith(("/socket.py", "/ssl.py")) for name in names):
        return "connection"
    return ""


#: Calls that wait until an accelerator has done what it was given.
_DEVICE_WAITS = (".item(", ".cpu(", ".tolist(", ".numpy(", ".nonzero(", ".synchronize(", ".to(")
#: Modules of torch for accelerators.
_ACCELERATORS = ("cuda", "xpu", "npu", "mlu", "musa", "hpu")


def waits_for_device(own: FrameType | None) -> bool:
    """Returns whether this line of the program has a call that waits for an accelerator, and the process uses one."""
    torch = sys.modules.get("torch")
    if torch is None or own is None or not any(waits in line_of(own)[0] for waits in _DEVICE_WAITS):
        return False
    modules = [getattr(torch, name, None) for name in _ACCELERATORS]
    return any(bool(getattr(module, "is_initialized", bool)()) for module in modules if module is not None)


def waits_for_rpc(own: FrameType | None) -> bool:
    """Returns whether this line of the program waits for a future, and the process makes calls by RPC."""
    rpc = sys.modules.get("torch.distributed.rpc.api")
    if rpc is None or own is None or ".wait(" not in line_of(own)[0]:
        return False
    return bool(rpc._is_current_rpc_agent_set())


def handler_thread() -> tuple[int, FrameType] | None:
    """Returns a thread that runs the program's code for a call by RPC, with its innermost frame; None if there is none.

    Torch's own procedures, such as those of a shutdown, run on such threads too.
    """
    for thread, frame in current_frames().items():
        own = own_frame(frame)
        is_called = caller(frame, "/torch/distributed/rpc/internal.py", "_run_function") is not None
        if is_called and own is not None and is_own(own):
            return thread, frame
    return None


def is_serving(frame: FrameType | None) -> bool:
    """Returns whether a thread waits for something from outside of the job: a connection, a request, an event."""
    files = [(name.replace(os.sep, "/"), function) for name, function in files_of(frame)[:4]]
    if any("/multiprocessing/" in name or name.endswith("/subprocess.py") for name, _ in files):
        return False
    servers = ("/asyncio/", "/zmq/", "/grpc/", "/selectors.py", "/socketserver.py")
    return any(any(word in name for word in servers) for name, _ in files) or (
        bool(files) and files[0][0].endswith("/socket.py") and files[0][1] == "accept"
    )


def is_served() -> bool:
    """Returns whether a thread other than the main one and the caller's waits for requests."""
    left_out = {threading.main_thread().ident, threading.get_ident()}
    frames = current_frames().items()
    return any(is_serving(frame) for ident, frame in frames if ident not in left_out)


def has_pausing_thread() -> bool:
    """Returns whether a thread, but the main one and the caller's, sleeps for a time or waits for another process."""
    import linecache

    left_out = {threading.main_thread().ident, threading.get_ident()}
    for ident, frame in current_frames().items():
        if ident in left_out:
            continue
        name = frame.f_code.co_filename
        if name.endswith(("/socket.py", "/ssl.py")) or "sleep(" in linecache.getline(name, frame.f_lineno):
            return True
    return False


def takes_calls() -> bool:
    """Returns whether a thread of the RPC agent is free for the next call, for which a waiting handler may wait."""
    try:
        told = sys.modules["torch.distributed.rpc"].api._get_current_rpc_agent().get_debug_info()
        return int(told["agent.num_idle_threads"]) > 0
    except Exception:
        return False


def awaited_lock() -> str | None:
    """Returns the path of the file whose lock the main thread asks for again and again by ``filelock``; else None."""
    frame = main_frame() if "filelock" in sys.modules else None
    while frame is not None:
        # Which module of the package waits differs by version.
        if "/site-packages/filelock/" in frame.f_code.co_filename.replace(os.sep, "/"):
            path = getattr(frame.f_locals.get("self"), "lock_file", None)
            if isinstance(path, str):
                return os.path.abspath(path)
        frame = frame.f_back
    return None


def awaited_connection() -> list[str] | None:
    """Returns both ends of the connection from which the main thread reads by Python's own code, this one's first."""
    read = caller(main_frame(), "/socket.py", "readinto")
    if read is None:
        return None
    try:
        reading = read.f_locals["self"]._sock
        return [end_of(reading.getsockname()), end_of(reading.getpeername())]
    except Exception:
        return None


def end_of(address: tuple[Any, ...]) -> str:
    """Returns a socket's address as HOST:PORT."""
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def current_line() -> Line:
    """Returns the innermost line of the main thread that is the program's own, and what it is in there."""
    first = main_frame()
    handler = None
    if caller(first, "/torch/distributed/rpc/api.py", "shutdown") is not None:
        handler = handler_thread()
        first = handler[1] if handler else first
    frame = awaited(first) or own_frame(first)
    if frame is None:
        return None
    text, at = line_of(frame)
    kind = kind_of_place(first)
    if not kind and text.startswith("breakpoint("):
        kind = "breakpoint"
    if not kind and (".acquire(" in text or text.startswith("with ") and "lock" in text.lower()):
        kind = "lock"
    if kind == "lock" and (is_served() or handler is not None and takes_calls()):
        # What it waits for may be a request that another thread will take.
        kind = "requests"
    if kind == "lock" and has_pausing_thread():
        kind = "handover"
    return (text, at, kind)
