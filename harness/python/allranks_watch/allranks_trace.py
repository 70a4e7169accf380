"""The call trace of one process: its torch.distributed calls, and where its main thread is.

`CallTrace` is told of calls by the wrappers of `allranks_patch`, on the program's threads. A thread of its own writes
the trace to a file that ``allranks watch`` reads: ``harness/runner/src/watch/diary.rs`` says which fields.
"""

from __future__ import annotations

import collections
import json
import os
import sys
import threading
import time

TYPE_CHECKING = False  # importing `typing` would cost every Python process of the program some milliseconds
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

    #: A call as the file has it: an object of JSON.
    Entry = dict[str, Any]
    #: An entry that a thread is in, and since when, in seconds since 1970.
    Inside = tuple[Entry, float]
    #: The text of a line of the program, and its file and line number.
    Line = tuple[str, str] | None

#: Version of the file.
FORMAT = 1
#: Seconds from one heartbeat to the next.
PERIOD = 0.25
#: Entries that are kept; of those before only the number is.
KEPT = 1000
#: Works whose wait is recognised.
WORKS = 4096
#: Errors that are kept.
ERRORS = 5


class CallTrace:
    """The calls of one process. Any thread may call its methods; entries are never changed once they are added."""

    def __init__(self, folder: str) -> None:
        """Starts an empty trace, which writes to the file PID.json in this folder once `start` is called."""
        self.folder = folder
        #: Its ``depth`` is how many wrapped calls the thread is in.
        self.local = threading.local()
        self.reset()

    def reset(self) -> None:
        """Forgets everything, as a forked process must: it has neither the heartbeat nor the calls of its parent."""
        #: Guards everything below but `written`. Reentrant, because a signal handler may make calls too.
        self.lock = threading.RLock()
        #: Collectives and messages.
        self.entries: collections.deque[Entry] = collections.deque(maxlen=KEPT)
        #: All other calls, of which there are few.
        self.rare: collections.deque[Entry] = collections.deque(maxlen=KEPT)
        #: Entries that are no longer kept.
        self.dropped = 0
        #: Entries added.
        self.added = 0
        #: Calls begun and ended.
        self.moves = 0
        #: Thread id -> the call that the thread is in.
        self.inside: dict[int, Inside] = {}
        #: Group key -> number of its collectives so far.
        self.counts: dict[str, int] = {}
        #: Group key -> name and global ranks of its members.
        self.groups: dict[str, tuple[str, list[int]]] = {}
        #: Calls of ``init_process_group`` so far.
        self.epoch = 0
        #: Errors since the last call that returned.
        self.errors: list[str] = []
        #: Id of a work object -> the entry of the call that returned it, oldest first.
        self.works: collections.OrderedDict[int, Entry] = collections.OrderedDict()
        self.thread: threading.Thread | None = None
        #: Held while the file is written: by the heartbeat, and by the main thread at the end.
        self.file_lock = threading.Lock()
        #: Entries as JSON, by id. Guarded by `file_lock`.
        self.written: dict[int, str] = {}
        #: Whether Python has come to its end.
        self.ended = False

    # --- what the wrappers record ---------------------------------------------------------------------------------

    def enter(self, entry: Entry, is_new: bool = True) -> None:
        """Records that this thread begins a call. The wait for an earlier call is no new entry."""
        with self.lock:
            self.moves += 1
            if is_new:
                self.add(entry)
            self.inside[threading.get_ident()] = (entry, time.time())
        self.start()

    def leave(self, entry: Entry, error: BaseException | None) -> None:
        """Records that this thread has ended a call, by an error or (None) without."""
        with self.lock:
            self.inside.pop(threading.get_ident(), None)
            if error is None:
                self.errors = []  # a program that makes calls again has handled its errors
            else:
                self.note_error(error)
            if entry["what"] == "init" or entry.get("group") == "world":
                end = {"what": "end", "of": entry["what"], "group": entry.get("group"), "ok": error is None, "at": ""}
                self.add(end)
            self.moves += 1

    def add(self, entry: Entry) -> None:
        """Adds an entry, and numbers it."""
        with self.lock:
            self.added += 1
            entry["epoch"] = self.epoch
            entry["id"] = self.added
            kind = self.entries if entry["what"] in ("collective", "message") else self.rare
            self.dropped += len(kind) == KEPT
            kind.append(entry)

    def note_error(self, error: BaseException) -> None:
        """Keeps the text of an error."""
        text = f"{type(error).__name__}: {error}"[:2000]
        with self.lock:
            if text not in self.errors:
                self.errors = [*self.errors, text][-ERRORS:]

    def begin_epoch(self) -> None:
        """Counts a call of ``init_process_group``."""
        with self.lock:
            self.epoch += 1

    def next_number(self, key: str) -> int:
        """Counts a collective of a group; returns its number in the group, from 0."""
        with self.lock:
            number = self.counts.get(key, 0)
            self.counts[key] = number + 1
            return number

    def add_group(self, key: str, name: str, members: list[int]) -> None:
        """Keeps a group under a key, unless it is known."""
        with self.lock:
            self.groups.setdefault(key, (name, members))

    def keep_work(self, work: object, entry: Entry) -> None:
        """Remembers which call returned a work."""
        with self.lock:
            self.works[id(work)] = entry
            if len(self.works) > WORKS:
                self.works.popitem(last=False)

    # --- writing --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the heartbeat thread, unless it runs."""
        if self.thread is not None:
            return
        with self.lock:
            if self.thread is None:
                self.thread = threading.Thread(target=self.heartbeat, name="allranks-watch", daemon=True)
                self.thread.start()

    def path(self) -> str:
        """Returns the path of the file."""
        return os.path.join(self.folder, f"{os.getpid()}.json")

    def heartbeat(self) -> None:
        """Writes the file when something has changed, and touches it otherwise, until the trace or the folder ends."""
        path = self.path()
        written = None
        while not self.ended:
            try:
                line = current_line()
                now = (self.moves, line, len(self.errors))
                if now == written:
                    os.utime(path)
                else:
                    with self.file_lock:
                        if not self.ended:
                            self.write(path, line)
                    written = now
            except FileNotFoundError:
                if not os.path.isdir(self.folder):
                    return  # `allranks watch` has ended
            except Exception:
                pass  # an error of the trace is not the program's
            time.sleep(PERIOD)

    def write(self, path: str, line: Line) -> None:
        """Replaces the file by the trace as it is now. The caller holds `file_lock`."""
        with self.lock:
            entries = sorted([*self.rare, *self.entries], key=lambda entry: entry["id"])
            inside, counts, groups = dict(self.inside), dict(self.counts), dict(self.groups)
            head: dict[str, Any] = {
                "format": FORMAT,
                "pid": os.getpid(),
                "moves": self.moves,
                "epoch": self.epoch,
                "dropped": self.dropped,
                "errors": self.errors,
                "ended": self.ended,
            }
        named = {entry.get("group") for entry in entries}
        head["groups"] = {
            key: {"name": name, "members": members, "count": counts.get(key, 0)}
            for key, (name, members) in groups.items()
            if key in named or key in counts
        }
        call = current_call(inside)
        head["inside"] = call and {"entry": call[0], "since": call[1]}
        head["own"] = line and {"text": line[0], "at": line[1]}
        head["torch"] = getattr(sys.modules.get("torch"), "__version__", None)
        texts = ", ".join(self.texts(entries))
        draft = f"{path}.new"
        with open(draft, "w", encoding="utf-8") as file:
            file.write(f'{json.dumps(head)[:-1]}, "entries": [{texts}]}}')
        os.replace(draft, path)

    def texts(self, entries: list[Entry]) -> list[str]:
        """Returns entries as JSON. Each is converted once, as long as it is kept."""
        known = self.written
        self.written = {entry["id"]: known.get(entry["id"]) or json.dumps(entry) for entry in entries}
        return list(self.written.values())

    def end(self) -> None:
        """Writes the file for the last time, if it was ever to be written."""
        with self.file_lock:
            self.ended = True
            if self.thread is not None and os.path.isdir(self.folder):
                self.write(self.path(), None)


