"""The calls: one function for each name of the protocol, registered in `CALLS`.

Each takes the library's state, the call as it came over the wire, and its index in the step; it returns the value the
protocol names, or None. Functions are looked up on ``torch.distributed`` at every call, so that a platform's module
may replace them. Nothing is caught, checked, retried or repaired here.
"""

import importlib
import inspect
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

#: The factor of ``premul_sum``, fixed by the protocol.
PREMUL_FACTOR = 3.0

#: Call name -> function; the keys are ``hello``'s ``calls``.
CALLS = {}

# `src=` has had the twin `group_src=` since torch 2.6.
_HAS_GROUP_RANKS = "group_src" in inspect.signature(dist.broadcast).parameters


class Library:
    """What calls make and later calls use."""

    def __init__(self):
        self.version = torch.__version__
        #: Where tensors are made; None is the CPU.
        self.device = None
        #: Waits for the device, if the platform names such a function.
        self.synchronize = None
        #: The step's tensors.
        self.tensors = ()
        #: Works of the step, by index of the call that returned them.
        self.works = {}
        #: Makes the step's tensors anew.
        self.remake = None
        #: What the step's tensors asked for: entered by one call, left when the step is over.
        self.mode = None
        self._groups = {"world": None}

    def group(self, call):
        """The call's group, as ``group=`` takes it."""
        try:
            return self._groups[call["group"]]
        except KeyError:
            raise LookupError(f"this rank has no group {call['group']!r}") from None

    def pick(self, indices):
        """Tensors by index; None stays None."""
        return None if indices is None else [self.tensors[index] for index in indices]

    def issue(self, call, index, function, *args, **kwargs):
        """Calls a function that takes ``group`` and ``async_op``, and keeps its work for `wait`."""
        wants_work = call.get("async_op", False)
        work = function(*args, group=self.group(call), async_op=wants_work, **kwargs)
        if wants_work:
            self.works[index] = work


def call(function):
    """Registers a call under its function's name."""
    CALLS[function.__name__] = function
    return function


def peer(argument, ref):
    """``{"global": r}`` as ``argument=r``, ``{"group": r}`` as ``group_argument=r``."""
    if "global" in ref:
        return {argument: ref["global"]}
    if not _HAS_GROUP_RANKS:
        raise NotImplementedError(f"torch {torch.__version__} has no group_{argument}= argument")
    return {f"group_{argument}": ref["group"]}


def reduce_op(name):
    """A ``ReduceOp`` by its name in the protocol."""
    if name == "premul_sum":
        return dist._make_nccl_premul_sum(PREMUL_FACTOR)
    return getattr(dist.ReduceOp, name.upper())


def dotted(name):
    """The object behind ``package.module.function``."""
    module, _, rest = name.partition(".")
    found = importlib.import_module(module)
    for part in rest.split("."):
        module = f"{module}.{part}"
        if not hasattr(found, part):
            importlib.import_module(module)
        found = getattr(found, part)
    return found


# Verbs.


@call
def prepare(lib, call, _):
    for folder in reversed(call.get("python_path", ())):
        sys.path.insert(0, folder)
    for module in call["import"]:
        importlib.import_module(module)
    device = torch.device(call["device"])
    if call.get("set_device"):
        dotted(call["set_device"])(device.index or 0)
    lib.synchronize = dotted(call["synchronize"]) if call.get("synchronize") else None
    lib.device = None if device.type == "cpu" else device


@call
def tensors_as(lib, call, _):
    kind, chosen = call["kind"], call["tensors"]
    if kind == "requires_grad":
        for index in chosen:
            lib.tensors[index].requires_grad_()
    elif kind == "inference":
        lib.mode = torch.inference_mode()
        lib.mode.__enter__()
        lib.tensors = lib.remake()
    elif kind == "pinned":
        lib.tensors = lib.remake(pinned=True)
    else:
        raise ValueError(f"unknown kind of tensor {kind!r}")


@call
def sleep(lib, call, _):
    time.sleep(call["ms"] / 1000)


@call
def wait(lib, call, _):
    lib.works[call["work"]].wait()


# Groups.


@call
def init_process_group(lib, call, _):
    method, timeout = call["method"], timedelta(seconds=call["timeout_s"])
    who = {"rank": call["rank"], "world_size": call["world_size"]}
    if method == "env":
        how = {"init_method": "env://"}  # rank and world size too come from the environment
    elif method == "store":
        host, _, port = call["url"].rpartition(":")
        store = dist.TCPStore(
            host, int(port), call["world_size"], is_master=call["rank"] == 0, timeout=timeout
        )
        how = {"store": store, **who}
    else:
        how = {"init_method": call["url"], **who}
    if call.get("device_id"):
        how["device_id"] = torch.device(call["device_id"])
    dist.init_process_group(call["backend"], timeout=timeout, **how)
    return {
        "rank": dist.get_rank(),
        "world_size": dist.get_world_size(),
        "backend": dist.get_backend(),
    }


@call
def new_group(lib, call, _):
    backend = {"backend": call["backend"]} if call.get("backend") else {}
    group = dist.new_group(call["ranks"], timeout=timedelta(seconds=call["timeout_s"]), **backend)
    lib._groups[call["name"]] = group
    return {"rank": dist.get_rank(group), "size": max(dist.get_world_size(group), 0)}


