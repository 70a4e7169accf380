"""The call trace of one process: its torch.distributed calls, and where its main thread is.

`CallTrace` is told of calls by the wrappers of `allranks_patch`, on the program's threads. A thread of its own writes
the trace to a file that ``allranks watch`` reads: ``harness/runner/src/watch/trace/call_trace.rs`` says which fields.
"""

from __future__ import annotations

import collections
import gc
import itertools
import json
import os
import sys
import threading
import time

TYPE_CHECKING = False  # importing `typing` would cost every Python process of the program some milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType
    from typing import Any

    #: A call as the file has it: an object of JSON.
    Entry = dict[str, Any]
    #: An entry that a thread is in, and since when, in seconds since 1970.
    Inside = tuple[Entry, float]
    #: The text of a line of the program, its file and line number, and what it is in there (see `kind_of_place`).
    Line = tuple[str, str, str] | None
    #: The name of a thread, the text of the line that it is at, and its file and line number.
    AwaitedThread = tuple[str, str, str]

#: Version of the file.
FORMAT = 1
#: Seconds from one heartbeat to the next.
PERIOD = 0.25
#: Entries that are kept; of those before only the number is.
KEPT = 1000
#: Of these, the newest, which alone are written while calls are made: to write all of them costs milliseconds.
RECENT = 100
#: Works whose wait is recognised.
WORKS = 4096
#: Keys of stores that the program has set, of which so many are kept.
KEYS = 300
#: Reads of the same keys, one after the other, that are a poll.
POLLED = 4
#: Errors that are kept.
ERRORS = 5
#: Bytes of the file of the last entries, which a process that dies in a call leaves behind.
LAST = 1 << 15


def error_text(error: BaseException) -> str:
    """Returns the type and the message of an error."""
    return f"{type(error).__name__}: {error}"[:2000]


def entry_id(entry: Entry) -> int:
    """Returns the number of an entry among those of its process."""
    return int(entry["id"])


def keep_newest(kept: collections.OrderedDict[str, int], keys: list[str]) -> None:
    """Adds keys as the newest, each once more than before, and drops the oldest beyond `KEYS`."""
    for key in keys:
        kept[key] = kept.get(key, 0) + 1
        kept.move_to_end(key)
    while len(kept) > KEYS:
        kept.popitem(last=False)


class LastEntries:
    """A file of the last entries, one line of JSON each, in memory that outlives the process.

    A call that kills its process is there, though the heartbeat has not written it.
    """

    def __init__(self, path: str) -> None:
        """Makes the file."""
        import mmap

        with open(path, "wb+") as file:
            file.truncate(LAST)
            self.memory = mmap.mmap(file.fileno(), LAST)
        self.end = 0

    def append(self, entry: Entry) -> None:
        """Writes an entry over the oldest ones."""
        text = json.dumps(entry).encode() + b"\n"
        if self.end + len(text) > LAST:
            self.memory[self.end :] = bytes(LAST - self.end)
            self.end = 0
        if len(text) <= LAST:
            self.memory[self.end : self.end + len(text)] = text
            self.end += len(text)


class Poll:
    """Reads of the same keys of a store by the main thread, one after the other, with no other call between them."""

    def __init__(self, entry: Entry) -> None:
        """Starts with the entry of the first read."""
        self.entry = entry
        self.since = self.last = time.time()
        self.reads = 1

    def goes_on(self) -> bool:
        """Returns whether there have been enough reads, and the next one is not overdue."""
        usual = (self.last - self.since) / max(1, self.reads - 1)
        return self.reads >= POLLED and time.time() - self.last <= max(1.0, 3 * usual)