# --- where the program is ---------------------------------------------------------------------------------------------

#: Folders of Python's own files, and of this one.
_FOREIGN = tuple({os.path.dirname(os.__file__) + os.sep, os.path.dirname(os.path.abspath(__file__)) + os.sep})


def main_frame() -> FrameType | None:
    """Returns the innermost frame of the main thread."""
    return sys._current_frames().get(threading.main_thread().ident or 0)


def current_call(inside: dict[int, Inside]) -> Inside | None:
    """Returns the call that the main thread is in, or that it waits for; None if there is none.

    Args:
        inside: thread id -> the call that the thread is in.
    """
    main = threading.main_thread().ident
    if main in inside:
        return inside[main]
    # Backward passes run on threads of their own, and the main thread waits for them.
    frame = main_frame()
    while frame is not None:
        if "/torch/autograd/" in frame.f_code.co_filename and inside:
            return min(inside.values(), key=lambda call: call[1])
        frame = frame.f_back
    return None


def current_line() -> Line:
    """Returns the innermost line of the main thread that is the program's own."""
    frame = own_frame(main_frame())
    if frame is None:
        return None
    import linecache

    text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    return (text[:80] or frame.f_code.co_name, location(frame))


def own_frame(frame: FrameType | None) -> FrameType | None:
    """Returns the first frame, from this one outwards, that is neither a library's nor Python's; else this one."""
    first = frame
    while frame is not None:
        name = frame.f_code.co_filename
        if not (name.startswith(_FOREIGN) or name.startswith("<frozen") or "site-packages" in name):
            return frame
        frame = frame.f_back
    return first


def location(frame: FrameType) -> str:
    """Returns the file, relative to the current folder if it is below it, and the line number of a frame."""
    name = frame.f_code.co_filename
    folder = os.getcwd() + os.sep
    return f"{name.removeprefix(folder)}:{frame.f_lineno}"


def calling_location() -> str:
    """Returns the program's own line that has led to the function that calls this one."""
    frame = own_frame(sys._getframe(2))
    return "" if frame is None else location(frame)
