"""Is honest, and complete: what its library does not have it knows by name, and refuses with a clear error on every rank.

It has what the group test after a refused call needs, `all_gather_into_tensor`. A claim can be made of it without torch.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "fixtures" / "drivers"))

from pretend import Calls, Driver  # noqa: E402

REFUSED = (
    "all_reduce_coalesced broadcast reduce all_gather all_gather_coalesced gather scatter reduce_scatter "
    "reduce_scatter_tensor all_to_all all_to_all_single send recv isend irecv batch_isend_irecv monitored_barrier "
    "coalesced wait all_gather_object gather_object broadcast_object_list scatter_object_list"
).split()


def all_gather_into_tensor(driver, call, tensors):
    """The shares of all ranks, one behind the other: each rank adds its bytes at its own place."""
    (given, source), (taken, target) = tensors[call["input"]], tensors[call["output"]]
    width = {"int64": 8, "float64": 8, "float32": 4, "int32": 4}[source["dtype"]]
    numel = 1
    for extent in source["shape"]:
        numel *= extent
    length, start = numel * width, source["offset"] * width
    share = list(given[start : start + length])
    zeros = [0] * length
    values = [byte for rank in range(driver.size) for byte in (share if rank == driver.rank else zeros)]
    start = target["offset"] * width
    taken[start : start + length * driver.size] = bytes(driver.group.sum(values))


def refuse(name):
    """A call that the library does not have."""

    def refused(driver, call, tensors):
        raise NotImplementedError(f"the library has no {name}")

    return refused


Calls.all_gather_into_tensor = all_gather_into_tensor
for name in REFUSED:
    setattr(Calls, name, refuse(name))

if __name__ == "__main__":
    Driver().run()
