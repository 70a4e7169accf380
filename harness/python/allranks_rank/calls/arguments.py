"""Arguments of the library, made from the protocol's notation."""

import importlib
import inspect
from typing import Any

import torch
import torch.distributed as dist

from .registry import Fields, Index
from .state import CallState

# Torch has had `group_src=` and `group_dst=` beside `src=` and `dst=` since version 2.6.
_HAS_GROUP_RANKS = "group_src" in inspect.signature(dist.broadcast).parameters


def rank_argument(name: str, reference: dict[str, int]) -> dict[str, int]:
    """Returns a rank reference as keyword arguments of the library.

    ``{"global": r}`` becomes ``name=r``, and ``{"group": r}`` becomes ``group_name=r``.

    Args:
        name: ``src``, ``dst`` or ``peer``.
        reference: the rank reference.

    Raises:
        NotImplementedError: the reference is a rank in the group, and this torch has no ``group_...=`` arguments.
    """
    if "global" in reference:
        return {name: reference["global"]}
    if not _HAS_GROUP_RANKS:
        raise NotImplementedError(f"torch {torch.__version__} has no group_{name}= argument")
    return {f"group_{name}": reference["group"]}


def reduce_op(state: CallState, name: str) -> Any:
    """Returns the ``ReduceOp`` of this name.

    Names: ``sum``, ``avg``, ``product``, ``min``, ``max``, ``band``, ``bor``, ``bxor`` and ``premul_sum``, which
    carries the step's factor (see the call ``premul_factor``).

    Raises:
        AttributeError: this torch has no such reduce op.
    """
    if name == "premul_sum":
        return dist._make_nccl_premul_sum(state.premul_factor)
    return getattr(dist.ReduceOp, name.upper())


def dotted(name: str) -> Any:
    """Returns the object at ``package.module.function``, importing modules on the way.

    Raises:
        ImportError: neither an attribute nor a module has this name.
    """
    module, _, rest = name.partition(".")
    found = importlib.import_module(module)
    for part in rest.split("."):
        module = f"{module}.{part}"
        if not hasattr(found, part):
            importlib.import_module(module)
        found = getattr(found, part)
    return found


def issue(state: CallState, fields: Fields, index: Index, function: Any, *args: Any, **kwargs: Any) -> None:
    """Calls a function of the library with the call's ``group`` and ``async_op``; with ``async_op`` keeps its work."""
    is_async = fields.get("async_op", False)
    work = function(*args, group=state.group(fields["group"]), async_op=is_async, **kwargs)
    if is_async:
        state.works[index] = work
