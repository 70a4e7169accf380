"""Wraps the public calls of torch.distributed, so that each of them is recorded in the process's `CallTrace`.

A wrapper changes no argument and no result, and passes on every error of the call. An error in the recording itself is
dropped: the call is then made unrecorded.
"""

from __future__ import annotations

import os
import sys
import threading

from allranks_entry import (
    COLLECTIVES,
    MESSAGES,
    PREFIXES,
    Arguments,
    entry_of_call,
    is_gloo,
    place_of_store,
    prefixes_of,
)
from allranks_frames import calling_location
from allranks_trace import CallTrace, error_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType, TracebackType
    from typing import Any

    from allranks_place import Entry

#: The folder of these modules.
_FOLDER = os.path.dirname(__file__) + os.sep
#: The module whose functions are wrapped.
MODULE = "torch.distributed.distributed_c10d"
#: Those that return a work. Gloo gives a message up when its work is dropped.
UNBLOCKING = ("isend", "irecv")
#: Functions of ``torch.distributed.rpc`` that wait for other ranks.
RPC = ("rpc_sync", "shutdown")
#: How the key of a member begins that makes a group by itself, and the members of which there are keys.
JOINED = "process group at "
JOINING = 50
#: Methods of stores that read keys, which may wait for them, those that set one, and those that delete one.
STORE_READS = ("get", "multi_get", "wait", "check")
STORE_WRITES = ("set", "multi_set", "append", "compare_set", "add")
STORE_DELETES = ("delete_key",)
#: Calls that make groups, also from inside other calls.
GROUP_MAKERS = ("new_group", "split_group")
#: Calls that make and end groups.
MANAGEMENT = ("init_process_group", "destroy_process_group", *GROUP_MAKERS)


