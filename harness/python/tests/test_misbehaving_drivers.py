"""The misbehaving drivers of `fixtures/drivers` do exactly what they say, seen from the harness's side.

What the harness must make of each is for the harness's own tests; here only the fault itself is proved, and that a
driver is honest in everything else.
"""

import ast
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import unittest
from pathlib import Path

from .fake_harness import TOKEN, Folder, Listener, environment, free_port

DRIVERS = Path(__file__).resolve().parents[3] / "fixtures" / "drivers"
TENSOR = {"storage": 0, "dtype": "float32", "shape": [2], "strides": [2], "offset": 1}
CALLS = [{"call": "all_reduce", "group": "world", "tensor": 0, "op": "sum"}, {"call": "barrier", "group": "world"}]


class MisbehavingDriversTest(unittest.TestCase):
    def setUp(self):
        self.folder = Folder(prefix="ar")
        self.addCleanup(self.folder.cleanup)
        self.listener = Listener(self.folder.path("c"))
        self.addCleanup(self.listener.close)
        self.log = open(self.folder.path("log"), "wb")
        self.addCleanup(self.log.close)

    def start(self, name, rank=0, size=1, port=0):
        env = environment(
            ALLRANKS_CONTROL=self.listener.address,
            BLACKBOX_STAGE=self.folder.name,
            RANK=str(rank),
            WORLD_SIZE=str(size),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
        )
        process = subprocess.Popen(
            [sys.executable, DRIVERS / f"{name}.py"], env=env, stdout=self.log, stderr=self.log, start_new_session=True
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def accept(self, timeout=20):
        wire = self.listener.accept(timeout)
        self.addCleanup(wire.sock.close)
        return wire

    def send_step(self, wire, size=1, rank=0):
        init = {
            "call": "init_process_group",
            "backend": "gloo",
            "method": "env",
            "rank": rank,
            "world_size": size,
            "timeout_s": 20,
        }
        step = {"frame": "step", "step": 0, "storages": [16], "tensors": [TENSOR], "calls": [init, *CALLS]}
        wire.send(step, [struct.pack("<4f", 9, rank + 1, 9, 10 * (rank + 1))])

    def read_result(self, wire):
        """Number of ``enter`` frames, the result, its floats."""
        entered = 0
        while True:
            header, length = wire.receive()
            if header["frame"] == "enter":
                entered += 1
                continue
            payload = bytearray(length)
            wire.read_into([memoryview(payload)])
            return entered, header, payload

    def right_step(self, wire, entered=3):
        """One step in a world of one, which goes as it should."""
        self.send_step(wire)
        got, result, payload = self.read_result(wire)
        self.assertEqual((got, result["step"], result["storages"]), (entered, 0, [16]))
        self.assertEqual([call["status"] for call in result["calls"]], ["ok"] * 3, result)
        self.assertEqual(struct.unpack("<4f", payload), (9, 1, 9, 10))

    def started(self, name):
        process = self.start(name)
        wire = self.accept()
        hello, _ = wire.receive()
        self.assertEqual((hello["frame"], hello["driver"]), ("hello", name))
        return process, wire, hello

    def worked(self, name, **how):
        """A driver that does one step right; its process, connection, and the answer to finish."""
        process, wire, _ = self.started(name)
        self.right_step(wire, **how)
        wire.send({"frame": "finish"})
        bye, _ = wire.receive()
        self.assertEqual(bye["frame"], "bye")
        return process, wire, (bye["steps"], bye["token"] == TOKEN)

    def two(self, name):
        """What both ranks of a world of two hold after a sum."""
        port = free_port()
        for rank in range(2):
            self.start(name, rank, 2, port)
        wires = {}
        for _ in range(2):
            wire = self.accept()
            wires[wire.receive()[0]["rank"]] = wire
        for rank, wire in wires.items():
            self.send_step(wire, 2, rank)
        answers = []
        for rank in range(2):
            _, result, payload = self.read_result(wires[rank])
            self.assertEqual([call["status"] for call in result["calls"]], ["ok"] * 3, result)
            answers.append(struct.unpack("<4f", payload))
        return answers

    def test_every_driver_documents_its_fault_and_the_outcome(self):
        for path in DRIVERS.glob("*.py"):
            if path.stem not in ("pretend", "skeleton"):  # which have no fault
                self.assertIn("Must be: ", ast.get_docstring(ast.parse(path.read_text())), path)
                self.assertTrue(hasattr(self, f"test_{path.stem}"), path)

    def test_pretend_is_honest(self):
        process, wire, bye = self.worked("pretend")
        self.assertEqual((bye, process.wait(10)), ((1, True), 0))
        self.assertEqual(self.two("pretend"), [(9, 3, 9, 30)] * 2)

    def test_lies(self):
        self.assertEqual(self.two("lies"), [(9, 1, 9, 10), (9, 2, 9, 20)])

    def test_silent(self):
        process = self.start("silent")
        wire = self.accept()
        wire.sock.settimeout(0.5)
        self.assertRaises(socket.timeout, wire.receive)
        self.assertIsNone(process.poll())

    def test_never_connects(self):
        process = self.start("never_connects")
        self.assertRaises(socket.timeout, self.accept, 0.5)
        self.assertIsNone(process.poll())

    def test_wrong_token(self):
        self.assertNotEqual(self.started("wrong_token")[2]["token"], TOKEN)

    def test_wrong_version(self):
        self.assertEqual(self.started("wrong_version")[2]["version"], 999)

    def test_wrong_rank(self):
        self.assertEqual(self.started("wrong_rank")[2]["rank"], 1)

    def broken(self, name):
        _, wire, _ = self.started(name)
        self.send_step(wire)
        return self.read_result(wire)

    def test_garbage(self):
        with self.assertRaisesRegex(ValueError, "not a frame"):
            self.broken("garbage")

    def test_huge_length(self):
        _, wire, _ = self.started("huge_length")
        self.send_step(wire)
        for _ in range(3):
            wire.receive()
        self.assertEqual(wire.receive(), ({}, 1 << 62))

    def test_half_frame(self):
        process, wire, _ = self.started("half_frame")
        self.send_step(wire)
        wire.sock.settimeout(0.5)
        self.assertRaises(socket.timeout, self.read_result, wire)
        self.assertIsNone(process.poll())

    def dies(self, name, code):
        process, wire, _ = self.started(name)
        self.send_step(wire)
        self.assertEqual(process.wait(10), code)

    def test_dies_1(self):
        self.dies("dies_1", 1)

    def test_dies_42(self):
        self.dies("dies_42", 42)

    def test_dies_sigkill(self):
        self.dies("dies_sigkill", -signal.SIGKILL)

    def test_exits_without_bye(self):
        process, wire, _ = self.started("exits_without_bye")
        self.right_step(wire)
        wire.send({"frame": "finish"})
        self.assertEqual(wire.sock.recv(1), b"")
        self.assertEqual(process.wait(10), 0)

    def test_too_few_storages(self):
        self.assertEqual(self.broken("too_few_storages")[1]["storages"], [])

    def test_too_many_storages(self):
        self.assertEqual(self.broken("too_many_storages")[1]["storages"], [16, 4])

    def test_wrong_step(self):
        self.assertEqual(self.broken("wrong_step")[1]["step"], 1000)

    def test_skips_enter(self):
        self.assertEqual(self.worked("skips_enter", entered=0)[2], (1, True))

    def test_wrong_step_count(self):
        self.assertEqual(self.worked("wrong_step_count")[2], (2, True))

    def test_wrong_bye_token(self):
        self.assertEqual(self.worked("wrong_bye_token")[2], (1, False))

    def test_never_exits(self):
        process, wire, bye = self.worked("never_exits")
        self.assertEqual((bye, wire.sock.recv(1)), ((1, True), b""))
        time.sleep(0.3)
        self.assertIsNone(process.poll())

    def test_exits_three(self):
        process, _, bye = self.worked("exits_three")
        self.assertEqual((bye, process.wait(10)), ((1, True), 3))

    def test_floods(self):
        process, _, bye = self.worked("floods")
        self.assertEqual((bye, process.wait(10)), ((1, True), 0))
        self.assertGreater(os.path.getsize(self.folder.path("log")), 100e6)

    def test_ignores_sigterm(self):
        process, wire, _ = self.started("ignores_sigterm")
        self.send_step(wire)
        self.assertEqual(wire.receive()[0]["frame"], "enter")
        process.terminate()
        time.sleep(0.3)
        self.assertIsNone(process.poll())

    def test_leaves_grandchild(self):
        process, wire, _ = self.started("leaves_grandchild")
        (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        self.right_step(wire)
        wire.send({"frame": "finish"})
        self.assertEqual(process.wait(10), 0)
        self.assertEqual(os.getsid(int(child)), int(child))
        os.kill(int(child), signal.SIGKILL)

    def test_leaves_daemon(self):
        process, wire, _ = self.started("leaves_daemon")
        self.right_step(wire)
        wire.send({"frame": "finish"})
        self.assertEqual(process.wait(10), 0)
        mark = f"BLACKBOX_STAGE={self.folder.name}".encode()
        daemons = [path.parent for path in Path("/proc").glob("[0-9]*/cmdline") if mark in path.read_bytes()]
        self.assertEqual([(path / "environ").read_bytes() for path in daemons], [b""])
        for path in daemons:
            self.assertNotEqual(os.getsid(int(path.name)), os.getsid(0))
            os.kill(int(path.name), signal.SIGKILL)

    def test_shouts(self):
        _, wire, _ = self.started("shouts")
        self.send_step(wire)
        _, result, _ = self.read_result(wire)
        shouted = [call["error"]["message"] for call in result["calls"] if call["status"] == "error"]
        self.assertEqual([len(text) > 15 << 20 for text in shouted], [True])

    def test_slow(self):
        started = time.monotonic()
        process, _, bye = self.worked("slow")
        self.assertEqual((bye, process.wait(10)), ((1, True), 0))
        self.assertGreater(time.monotonic() - started, 3)

    def test_imports_slowly(self):
        started = time.monotonic()
        process, wire, _ = self.started("imports_slowly")
        self.assertGreater(time.monotonic() - started, 5)
        prepare = {"call": "prepare", "import": [], "device": "cpu"}
        wire.send({"frame": "step", "step": 0, "storages": [], "tensors": [], "calls": [prepare]})
        _, result, _ = self.read_result(wire)
        self.assertEqual(result["calls"][0]["status"], "ok", result)
        self.assertGreater(time.monotonic() - started, 10)
        wire.send({"frame": "finish"})
        self.assertEqual((wire.receive()[0]["frame"], process.wait(10)), ("bye", 0))


if __name__ == "__main__":
    unittest.main()
