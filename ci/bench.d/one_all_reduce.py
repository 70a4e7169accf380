"""Does the same as the worlds of `world4` and `world64`, under torchrun: on Gloo, or on CUDA devices with `nccl`."""

import os
import sys

import torch
import torch.distributed as dist

backend = sys.argv[1] if len(sys.argv) > 1 else "gloo"
if backend == "nccl":
    torch.set_default_device(torch.device("cuda", int(os.environ["LOCAL_RANK"])))
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group(backend)
tensor = torch.full((33,), float(os.environ["RANK"]))
dist.all_reduce(tensor)
size = dist.get_world_size()
assert tensor.eq(size * (size - 1) / 2).all()
dist.destroy_process_group()
