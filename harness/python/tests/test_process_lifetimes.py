"""Tests of how zygotes and ranks start and end: whatever happens, no process and no descriptor is left behind."""

import os
import signal
import subprocess
import sys
import time
import unittest
from pathlib import Path

from .fake_harness import Folder, Listener, World, Zygote, environment

ALL_REDUCE = {"call": "all_reduce", "group": "world", "tensor": 0, "op": "sum"}
TENSOR = {"storage": 0, "dtype": "float32", "shape": [1], "strides": [1], "offset": 0}


def gone(pid, within=3.0):
    """Whether a process ends within some seconds (a zombie has ended)."""
    until = time.monotonic() + within
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


def blocked(world):
    """All ranks but rank 0 enter an all_reduce that cannot finish; rank 0 sleeps."""
    sleep = {"call": "sleep", "ms": 60_000}
    world.send(lambda rank: ([bytes(4)], [TENSOR], [ALL_REDUCE if rank else sleep]))
    for wire in world.wires:
        assert wire.receive()[0]["frame"] == "enter"
    time.sleep(0.05)


class LifeTest(unittest.TestCase):
    def setUp(self):
        self.folder = Folder(prefix="ar")
        self.addCleanup(self.folder.cleanup)

    def zygote(self, **env):
        zygote = Zygote(self.folder, **env)
        self.addCleanup(zygote.close)
        return zygote

    def world(self, zygote, size, **env):
        world = World(zygote, self.folder, size, **env)
        self.addCleanup(world.close)
        return world

    def module(self, name, text):
        """A module for `prepare` to import: what happens when a platform's own code does such a thing."""
        Path(self.folder.path(f"{name}.py")).write_text(text)
        return {"call": "prepare", "import": [name], "python_path": [self.folder.name], "device": "cpu"}

    def test_a_rank_that_waits_tells_once_what_it_has_under_way(self):
        world = self.world(self.zygote(), 2)
        world.init()
        blocked(world)
        step = world.wires[1].receive()[0]
        self.assertEqual(step["frame"], "recorder")
        [op] = step["ops"]
        self.assertEqual((op["op"], op["number"], op["inputs"]), ("all_reduce", 1, ["float[1]"]))
        # Rank 0 sleeps, and has nothing under way.
        for wire in world.wires:
            wire.sock.settimeout(0.7)
            with self.assertRaises(TimeoutError):
                wire.receive()

    def test_two_hundred_worlds_leave_nothing_behind(self):
        zygote = self.zygote()
        pid = zygote.hello["pid"]
        count = lambda what: len(os.listdir(f"/proc/{pid}/{what}"))  # noqa: E731
        for n in range(200):
            if n == 5:
                before = count("fd"), count("task")
            world = self.world(zygote, 2)
            world.init()
            answers = world.step(lambda rank: ([b"\0\0\x80?"], [TENSOR], [ALL_REDUCE]))
            self.assertEqual([storages for _, storages in answers], [[b"\0\0\0@"]] * 2)
            if n % 10 == 3:
                blocked(world)
                for name in world.names:
                    zygote.kill(name)
                ends = zygote.ended(world.names)
                self.assertEqual([end["signal"] for end in ends], [9, 9])
                world.close()
            else:
                if n % 10 == 4:
                    world.calls({"call": "destroy_process_group", "group": "world"})
                self.assertEqual([end["code"] for end in world.finish()], [0, 0])
        self.assertEqual((count("fd"), count("task")), before)
        self.assertEqual(Path(f"/proc/{pid}/task/{pid}/children").read_text().split(), [])

    def test_ends_are_told_apart(self):
        zygote = self.zygote()
        ends = {
            "exits": ("import sys; sys.exit(42)", 42, None),
            "leaves": ("import os; os._exit(7)", 7, None),
            "interrupted": ("raise KeyboardInterrupt", 1, None),
            "crashes": ("import ctypes; ctypes.string_at(0)", None, signal.SIGSEGV),
        }
        for name, (text, code, number) in ends.items():
            with self.subTest(name):
                world = self.world(zygote, 1)
                world.send(lambda _: ([], [], [self.module(f"ends_{name}", text)]))
                (end,) = zygote.ended(world.names)
                self.assertEqual((end["code"], end["signal"]), (code, number))

    def test_a_rank_whose_connection_closes_exits_even_while_blocked(self):
        zygote = self.zygote()
        world = self.world(zygote, 2)
        world.init()
        blocked(world)
        world.close()
        # Long before the collective's own time-out would end it.
        self.assertEqual([end["code"] for end in zygote.ended(world.names)], [70, 70])

    def test_what_a_rank_leaves_behind_is_killed_and_counted(self):
        zygote = self.zygote()
        spawn = "import subprocess as s; children = [s.Popen(['sleep', '600'], start_new_session=n) for n in (0, 1)]\n"
        # The one in the middle is waited for, so that it is neither running nor counted.
        fork = (
            "import os, time\npid = os.fork()\nif pid == 0:\n    os.setsid()\n    if os.fork(): os._exit(0)\n"
            "    time.sleep(600)\nos.waitpid(pid, 0)\n"
        )
        other = self.world(zygote, 1)
        world = self.world(zygote, 1)
        world.calls(self.module("leaves_children", spawn + fork))
        (end,) = world.finish()
        self.assertEqual((end["code"], end["left_behind"]), (0, 3))
        self.assertEqual(other.finish()[0]["left_behind"], 0)

    def test_what_ranks_leave_behind_that_end_at_once_is_each_one_s_own(self):
        zygote = self.zygote()
        spawn = "import subprocess as s; children = [s.Popen(['sleep', '600'], start_new_session=True) for _ in 'ab']\n"
        tidy, untidy = self.world(zygote, 1), self.world(zygote, 2)
        untidy.calls(self.module("leaves_two", spawn))
        zygote.listen(lambda: len(zygote.pids) == 3)
        # All three have ended before the zygote looks.
        zygote.process.send_signal(signal.SIGSTOP)
        for world in tidy, untidy:
            for wire in world.wires:
                wire.send({"frame": "finish"})
        ended = [gone(pid, within=20) for pid in zygote.pids.values()]
        zygote.process.send_signal(signal.SIGCONT)
        self.assertEqual(ended, [True] * 3)
        ends = zygote.ended(tidy.names + untidy.names)
        self.assertEqual([end["left_behind"] for end in ends], [0, 2, 2])

    def test_nothing_outlives_a_harness_that_is_killed(self):
        # A harness of its own process, with ranks blocked in a collective and one child in another session.
        script = (
            "import sys, time; from tests.fake_harness import *; from tests.test_process_lifetimes import blocked\n"
            "folder = Folder(prefix='ar'); zygote = Zygote(folder); world = World(zygote, folder, 4); world.init()\n"
            "zygote.listen(lambda: len(zygote.pids) == 4); blocked(world)\n"
            "print(zygote.hello['pid'], *zygote.pids.values(), flush=True); time.sleep(600)\n"
        )
        harness = subprocess.Popen(
            [sys.executable, "-c", script],
            cwd=Path(__file__).parents[1],
            env=environment(),
            stdout=subprocess.PIPE,
        )
        pids = [int(pid) for pid in harness.stdout.readline().split()]
        self.assertEqual(len(pids), 5)
        harness.kill()
        harness.wait()
        harness.stdout.close()
        self.assertEqual([pid for pid in pids if not gone(pid)], [])

    def test_nothing_outlives_a_zygote_that_is_killed(self):
        zygote = self.zygote()
        world = self.world(zygote, 2)
        world.init()
        blocked(world)
        zygote.listen(lambda: len(zygote.pids) == 2)
        os.kill(zygote.hello["pid"], signal.SIGKILL)
        self.assertEqual([pid for pid in zygote.pids.values() if not gone(pid)], [])

    def test_a_zygote_with_two_threads_refuses_to_fork(self):
        Path(self.folder.path("sitecustomize.py")).write_text(
            "import threading, time; threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
        )
        path = f"{self.folder.name}:{environment()['PYTHONPATH']}"
        zygote = self.zygote(PYTHONPATH=path)
        self.assertGreater(zygote.hello["threads"], 1)
        zygote.fork({}, self.folder.path("log"))
        answer, _ = zygote.wire.receive()
        self.assertEqual(answer["frame"], "fork_failed")
        self.assertIn("2 threads", answer["error"])

    def test_a_rank_has_its_own_environment_and_log_and_nothing_of_the_zygote(self):
        zygote = self.zygote(ZYGOTE_ONLY="1")
        text = (
            "import os, torch.distributed as d\n"
            "assert 'ZYGOTE_ONLY' not in os.environ and os.environ['MINE'] == '2'\n"
            "assert d.get_debug_level() == d.DebugLevel.DETAIL\n"
            "assert os.getpid() == os.getpgid(0) == os.getsid(0)\n"
            "paths = [f'/proc/self/fd/{n}' for n in os.listdir('/proc/self/fd')]\n"
            "fds = [os.readlink(path) for path in paths if os.path.exists(path)]\n"
            "assert sum(f.startswith('socket:') for f in fds) == 1, fds\n"
            "print('said by the rank'); os.write(2, b'and to error\\n')\n"
        )
        world = self.world(zygote, 1, MINE="2", TORCH_DISTRIBUTED_DEBUG="DETAIL")
        world.calls(self.module("looks_around", text))
        world.finish()
        self.assertEqual(Path(world.log).read_text(), "said by the rank\nand to error\n")

    def test_a_fresh_process_is_the_same_rank(self):
        for leaving in "at once", "interpreter":
            with self.subTest(leaving):
                listener = Listener(self.folder.path(f"fresh-{leaving[0]}"))
                self.addCleanup(listener.close)
                env = environment(ALLRANKS_CONTROL=listener.address, RANK="0", WORLD_SIZE="1", ALLRANKS_EXIT=leaving)
                process = subprocess.Popen([sys.executable, "-m", "allranks_rank"], env=env)
                wire = listener.accept()
                hello, _ = wire.receive()
                self.assertEqual((hello["pid"], hello["rank"], hello["version"]), (process.pid, 0, 1))
                wire.send({"frame": "step", "step": 0, "storages": [4], "tensors": [TENSOR], "calls": []}, [b"abcd"])
                self.assertEqual(wire.receive(), ({"frame": "result", "step": 0, "calls": [], "storages": [4]}, 4))
                wire.read_into([memoryview(bytearray(4))])
                wire.send({"frame": "finish"})
                self.assertEqual(wire.receive()[0]["steps"], 1)
                wire.sock.close()
                self.assertEqual(process.wait(30), 0)


if __name__ == "__main__":
    unittest.main()
