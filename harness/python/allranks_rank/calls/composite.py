"""Calls that make other calls."""

import copy
import threading
from contextlib import nullcontext
from typing import Any

import torch.distributed as dist

from ..errors import describe
from ..snapshots import ArgumentSnapshots
from .registry import CALLS, Fields, Index, make, protocol_call
from .state import CallState


@protocol_call("coalesced")
def coalesced(state: CallState, fields: Fields, index: Index) -> None:
    """Makes calls inside one ``_coalescing_manager(group)``, which hands them to the backend as one.

    Fields:
        group (str): the group of all of them.
        calls (list of calls): collectives, or messages, of this group. They have no ``enter`` frames of their own.
        async_op (bool, default false): the manager is the work.

    Raises:
        RuntimeError: the calls are not all of one kind, or the backend cannot coalesce.
    """
    is_async = fields.get("async_op", False)
    with dist._coalescing_manager(group=state.group(fields["group"]), async_ops=is_async) as manager:
        for inner in fields["calls"]:
            CALLS[inner["call"]](state, inner, None)
    if is_async:
        state.works[index] = manager


@protocol_call("attempt")
def attempt(state: CallState, fields: Fields, index: Index) -> Fields:
    """Makes another call; the step goes on whether it raised or not.

    An error of ``new_group`` is kept until the next step, because it holds the half-made group, whose connections other
    ranks may still be making.

    Fields:
        inner (call): the call. A work that it makes is kept under the index of the ``attempt``.

    Value:
        dict: ``{"raised": null, "value": ...}``, or ``{"raised": {"type": str, "message": str}}``. If statements of a
        ``python`` raised, and a tensor that they have given to a function is not what it was then, ``written`` says so.
    """
    inner = fields["inner"]
    snapshots = ArgumentSnapshots()
    try:
        with snapshots if inner["call"] == "python" else nullcontext():
            return {"raised": None, "value": CALLS[inner["call"]](state, inner, index)}
    except Exception as error:
        if inner["call"] == "new_group":
            state.errors.append(error)
        written = snapshots.written()
        return {"raised": describe(error), **({"written": written} if written else {})}


@protocol_call("together")
def together(state: CallState, fields: Fields, _index: Index) -> list[list[Fields]]:
    """Makes lists of calls at the same time, each on a thread of its own; returns when all threads have ended.

    Fields:
        threads (list of lists of calls): the first error of a thread ends that thread. ``work`` counts within the
            thread. The calls have no ``enter`` frames.

    Value:
        list of lists of dict: for each thread its calls' entries, as in the ``result`` frame.
    """

    def run(calls: list[Fields], results: list[Fields]) -> None:
        # Groups and tensors are those of the rank; works are the thread's own.
        thread_state = copy.copy(state)
        thread_state.works = {}
        for index, inner in enumerate(calls):
            results.append(make(thread_state, inner, index))
            if results[-1]["status"] == "error":
                break
        while len(results) < len(calls):
            results.append({"status": "not_reached"})

    results: list[list[Any]] = [[] for _ in fields["threads"]]
    pairs = zip(fields["threads"], results, strict=True)
    threads = [threading.Thread(target=run, args=pair) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