def wrap(trace: CallTrace, module: Any, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that makes the same call and records it."""
    import functools
    import inspect

    order = {parameter: position for position, parameter in enumerate(inspect.signature(function).parameters)}
    local = trace.local

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        # Calls that a call makes are not the program's. Groups are made inside other calls too, on all ranks.
        if getattr(local, "depth", 0) and name not in GROUP_MAKERS:
            return function(*args, **kwargs)
        entry = None
        is_followed = False
        try:
            arguments = Arguments(order, args, kwargs)
            entry = entry_of_call(trace, module, name, arguments)
            if entry is not None:
                is_followed = name in UNBLOCKING and is_gloo(module, arguments.get("group"))
                entry["at"] = calling_location()
                trace.enter(entry)
        except Exception:
            entry = None
        if entry is None:
            return function(*args, **kwargs)
        local.depth = getattr(local, "depth", 0) + 1
        error = None
        try:
            result = function(*args, **kwargs)
            if name == "recv" and entry["peer"] is None and isinstance(result, int):
                entry["peer"] = result  # the sender, of any that it might have been
            elif result is not None and name not in MANAGEMENT:
                trace.keep_work(result, [entry])
                if is_followed:
                    trace.follow_handle(result, entry)
            return result
        except BaseException as caught:
            error = caught
            raise
        finally:
            local.depth -= 1
            try:
                trace.leave(entry, error)
            except Exception:
                pass

    return wrapper


def wrap_wait(trace: CallTrace, function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a ``Work.wait`` that records the wait for a recorded call."""
    import functools

    local = trace.local

    @functools.wraps(function)
    def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        entries = [] if getattr(local, "depth", 0) else trace.calls_of(self)
        if not entries:
            return function(self, *args, **kwargs)
        error = None
        for entry in entries:
            trace.handles.pop(entry["id"], None)
        try:
            trace.enter({**entries[0], "waits": True, "at": calling_location()}, is_new=False)
        except Exception:
            pass
        try:
            return function(self, *args, **kwargs)
        except BaseException as caught:
            error = caught
            raise
        finally:
            try:
                trace.leave_wait(entries, error)
            except Exception:
                pass

    return wait


def wrap_look(trace: CallTrace, function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a ``Work.is_completed`` that records the look at a recorded call."""
    import functools

    local = trace.local

    @functools.wraps(function)
    def is_completed(self: Any) -> Any:
        is_over = function(self)
        try:
            entries = [] if getattr(local, "depth", 0) else trace.calls_of(self)
            if entries:
                trace.note_look(entries, bool(is_over), calling_location())
        except Exception:
            pass
        return is_over

    return is_completed


def wrap_batch(trace: CallTrace, function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a ``batch_isend_irecv`` that remembers of which calls a work is that is of all of them together."""
    import functools

    @functools.wraps(function)
    def batch(*args: Any, **kwargs: Any) -> Any:
        before = trace.added
        works = function(*args, **kwargs)
        try:
            if not getattr(trace.local, "depth", 0):
                issued = trace.messages_since(before)
                for work in works if issued else ():
                    if not trace.calls_of(work):
                        trace.keep_work(work, issued)
        except Exception:
            pass
        return works

    return batch


def call_in(trace: CallTrace, entry: Entry, call: Callable[[], Any]) -> Any:
    """Makes a call, in which the trace shows this thread meanwhile, and returns its result; the entry is not kept."""
    error = None
    try:
        entry["at"] = calling_location()
        trace.enter(entry, is_new=False)
    except Exception:
        pass
    try:
        return call()
    except BaseException as caught:
        error = caught
        raise
    finally:
        try:
            trace.leave(entry, error)
        except Exception:
            pass


def wrap_store(trace: CallTrace, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a method of a store that makes the same call, and records which keys the program waits for or sets."""
    import functools

    local = trace.local

    @functools.wraps(function)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        # What a library's own rendezvous does with its store is not the program's. A process that has joined no world,
        # and was given no rank, may be a launcher, which hosts the store of its ranks.
        is_rank = trace.epoch or "RANK" in os.environ
        if getattr(local, "depth", 0) or not is_rank or not is_called_by_program():
            return function(self, *args, **kwargs)
        given = args[0] if args else kwargs.get("key", kwargs.get("keys"))
        keys = [given] if isinstance(given, str) else [key for key in given or () if isinstance(key, str)]
        prefixes = [prefix for prefix, is_own in reversed(prefixes_of(self)) if is_own]
        keys = ["/".join([*prefixes, key])[:200] for key in keys[:50]]
        # To add nothing to a counter reads it.
        if name in STORE_WRITES and not (name == "add" and args[1:2] == (0,)):
            trace.note_set(keys)
            return function(self, *args, **kwargs)
        if name in STORE_DELETES:
            trace.note_deleted(keys)
            return function(self, *args, **kwargs)
        reads = functools.partial(function, self, *args, **kwargs)
        poll = trace.poll_of(keys)
        if poll is not None:
            return trace.read_again(poll, reads)
        entry: Entry = {"what": "store", "keys": keys, "at": "", "id": 0, "epoch": trace.epoch}
        trace.note_read(calling_location(), keys)
        trace.begin_poll(entry)
        return call_in(trace, entry, reads)

    return method


def wrap_prefix(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns ``PrefixStore.__init__``, which remembers the prefix: the store itself does not tell it."""
    import functools

    @functools.wraps(function)
    def init(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = function(self, *args, **kwargs)
        try:
            prefix = str(args[0] if args else kwargs["prefix"])[:100]
            PREFIXES[id(self)] = (prefix, is_called_by_program())
        except Exception:
            pass
        return result

    return init


def wrap_join(trace: CallTrace, function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns ``ProcessGroupGloo.__init__``, which records where the program makes a group by itself.

    Each member tells the others in the store where it is, and waits for all of them: that is recorded as a key of each.
    """
    import functools

    @functools.wraps(function)
    def init(self: Any, *args: Any, **kwargs: Any) -> Any:
        join = functools.partial(function, self, *args, **kwargs)
        if getattr(trace.local, "depth", 0):
            return join()
        try:
            given = dict(zip(("store", "rank", "size"), args, strict=False)) | kwargs
            place = JOINED + place_of_store(given["store"])[:150]
            keys = [f"{place}, rank {rank}" for rank in range(min(int(given["size"]), JOINING))]
            trace.note_set(keys[int(given["rank"]) :][:1])
            trace.note_read(calling_location(), keys)
            entry: Entry = {"what": "store", "keys": keys, "at": "", "id": 0, "epoch": trace.epoch}
        except Exception:
            return join()
        return call_in(trace, entry, join)

    return init


def wrap_rpc(trace: CallTrace, module: Any, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function of ``torch.distributed.rpc`` that makes its call and records which ranks it waits for."""
    import functools

    local = trace.local

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        # A shutdown makes calls of its own.
        if getattr(local, "depth", 0):
            return function(*args, **kwargs)
        entry: Entry = {"what": "rpc", "text": f"rpc.{name}", "to": [], "at": "", "id": 0, "epoch": trace.epoch}
        try:
            agent = module._get_current_rpc_agent()
            if name == "rpc_sync":
                to = args[0] if args else kwargs["to"]
                worker = to if hasattr(to, "id") else agent.get_worker_info(to)
                entry["text"], entry["to"] = f"rpc_sync to {worker.name}", [worker.id]
            elif args[0] if args else kwargs.get("graceful", True):
                own = agent.get_worker_info().id
                entry["to"] = [worker.id for worker in agent.get_worker_infos() if worker.id != own]
        except Exception:
            return function(*args, **kwargs)
        local.depth = getattr(local, "depth", 0) + 1
        try:
            return call_in(trace, entry, lambda: function(*args, **kwargs))
        finally:
            local.depth -= 1

    return call


def patch_rpc(trace: CallTrace, module: Any) -> None:
    """Puts wrappers in the place of the functions of ``torch.distributed.rpc.api`` that wait for other ranks."""
    for name in RPC:
        setattr(module, name, wrap_rpc(trace, module, name, getattr(module, name)))


def is_called_by_program() -> bool:
    """Returns whether the function that called the caller of this one is not torch's own."""
    return "/torch/" not in sys._getframe(2).f_code.co_filename


def patch(trace: CallTrace, module: Any) -> None:
    """Puts wrappers in the place of the functions of ``torch.distributed.distributed_c10d``, and of ``Work.wait``."""
    for name in [*COLLECTIVES, *MESSAGES, *MANAGEMENT]:
        function = getattr(module, name, None)
        if callable(function):
            setattr(module, name, wrap(trace, module, name, function))
    for kind, name, wrapper in (
        (module.Work, "wait", wrap_wait),
        (module.Work, "is_completed", wrap_look),
        (module, "batch_isend_irecv", wrap_batch),
    ):
        try:
            setattr(kind, name, wrapper(trace, getattr(kind, name)))
        except Exception:
            pass
    for name in (*STORE_READS, *STORE_WRITES, *STORE_DELETES):
        try:
            setattr(module.Store, name, wrap_store(trace, name, getattr(module.Store, name)))
        except Exception:
            pass
    try:
        module.PrefixStore.__init__ = wrap_prefix(module.PrefixStore.__init__)
    except Exception:
        pass
    try:
        module.ProcessGroupGloo.__init__ = wrap_join(trace, module.ProcessGroupGloo.__init__)
    except Exception:
        pass
    try:
        hide_own_frames()
    except Exception:
        pass


def hide_own_frames() -> None:
    """Has Python's module of tracebacks leave out the frames of the wrappers."""
    import traceback

    for name in ("walk_tb", "_walk_tb_with_full_positions"):
        walk = getattr(traceback, name, None)
        if walk is not None:
            setattr(traceback, name, without_own_frames(walk))


def without_own_frames(walk: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a walk through a traceback that leaves out the frames of these modules."""

    def filtered(tb: TracebackType | None) -> Any:
        for found in walk(tb):
            if not found[0].f_code.co_filename.startswith(_FOLDER):
                yield found

    return filtered


def cut_own_frames(tb: TracebackType | None) -> TracebackType | None:
    """Takes the frames of these modules out of a traceback that will be printed; returns the first that is left."""
    while tb is not None and tb.tb_frame.f_code.co_filename.startswith(_FOLDER):
        tb = tb.tb_next
    step = tb
    while step is not None and step.tb_next is not None:
        if step.tb_next.tb_frame.f_code.co_filename.startswith(_FOLDER):
            step.tb_next = step.tb_next.tb_next
        else:
            step = step.tb_next
    return tb


def note_fatal(trace: CallTrace, error: BaseException) -> None:
    """Records the error that ends the process."""
    trace.note_error(error)
    trace.fatal = error_text(error)


def patch_exit(trace: CallTrace, module: Any) -> None:
    """Has a process that multiprocessing starts record the error that ends it: `sys.excepthook` is not told of it."""
    leave = module._exit_function

    def exit_function(*args: Any, **named: Any) -> Any:
        error = sys.exc_info()[1]
        if isinstance(error, SystemExit):
            # torch's own processes end so after they have passed on the error that they met.
            error = error.__context__ if error.code not in (None, 0) else None
        if error is not None:
            note_fatal(trace, error)
        return leave(*args, **named)

    module._exit_function = exit_function


#: Modules that are patched, and by what.
PATCHES = {MODULE: patch, "torch.distributed.rpc.api": patch_rpc, "multiprocessing.util": patch_exit}


class Finder:
    """A finder of modules that patches those of `PATCHES` once executed, before others take their functions."""

    def __init__(self, trace: CallTrace) -> None:
        """Takes the trace that calls are recorded in."""
        self.trace = trace

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns what the other finders find, with a loader that patches; None for all other modules."""
        if name not in PATCHES:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    self.patch_after(spec.loader, PATCHES[name])
                return spec
        return None

    def patch_after(self, loader: Loader, patch: Callable[[CallTrace, Any], None]) -> None:
        """Has a loader patch the module after executing it."""
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            try:
                patch(self.trace, module)
            except Exception:
                pass

        try:
            loader.exec_module = exec_module  # type: ignore[method-assign]
        except Exception:
            pass


def begin(folder: str) -> None:
    """Traces this process and the processes it forks, in this folder."""
    import atexit

    trace = CallTrace(folder)
    sys.meta_path.insert(0, Finder(trace))
    if "RANK" in os.environ:
        trace.start()
    atexit.register(trace.end)
    os.register_at_fork(after_in_child=trace.reset)
    hook = sys.excepthook

    def excepthook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> Any:
        try:
            note_fatal(trace, error)
            traceback = cut_own_frames(traceback)
            error.__traceback__ = traceback
        except Exception:
            pass
        hook(kind, error, traceback)

    sys.excepthook = excepthook
    thread_hook = threading.excepthook

    def thread_excepthook(args: Any) -> Any:
        # Python ends a thread that exits without a word.
        if args.exc_value is not None and not issubclass(args.exc_type, SystemExit):
            try:
                trace.note_thread_error(args.exc_value)
            except Exception:
                pass
        return thread_hook(args)

    threading.excepthook = thread_excepthook
