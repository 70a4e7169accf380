"""What the worlds of `world4` and `world64` do, as a script for torchrun."""

import os

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
tensor = torch.full((33,), float(os.environ["RANK"]))
dist.all_reduce(tensor)
size = dist.get_world_size()
assert tensor.eq(size * (size - 1) / 2).all()
dist.destroy_process_group()
