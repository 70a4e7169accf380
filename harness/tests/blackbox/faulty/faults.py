"""Spoils torch.distributed.all_reduce on rank 1, for 7 elements only, in the way that FAULT says."""

import os
import signal
import time

import torch.distributed as dist

honest = dist.all_reduce


def all_reduce(tensor, *arguments, **options):
    if tensor.numel() == 7 and dist.get_rank() == 1:
        fault = os.environ.get("FAULT")
        if fault == "sleep":
            time.sleep(3600)
        elif fault == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        elif fault == "raise":
            raise RuntimeError("a fault of the test")
    return honest(tensor, *arguments, **options)


dist.all_reduce = all_reduce
