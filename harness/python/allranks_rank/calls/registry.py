"""The table of calls, and what makes one of them."""

import time
from collections.abc import Callable
from typing import Any, TypeAlias

from ..errors import describe
from .state import CallState

#: A JSON object of the protocol: a call with its fields, or the entry of a result.
Fields: TypeAlias = dict[str, Any]
#: The index of a call in its step or in its thread; None inside ``coalesced``, where no later call can name its work.
Index: TypeAlias = int | None
#: A function that makes one call, and returns its value.
CallFunction: TypeAlias = Callable[[CallState, Fields, Index], Any]

#: Call name -> function. The keys are ``calls`` of the ``hello`` frame.
CALLS: dict[str, CallFunction] = {}


def protocol_call(name: str) -> Callable[[CallFunction], CallFunction]:
    """Returns a decorator that registers a function as the call of this name."""

    def register(function: CallFunction) -> CallFunction:
        CALLS[name] = function
        return function

    return register


def make(state: CallState, fields: Fields, index: Index) -> Fields:
    """Makes one call.

    Returns:
        The call's entry in the ``result`` frame: ``status`` (``ok`` or ``error``), ``enter`` and ``leave`` (readings of
        the monotonic clock, nanoseconds), and ``value`` or ``error``. What is no Exception (SystemExit,
        KeyboardInterrupt) passes through, and ends the rank.
    """
    enter = time.monotonic_ns()
    try:
        value = CALLS[fields["call"]](state, fields, index)
    except Exception as error:
        leave = time.monotonic_ns()
        return {"status": "error", "enter": enter, "leave": leave, "error": describe(error)}
    return {"status": "ok", "enter": enter, "leave": time.monotonic_ns(), "value": value}
