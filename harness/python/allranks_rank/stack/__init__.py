"""Layers above c10d: one module for each, named like the layer, with a function ``run``.

A layer takes its tensors by name from the step, uses PyTorch as a program would, and copies what it must give back into
the step's tensors: see the docstring of each module for the names. It never sees an expected value. The collectives
below it are issued by PyTorch's own code, most of it C++.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import torch.distributed as dist


class StackCall(NamedTuple):
    """What a layer is given."""

    #: The step's tensors by the layer's names for them.
    tensors: Mapping[str, torch.Tensor]
    #: What the layer is asked for on this rank.
    options: Mapping[str, Any]
    #: The ranks that take part.
    group: dist.ProcessGroup
    #: Where its tensors are.
    device: torch.device

    def give(self, name: str, result: torch.Tensor) -> None:
        """Copies a result to the tensor of this name.

        Raises:
            RuntimeError: a result of another shape or dtype than it must have.
        """
        target = self.tensors[name]
        if result.shape != target.shape or result.dtype != target.dtype:
            found, wanted = (f"{tensor.dtype} {tuple(tensor.shape)}" for tensor in (result, target))
            raise RuntimeError(f"{name} is {found}, not {wanted}")
        target.copy_(result.detach())

    def give_refused(self, use: Callable[[], object], refusal: type[BaseException] = RuntimeError) -> None:
        """Gives 1 as ``refused`` if the function raises this exception, 0 if it returns."""
        try:
            use()
        except refusal:
            self.tensors["refused"].fill_(1)
        else:
            self.tensors["refused"].fill_(0)

    def sleep(self) -> None:
        """Makes this rank late, if it is to be."""
        time.sleep(self.options["sleep_ms"] / 1000)


def run(layer: str, call: StackCall) -> None:
    """Uses a layer.

    Raises:
        LookupError: an unknown layer. Also whatever PyTorch raises.
    """
    if layer not in LAYERS:
        raise LookupError(f"this driver has no layer {layer!r}")
    importlib.import_module(f"{__name__}.{layer}").run(call)


#: The layers of this driver.
LAYERS = (
    "functional",
    "ddp",
    "fsdp2",
    "mesh",
    "dtensor",
    "pipeline",
    "zero",
    "tensor_parallel",
    "checkpoint",
    "batch_norm",
    "context_parallel",
    "random_numbers",
)
