"""The driver to start from, `fixtures/drivers/skeleton.py`: it needs nothing of the package and works."""

import ast
import struct
import subprocess
import sys
import unittest
from pathlib import Path

from .fake_harness import TOKEN, Folder, Listener, environment, free_port

SKELETON = Path(__file__).resolve().parents[3] / "fixtures" / "drivers" / "skeleton.py"
PAIR = {"storage": 0, "dtype": "float32", "shape": [2], "strides": [1], "offset": 1}
WHOLE = {"storage": 1, "dtype": "int64", "shape": [2], "strides": [1], "offset": 0}
EMPTY = {"storage": 2, "dtype": "bool", "shape": [0], "strides": [1], "offset": 0}


def on_world(name, **fields):
    return {"call": name, "group": "world", **fields}


class SkeletonTest(unittest.TestCase):
    def setUp(self):
        self.folder = Folder(prefix="ar")
        self.addCleanup(self.folder.cleanup)
        self.listener = Listener(self.folder.path("c"))
        self.addCleanup(self.listener.close)

    def start(self, size):
        """A world of skeletons; processes, connections and hellos in rank order."""
        port, processes, answers = free_port(), [], {}
        for rank in range(size):
            env = environment(
                ALLRANKS_CONTROL=self.listener.address,
                RANK=str(rank),
                WORLD_SIZE=str(size),
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=str(port),
            )
            del env["PYTHONPATH"]  # nothing of the package is to be found
            processes.append(subprocess.Popen([sys.executable, SKELETON], env=env))
            self.addCleanup(processes[-1].wait)
            self.addCleanup(processes[-1].kill)
        for _ in range(size):
            wire = self.listener.accept()
            self.addCleanup(wire.sock.close)
            hello, _ = wire.receive()
            answers[hello["rank"]] = wire, hello
        wires, hellos = zip(*(answers[rank] for rank in range(size)), strict=True)
        return processes, wires, hellos

    def send(self, wires, number, storages, calls, tensors=(PAIR, WHOLE, EMPTY)):
        for rank, wire in enumerate(wires):
            own = storages(rank)
            step = {"frame": "step", "step": number, "storages": [len(data) for data in own], "tensors": list(tensors)}
            wire.send({**step, "calls": calls(rank)}, own)

    def read(self, wire):
        """The indices of the calls entered, the calls' entries, and the storages."""
        entered = []
        while True:
            header, length = wire.receive()
            if header["frame"] == "enter":
                entered.append(header["call"])
                continue
            self.assertEqual(length, sum(header["storages"]))
            storages = [bytearray(length) for length in header["storages"]]
            wire.read_into([memoryview(data) for data in storages])
            return entered, header["calls"], storages

    def test_it_is_short_and_imports_the_standard_library_and_torch_alone(self):
        text = SKELETON.read_text()
        self.assertLessEqual(len(text.splitlines()), 200)
        names = set()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names.add(node.module.split(".")[0])
        self.assertEqual(names - set(sys.stdlib_module_names), {"torch"})

    def test_its_collectives_are_right_and_nothing_else_is_written(self):
        processes, wires, hellos = self.start(2)
        for hello, process in zip(hellos, processes, strict=True):
            self.assertEqual((hello["version"], hello["token"], hello["pid"]), (1, TOKEN, process.pid))
            self.assertNotIn("all_gather", hello["calls"])
            self.assertLessEqual({"prepare", "barrier", "all_reduce", "broadcast"}, set(hello["calls"]))

        def calls(rank):
            init = {"call": "init_process_group", "backend": "gloo", "method": "env", "timeout_s": 20}
            return [
                {"call": "prepare", "import": [], "device": "cpu"},
                {**init, "rank": rank, "world_size": 2},
                on_world("barrier"),
                on_world("all_reduce", tensor=0, op="sum"),
                on_world("broadcast", tensor=1, root={"global": 1}, async_op=True),
                {"call": "wait", "work": 4},
                on_world("all_reduce", tensor=2, op="max"),
            ]

        def storages(rank):
            return [struct.pack("<4f", 9, rank + 1, 10 * (rank + 1), 9), struct.pack("<2q", rank, -rank) + b"odd", b""]

        self.send(wires, 0, storages, calls)
        for rank, wire in enumerate(wires):
            entered, results, after = self.read(wire)
            self.assertEqual(entered, list(range(7)))
            self.assertEqual([result["status"] for result in results], ["ok"] * 7, results)
            self.assertEqual(results[1]["value"], {"rank": rank, "world_size": 2, "backend": "gloo"})
            self.assertEqual(after, [struct.pack("<4f", 9, 3, 30, 9), struct.pack("<2q", 1, -1) + b"odd", b""])
        destroy = [on_world("destroy_process_group")]
        self.send(wires, 1, lambda rank: [], lambda rank: destroy, tensors=())
        for wire, process in zip(wires, processes, strict=True):
            self.assertEqual(self.read(wire)[1][0]["status"], "ok")
            wire.send({"frame": "finish"})
            self.assertEqual(wire.receive()[0], {"frame": "bye", "steps": 2, "token": TOKEN})
            wire.sock.close()
            self.assertEqual(process.wait(30), 0)

    def test_an_error_ends_the_step_and_not_the_rank(self):
        (process,), wires, _ = self.start(1)
        barrier = on_world("barrier")
        self.send(wires, 0, lambda rank: [b"ab"], lambda rank: [barrier, barrier], tensors=())
        entered, results, after = self.read(wires[0])
        self.assertEqual((entered, [result["status"] for result in results]), ([0], ["error", "not_reached"]))
        self.assertEqual((results[0]["error"]["type"], after), ("ValueError", [b"ab"]))
        self.send(wires, 1, lambda rank: [b"ab"], lambda rank: [barrier, barrier], tensors=[PAIR])
        entered, results, after = self.read(wires[0])
        self.assertEqual((entered, [result["status"] for result in results]), ([], ["error", "not_reached"]))
        self.assertIn("out of bounds", results[0]["error"]["message"])
        self.assertEqual(after, [b"ab"])
        self.assertIsNone(process.poll())

    def test_it_ends_with_its_connection_even_while_it_is_blocked(self):
        processes, wires, _ = self.start(2)
        init = {"call": "init_process_group", "backend": "gloo", "method": "env", "timeout_s": 600}
        wires[0].send(
            {
                "frame": "step",
                "step": 0,
                "storages": [],
                "tensors": [],
                "calls": [{**init, "rank": 0, "world_size": 2}],  # rank 1 never comes
            }
        )
        self.assertEqual(wires[0].receive()[0]["frame"], "enter")
        for wire in wires:
            wire.sock.close()
        self.assertEqual([process.wait(30) for process in processes], [70, 70])


if __name__ == "__main__":
    unittest.main()
