"""The calls: one function for each name of the protocol, registered in `CALLS`.

Each takes the library's state, the call as it came over the wire, and its index in the step; it returns the value the
protocol names, or None. Functions are looked up on ``torch.distributed`` at every call, so that a platform's module
may replace them. Nothing is caught, checked, retried or repaired here.
"""

import copy
import gc
import importlib
import inspect
import os
import signal
import sys
import threading
import time
from contextlib import nullcontext
from datetime import timedelta

import torch
import torch.distributed as dist

from .census import take_census
from .errors import describe

#: The factor of ``premul_sum`` in steps that set none.
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
        #: Whether a tensor and the views of it stay one piece of memory, whatever an op does to one of them.
        self.shares_memory = True
        #: The step's tensors.
        self.tensors = ()
        #: Works of the step, by index of the call that returned them.
        self.works = {}
        #: Makes the step's tensors anew.
        self.remake = None
        #: What the step's tensors asked for: entered by one call, left when the step is over.
        self.mode = None
        #: The step's factor of ``premul_sum``: a number or a tensor.
        self.factor = PREMUL_FACTOR
        #: Errors of groups that were not to come about. They keep alive what they were raised in: a group that is half
        #: made must not close its connections while peers are still making theirs.
        self.raised = []
        self._groups = {"world": None}
        #: Returns when the harness says `go`; set by the rank.
        self.wait_for_go = None

    def begin_step(self):
        """Forgets what calls of the last step left for its later calls."""
        self.works = {}
        self.factor = PREMUL_FACTOR
        self.raised = []

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


def make(lib, call, index):
    """Makes one call; how it went, as the protocol says it."""
    enter = time.monotonic_ns()
    try:
        value = CALLS[call["call"]](lib, call, index)
    except Exception as raised:
        leave = time.monotonic_ns()
        return {"status": "error", "enter": enter, "leave": leave, "error": describe(raised)}
    return {"status": "ok", "enter": enter, "leave": time.monotonic_ns(), "value": value}


def peer(argument, ref):
    """``{"global": r}`` as ``argument=r``, ``{"group": r}`` as ``group_argument=r``."""
    if "global" in ref:
        return {argument: ref["global"]}
    if not _HAS_GROUP_RANKS:
        raise NotImplementedError(f"torch {torch.__version__} has no group_{argument}= argument")
    return {f"group_{argument}": ref["group"]}


def reduce_op(lib, name):
    """A ``ReduceOp`` by its name in the protocol."""
    if name == "premul_sum":
        return dist._make_nccl_premul_sum(lib.factor)
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
        if folder not in sys.path:
            sys.path.insert(0, folder)
    for module in call["import"]:
        importlib.import_module(module)
    device = torch.device(call["device"])
    if call.get("set_device"):
        dotted(call["set_device"])(device.index or 0)
    lib.synchronize = dotted(call["synchronize"]) if call.get("synchronize") else None
    lib.shares_memory = call.get("shares_memory", True)
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
def grow(lib, call, _):
    lib.tensors[call["tensor"]] = lib.tensors[call["tensor"]].repeat(call["times"])


@call
def windows(lib, call, _):
    tensor, output, length = lib.tensors[call["tensor"]], lib.tensors[call["output"]], call["len"]
    for number, start in enumerate(call["starts"]):
        output[number * length : (number + 1) * length] = tensor[start : start + length]


@call
def sleep(lib, call, _):
    time.sleep(call["ms"] / 1000)


@call
def premul_factor(lib, call, _):
    lib.factor = call["factor"] if "factor" in call else lib.tensors[call["tensor"]]


@call
def wait(lib, call, _):
    work = lib.works[call["work"]]
    if call.get("timeout_ms") is None:
        work.wait()
    else:
        work.wait(timedelta(milliseconds=call["timeout_ms"]))


@call
def is_completed(lib, call, _):
    return lib.works[call["work"]].is_completed()


@call
def future(lib, call, _):
    future = lib.works[call["work"]].get_future()
    future.wait()
    return future.done()


@call
def drop(lib, call, _):
    del lib.works[call["work"]]
    gc.collect()


@call
def attempt(lib, call, i):
    inner = call["inner"]
    try:
        return {"raised": None, "value": CALLS[inner["call"]](lib, inner, i)}
    except Exception as raised:
        if inner["call"] == "new_group":
            lib.raised.append(raised)
        return {"raised": describe(raised)}


