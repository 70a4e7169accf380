"""The frames of this process's threads, and which of them are the program's own."""

from __future__ import annotations

import gc
import os
import sys
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType

#: Folders of Python's own files, and of this one.
_FOREIGN = tuple({os.path.dirname(os.__file__) + os.sep, os.path.dirname(os.path.abspath(__file__)) + os.sep})


def main_frame() -> FrameType | None:
    """Returns the innermost frame of the main thread."""
    return current_frames().get(threading.main_thread().ident or 0)


def current_frames() -> dict[int, FrameType]:
    """Returns the innermost frame of each thread, by thread id.

    Python 3.11 holds a lock of the interpreter while it makes the frame objects. If that starts the garbage collector,
    whose finalizers let another thread run, both wait for each other for ever (python/cpython#106883).
    """
    if sys.version_info[:2] != (3, 11) or not gc.isenabled():
        return sys._current_frames()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        gc.enable()


def is_main_thread() -> bool:
    """Returns whether the main thread calls."""
    return threading.get_ident() == threading.main_thread().ident


def files_of(frame: FrameType | None) -> list[tuple[str, str]]:
    """Returns the files and functions of a frame and of those that called it, innermost first."""
    found = []
    while frame is not None:
        found.append((frame.f_code.co_filename, frame.f_code.co_name))
        frame = frame.f_back
    return found


def is_finished() -> bool:
    """Returns whether the main thread has run its program to the end; the process may still wait for other threads."""
    files = files_of(main_frame())
    # A process that multiprocessing has started ends inside of its program.
    ends = any(function == "_exit_function" and name.endswith("/multiprocessing/util.py") for name, function in files)
    return not files or ends or not threading.main_thread().is_alive()


def line_of(frame: FrameType) -> tuple[str, str]:
    """Returns text and location of the program's innermost line in a thread, or else of the innermost line."""
    import linecache

    own = own_frame(frame) or frame
    text = linecache.getline(own.f_code.co_filename, own.f_lineno).strip()
    return (text[:80] or own.f_code.co_name, location(own))


def caller(frame: FrameType | None, file: str, function: str) -> FrameType | None:
    """Returns the innermost frame, from this one outwards, of a function in a file with this end of its path."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == function and code.co_filename.replace(os.sep, "/").endswith(file):
            return frame
        frame = frame.f_back
    return None


def own_frame(frame: FrameType | None) -> FrameType | None:
    """Returns the first frame, from this one outwards, that is neither a library's nor Python's; else this one."""
    first = frame
    while frame is not None:
        if is_own(frame):
            return frame
        frame = frame.f_back
    return first


def is_own(frame: FrameType) -> bool:
    """Returns whether a frame is neither a library's nor Python's."""
    name = frame.f_code.co_filename
    return not (name.startswith(_FOREIGN) or name.startswith("<frozen") or "site-packages" in name)


def location(frame: FrameType) -> str:
    """Returns the file, relative to the current folder if it is below it, and the line number of a frame."""
    name = frame.f_code.co_filename
    folder = os.getcwd() + os.sep
    return f"{name.removeprefix(folder)}:{frame.f_lineno}"


def calling_location() -> str:
    """Returns the program's own line that has led to the function that calls this one."""
    frame = own_frame(sys._getframe(2))
    return "" if frame is None else location(frame)
