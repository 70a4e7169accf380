"""Runs DDP on Gloo with steps of 20 ms, 15 of which the rank waits as for a device. Rank 0 prints the time of a step.

Of the second half of STEPS steps, as JSON: `wall`, milliseconds of a step in the median; `processor`, milliseconds of processor
time of a step, of all threads of the rank.
"""

import json
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = int(sys.argv[1])
dist.init_process_group("gloo")
layers = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(4)])
model = DistributedDataParallel(layers)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
walls, used = [], 0.0
for step in range(STEPS):
    if step == STEPS // 2:
        used = time.process_time()
    began = time.perf_counter()
    loss = model(torch.randn(32, 256)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.015)
    dist.all_reduce(loss.detach())
    walls.append(time.perf_counter() - began)
used = time.process_time() - used
if dist.get_rank() == 0:
    counted = walls[STEPS // 2 :]
    print(json.dumps({"wall": 1e3 * statistics.median(counted), "processor": 1e3 * used / len(counted)}), flush=True)
dist.barrier()
dist.destroy_process_group()
