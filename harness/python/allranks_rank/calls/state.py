"""What calls make and later calls use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist

#: The factor of ``premul_sum`` in steps that set none.
PREMUL_FACTOR = 3.0


class CallState:
    """The device, the groups, and the current step's tensors and works of one rank."""

    def __init__(self) -> None:
        #: Where tensors are made; None is the CPU.
        self.device: torch.device | None = None
        #: Waits until the device has finished all its work; None if the platform names no such function.
        self.synchronize: Callable[[], Any] | None = None
        #: Whether a tensor and the views of it stay one piece of memory, whatever an op does to one of them.
        self.shares_memory = True
        #: The step's tensors.
        self.tensors: list[torch.Tensor] = []
        #: Works of the step, by index of the call that returned them; None is the index of calls inside ``coalesced``.
        self.works: dict[int | None, Any] = {}
        #: Makes the step's tensors anew from its storages; with ``pinned=True`` in page-locked memory. None between
        #: steps.
        self.remake: Callable[..., list[torch.Tensor]] | None = None
        #: A mode of torch that ``tensors_as`` has entered, and that the rank leaves at the end of the step.
        self.mode: AbstractContextManager[Any] | None = None
        #: The step's factor of ``premul_sum``: a number, or a tensor of one element.
        self.premul_factor: float | torch.Tensor = PREMUL_FACTOR
        #: Errors of ``new_group`` in this step. An error keeps alive what it was raised in: a group that is half made
        #: must not close its connections while peers are still making theirs.
        self.errors: list[BaseException] = []
        #: Group name -> process group, as ``group=`` takes it: None is the default group.
        self.groups: dict[str, Any] = {"world": None}
        #: Returns when the harness sends ``go``. Set by the rank.
        self.wait_for_go: Callable[[], None] | None = None

    def begin_step(self) -> None:
        """Forgets what the calls of the last step left for each other."""
        self.works = {}
        self.premul_factor = PREMUL_FACTOR
        self.errors = []

    def end_step(self) -> None:
        """Forgets the step's tensors and works. A work that is kept alive keeps its buffers busy."""
        self.tensors = []
        self.works = {}
        self.remake = None

    def group(self, name: str) -> dist.ProcessGroup | None:
        """Returns the group of this name, as ``group=`` takes it: None for the default group.

        Raises:
            LookupError: this rank has made no group of this name, or has destroyed it.
        """
        try:
            return self.groups[name]
        except KeyError:
            raise LookupError(f"this rank has no group {name!r}") from None

    def select(self, indices: Sequence[int]) -> list[torch.Tensor]:
        """Returns the tensors at these indices."""
        return [self.tensors[index] for index in indices]

    def select_optional(self, indices: Sequence[int] | None) -> list[torch.Tensor] | None:
        """Returns the tensors at these indices; None for None, which is what ranks other than the root pass."""
        return None if indices is None else self.select(indices)
