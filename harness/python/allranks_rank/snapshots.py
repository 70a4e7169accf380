"""Keeps what tensors held before a call, to see whether a call that raised has written to them."""

import sys
from types import FrameType, TracebackType
from typing import Any

import torch

from .tensors import raw_bytes

#: The file name that the statements of a `python` call are compiled under.
STATEMENTS = "<statements>"


class ArgumentSnapshots:
    """Copies of the tensors that statements hand to functions; a context manager around the statements.

    Functions are those written in Python, as all of ``torch.distributed`` are, that the statements call directly. What
    they do with their arguments afterwards is theirs.
    """

    def __init__(self) -> None:
        """Begins without a copy."""
        #: Function, tensor, and the copy of its elements.
        self._copies: list[tuple[str, torch.Tensor, torch.Tensor]] = []

    def __enter__(self) -> "ArgumentSnapshots":
        """Copies from here on, on this thread."""
        sys.setprofile(self._copy)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        """Copies no more."""
        sys.setprofile(None)

    def _copy(self, frame: FrameType, event: str, _argument: Any) -> None:
        """Copies the arguments of a function that the statements call. Called by the interpreter."""
        if event != "call" or frame.f_back is None or frame.f_back.f_code.co_filename != STATEMENTS:
            return
        if frame.f_code.co_filename == STATEMENTS:
            return
        for tensor in _tensors(list(frame.f_locals.values())):
            self._copies.append((_function(frame), tensor, tensor.detach().clone()))

    def written(self) -> str | None:
        """Returns a sentence on the first element that is not as it was; None if all are."""
        for function, tensor, copy in self._copies:
            now = tensor.detach()
            if torch.equal(raw_bytes(now), raw_bytes(copy)):
                continue
            pairs = zip(now.flatten().tolist(), copy.flatten().tolist(), strict=True)
            # Two NaN of different bits are no pair of different numbers.
            differ = [(index, was, held) for index, (held, was) in enumerate(pairs) if held != was]
            index, was, held = differ[0] if differ else (0, "one NaN", "another")
            return f"element {index} of a tensor given to {function} was {was} and is {held}"
        return None


def _function(frame: FrameType) -> str:
    """Returns the name of the function that a frame runs, without the wrappers around it."""
    wrapped = frame.f_locals.get("func")
    return getattr(wrapped, "__name__", None) or frame.f_code.co_name


def _tensors(values: list[Any]) -> list[torch.Tensor]:
    """Returns the dense tensors among values, and in lists, tuples and dicts of them."""
    found = []
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.layout == torch.strided:
                found.append(value)
        elif isinstance(value, list | tuple):
            found += _tensors(list(value))
        elif isinstance(value, dict):
            found += _tensors(list(value.values()))
    return found