@call
def destroy_process_group(lib, call, _):
    dist.destroy_process_group(lib.group(call))
    # A name that outlived its group would keep the group's threads and sockets alive.
    if call["group"] == "world":
        lib._groups = {"world": None}
    else:
        del lib._groups[call["group"]]


# Collectives on tensors.


@call
def all_reduce(lib, call, i):
    lib.issue(call, i, dist.all_reduce, lib.tensors[call["tensor"]], op=reduce_op(call["op"]))


@call
def all_reduce_coalesced(lib, call, i):
    tensors = lib.pick(call["tensors"])
    lib.issue(call, i, dist.all_reduce_coalesced, tensors, op=reduce_op(call["op"]))


@call
def broadcast(lib, call, i):
    root = peer("src", call["root"])
    lib.issue(call, i, dist.broadcast, lib.tensors[call["tensor"]], **root)


@call
def reduce(lib, call, i):
    root, op = peer("dst", call["root"]), reduce_op(call["op"])
    lib.issue(call, i, dist.reduce, lib.tensors[call["tensor"]], op=op, **root)


@call
def all_gather(lib, call, i):
    lib.issue(call, i, dist.all_gather, lib.pick(call["outputs"]), lib.tensors[call["input"]])


@call
def all_gather_coalesced(lib, call, i):
    outputs = [lib.pick(each) for each in call["outputs"]]
    lib.issue(call, i, dist.all_gather_coalesced, outputs, lib.pick(call["inputs"]))


@call
def all_gather_into_tensor(lib, call, i):
    output, input = lib.tensors[call["output"]], lib.tensors[call["input"]]
    lib.issue(call, i, dist.all_gather_into_tensor, output, input)


@call
def gather(lib, call, i):
    root, outputs = peer("dst", call["root"]), lib.pick(call["outputs"])
    lib.issue(call, i, dist.gather, lib.tensors[call["input"]], outputs, **root)


@call
def scatter(lib, call, i):
    root, inputs = peer("src", call["root"]), lib.pick(call["inputs"])
    lib.issue(call, i, dist.scatter, lib.tensors[call["output"]], inputs, **root)


@call
def reduce_scatter(lib, call, i):
    output, inputs = lib.tensors[call["output"]], lib.pick(call["inputs"])
    lib.issue(call, i, dist.reduce_scatter, output, inputs, op=reduce_op(call["op"]))


@call
def reduce_scatter_tensor(lib, call, i):
    output, input = lib.tensors[call["output"]], lib.tensors[call["input"]]
    lib.issue(call, i, dist.reduce_scatter_tensor, output, input, op=reduce_op(call["op"]))


@call
def all_to_all(lib, call, i):
    lib.issue(call, i, dist.all_to_all, lib.pick(call["outputs"]), lib.pick(call["inputs"]))


@call
def all_to_all_single(lib, call, i):
    output, input = lib.tensors[call["output"]], lib.tensors[call["input"]]
    splits = call["output_splits"], call["input_splits"]
    lib.issue(call, i, dist.all_to_all_single, output, input, *splits)


@call
def barrier(lib, call, i):
    lib.issue(call, i, dist.barrier)


@call
def monitored_barrier(lib, call, _):
    dist.monitored_barrier(group=lib.group(call))


@call
def coalesced(lib, call, i):
    wants_work = call.get("async_op", False)
    with dist._coalescing_manager(group=lib.group(call), async_ops=wants_work) as manager:
        for inner in call["calls"]:
            CALLS[inner["call"]](lib, inner, None)
    if wants_work:
        lib.works[i] = manager


# Point to point.


def message(lib, call, function, argument):
    return function(
        lib.tensors[call["tensor"]],
        group=lib.group(call),
        tag=call.get("tag", 0),
        **peer(argument, call["peer"]),
    )


@call
def send(lib, call, _):
    message(lib, call, dist.send, "dst")


@call
def recv(lib, call, _):
    return message(lib, call, dist.recv, "src")


@call
def isend(lib, call, i):
    lib.works[i] = message(lib, call, dist.isend, "dst")


@call
def irecv(lib, call, i):
    lib.works[i] = message(lib, call, dist.irecv, "src")


@call
def batch_isend_irecv(lib, call, _):
    group = lib.group(call)
    ops = [
        dist.P2POp(
            dist.isend if op["direction"] == "send" else dist.irecv,
            lib.tensors[op["tensor"]],
            group=group,
            tag=op.get("tag", 0),
            **peer("peer", op["peer"]),
        )
        for op in call["ops"]
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()


# Collectives on objects.


@call
def all_gather_object(lib, call, _):
    group = lib.group(call)
    received = [None] * dist.get_world_size(group)
    dist.all_gather_object(received, call["object"], group=group)
    return received


@call
def gather_object(lib, call, _):
    group, root = lib.group(call), call["root"]
    me = dist.get_rank() if "global" in root else dist.get_rank(group)
    is_root = me in root.values()
    received = [None] * dist.get_world_size(group) if is_root else None
    dist.gather_object(call["object"], received, group=group, **peer("dst", root))
    return received


@call
def broadcast_object_list(lib, call, _):
    objects = call["objects"]
    dist.broadcast_object_list(objects, group=lib.group(call), **peer("src", call["root"]))
    return objects


@call
def scatter_object_list(lib, call, _):
    received = [None]
    root = peer("src", call["root"])
    dist.scatter_object_list(received, call["objects"], group=lib.group(call), **root)
    return received[0]
