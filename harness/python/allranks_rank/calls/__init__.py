"""The calls of the rank protocol, one function for each, registered in `CALLS`.

Section 5 of ``harness/doc/reference/protocol.md`` has their fields.

Each function takes the rank's `CallState`, the call's fields as they came over the wire, and the call's index in its
step. It returns the ``value`` that the protocol names, or None. Functions of the library are looked up on
``torch.distributed`` at every call, so that a platform's module may replace them. No error is caught, checked, retried
or repaired here.

Notation of the docstrings, and what they do not repeat:

- "tensor index": an int, the position of a tensor in the step's ``tensors``. An index that is out of range raises
  IndexError.
- "rank reference": ``{"global": r}`` or ``{"group": r}``, passed to different arguments of the library: see
  `arguments.rank_argument`, which says what it may raise.
- "reduce op": a name such as ``sum``: see `arguments.reduce_op`, which says what it may raise.
- ``group``: the name of a group, ``world`` for the default group. An unknown name raises LookupError.
- ``async_op``: bool, default false. With true the function returns as soon as the library does, and keeps the work
  under the call's index until the end of the step, for `works.wait` and the calls beside it.
- W: the number of ranks in the call's group. n: a number of elements.
- Every error that the library raises passes through. "Raises" names the usual ones.

A field that the protocol requires and that is not there raises KeyError. The value is None unless "Value" says
otherwise.
"""

from . import collectives, composite, device, groups, messages, objects, process, stack, tensors, works  # noqa: F401
from .registry import CALLS, make
from .state import CallState

__all__ = ["CALLS", "CallState", "make"]
