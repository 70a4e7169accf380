"""The call trace of one process: its torch.distributed calls.

`CallTrace` is told of calls by the wrappers of `allranks_patch`, on the program's threads. A thread of its own writes
the trace to a file that ``allranks watch`` reads: ``harness/runner/src/watch/trace/call_trace.rs`` says which fields.
"""

from __future__ import annotations

import collections
import itertools
import json
import os
import sys
import threading
import time

from allranks_entry import current_stream
from allranks_frames import is_finished, is_main_thread, main_frame
from allranks_loop import loop_of
from allranks_place import (
    awaited_connection,
    awaited_lock,
    awaited_threads,
    current_call,
    current_line,
    handler_thread,
)
from allranks_recorder import Recorder

TYPE_CHECKING = False  # importing `typing` would cost every Python process of the program some milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from allranks_place import AwaitedThread, Entry, Inside, Line

#: Version of the file.
FORMAT = 1
#: Seconds from one heartbeat to the next.
PERIOD = 0.25
#: Entries that are kept; of those before only the number is.
KEPT = 1000
#: Of these, the newest, which alone are written while calls are made: to write all of them costs milliseconds.
RECENT = 100
#: Sorts of messages that are counted; of more, none has a number. A program with a tag for each message has too many.
MESSAGES = 512
#: Works whose wait is recognised.
WORKS = 4096
#: Keys of stores that the program has set, of which so many are kept.
KEYS = 300
#: Lines of the program that read keys, and times that it did so at each, which are kept.
READS = 16
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
        #: Group key, whether it is sent, peer and tag -> number of such messages so far; None once there are too many.
        self.messages: dict[tuple[str, bool, int | None, int], int] | None = {}
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
        #: Ids of the threads that have issued collectives or messages.
        self.callers: set[int] = set()
        #: Whether a thread other than the main one has set keys.
        self.keys_by_threads = False
        #: Where the program reads keys -> how often it has begun to, and the keys of the last times.
        self.reads: collections.OrderedDict[str, tuple[int, list[list[str]]]] = collections.OrderedDict()
        #: Thread id -> its number among the threads, but the main one, that have made calls, and a weak reference.
        self.threads: dict[int, tuple[int, Any]] = {}
        #: References to all of these, by their number.
        self.numbered_threads: list[Any] = []
        #: Calls that have set or deleted keys.
        self.key_calls = 0
        #: The keys that its main thread reads again and again.
        self.poll: Poll | None = None
        #: Errors since the last call that returned.
        self.errors: list[str] = []
        #: Errors that have ended threads other than the main one, oldest first.
        self.thread_errors: list[str] = []
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
        self.recorder = Recorder(self.path, self.add_process_group)
        #: Id of a work object -> a weak reference to it, and the entries of the calls that it is of, oldest first.
        self.works: collections.OrderedDict[int, tuple[Any, list[Entry]]] = collections.OrderedDict()
        #: Id of an entry -> when the program had waited for its work, and the stream that waited, oldest first.
        self.waited: collections.OrderedDict[int, tuple[float, int | None]] = collections.OrderedDict()
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

    def leave_wait(self, entries: list[Entry], error: BaseException | None) -> None:
        """Records that this thread has ended the wait for earlier calls."""
        if error is None:
            self.note_waited(entries)
        else:
            with self.file_lock:
                for entry in entries:
                    entry["raised"] = error_text(error)
                    self.written.pop(entry["id"], None)
        self.leave({"what": "wait"}, error)

    def note_waited(self, entries: list[Entry]) -> None:
        """Records that the program has waited for earlier calls, or has seen that they are over."""
        ended = (time.time(), current_stream())
        with self.lock:
            for entry in entries:
                self.waited.setdefault(entry["id"], ended)
            while len(self.waited) > KEPT:
                self.waited.popitem(last=False)

    def note_look(self, entries: list[Entry], is_over: bool, at: str) -> None:
        """Records that this thread has looked whether earlier calls are over: a wait, if it does so again."""
        first = entries[0]
        if is_over:
            for entry in entries:
                self.handles.pop(entry["id"], None)
            if first["id"] not in self.waited:
                self.note_waited(entries)
                with self.lock:
                    self.moves += 1
                    self.left = time.time()
        if not is_main_thread():
            return
        with self.lock:
            poll = self.poll
            looked = None if poll is None else poll.entry.get("id")
            if is_over:
                if poll is not None and poll.entry.get("waits") and looked == first["id"]:
                    self.poll = None
            elif poll is None or not poll.entry.get("waits"):
                self.poll = Poll({**first, "waits": True, "at": at})
            elif looked == first["id"]:
                poll.reads, poll.last = poll.reads + 1, time.time()

    def note_set(self, keys: list[str]) -> None:
        """Records that the program sets keys of a store."""
        with self.lock:
            if is_main_thread():
                self.poll = None
            else:
                self.keys_by_threads = True
            self.key_calls += 1
            keep_newest(self.keys_set, keys)
            for key in keys:
                self.keys_deleted.pop(key, None)

    def note_deleted(self, keys: list[str]) -> None:
        """Records that the program deletes keys of a store."""
        with self.lock:
            self.key_calls += 1
            keep_newest(self.keys_deleted, keys)

    def note_read(self, at: str, keys: list[str]) -> None:
        """Records that the program begins to read keys of a store there."""
        with self.lock:
            count, last = self.reads.get(at, (0, []))
            self.reads[at] = (count + 1, [*last, keys][-READS:])
            self.reads.move_to_end(at)
            while len(self.reads) > READS:
                self.reads.popitem(last=False)

    def number_of_thread(self) -> int | None:
        """Returns the number of the calling thread among those that make calls; None of the main one or a native."""
        import weakref

        thread = getattr(threading, "_active", {}).get(threading.get_ident())
        if thread is None or thread is threading.main_thread():
            return None
        number, reference = self.threads.get(threading.get_ident(), (0, None))
        if reference is None or reference() is not thread:
            number, reference = len(self.numbered_threads), weakref.ref(thread)
            self.threads[threading.get_ident()] = (number, reference)
            self.numbered_threads.append(reference)
        return number

    def ended_threads(self) -> list[int]:
        """Returns the numbers of the threads that have made calls and have ended."""
        threads = [(number, reference()) for number, reference in enumerate(self.numbered_threads)]
        return [number for number, thread in threads if thread is None or not thread.is_alive()]

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
            kind = self.rare
            if entry["what"] in ("collective", "message"):
                kind = self.entries
                self.callers.add(threading.get_ident())
                thread = self.number_of_thread()
                if thread is not None:
                    entry["thread"] = thread
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

    def note_thread_error(self, error: BaseException) -> None:
        """Keeps the text of an error that has ended a thread."""
        with self.lock:
            self.thread_errors = [*self.thread_errors, error_text(error)][-ERRORS:]

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

    def next_message(self, key: tuple[str, bool, int | None, int]) -> int | None:
        """Counts a message of a sort; returns its number, from 0; None once there were too many sorts."""
        with self.lock:
            if self.messages is None:
                return None
            number = self.messages.get(key, 0)
            self.messages[key] = number + 1
            if len(self.messages) > MESSAGES:
                self.messages = None
            return number

    def add_group(self, key: str, name: str, members: list[int]) -> None:
        """Keeps a group under a key, unless it is known."""
        with self.lock:
            self.groups.setdefault(key, (name, members))

    def add_process_group(self, name: str, is_world: bool, members: list[int]) -> None:
        """Keeps a process group by the name that torch has given it."""
        self.add_group(f"{self.epoch}.{name}", "world" if is_world else "", members)

    def keep_work(self, work: object, entries: list[Entry]) -> None:
        """Remembers of which calls a work is."""
        import weakref

        try:
            reference = weakref.ref(work)
        except TypeError:
            return  # it is no work
        with self.lock:
            self.works[id(work)] = (reference, entries)
            if len(self.works) > WORKS:
                self.works.popitem(last=False)

    def calls_of(self, work: object) -> list[Entry]:
        """Returns the entries of the calls that a work is of; none of a work that is not known."""
        reference, entries = self.works.get(id(work), (None, []))
        # Another object may have had this id.
        return entries if reference is not None and reference() is work else []

    def messages_since(self, number: int) -> list[Entry]:
        """Returns the messages that this thread has issued since the entry of this number, oldest first."""
        found: list[Entry] = []
        with self.lock:
            for entry in reversed(self.entries):
                if entry["id"] <= number:
                    break
                found.append(entry)
        return [entry for entry in reversed(found) if entry["what"] == "message"]

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
                recorded = self.recorder.look()
                now_done = (self.moves - self.retries, self.recorder.status)
                is_moving, done = now_done != done, now_done
                calls = (self.moves, self.polled(), self.key_calls, self.ended_threads())
                errors = len(self.errors) + len(self.thread_errors)
                now = (calls, line, awaited, errors, self.fatal, self.lost, recorded, is_moving)
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
            oldest = entries[len(self.rare)]["id"] if len(entries) > len(self.rare) else 0
            used = set(self.used)
            inside, counts, groups = dict(self.inside), dict(self.counts), dict(self.groups)
            head: dict[str, Any] = {
                "format": FORMAT,
                "pid": os.getpid(),
                "moves": self.moves,
                "epoch": self.epoch,
                "dropped": self.dropped + left_out,
                "messages": [[*key, count] for key, count in (self.messages or {}).items()],
                "errors": self.errors,
                "thread_errors": self.thread_errors,
                "retries": self.retries,
                "failing_since": self.failing_since,
                "left": self.left,
                "waited": [[number, *ended] for number, ended in self.waited.items() if number >= oldest],
                "keys_set": list(self.keys_set),
                "keys_set_again": {key: times for key, times in self.keys_set.items() if times > 1},
                "keys_deleted": list(self.keys_deleted),
                "reads": dict(self.reads),
                "ended_threads": self.ended_threads(),
                "calls_by_threads": len(self.callers) > 1,
                "keys_by_threads": self.keys_by_threads,
                "fatal": self.fatal or self.lost,
                "ended": self.ended,
            }
        entries.sort(key=entry_id)
        head["groups"] = {
            key: {"name": name, "members": members, "count": counts.get(key, 0)}
            for key, (name, members) in groups.items()
            if key in used or key.split(".", 1)[1] in self.recorder.groups
        }
        called = {str(group) for group in used if "." in str(group)}
        call = current_call(inside, self.polled(), called)
        handler = handler_thread() if call and call[0].get("text") == "rpc.shutdown" else None
        if handler is not None:
            call = inside.get(handler[0])  # it serves, and may wait for others there
        head["inside"] = call and {"entry": call[0], "since": call[1]}
        own = line and {"text": line[0], "at": line[1], "in": line[2], "lock": awaited_lock()}
        head["own"] = own and {**own, "connection": awaited_connection()}
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
                self.recorder.dump()
                self.write(self.path(), None)


def name_thread(name: str) -> None:
    """Gives the calling thread a name in the kernel, which Python before 3.14 does not."""
    try:
        with open(f"/proc/self/task/{threading.get_native_id()}/comm", "wb") as file:
            file.write(name.encode())
    except OSError:
        pass  # not on Linux
