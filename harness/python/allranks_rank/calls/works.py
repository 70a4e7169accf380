"""Calls on works: what a call with ``async_op``, ``isend`` or ``irecv`` has kept earlier in the same step.

Each has the field ``work`` (int): the index of the call that made the work; within ``together`` the index in the
thread. A call that kept no work, or a work that was dropped, raises KeyError.
"""

import gc
from datetime import timedelta

from .registry import Fields, Index, protocol_call
from .state import CallState


@protocol_call("wait")
def wait(state: CallState, fields: Fields, _index: Index) -> None:
    """Waits for a work: ``work.wait()``.

    Fields:
        work (int): index of an earlier call of the step.
        timeout_ms (int, optional): milliseconds, passed as the argument of ``wait``.

    Raises:
        RuntimeError: the collective failed, or the time-out has passed. Backends have error types of their own.
    """
    work = state.works[fields["work"]]
    if fields.get("timeout_ms") is None:
        work.wait()
    else:
        work.wait(timedelta(milliseconds=fields["timeout_ms"]))


@protocol_call("is_completed")
def is_completed(state: CallState, fields: Fields, _index: Index) -> bool:
    """Asks a work whether it is completed: ``work.is_completed()``.

    Fields:
        work (int): index of an earlier call of the step.

    Value:
        bool: the answer.
    """
    return state.works[fields["work"]].is_completed()


@protocol_call("future")
def future(state: CallState, fields: Fields, _index: Index) -> bool:
    """Waits for the future of a work: ``work.get_future().wait()``.

    Fields:
        work (int): index of an earlier call of the step.

    Value:
        bool: whether the future is done afterwards.

    Raises:
        RuntimeError: the backend's works have no futures, or the collective failed.
    """
    work_future = state.works[fields["work"]].get_future()
    work_future.wait()
    return work_future.done()


@protocol_call("drop")
def drop(state: CallState, fields: Fields, _index: Index) -> None:
    """Forgets a work without waiting for it, and collects garbage.

    Fields:
        work (int): index of an earlier call of the step.
    """
    del state.works[fields["work"]]
    gc.collect()
