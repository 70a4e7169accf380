"""Lists operations that a rank has issued and that have not ended: evidence, should the rank hang.

They are torch's flight recorder's, read in the rank, as JSON, so that no dump has to be unpickled. (PyTorch, "Flight
Recorder for Debugging Stuck Jobs"; ``torch._C._distributed_c10d``, since torch 2.7.) NCCL has a recorder of its own;
Gloo and backends from outside of torch share another.
"""

import json
from collections.abc import Callable
from typing import Any

from torch._C import _distributed_c10d as c10d

#: The most operations that one `pending` returns.
LIMIT = 8
#: Functions of c10d that return the records as JSON, given (whether with collectives, whether only those under way).
DUMPS = ["_dump_fr_trace_json", "_dump_nccl_trace_json"]


def pending() -> list[dict[str, Any]]:
    """Returns the newest `LIMIT` operations under way, oldest first, as the ``recorder`` frame's ``ops``."""
    entries = [entry for dump in DUMPS for entry in _entries(getattr(c10d, dump, None))]
    entries.sort(key=lambda entry: entry.get("time_created_ns", 0))
    return [_operation(entry) for entry in entries if not entry.get("retired")][-LIMIT:]


def _entries(dump: Callable[[bool, bool], str] | None) -> list[dict[str, Any]]:
    """Returns the entries of one recorder; none where this torch has no such recorder."""
    return [] if dump is None else json.loads(dump(True, True)).get("entries", [])


def _operation(entry: dict[str, Any]) -> dict[str, Any]:
    """Returns an entry of a recorder as one of the ``recorder`` frame's ``ops``."""
    number = entry.get("p2p_seq_id" if entry.get("is_p2p") else "collective_seq_id", 0)
    shapes = zip(entry.get("input_dtypes", []), entry.get("input_sizes", []), strict=False)
    return {
        "op": entry.get("profiling_name", "").split(":")[-1],
        "group": " ".join(entry.get("process_group", [])),
        "number": number,
        "inputs": [f"{dtype.lower()}{sizes}" for dtype, sizes in shapes],
        "state": entry.get("state", ""),
    }
