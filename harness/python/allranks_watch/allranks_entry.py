"""The entries of calls of torch.distributed: what a call was, by its arguments, as the call trace has it."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from allranks_place import Entry
    from allranks_trace import CallTrace

#: Collectives: the parameter whose tensor has the same dtype on every member, whether it has the same size too, and the
#: parameter that names the root.
COLLECTIVES: dict[str, tuple[str | None, bool, str | None]] = {
    "all_reduce": ("tensor", True, None),
    "broadcast": ("tensor", True, "src"),
    "reduce": ("tensor", True, "dst"),
    "all_gather": ("tensor", False, None),
    "all_gather_into_tensor": ("input_tensor", True, None),
    "gather": ("tensor", True, "dst"),
    "scatter": ("tensor", True, "src"),
    "reduce_scatter": ("output", True, None),
    "reduce_scatter_tensor": ("output", True, None),
    "all_to_all_single": ("input", False, None),
    "all_to_all": (None, False, None),
    "all_reduce_coalesced": (None, False, None),
    "all_gather_coalesced": (None, False, None),
    "barrier": (None, False, None),
    "monitored_barrier": (None, False, None),
    "all_gather_object": (None, False, None),
    "gather_object": (None, False, "dst"),
    "broadcast_object_list": (None, False, "src"),
    "scatter_object_list": (None, False, "src"),
}
#: Collectives that take a reduce op.
REDUCING = ("all_reduce", "reduce", "reduce_scatter", "reduce_scatter_tensor")
#: Largest group whose all-to-alls are recorded with what each member sends and receives: the lists grow with the group.
MOST_SPLITS = 64
#: Messages: whether the call sends, and the parameter that names the other side.
MESSAGES = {"send": (True, "dst"), "isend": (True, "dst"), "recv": (False, "src"), "irecv": (False, "src")}
#: Id of a ``PrefixStore`` -> its prefix, and whether the program made it, and not torch.
PREFIXES: dict[int, tuple[str, bool]] = {}


class Arguments:
    """The arguments of one call, by the names of the function's parameters."""

    def __init__(self, order: dict[str, int], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Takes the positions of the parameters, and the call's positional and named arguments."""
        self.order, self.args, self.kwargs = order, args, kwargs

    def get(self, name: str, default: Any = None) -> Any:
        """Returns an argument, or ``default`` if it was not passed."""
        if name in self.kwargs:
            return self.kwargs[name]
        position = self.order.get(name, len(self.args))
        return self.args[position] if position < len(self.args) else default


def entry_of_call(trace: CallTrace, module: Any, name: str, arguments: Arguments) -> Entry | None:
    """Returns the entry of a call of ``module``; None for a call that has no effect on this rank (it is no member)."""
    if name == "init_process_group":
        trace.begin_epoch()
        return entry_of_init(arguments)
    if name in COLLECTIVES:
        return entry_of_collective(trace, module, name, arguments)
    if name in MESSAGES:
        return entry_of_message(trace, module, name, arguments)
    if name == "new_group":
        return entry_of_new_group(trace, module, arguments)
    if name == "split_group":
        return entry_of_split(trace, module, arguments)
    group = arguments.get("group")
    is_world = group is None or group is module._world.default_pg
    return {"what": "destroy", "group": "world" if is_world else group_key(trace, module, group) or ""}


def entry_of_init(arguments: Arguments) -> Entry:
    """Returns the entry of ``init_process_group``: how and where the ranks rendezvous, and which rank this one is."""
    from urllib.parse import parse_qs, urlparse

    environ = os.environ
    rank = arguments.get("rank", -1)
    size = arguments.get("world_size", -1)
    store = arguments.get("store")
    url = arguments.get("init_method") or "env://"
    if store is not None:
        method, place = "store", place_of_store(store)
    else:
        parts = urlparse(url)
        query = parse_qs(parts.query)
        rank = int(query["rank"][0]) if "rank" in query else rank
        size = int(query["world_size"][0]) if "world_size" in query else size
        method = parts.scheme or "env"
        if method == "env":
            place = f"{environ.get('MASTER_ADDR', '')}:{environ.get('MASTER_PORT', '')}"
            rank = int(environ.get("RANK", -1)) if rank is None or rank < 0 else rank
            size = int(environ.get("WORLD_SIZE", -1)) if size is None or size < 0 else size
        elif method == "file":
            place = parts.path
        else:
            place = parts.netloc
    return {"what": "init", "method": method, "place": place, "rank": rank, "world_size": size}


def place_of_store(store: Any) -> str:
    """Returns where a store is: host and port, or else its type; then the prefixes of its keys, outermost first."""
    prefixes = prefixes_of(store)
    for _ in prefixes:
        store = store.underlying_store
    host, port = getattr(store, "host", None), getattr(store, "port", None)
    return "/".join([f"{host}:{port}" if host else type(store).__name__, *(prefix for prefix, _ in prefixes)])


def prefixes_of(store: Any) -> list[tuple[str, bool]]:
    """Returns the prefixes that a store puts before its keys, outermost first, and whether the program gave them."""
    prefixes = []
    while type(store).__name__ == "PrefixStore" and hasattr(store, "underlying_store"):
        prefixes.append(PREFIXES.get(id(store), ("?", False)))
        store = store.underlying_store
    return prefixes


def entry_of_collective(trace: CallTrace, module: Any, name: str, arguments: Arguments) -> Entry | None:
    """Returns the entry of a collective: its group, its number there, and what must be the same on all members."""
    key = group_key(trace, module, arguments.get("group"))
    if key is None:
        return None
    tensor_name, same_size, root = COLLECTIVES[name]
    nature = {}
    tensor: Any = arguments.get(tensor_name) if tensor_name else None
    if hasattr(tensor, "dtype"):
        nature["dtype"] = str(tensor.dtype).removeprefix("torch.")
        if same_size:
            nature["elements"] = str(tensor.numel())
    if name in REDUCING:
        op = arguments.get("op", module.ReduceOp.SUM)
        nature["reduce op"] = str(getattr(op, "name", op)).lower()
    if root:
        nature["root"] = str(global_rank(trace, key, arguments, root, 0))
    entry = {"what": "collective", "group": key, "number": trace.next_number(key), "name": name, "nature": nature}
    note_stream(entry, bool(arguments.get("async_op")))
    if name in ("all_to_all_single", "all_to_all"):
        size = len(trace.groups[key][1])
        if size <= MOST_SPLITS:
            split = splits_of_tensor if name == "all_to_all_single" else splits_of_list
            entry["splits"] = {"sends": split(arguments, "input", size), "receives": split(arguments, "output", size)}
    return entry


def note_stream(entry: Entry, is_async: bool) -> None:
    """Notes the stream on which a call is issued, and whether that stream goes on without waiting for it."""
    stream = current_stream()
    if stream is not None:
        entry["stream"] = stream
        if is_async:
            entry["async_op"] = True


def current_stream() -> int | None:
    """Returns the id of the CUDA stream on which the calling thread issues; None if the process uses none."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return None
    return int(cuda.current_stream().stream_id)


def splits_of_tensor(arguments: Arguments, side: str, size: int) -> list[int]:
    """Returns how many elements of the input or output of ``all_to_all_single`` belong to each of ``size`` members."""
    import math

    tensor, rows = arguments.get(side), arguments.get(side + "_split_sizes")
    if not rows:
        return [tensor.numel() // size] * size
    of_row = math.prod(tensor.shape[1:])
    return [int(count) * of_row for count in rows]


def splits_of_list(arguments: Arguments, side: str, _: int) -> list[int]:
    """Returns how many elements of the input or output of ``all_to_all`` belong to each member."""
    return [tensor.numel() for tensor in arguments.get(side + "_tensor_list")]


def entry_of_message(trace: CallTrace, module: Any, name: str, arguments: Arguments) -> Entry | None:
    """Returns the entry of one side of a message."""
    key = group_key(trace, module, arguments.get("group"))
    if key is None:
        return None
    sends, parameter = MESSAGES[name]
    peer, tag = global_rank(trace, key, arguments, parameter, None), arguments.get("tag", 0)
    number = trace.next_message((key, sends, peer, tag))
    entry = {"what": "message", "group": key, "sends": sends, "peer": peer, "tag": tag, "number": number}
    note_stream(entry, name in ("isend", "irecv"))
    return entry


def entry_of_new_group(trace: CallTrace, module: Any, arguments: Arguments) -> Entry | None:
    """Returns the entry of ``new_group``: a call of all ranks, or of the members alone."""
    chosen = arguments.get("ranks")
    if chosen is None:
        chosen = range(module.get_world_size())
    ranks = sorted(int(rank) for rank in chosen)
    if not arguments.get("use_local_synchronization", False):
        return {"what": "new_group", "ranks": ranks}
    if module.get_rank() not in ranks:
        return None
    # The members wait for each other alone: a collective of a group that has no key of the library's yet.
    name = "ranks " + ", ".join(map(str, ranks))
    key = f"{trace.epoch}.{name}"
    trace.add_group(key, name, ranks)
    number = trace.next_number(key)
    # torch names such a group by its ranks and by how many groups the caller has: a group that another member names
    # otherwise is waited for in vain (pytorch#173608).
    nature = {"groups of the caller": str(len(module._world.pg_names))} if hasattr(module, "_hash_ranks_to_str") else {}
    return {"what": "collective", "group": key, "number": number, "name": "new_group", "nature": nature}


def entry_of_split(trace: CallTrace, module: Any, arguments: Arguments) -> Entry | None:
    """Returns the entry of ``split_group``: a call of all ranks of the parent group, whichever part they will be in."""
    key = group_key(trace, module, arguments.get("parent_pg"))
    if key is None:
        return None
    number = trace.next_number(key)
    return {"what": "collective", "group": key, "number": number, "name": "split_group", "nature": {}}


def group_key(trace: CallTrace, module: Any, group: Any) -> str | None:
    """Returns the key of a group (None: the default group); None if this rank is no member."""
    world = module._world
    group = world.default_pg if group is None else group
    name = world.pg_names.get(group)
    if name is None:
        return None
    key = f"{trace.epoch}.{name}"
    if key not in trace.groups:
        trace.add_group(key, "world" if group is world.default_pg else "", sorted(world.pg_group_ranks[group]))
    return key


def is_gloo(module: Any, group: Any) -> bool:
    """Returns whether a group's backend is Gloo."""
    get_backend = getattr(module, "get_backend", None)
    return get_backend is not None and get_backend(group) == "gloo"


def global_rank(trace: CallTrace, key: str, arguments: Arguments, parameter: str, default: int | None) -> int | None:
    """Returns the global rank that a call names, as ``parameter`` or as ``group_parameter``."""
    in_group = arguments.get("group_" + parameter)
    if in_group is not None:
        return trace.groups[key][1][in_group]
    rank = arguments.get(parameter)
    return default if rank is None else rank