class Recorder:
    """Torch's flight recorder in this process: the collectives that backends really issue.

    The heartbeat looks at the counts of each group, which costs some 0.1 ms. It writes the whole record, some 20 ms if
    full, to ``PID.json.recorder`` only once nothing has been issued and nothing has ended for a while.
    """

    #: NCCL keeps a recorder of its own, which counts where both have a group; the other backends share one.
    RECORDERS = ("_dump_nccl_trace_json", "_dump_fr_trace_json")
    #: Seconds without a change after which the record is written; how many times as long as writing took lies between
    #: one time and the next, and the most seconds that may.
    STILL = 0.7
    PAUSE = 50
    LONGEST = 2.0

    def __init__(self) -> None:
        """Starts without a function: torch may not be there yet."""
        #: The functions that give a record as JSON, by name, of those recorders that have one.
        self.functions: dict[str, Any] = {}
        #: The counts as they are, since when they are, and those of the record that was written last.
        self.status: str | None = None
        self.since = 0.0
        self.dumped: str | None = None
        self.not_before = 0.0
        #: Names of the groups that are in the counts.
        self.groups: set[str] = set()

    def find(self) -> list[Any]:
        """Returns the functions that give a record as JSON; none as long as nothing records."""
        library = sys.modules.get("torch._C._distributed_c10d")
        c10d = sys.modules.get("torch.distributed.distributed_c10d")
        if library is None or c10d is None or c10d._world.default_pg is None:
            return self.known()
        # Either recorder may begin after the other.
        names = ["_dump_fr_trace_json"]
        # A world that names no backend is `undefined` in `pg_map`; the other table tells what it consists of.
        kinds = [kind for kind, _ in c10d._world.pg_map.values()]
        kinds += getattr(c10d._world, "pg_backend_config", {}).values()
        if any("nccl" in str(kind).lower() for kind in kinds):
            names.append("_dump_nccl_trace_json")
        for name in names:
            function = getattr(library, name, None)
            if name not in self.functions and function is not None and self.counts([function]):
                self.functions[name] = function
        return self.known()

    def known(self) -> list[Any]:
        """Returns the functions of those recorders that have a record, in the order of `RECORDERS`."""
        return [self.functions[name] for name in self.RECORDERS if name in self.functions]

    @staticmethod
    def counts(functions: list[Any]) -> dict[str, Any]:
        """Returns the counts of each group, by recorder and its number for the group; empty if there is no record."""
        all_counts: dict[str, Any] = {}
        for place, function in enumerate(functions):
            text = function(False, False)
            counts = (json.loads(text) if text else {}).get("pg_status") or {}
            all_counts |= {f"{place}.{group}": one for group, one in counts.items()}
        return all_counts

    @staticmethod
    def record(functions: list[Any]) -> str:
        """Returns the whole record as JSON; of a group that several recorders have, what the first of them has."""
        texts = [function(True, False) for function in functions]
        texts = [text.decode() if isinstance(text, bytes) else text for text in texts]
        if len(texts) == 1:
            return texts[0]
        whole, *others = [json.loads(text) for text in texts]
        entries = whole.setdefault("entries", [])
        for other in others:
            known = {entry["process_group"][0] for entry in entries}
            entries += [entry for entry in other.get("entries", []) if entry["process_group"][0] not in known]
        return json.dumps(whole)

    def look(self, trace: CallTrace) -> str | None:
        """Looks at the counts; writes the record when they have not changed for a while. Returns what has changed."""
        try:
            functions = self.find()
            if not functions:
                return None
            status = json.dumps(self.counts(functions), sort_keys=True)
            now = time.monotonic()
            if status != self.status:
                self.status, self.since = status, now
            elif status != self.dumped and now - self.since >= self.STILL and now >= self.not_before:
                self.dump(trace)
            return f"{self.status} {self.dumped}"
        except Exception:
            return None

    def dump(self, trace: CallTrace) -> None:
        """Writes the whole record."""
        functions = self.known()
        if not functions:
            return
        try:
            before = time.monotonic()
            status = json.dumps(self.counts(functions), sort_keys=True)
            text = self.record(functions)
            path = f"{trace.path()}.recorder"
            with open(f"{path}.new", "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(f"{path}.new", path)
            self.status = self.dumped = status
            self.name_groups(trace)
            after = time.monotonic()
            self.not_before = after + min(self.PAUSE * (after - before), self.LONGEST)
        except Exception:
            pass

    def name_groups(self, trace: CallTrace) -> None:
        """Has the trace know the members of every group of this process."""
        c10d = sys.modules.get("torch.distributed.distributed_c10d")
        if c10d is None:
            return
        world = c10d._world
        for group, name in list(world.pg_names.items()):
            self.groups.add(name)
            members = sorted(world.pg_group_ranks[group])
            trace.add_group(f"{trace.epoch}.{name}", "world" if group is world.default_pg else "", members)

    def head(self) -> dict[str, Any] | None:
        """Returns what the trace's file says of the record: the counts now, and those of the record that is written."""
        if not self.functions or self.status is None:
            return None
        return {"status": json.loads(self.status), "dumped": json.loads(self.dumped) if self.dumped else None}


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
        #: Keys of the groups that calls have named.
        self.used: set[str | None] = set()
        #: Calls of ``init_process_group`` so far.
        self.epoch = 0
        #: Whether the last call of ``init_process_group`` has raised: the next one is another try for the same world.
        self.init_failed = False
        #: Keys of stores that the program has set, oldest first, and how often.
        self.keys_set: collections.OrderedDict[str, int] = collections.OrderedDict()
        #: Those that it has deleted, and not set again, and how often.
        self.keys_deleted: collections.OrderedDict[str, int] = collections.OrderedDict()
        #: Calls that have set or deleted keys.
        self.key_calls = 0
        #: The keys that its main thread reads again and again.
        self.poll: Poll | None = None
        #: Errors since the last call that returned.
        self.errors: list[str] = []
        #: Calls begun and ended since the first error after the last call that returned, and when that error came.
        self.retries = 0
        self.failing_since: float | None = None
        #: The error that has ended the main thread.
        self.fatal: str | None = None
        #: The error that has ended a task of the main thread's event loop, and that was never retrieved.
        self.lost: str | None = None
        #: When a call last ended.
        self.left: float | None = None
        #: The file of the last entries, and where the next one goes.
        self.last: LastEntries | None = None
        #: Torch's record of what backends really issue.
        self.recorder = Recorder()
        #: Id of a work object -> the entry of the call that returned it, oldest first.
        self.works: collections.OrderedDict[int, Entry] = collections.OrderedDict()
        #: Id of the entry of a message that did not block -> its work, until that is waited for or dropped.
        self.handles: dict[int, Any] = {}
        self.thread: threading.Thread | None = None
        #: Held while the file is written: by the heartbeat, and by the main thread at the end.
        self.file_lock = threading.Lock()
        #: Entries as JSON, by id, in their order. Guarded by `file_lock`.
        self.written: dict[int, str] = {}
        #: All entries as JSON, and the number of calls begun and ended when they were so. Guarded by `file_lock`.
        self.whole: tuple[str, int] = ("", -1)
        #: Whether Python has come to its end.
        self.ended = False

    # --- what the wrappers record ---------------------------------------------------------------------------------

    def enter(self, entry: Entry, is_new: bool = True) -> None:
        """Records that this thread begins a call. The wait for an earlier call is no new entry."""
        now = time.time()
        with self.lock:
            self.moves += 1
            if self.retries:
                self.retries += 1
            if self.poll is not None and entry is not self.poll.entry and is_main_thread():
                self.poll = None
            if is_new:
                entry["t"], entry["end"], entry["raised"] = now, None, None
                self.add(entry)
            self.inside[threading.get_ident()] = (entry, now)
        self.start()

    def leave(self, entry: Entry, error: BaseException | None) -> None:
        """Records that this thread has ended a call, by an error or (None) without."""
        with self.lock:
            self.inside.pop(threading.get_ident(), None)
            self.left = time.time()
            if "end" in entry:
                entry["raised"] = None if error is None else error_text(error)
                entry["end"] = self.left
            self.moves += 1
            if error is None:
                self.errors = []  # a program that makes calls again has handled its errors
                self.retries, self.failing_since = 0, None
            else:
                self.note_error(error)
                # The first call of a row counts as progress, its end by an error does not; nor do further tries.
                self.retries += 1
                self.failing_since = self.failing_since or time.time()
            if entry["what"] == "init":
                self.init_failed = error is not None
            if entry["what"] == "init" or entry.get("group") == "world":
                end = {"what": "end", "of": entry["what"], "group": entry.get("group"), "ok": error is None, "at": ""}
                self.add({**end, "t": time.time()})

    def leave_wait(self, entry: Entry, error: BaseException | None) -> None:
        """Records that this thread has ended the wait for an earlier call."""
        if error is not None:
            with self.file_lock:
                entry["raised"] = error_text(error)
                self.written.pop(entry["id"], None)
        self.leave({"what": "wait"}, error)

    def note_set(self, keys: list[str]) -> None:
        """Records that the program sets keys of a store."""
        with self.lock:
            if is_main_thread():
                self.poll = None
            self.key_calls += 1
            keep_newest(self.keys_set, keys)
            for key in keys:
                self.keys_deleted.pop(key, None)

    def note_deleted(self, keys: list[str]) -> None:
        """Records that the program deletes keys of a store."""
        with self.lock:
            self.key_calls += 1
            keep_newest(self.keys_deleted, keys)

    def begin_poll(self, entry: Entry) -> None:
        """Notes the first read of keys, after which the same may be read again and again."""
        if is_main_thread():
            self.poll = Poll(entry)

    def poll_of(self, keys: list[str]) -> Poll | None:
        """Returns the poll of these keys if the main thread calls and has read just them last; else None."""
        poll = self.poll
        return poll if poll is not None and is_main_thread() and poll.entry["keys"] == keys else None

    def read_again(self, poll: Poll, reads: Callable[[], Any]) -> Any:
        """Makes one more read of a poll, which is no progress."""
        with self.lock:
            poll.reads, poll.last = poll.reads + 1, time.time()
            self.inside[threading.get_ident()] = (poll.entry, poll.since)
        try:
            result = reads()
        except BaseException as error:
            self.leave(poll.entry, error)
            raise
        with self.lock:
            self.inside.pop(threading.get_ident(), None)
        return result

    def polled(self) -> Inside | None:
        """Returns the entry of the keys that the main thread polls, and since when; None if it polls none."""
        poll = self.poll
        return (poll.entry, poll.since) if poll is not None and poll.goes_on() else None

    def add(self, entry: Entry) -> None:
        """Adds an entry, and numbers it. It is in the file of the last entries before the call is made."""
        with self.lock:
            self.added += 1
            entry["epoch"] = self.epoch
            entry["id"] = self.added
            self.used.add(entry.get("group"))
            kind = self.entries if entry["what"] in ("collective", "message") else self.rare
            self.dropped += len(kind) == KEPT
            kind.append(entry)
            if self.last is None:
                self.last = LastEntries(f"{self.path()}.last")
            self.last.append(entry)

    def note_error(self, error: BaseException) -> None:
        """Keeps the text of an error."""
        text = error_text(error)
        with self.lock:
            if text not in self.errors:
                self.errors = [*self.errors, text][-ERRORS:]

    def note_lost_tasks(self) -> None:
        """Keeps the errors of asyncio's tasks that were never retrieved, if such a task has made calls."""
        loop = loop_of(main_frame())
        if loop is None:
            return
        import allranks_tasks

        errors = allranks_tasks.lost_errors(loop)
        if errors:
            with self.lock:
                places = {entry["at"] for entry in (*self.entries, *self.rare)}
            errors = [error for error in errors if allranks_tasks.is_of_caller(error, places, os.getcwd())]
        for error in errors:
            self.note_error(error)
        self.lost = error_text(errors[-1]) if errors else None

    def begin_epoch(self) -> None:
        """Counts a call of ``init_process_group``; another try after an error is for the same world."""
        with self.lock:
            self.epoch += not self.init_failed

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

    def follow_handle(self, work: object, entry: Entry) -> None:
        """Notes if the work of a message is dropped before it was waited for: the message may go with it."""
        import weakref

        number = entry["id"]

        # It runs wherever the last reference ends: it takes no lock that is not reentrant.
        def drop(_: object) -> None:
            if self.handles.pop(number, None) is not None:
                with self.lock:
                    entry["dropped"] = True
                    self.written.pop(number, None)
                    self.moves += 1

        self.handles[number] = weakref.ref(work, drop)

    # --- writing --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the heartbeat thread, unless it runs."""
        if self.thread is not None:
            return
        # What the thread needs is imported before it runs: a process that is forked while a thread imports a module has
        # that module's lock for ever, and waits for it when it imports the module itself, as to print a traceback.
        import linecache  # noqa: F401
        import tokenize  # noqa: F401

        import allranks_tasks  # noqa: F401

        with self.lock:
            if self.thread is None:
                self.thread = threading.Thread(target=self.heartbeat, name="allranks-watch", daemon=True)
                self.thread.start()

    def path(self) -> str:
        """Returns the path of the file."""
        return os.path.join(self.folder, f"{os.getpid()}.json")

    def heartbeat(self) -> None:
        """Writes the file when something has changed, and touches it otherwise, until the trace or the folder ends."""
        name_thread("allranks-watch")
        path = self.path()
        written = None
        # What has been done, as of the last look, and whether that was more than at the look before.
        done: tuple[int, str | None] | None = None
        is_moving = False
        while not self.ended:
            try:
                if is_moving:
                    # It is enough to look at a process that goes on at every second heartbeat.
                    is_moving = False
                    os.utime(path)
                    time.sleep(PERIOD)
                    continue
                line, awaited = current_line(), awaited_threads()
                self.note_lost_tasks()
                recorded = self.recorder.look(self)
                now_done = (self.moves - self.retries, self.recorder.status)
                is_moving, done = now_done != done, now_done
                calls = (self.moves, self.polled(), self.key_calls)
                now = (calls, line, awaited, len(self.errors), self.fatal, self.lost, recorded, is_moving)
                if now == written:
                    os.utime(path)
                else:
                    with self.file_lock:
                        if not self.ended:
                            self.write(path, line, is_whole=not is_moving, awaited=awaited)
                    written = now
            except FileNotFoundError:
                if not os.path.isdir(self.folder):
                    return  # `allranks watch` has ended
            except Exception:
                pass  # an error of the trace is not the program's
            time.sleep(PERIOD)

    def write(self, path: str, line: Line, is_whole: bool = True, awaited: Sequence[AwaitedThread] = ()) -> None:
        """Replaces the file by the trace as it is now, or by its newest entries alone. The caller holds `file_lock`."""
        with self.lock:
            left_out = 0 if is_whole else max(0, len(self.entries) - RECENT)
            recent = itertools.islice(self.entries, left_out, None)
            entries = [*self.rare, *recent]
            used = set(self.used)
            inside, counts, groups = dict(self.inside), dict(self.counts), dict(self.groups)
            head: dict[str, Any] = {
                "format": FORMAT,
                "pid": os.getpid(),
                "moves": self.moves,
                "epoch": self.epoch,
                "dropped": self.dropped + left_out,
                "errors": self.errors,
                "retries": self.retries,
                "failing_since": self.failing_since,
                "left": self.left,
                "keys_set": list(self.keys_set),
                "keys_set_again": {key: times for key, times in self.keys_set.items() if times > 1},
                "keys_deleted": list(self.keys_deleted),
                "fatal": self.fatal or self.lost,
                "ended": self.ended,
            }
        entries.sort(key=entry_id)
        head["groups"] = {
            key: {"name": name, "members": members, "count": counts.get(key, 0)}
            for key, (name, members) in groups.items()
            if key in used or key.split(".", 1)[1] in self.recorder.groups
        }
        call = current_call(inside, self.polled())
        handler = handler_thread() if call and call[0].get("text") == "rpc.shutdown" else None
        if handler is not None:
            call = inside.get(handler[0])  # it serves, and may wait for others there
        head["inside"] = call and {"entry": call[0], "since": call[1]}
        head["own"] = line and {"text": line[0], "at": line[1], "in": line[2], "lock": awaited_lock()}
        head["finished"] = not self.ended and is_finished()
        head["threads"] = [{"name": name, "text": text, "at": at} for name, text, at in awaited]
        head["recorder"] = self.recorder.head()
        head["torch"] = getattr(sys.modules.get("torch"), "__version__", None)
        texts = self.text(entries, head["moves"], is_whole)
        draft = f"{path}.new"
        with open(draft, "w", encoding="utf-8") as file:
            file.write(f'{json.dumps(head)[:-1]}, "entries": [{texts}]}}')
        os.replace(draft, path)

    def text(self, entries: list[Entry], moves: int, is_whole: bool) -> str:
        """Returns entries as JSON. Each is converted once, as long as it is kept; the whole once, if no call comes."""
        if is_whole and self.whole[1] == moves:
            return self.whole[0]
        known = self.written
        texts = []
        for entry in entries:
            text = known.get(entry["id"])
            if text is None:
                text = json.dumps(entry)
                # What is still under way will have an end.
                if entry.get("end", 0) is not None:
                    known[entry["id"]] = text
            texts.append(text)
        for number in list(itertools.islice(known, max(0, len(known) - 2 * KEPT))):
            del known[number]
        joined = ", ".join(texts)
        self.whole = (joined, moves) if is_whole else ("", -1)
        return joined

    def end(self) -> None:
        """Writes the file for the last time, if it was ever to be written."""
        with self.file_lock:
            self.ended = True
            if self.thread is not None and os.path.isdir(self.folder):
                self.recorder.dump(self)
                self.write(self.path(), None)


# --- where the program is ---------------------------------------------------------------------------------------------

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


def current_call(inside: dict[int, Inside], polled: Inside | None) -> Inside | None:
    """Returns the call that the main thread is in, or that it waits for; None if there is none.

    Args:
        inside: thread id -> the call that the thread is in.
        polled: the call that the main thread makes again and again.
    """
    main = threading.main_thread().ident or 0
    if main in inside or polled is not None:
        return inside.get(main, polled)
    # Backward passes run on threads of their own, and the main thread waits for them; a main thread that has ended has
    # left its work to others, and one that waits for the result of another thread waits for the same ranks as that one.
    first = main_frame() if inside else None
    files = files_of(first)
    # A thread that an event loop has handed a call to wakes it when it is done.
    waits = awaits_a_thread(files) or loop_of(first) is not None
    if inside and (is_finished() or any("/torch/autograd/" in file for file, _ in files) or waits):
        return min(inside.values(), key=lambda call: call[1])
    return None


#: Functions that wait for the result or the end of another thread: the end of their file's name, and their own.
_HANDOVERS = (("/queue.py", "get"), ("/threading.py", "join"), ("/concurrent/futures/_base.py", "result"))


def awaits_a_thread(files: list[tuple[str, str]]) -> bool:
    """Returns whether a thread, whose files and functions these are, waits for the result or end of another."""
    inner = [(name.replace(os.sep, "/"), function) for name, function in files[:6]]
    return any(name.endswith(end) and function == waits for name, function in inner for end, waits in _HANDOVERS)


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


def name_thread(name: str) -> None:
    """Gives the calling thread a name in the kernel, which Python before 3.14 does not."""
    try:
        with open(f"/proc/self/task/{threading.get_native_id()}/comm", "wb") as file:
            file.write(name.encode())
    except OSError:
        pass  # not on Linux


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


def line_of(frame: FrameType) -> tuple[str, str]:
    """Returns text and location of the program's innermost line in a thread, or else of the innermost line."""
    import linecache

    own = own_frame(frame) or frame
    text = linecache.getline(own.f_code.co_filename, own.f_lineno).strip()
    return (text[:80] or own.f_code.co_name, location(own))


def kind_of_place(frame: FrameType | None) -> str:
    """Returns what a thread is in, by the frames of libraries between the program's own line and the innermost frame.

    It is one of ``breakpoint``, ``data loader``, ``backward``, ``torch``, ``child process``, ``event loop``,
    ``unwoken event loop``, ``requests``, ``lock``, ``connection``, or nothing.
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


def caller(frame: FrameType | None, file: str, function: str) -> FrameType | None:
    """Returns the innermost frame, from this one outwards, of a function in a file with this end of its path."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == function and code.co_filename.replace(os.sep, "/").endswith(file):
            return frame
        frame = frame.f_back
    return None


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


def awaited(frame: FrameType | None) -> FrameType | None:
    """Returns the program's innermost frame in the task that `asyncio.run` waits for; None if there is none."""
    if loop_of(frame) is None:
        return None
    run = caller(frame, "/asyncio/base_events.py", "run_until_complete")
    try:
        step: Any = None if run is None else run.f_locals["future"].get_coro()
        found = None
        while step is not None:
            inner = getattr(step, "cr_frame", None)
            if inner is not None and is_own(inner):
                found = inner
            step = getattr(step, "cr_await", None)
        return found
    except Exception:
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
    return (text, at, kind)


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
