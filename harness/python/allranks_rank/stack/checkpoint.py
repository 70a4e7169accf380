"""Distributed checkpoints: a matrix that all ranks save in one placement, and that all or fewer load in another.

Tensors: ``saved``, the rank's part when it is saved, and ``loaded``, its part when it is loaded, if it loads it;
``plain``, a tensor that is no DTensor and the same on all ranks, and ``loaded_plain``. With ``later`` also ``after``,
what the part is overwritten with as soon as ``async_save`` has returned, and ``addend`` and ``sum``, an all_reduce that
is made before the save is waited for. With a fault ``refused`` in place of what is loaded.

Options: ``from`` and ``to`` (placements: ``rows``, ``columns``, ``replicate``), ``shape`` (of the matrix), ``loaders``
(how many ranks load it, from the first one on), ``later`` (``async_save``), ``fault`` (what is missing when it is
loaded: ``none``, ``key``, ``file``), ``sleep_ms`` (before it is saved and before it is loaded).

The first rank makes a temporary folder and tells the others its path: all ranks must see it.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard

from . import StackCall

#: Option -> placement.
PLACEMENTS = {"rows": Shard(0), "columns": Shard(1), "replicate": Replicate()}
#: The keys of the matrix and of the tensor that is no DTensor, and one that is not in the checkpoint.
KEY, PLAIN, MISSING = "matrix", "plain", "missing"


def run(call: StackCall) -> None:
    """Saves the matrix, and loads it again.

    Raises:
        RuntimeError: it was not saved or not loaded.
    """
    try:
        save_and_load(call)
    except CheckpointException as error:
        # Not an Exception: the rank would end.
        raise RuntimeError(str(error)) from error


def save_and_load(call: StackCall) -> None:
    """Saves the matrix in a temporary folder, and loads it again."""
    path: list[str | None] = [tempfile.mkdtemp(prefix="allranks-") if call.group.rank() == 0 else None]
    try:
        dist.broadcast_object_list(path, src=dist.get_global_rank(call.group, 0), group=call.group)
        save(call, Path(str(path[0])))
        if call.options["fault"] == "file" and call.group.rank() == 0:
            file_of_last(Path(str(path[0])), call.group.size()).unlink()
        dist.barrier(call.group)
        call.sleep()
        load(call, str(path[0]))
        dist.barrier(call.group)
    finally:
        if call.group.rank() == 0:
            shutil.rmtree(str(path[0]), ignore_errors=True)


def matrix_of(call: StackCall, local: torch.Tensor, group: dist.ProcessGroup, placement: str) -> DTensor:
    """Returns the matrix whose part on this rank is the tensor, in its memory."""
    mesh = DeviceMesh.from_group(group, call.device.type)
    shape = torch.Size(call.options["shape"])
    # Parts are of different sizes: torch must be told what they are parts of.
    placements = [PLACEMENTS[placement]]
    return DTensor.from_local(local, mesh, placements, run_check=False, shape=shape, stride=(shape[1], 1))


def save(call: StackCall, path: Path) -> None:
    """Saves the rank's part, at once or later."""
    local = call.tensors["saved"].clone()
    # A group of its own, as the documentation asks for, on the host.
    aside = dist.new_group(backend="gloo") if call.options["later"] else None
    call.sleep()
    state = {KEY: matrix_of(call, local, call.group, call.options["from"]), PLAIN: call.tensors["plain"].clone()}
    if not call.options["later"]:
        dcp.save(state, checkpoint_id=path, process_group=call.group)
        return
    future = dcp.async_save(state, checkpoint_id=path, process_group=aside)
    local.copy_(call.tensors["after"])
    total = call.tensors["addend"].clone()
    dist.all_reduce(total, group=call.group)
    call.give("sum", total)
    future.result()


def file_of_last(path: Path, ranks: int) -> Path:
    """Returns the file that the last rank wrote."""
    return next(path.glob(f"__{ranks - 1}_*"))


def load(call: StackCall, path: str) -> None:
    """Loads this rank's part into its tensor, or says whether that was refused."""
    options = call.options
    everyone = dist.get_process_group_ranks(call.group)
    loaders = everyone[: options["loaders"]]
    group = call.group if loaders == everyone else dist.new_group(loaders)
    if dist.get_rank() not in loaders:
        return
    if options["fault"] == "none":
        matrix = matrix_of(call, call.tensors["loaded"], group, options["to"])
        dcp.load({KEY: matrix, PLAIN: call.tensors["loaded_plain"]}, checkpoint_id=path, process_group=group)
        return
    state = {KEY: matrix_of(call, torch.zeros_like(call.tensors["saved"]), group, options["from"])}
    if options["fault"] == "key":
        state[MISSING] = state[KEY]
    call.give_refused(lambda: dcp.load(state, checkpoint_id=path, process_group=group), CheckpointException)
