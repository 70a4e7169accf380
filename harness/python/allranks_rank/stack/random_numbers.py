"""Random numbers of a ``DTensor``, drawn by ranks whose own seeds differ.

Tensors: ``drawn.D`` of draw D, the rank's part of what it drew.

Options: ``op`` (``uniform``, ``normal`` or ``dropout``), ``mesh`` (sizes of the device mesh: one, or two of which the
first replicates), ``placement`` (along the last dimension of the mesh: ``rows`` or ``replicate``), ``rows`` (of the
whole tensor), ``draws``, ``seed`` (of this rank), ``sleep_ms``.
"""

from __future__ import annotations

import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, _random, ones, rand, randn

from . import StackCall


def run(call: StackCall) -> None:
    """Draws, and gives the rank's parts."""
    options = call.options
    mesh = init_device_mesh(call.device.type, tuple(options["mesh"]))
    along = Shard(0) if options["placement"] == "rows" else Replicate()
    placements = [*[Replicate()] * (mesh.ndim - 1), along]
    # As in a process that has drawn nothing yet: the ranks then agree on the first one's state.
    _random._rng_tracker = None
    torch.manual_seed(options["seed"])
    call.sleep()
    for number in range(options["draws"]):
        drawn = draw(options["op"], options["rows"], mesh, placements)
        call.give(f"drawn.{number}", drawn.to_local())


def draw(op: str, rows: int, mesh: DeviceMesh, placements: list[Placement]) -> DTensor:
    """Returns a tensor of one dimension with random numbers."""
    if op == "dropout":
        return torch.nn.functional.dropout(ones(rows, device_mesh=mesh, placements=placements), 0.5)
    function = rand if op == "uniform" else randn
    return function(rows, device_mesh=mesh, placements=placements)
