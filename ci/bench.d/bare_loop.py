"""Makes the same calls as a run of allranks, and nothing else, to compare the times of `core` with.

    python bare_loop.py STEPS RANKS_AT_ONCE PACKAGE_FOLDER

STEPS is what `allranks plan --steps` prints. One process imports torch and forks the ranks of one world after the
other, as many ranks side by side as the harness runs. A rank initialises, creates the groups, allocates each step's
tensors (zeros; no bytes to send, none to compare), makes the step's calls through the driver's own table of calls,
catches what is refused, destroys the group and exits without interpreter shutdown. A rank that dies takes its world
with it: the harness would start another for the checks that are left, this loop does not.

Prints one line of JSON: seconds from before `import torch` to the last rank's end, worlds, ranks, calls, and how many
of them raised. Reading STEPS is not counted.
"""

import gc
import json
import marshal
import os
import socket
import sys
import tempfile
import time

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

#: The ports of rendezvous, below those of the harness.
PORTS = range(12_000, 20_000)


def compact(step):
    """Returns a step as tensors and calls, without the fields that only a check needs."""
    users = [tensor["storage"] for tensor in step["tensors"]]
    tensors = []
    for tensor in step["tensors"]:
        shape, strides, dtype = tensor["shape"], tensor["strides"], tensor["dtype"]
        dense = 1
        is_dense = True
        for size, stride in zip(reversed(shape), reversed(strides)):
            is_dense = is_dense and (size == 1 or stride == dense)
            dense *= size
        if is_dense and users.count(tensor["storage"]) == 1:
            tensors.append((None, shape, None, 0, dtype))
        else:
            tensors.append((tensor["storage"], shape, strides, tensor["offset"], dtype))
    return step["storages"], tensors, step["calls"]


def load(path):
    """Returns the worlds: environments and, for each rank, its steps, packed so that forking does not copy them."""
    with open(path) as file:
        for line in file:
            world = json.loads(line)
            steps = [marshal.dumps([compact(step) for step in rank]) for rank in world["ranks"]]
            yield world["env"], steps


def make(torch, storages, specs):
    """Makes the tensors of a step."""
    bases = {}
    tensors = []
    for storage, shape, strides, offset, dtype in specs:
        dtype = getattr(torch, dtype)
        if storage is None:
            tensors.append(torch.zeros(shape, dtype=dtype))
            continue
        key = storage, dtype
        if key not in bases:
            bases[key] = torch.zeros(storages[storage] // dtype.itemsize, dtype=dtype)
        tensors.append(bases[key].as_strided(shape, strides, offset))
    return tensors


def play(torch, calls, steps, port, file):
    """Runs one rank from init to destroy. Returns the numbers of calls made and of calls that raised."""
    state = calls.CallState()
    table = calls.CALLS
    made = raised = 0
    for storages, tensors, step in marshal.loads(steps):
        state.works = {}
        state.tensors = make(torch, storages, tensors)
        for index, call in enumerate(step):
            if call["call"] == "init_process_group" and call.get("url"):
                call["url"] = call["url"].replace(":0", f":{port}").replace("file://", "file://" + file)
            made += 1
            try:
                table[call["call"]](state, call, index)
            except Exception:
                raised += 1
                break
        state.tensors = state.works = ()
    return made, raised


def free_port(ports):
    """Returns the next port on which no process listens."""
    for port in ports:
        with socket.socket() as sock:
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise SystemExit("no free port")


def main():
    path, at_once, package = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    sys.path.insert(0, package)
    worlds = list(load(path))
    began = time.monotonic()
    import encodings.idna  # noqa: F401

    import torch
    import torch.distributed

    from allranks_rank import calls, huge_pages

    # Cheap forks, as the harness has them.
    for address in huge_pages.candidate_addresses():
        huge_pages.collapse(address)
    gc.collect()
    gc.freeze()
    environment = dict(os.environ)
    ports = iter(PORTS)
    living = {}  # pid -> index of its world
    left = {}  # index of a world -> ranks that have not ended
    free = at_once
    counts, tally = os.pipe()
    died = 0

    def reap():
        nonlocal free, died
        pid, status = os.wait()
        died += status != 0
        world = living.pop(pid)
        left[world] -= 1
        if left[world] == 0:
            free += min(len(worlds[world][1]), at_once)

    with tempfile.TemporaryDirectory() as folder:
        for world, (env, ranks) in enumerate(worlds):
            while free < min(len(ranks), at_once):
                reap()
            free -= min(len(ranks), at_once)
            left[world] = len(ranks)
            port, file = free_port(ports), f"{folder}/{world}"
            for rank, steps in enumerate(ranks):
                pid = os.fork()
                if pid == 0:
                    os.environ.clear()
                    os.environ.update(environment)
                    os.environ.update(env[rank])
                    os.environ["MASTER_PORT"] = str(port)
                    made, raised = play(torch, calls, steps, port, file)
                    os.write(tally, f"{made} {raised}\n".encode())
                    os._exit(0)
                living[pid] = world
        while living:
            reap()
    seconds = time.monotonic() - began
    os.close(tally)
    with os.fdopen(counts) as file:
        pairs = [tuple(map(int, line.split())) for line in file]
    print(
        json.dumps(
            {
                "seconds": seconds,
                "worlds": len(worlds),
                "ranks": len(pairs) + died,
                "died": died,
                "calls": sum(made for made, _ in pairs),
                "raised": sum(raised for _, raised in pairs),
            }
        )
    )


if __name__ == "__main__":
    main()