@call
def together(lib, call, _):
    def run(calls, results):
        own = copy.copy(lib)
        own.works = {}
        for index, inner in enumerate(calls):
            results.append(make(own, inner, index))
            if results[-1]["status"] == "error":
                break
        while len(results) < len(calls):
            results.append({"status": "not_reached"})

    results = [[] for _ in call["threads"]]
    threads = [
        threading.Thread(target=run, args=each) for each in zip(call["threads"], results)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


# What a script does to itself.


@call
def mark(lib, call, _):
    pass


@call
def hold(lib, call, _):
    lib.wait_for_go()


@call
def pause(lib, call, _):
    os.kill(os.getpid(), signal.SIGSTOP)


@call
def die(lib, call, _):
    os.kill(os.getpid(), call["signal"])
    time.sleep(60)  # until it is delivered


@call
def exit(lib, call, _):
    os.environ["ALLRANKS_EXIT"] = "interpreter"
    raise SystemExit(call["code"])


@call
def census(lib, call, _):
    return take_census()


@call
def who_am_i(lib, call, _):
    group = lib.group(call)
    rank = dist.get_rank(group)
    backend = dist.get_backend(group) if rank >= 0 else None
    return {"rank": rank, "size": max(dist.get_world_size(group), 0), "backend": backend}


@call
def setenv(lib, call, _):
    if call["value"] is None:
        os.environ.pop(call["name"], None)
    else:
        os.environ[call["name"]] = call["value"]


@call
def abort(lib, call, _):
    group = lib.group(call)
    (group if group is not None else dist.group.WORLD).abort()


@call
def python(lib, call, _):
    names = {
        "torch": torch,
        "dist": dist,
        "rank": int(os.environ["RANK"]),
        "world_size": int(os.environ["WORLD_SIZE"]),
        "device": lib.device or torch.device("cpu"),
        "group": lambda name: lib.group({"group": name}),
        "tensors": lib.tensors,
        "result": None,
    }
    # Whatever does not name a device is made on the rank's own.
    with lib.device or nullcontext():
        exec(call["source"], names)
    return names["result"]


# Groups.


@call
def init_process_group(lib, call, _):
    method, timeout = call["method"], timedelta(seconds=call["timeout_s"])
    who = {"rank": call["rank"], "world_size": call["world_size"]}
    if method == "env":
        how = {"init_method": "env://"}  # rank and world size too come from the environment
    elif method == "store":
        host, _, port = call["url"].rpartition(":")
        hosts = call["rank"] == 0 if call.get("hosts") is None else call["hosts"]
        store = dist.TCPStore(
            host, int(port), call["world_size"], is_master=hosts, timeout=timeout
        )
        how = {"store": store, **who}
    else:
        how = {"init_method": call["url"], **who}
    if (bound := call.get("device_id")) is not None:
        how["device_id"] = bound if isinstance(bound, int) else torch.device(bound)
    dist.init_process_group(call["backend"], timeout=timeout, **how)
    return {
        "rank": dist.get_rank(),
        "world_size": dist.get_world_size(),
        "backend": dist.get_backend(),
    }


@call
def new_group(lib, call, _):
    timeout = timedelta(seconds=call["timeout_s"])
    options = {"backend": call["backend"]} if call.get("backend") else {}
    if call.get("local_sync"):
        options["use_local_synchronization"] = True
    return keep(lib, call, dist.new_group(call["ranks"], timeout=timeout, **options))


@call
def split_group(lib, call, _):
    timeout = timedelta(seconds=call["timeout_s"])
    return keep(lib, call, dist.split_group(split_ranks=[call["ranks"]], timeout=timeout))


def keep(lib, call, group):
    """Keeps a new group under its name; what the library tells of it."""
    if group is None:  # what some functions give to ranks that are no members; elsewhere None is the world
        group = dist.GroupMember.NON_GROUP_MEMBER
    lib._groups[call["name"]] = group
    told = {"rank": dist.get_rank(group), "size": max(dist.get_world_size(group), 0)}
    if told["size"]:
        # A process group written in Python may have no backend beneath it.
        devices = group._device_types
        options = getattr(group._get_backend(devices[0]), "options", None) if devices else None
        timeout = getattr(options, "_timeout", None)
        told["timeout_s"] = timeout and timeout.total_seconds()
    return told


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
    lib.issue(call, i, dist.all_reduce, lib.tensors[call["tensor"]], op=reduce_op(lib, call["op"]))


@call
def all_reduce_coalesced(lib, call, i):
    tensors = lib.pick(call["tensors"])
    lib.issue(call, i, dist.all_reduce_coalesced, tensors, op=reduce_op(lib, call["op"]))


@call
def all_reduce_sparse(lib, call, i):
    values, output = lib.tensors[call["values"]], lib.tensors[call["output"]]
    sparse = torch.sparse_coo_tensor([call["indices"]], values, output.shape)
    lib.issue(call, i, dist.all_reduce, sparse, op=reduce_op(lib, call["op"]))
    output.copy_(sparse.to_dense())


@call
def broadcast(lib, call, i):
    root = peer("src", call["root"])
    lib.issue(call, i, dist.broadcast, lib.tensors[call["tensor"]], **root)


@call
def reduce(lib, call, i):
    root, op = peer("dst", call["root"]), reduce_op(lib, call["op"])
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
    lib.issue(call, i, dist.reduce_scatter, output, inputs, op=reduce_op(lib, call["op"]))


@call
def reduce_scatter_tensor(lib, call, i):
    output, input = lib.tensors[call["output"]], lib.tensors[call["input"]]
    lib.issue(call, i, dist.reduce_scatter_tensor, output, input, op=reduce_op(lib, call["op"]))


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
    if call["peer"] is None:
        tensor, tag = lib.tensors[call["tensor"]], call.get("tag", 0)
        return dist.recv(tensor, group=lib.group(call), tag=tag)
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
