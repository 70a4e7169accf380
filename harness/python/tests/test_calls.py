"""Every call of the driver, once, in Gloo worlds of two and four; the answers are worked out by hand."""

import inspect
import re
import struct
import unittest
from typing import NoReturn

import torch

from allranks_rank.calls import CALLS, CallState
from allranks_rank.calls.arguments import reduce_op

from .fake_harness import Folder, World, Zygote, free_port
from .test_scripts import SCRIPT_CALLS


def pack(*values):
    return struct.pack(f"<{len(values)}f", *values)


def unpack(storage):
    return list(struct.unpack(f"<{len(storage) // 4}f", storage))


def flat(storage, length, offset=0):
    return {"storage": storage, "dtype": "float32", "shape": [length], "strides": [1], "offset": offset}


def on_group(name, **fields):
    return {"call": name, "group": "world", **fields}


class Exchange:
    """What ranks hold before a step and must hold after it, storage by storage; each is one flat tensor."""

    def __init__(self, calls, before, after, values=None):
        self.calls, self.before, self.after, self.values = calls, before, after, values


def exchanges(size):
    """Name -> exchange. All fields are functions of the rank; values of storages are lists of float32."""
    ranks = range(size)
    total = sum(r + 1 for r in ranks)
    both = lambda calls, before, after, values=None: Exchange(  # noqa: E731
        calls if callable(calls) else lambda r: calls, before, after, values
    )
    mine = lambda r: [[r + 1, 10 * (r + 1)]]  # noqa: E731
    summed = lambda r: [[total, 10 * total]]  # noqa: E731
    everyone = [r + 1 for r in ranks]
    nothing = [0] * size
    reduce = {"tensor": 0, "op": "sum"}
    last = {"global": size - 1}
    first = {"group": 0}
    right, left = (lambda r: {"global": (r + 1) % size}), (lambda r: {"group": (r - 1) % size})
    ring_before = lambda r: [[r + 1], [0]]  # noqa: E731
    ring_after = lambda r: [[r + 1], [(r - 1) % size + 1]]  # noqa: E731

    def send_recv(r):
        send = on_group("send", tensor=0, peer=right(r), tag=3)
        recv = on_group("recv", tensor=1, peer=left(r), tag=3)
        return [send, recv] if r % 2 == 0 else [recv, send]

    table = {
        "all_reduce": both([on_group("all_reduce", **reduce)], mine, summed),
        "all_reduce max": both([on_group("all_reduce", tensor=0, op="max")], mine, lambda r: [[size, 10 * size]]),
        "all_reduce async": both(
            [on_group("all_reduce", **reduce, async_op=True), {"call": "wait", "work": 0}], mine, summed
        ),
        "all_reduce_coalesced": both(
            [on_group("all_reduce_coalesced", tensors=[0, 1], op="sum")],
            lambda r: [[r + 1], [r, r]],
            lambda r: [[total], [total - size] * 2],
        ),
        "broadcast": both([on_group("broadcast", tensor=0, root=last)], mine, lambda r: [[size, 10 * size]]),
        "broadcast group": both([on_group("broadcast", tensor=0, root=first)], mine, lambda r: [[1, 10]]),
        "reduce": both([on_group("reduce", root=last, **reduce)], mine, lambda r: summed(r) if r == size - 1 else None),
        "all_gather": both(
            [on_group("all_gather", outputs=[1 + r for r in ranks], input=0)],
            lambda r: [[r + 1], *[[0]] * size],
            lambda r: [[r + 1], *[[n] for n in everyone]],
        ),
        "all_gather_coalesced": both(
            [on_group("all_gather_coalesced", outputs=[[1 + r] for r in ranks], inputs=[0])],
            lambda r: [[r + 1], *[[0]] * size],
            lambda r: [[r + 1], *[[n] for n in everyone]],
        ),
        "all_gather_into_tensor": both(
            [on_group("all_gather_into_tensor", output=1, input=0)],
            lambda r: [[r + 1], nothing],
            lambda r: [[r + 1], everyone],
        ),
        "gather": both(
            lambda r: [on_group("gather", input=0, outputs=[1 + n for n in ranks] if r == 0 else None, root=first)],
            lambda r: [[r + 1], *[[0]] * size],
            lambda r: [[r + 1], *[[n if r == 0 else 0] for n in everyone]],
        ),
        "scatter": both(
            lambda r: [
                on_group("scatter", output=0, inputs=[1 + n for n in ranks] if r == size - 1 else None, root=last)
            ],
            lambda r: [[0], *[[100 * n] for n in everyone]],
            lambda r: [[100 * (r + 1)], *[[100 * n] for n in everyone]],
        ),
        "reduce_scatter": both(
            [on_group("reduce_scatter", output=0, inputs=[1 + n for n in ranks], op="sum")],
            lambda r: [[0], *[[(r + 1) * n] for n in everyone]],
            lambda r: [[total * (r + 1)], *[[(r + 1) * n] for n in everyone]],
        ),
        "reduce_scatter_tensor": both(
            [on_group("reduce_scatter_tensor", output=0, input=1, op="sum")],
            lambda r: [[0], [(r + 1) * n for n in everyone]],
            lambda r: [[total * (r + 1)], [(r + 1) * n for n in everyone]],
        ),
        "all_to_all_single": both(
            [on_group("all_to_all_single", output=0, input=1, output_splits=None, input_splits=None)],
            lambda r: [nothing, [10 * r + n for n in ranks]],
            lambda r: [[10 * n + r for n in ranks], [10 * r + n for n in ranks]],
        ),
        "all_to_all_single uneven": both(
            lambda r: [  # rank i sends j + 1 elements to rank j
                on_group(
                    "all_to_all_single",
                    output=0,
                    input=1,
                    output_splits=[r + 1] * size,
                    input_splits=[n + 1 for n in ranks],
                )
            ],
            lambda r: [[0] * size * (r + 1), [10 * r + n for n in ranks for _ in range(n + 1)]],
            lambda r: [
                [10 * n + r for n in ranks for _ in range(r + 1)],
                [10 * r + n for n in ranks for _ in range(n + 1)],
            ],
        ),
        "send recv": both(
            send_recv,
            ring_before,
            ring_after,
            lambda r: [None, (r - 1) % size] if r % 2 == 0 else [(r - 1) % size, None],
        ),
        "isend irecv": both(
            lambda r: [
                on_group("isend", tensor=0, peer=right(r)),
                on_group("irecv", tensor=1, peer=left(r)),
                {"call": "wait", "work": 1},
                {"call": "wait", "work": 0},
            ],
            ring_before,
            ring_after,
        ),
        "batch_isend_irecv": both(
            lambda r: [
                on_group(
                    "batch_isend_irecv",
                    ops=[
                        {"direction": "send", "tensor": 0, "peer": right(r), "tag": 1},
                        {"direction": "recv", "tensor": 1, "peer": left(r), "tag": 1},
                    ],
                )
            ],
            ring_before,
            ring_after,
        ),
        "barriers": both(
            [
                {"call": "sleep", "ms": 1},
                on_group("barrier"),
                on_group("barrier", async_op=True),
                {"call": "wait", "work": 2},
                on_group("monitored_barrier"),
            ],
            lambda r: [],
            lambda r: [],
        ),
        "coalesced": both(
            [on_group("coalesced", calls=[on_group("all_reduce", tensor=n, op="sum") for n in (0, 1)])],
            lambda r: [[r + 1], [r]],
            lambda r: [[total], [total - size]],
        ),
        "coalesced async": both(
            [
                on_group(
                    "coalesced",
                    calls=[on_group("all_gather_into_tensor", output=1, input=0)],
                    async_op=True,
                ),
                {"call": "wait", "work": 0},
            ],
            lambda r: [[r + 1], nothing],
            lambda r: [[r + 1], everyone],
        ),
        "tensors as leaves": both(
            [{"call": "tensors_as", "kind": "requires_grad", "tensors": [0]}, on_group("all_reduce", **reduce)],
            mine,
            summed,
        ),
        "all_reduce_sparse": both(
            [on_group("all_reduce_sparse", values=0, indices=[0, 2], output=1, op="sum")],
            lambda r: [[r + 1, 10 * (r + 1)], [9, 9, 9, 9]],
            lambda r: [[r + 1, 10 * (r + 1)], [total, 0, 10 * total, 0]],
        ),
        "grown, and seen through windows": both(
            [
                {"call": "grow", "tensor": 0, "times": 3},
                on_group("all_reduce", **reduce),
                {"call": "windows", "tensor": 0, "output": 1, "starts": [1, 4], "len": 2},
            ],
            lambda r: [[r + 1, 2], [0, 0, 0, 0]],
            lambda r: [[r + 1, 2], [2 * size, total, total, 2 * size]],
        ),
        "stack": both(
            [
                on_group(
                    "stack",
                    layer="functional",
                    tensors={"input.0.0": 0, "result.0.0": 1},
                    options={
                        "collective": "all_reduce",
                        "op": "sum",
                        "dim": 0,
                        "root": 0,
                        "splits": None,
                        "wait": False,
                        "backward": False,
                        "traced": False,
                        "calls": 1,
                        "tensors": 1,
                        "sleep_ms": 0,
                    },
                )
            ],
            lambda r: [[r + 1, 10 * (r + 1)], [0, 0]],
            lambda r: [[r + 1, 10 * (r + 1)], [total, 10 * total]],
        ),
        "objects": both(
            lambda r: [
                on_group("all_gather_object", object={"rank": r, "π": None}),
                on_group("gather_object", object=[r], root=last),
                on_group("broadcast_object_list", objects=[r, "x"] if r == 0 else [None, None], root=first),
                on_group("scatter_object_list", objects=[[n] for n in ranks] if r == 0 else None, root=first),
            ],
            lambda r: [],
            lambda r: [],
            lambda r: [
                [{"rank": n, "π": None} for n in ranks],
                [[n] for n in ranks] if r == size - 1 else None,
                [0, "x"],
                [r],
            ],
        ),
    }
    return table


class CallsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Folder(prefix="ar")
        cls.zygote = Zygote(cls.folder)

    @classmethod
    def tearDownClass(cls):
        cls.zygote.close()
        cls.folder.cleanup()

    def world(self, size, **env):
        world = World(self.zygote, self.folder, size, **env)
        self.addCleanup(world.close)
        return world

    def check(self, world, exchange):
        def step(rank):
            before = exchange.before(rank)
            tensors = [flat(index, len(values)) for index, values in enumerate(before)]
            return [pack(*values) for values in before], tensors, exchange.calls(rank)

        for rank, (results, storages) in enumerate(world.step(step)):
            self.assertEqual([each["status"] for each in results], ["ok"] * len(results), results)
            for each in results:
                self.assertLessEqual(each["enter"], each["leave"])
            if (after := exchange.after(rank)) is not None:
                self.assertEqual([unpack(each) for each in storages], after, f"rank {rank}")
            if exchange.values is not None:
                self.assertEqual([each["value"] for each in results], exchange.values(rank), f"rank {rank}")

    def every_call(self, size):
        world = self.world(size)
        for rank, result in enumerate(world.init()):
            self.assertEqual(result["value"], {"rank": rank, "world_size": size, "backend": "gloo"})
        used = {"prepare", "init_process_group", "new_group", "destroy_process_group", "all_to_all"}
        used.add("premul_factor")  # Gloo has no premul_sum; it has a test of its own
        used.add("split_group")  # so has it: torch wants a group that is bound to a device
        for name, exchange in exchanges(size).items():
            with self.subTest(name, size=size):
                used.update(call["call"] for rank in range(size) for call in exchange.calls(rank))
                self.check(world, exchange)
        self.assertEqual(used | SCRIPT_CALLS, set(CALLS))
        self.subgroup(world)
        world.calls({"call": "destroy_process_group", "group": "world"})
        for end in world.finish():
            self.assertEqual((end["code"], end["signal"], end["left_behind"]), (0, None, 0))

    def subgroup(self, world):
        ends = [0, world.size - 1]
        new = {"call": "new_group", "name": "ends", "ranks": ends, "timeout_s": 20}
        for rank, (value,) in enumerate(world.calls(new)):
            member = {"rank": ends.index(rank), "size": 2, "timeout_s": 20} if rank in ends else {"rank": -1, "size": 0}
            self.assertEqual(value, member)
        call = {"call": "broadcast", "group": "ends", "tensor": 0, "root": {"group": 1}}
        answers = world.step(lambda rank: ([pack(rank)], [flat(0, 1)], [call] if rank in ends else []))
        for rank, (_, storages) in enumerate(answers):
            self.assertEqual(unpack(storages[0]), [world.size - 1 if rank in ends else rank])
        world.calls({"call": "destroy_process_group", "group": "ends"})
        answers = world.step(lambda rank: ([pack(0)], [flat(0, 1)], [call] if rank == 0 else []))
        self.assertEqual(answers[0][0][0]["error"]["type"], "LookupError")

    def test_every_call_in_a_world_of_two(self):
        self.every_call(2)

    def test_every_call_in_a_world_of_four(self):
        self.every_call(4)

    def test_views_of_one_storage_share_it_and_leave_the_rest_of_it_alone(self):
        world = self.world(2)
        world.init()
        strided = {"storage": 0, "dtype": "float32", "shape": [2, 2], "strides": [4, 2], "offset": 1}
        scalar = {"storage": 0, "dtype": "float32", "shape": [], "strides": [], "offset": 0}
        as_int = {"storage": 0, "dtype": "int32", "shape": [1], "strides": [1], "offset": 9}
        empty = {"storage": 1, "dtype": "int64", "shape": [0], "strides": [1], "offset": 0}
        calls = [
            on_group("all_gather_into_tensor", output=3, input=3),
            on_group("all_reduce", tensor=1, op="sum"),
            on_group("all_reduce", tensor=2, op="sum"),
        ]
        before = pack(*range(9)) + struct.pack("<i", 7) + b"odd"
        answers = world.step(lambda r: ([before, b"", b"no tensor"], [strided, scalar, as_int, empty], calls))
        after = pack(0, 1, 2, 3, 4, 5, 6, 7, 8) + struct.pack("<i", 14) + b"odd"
        for results, storages in answers:
            self.assertEqual([each["status"] for each in results], ["ok"] * 3, results)
            self.assertEqual(storages, [after, b"", b"no tensor"])

    def test_a_step_has_its_own_factor_of_premul_sum(self):
        state = CallState()

        def factor():
            return reduce_op(state, "premul_sum").__getstate__()[1]

        self.assertEqual(factor(), 3.0)
        CALLS["premul_factor"](state, {"factor": -5.0}, 0)
        self.assertEqual(factor(), -5.0)
        state.tensors = [torch.tensor([7.0])]
        CALLS["premul_factor"](state, {"tensor": 0}, 1)
        self.assertEqual(factor().tolist(), [7.0])
        state.begin_step()
        self.assertEqual(factor(), 3.0)

    def test_every_call_is_documented_with_its_fields(self):
        for name, function in CALLS.items():
            with self.subTest(name):
                source, doc = inspect.getsource(function), inspect.getdoc(function) or ""
                read = set(re.findall(r"""fields(?:\[|\.get\()"(\w+)\"""", source)) - {"call"}
                missing = [field for field in read if not re.search(rf"\b{field}\b \(", doc)]
                self.assertEqual(missing, [])
                returned = inspect.signature(function).return_annotation
                self.assertEqual(returned in (None, NoReturn), "Value:" not in doc)

    def test_a_group_that_cannot_be_split_says_so(self):
        world = self.world(2)
        world.init()
        split = {"call": "split_group", "name": "half", "ranks": [0, 1], "timeout_s": 20}
        for results, _ in world.step(lambda r: ([], [], [split])):
            self.assertEqual(results[0]["status"], "error", results)

    def test_an_error_ends_the_step_and_not_the_rank(self):
        world = self.world(2)
        world.init()
        premul = on_group("all_reduce", tensor=0, op="premul_sum")
        lists = on_group("all_to_all", outputs=[0], inputs=[0])
        for call, message in (premul, "PREMUL_SUM with Gloo"), (lists, "does not support alltoall"):
            after = on_group("all_reduce", tensor=0, op="sum")
            for results, storages in world.step(lambda r: ([pack(5)], [flat(0, 1)], [call, after, after])):
                statuses = [each["status"] for each in results]
                self.assertEqual(statuses, ["error", "not_reached", "not_reached"])
                self.assertEqual(results[0]["error"]["type"], "RuntimeError")
                self.assertIn(message, results[0]["error"]["message"])
                self.assertEqual(unpack(storages[0]), [5])
        out_of_bounds = on_group("barrier")
        for results, _ in world.step(lambda r: ([pack(5)], [flat(0, 2)], [out_of_bounds])):
            self.assertEqual(results[0]["status"], "error")
            self.assertIn("out of bounds", results[0]["error"]["message"])
        self.check(world, exchanges(2)["all_reduce"])
        world.finish()

    def test_an_error_while_waiting_for_the_device_belongs_to_the_last_call(self):
        with open(self.folder.path("late.py"), "w") as file:
            file.write("def never_ready(): raise OSError('device lost')\ncurrent = []\nset_device = current.append\n")
        world = self.world(1)
        prepare = {"call": "prepare", "import": [], "python_path": [self.folder.name], "device": "cpu"}
        world.calls({**prepare, "set_device": "late.set_device"})
        sleep = {"call": "sleep", "ms": 0}
        world.send(lambda r: ([b"ab"], [], [{**prepare, "synchronize": "late.never_ready"}, sleep, sleep]))
        results, storages = world.answer(0)
        self.assertEqual([each["status"] for each in results], ["ok", "ok", "error"])
        self.assertEqual(results[2]["error"], {"type": "OSError", "message": "device lost"})
        self.assertEqual(storages, [b"ab"])

    def test_steps_may_be_sent_ahead(self):
        world = self.world(2)
        world.init()
        first = world.steps
        for n in range(50):
            world.send(lambda r, n=n: ([pack(n + r)], [flat(0, 1)], [on_group("all_reduce", tensor=0, op="sum")]))
        for n in range(50):
            for rank in range(2):
                self.assertEqual(unpack(world.answer(rank)[1][0]), [2 * n + 1], first)
        world.finish()

    def test_other_ways_to_meet(self):
        for method in "tcp", "file", "store":
            with self.subTest(method):
                world = self.world(2)
                url = {
                    "tcp": f"tcp://127.0.0.1:{free_port()}",
                    "file": f"file://{self.folder.path('rendezvous')}",
                    "store": f"127.0.0.1:{free_port()}",
                }[method]
                init = {"call": "init_process_group", "backend": "gloo", "method": method, "url": url}
                answers = world.step(lambda r: ([], [], [{**init, "rank": r, "world_size": 2, "timeout_s": 20}]))
                for rank, (results, _) in enumerate(answers):
                    self.assertEqual(results[0].get("value"), {"rank": rank, "world_size": 2, "backend": "gloo"})
                self.check(world, exchanges(2)["all_reduce"])
                world.finish()


if __name__ == "__main__":
    unittest.main()
