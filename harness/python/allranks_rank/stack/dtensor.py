"""``DTensor``: a matrix of one placement made one of another, and what comes back from that.

Tensors: ``whole``, a matrix of the rank's own, of which ``distribute_tensor`` hands out the first rank's, as
``distributed``; ``local``, the rank's part of the matrix before, ``result``, its part after, ``full``, the whole after;
``cotangent``, what ``result`` is multiplied with before it is summed, and ``gradient``, what ``local`` gets from that;
both are absent where that has no meaning.

Options: ``mesh`` (its sizes), ``from`` and ``to`` (a placement for each of its dimensions: ``rows``, ``columns``,
``replicate``, ``partial``), ``op`` (of partial placements), ``shape`` (of the matrix), ``sleep_ms``.
"""

from __future__ import annotations

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

from . import StackCall


def run(call: StackCall) -> None:
    """Redistributes the matrix and gives its parts, the whole, and the gradient."""
    options, tensors = call.options, call.tensors
    mesh = init_device_mesh(call.device.type, tuple(options["mesh"]))
    placements = {"rows": Shard(0), "columns": Shard(1), "replicate": Replicate(), "partial": Partial(options["op"])}
    before, after = ([placements[word] for word in options[which]] for which in ("from", "to"))
    call.sleep()
    if "whole" in tensors:
        call.give("distributed", distribute_tensor(tensors["whole"].clone(), mesh, before).to_local())
    local = tensors["local"].clone().requires_grad_()
    shape = torch.Size(options["shape"])
    # Parts are of different sizes: torch must be told what they are parts of.
    matrix = DTensor.from_local(local, mesh, before, run_check=False, shape=shape, stride=(shape[1], 1))
    moved = matrix.redistribute(mesh, after)
    result = moved.to_local()
    call.give("result", result + 0)
    call.give("full", moved.full_tensor())
    if "cotangent" in tensors:
        (result * tensors["cotangent"]).sum().backward()
        if local.grad is not None:
            call.give("gradient", local.grad)
