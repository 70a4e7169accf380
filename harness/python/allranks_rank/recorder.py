"""Ops that a rank has issued and that have not ended, as torch's flight recorder has them: evidence, should the rank hang.

The recorder is read here, in the rank, and told in plain words; nobody has to unpickle a dump. (PyTorch, "Flight Recorder for
Debugging Stuck Jobs"; `torch._C._distributed_c10d`, since torch 2.7.) Gloo and backends of one's own share one recorder, NCCL
has its own.
"""

import json

from torch._C import _distributed_c10d as c10d

#: Ops told of one rank, the newest.
MOST = 8
#: The functions that return the records as JSON: (with collectives, only those under way).
DUMPS = ["_dump_fr_trace_json", "_dump_nccl_trace_json"]


def pending():
    """The newest ops under way, oldest first; empty where there is no recorder."""
    entries = [entry for dump in DUMPS for entry in entries_of(getattr(c10d, dump, None))]
    entries.sort(key=lambda entry: entry.get("time_created_ns", 0))
    return [told(entry) for entry in entries if not entry.get("retired")][-MOST:]


def entries_of(dump):
    """What one recorder holds."""
    return [] if dump is None else json.loads(dump(True, True)).get("entries", [])


def told(entry):
    """A record, in the protocol's words."""
    number = entry.get("p2p_seq_id" if entry.get("is_p2p") else "collective_seq_id", 0)
    shapes = zip(entry.get("input_dtypes", []), entry.get("input_sizes", []))
    return {
        "op": entry.get("profiling_name", "").split(":")[-1],
        "group": " ".join(entry.get("process_group", [])),
        "number": number,
        "inputs": [f"{dtype.lower()}{sizes}" for dtype, sizes in shapes],
        "state": entry.get("state", ""),
    }
