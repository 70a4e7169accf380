"""``DeviceMesh``: a sum over the ranks of each of its groups.

Tensors: for each group G (``outer`` and ``inner``, the mesh's dimensions; ``slice``, the group of the slice along the
second; ``flat``, that of both flattened) ``input.G``, ``sum.G``, and ``members.G``, the group's global ranks.

Options: ``mesh`` (sizes of its two dimensions).
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from . import StackCall


def run(call: StackCall) -> None:
    """Makes the mesh, and gives each group's members and sum."""
    mesh = init_device_mesh(call.device.type, tuple(call.options["mesh"]), mesh_dim_names=("outer", "inner"))
    groups = {
        "outer": mesh.get_group("outer"),
        "inner": mesh.get_group("inner"),
        "slice": mesh["inner"].get_group(),
        "flat": mesh["outer", "inner"]._flatten("flat").get_group(),
    }
    for name, group in groups.items():
        total = call.tensors[f"input.{name}"].clone()
        dist.all_reduce(total, group=group)
        call.give(f"sum.{name}", total)
        members = dist.get_process_group_ranks(group)
        call.give(f"members.{name}", torch.tensor(members, dtype=total.dtype, device=total.device))
