"""The calls that scripts make: works polled and dropped, threads, marks and holds, ranks that stop and die."""

import os
import signal
import unittest

from .fake_harness import Folder, World, Zygote

#: Calls that are tried here and not in `test_calls`.
SCRIPT_CALLS = {
    "is_completed",
    "future",
    "drop",
    "attempt",
    "together",
    "mark",
    "hold",
    "pause",
    "die",
    "exit",
    "census",
    "who_am_i",
    "setenv",
    "abort",
    "python",
}


def barrier(group="world", **fields):
    return {"call": "barrier", "group": group, **fields}


class ScriptsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Folder(prefix="ar")
        cls.zygote = Zygote(cls.folder)

    @classmethod
    def tearDownClass(cls):
        cls.zygote.close()
        cls.folder.cleanup()

    def world(self, size):
        world = World(self.zygote, self.folder, size)
        self.addCleanup(world.close)
        world.init()
        return world

    def test_a_work_can_be_polled_waited_for_and_dropped(self):
        world = self.world(2)
        issue = barrier(async_op=True)
        values = world.calls(
            issue,
            {"call": "wait", "work": 0, "timeout_ms": 20_000},
            {"call": "is_completed", "work": 0},
            {"call": "future", "work": 0},
            issue,
            {"call": "drop", "work": 4},
            {"call": "attempt", "inner": {"call": "wait", "work": 4}},
            barrier(),
        )
        for value in values:
            self.assertEqual(value[2:4], [True, True])
            self.assertEqual(value[6]["raised"]["type"], "KeyError")

    def test_a_step_goes_on_after_an_attempt_that_raised(self):
        world = self.world(1)
        wrong = {"call": "attempt", "inner": barrier("nobody")}
        right = {"call": "attempt", "inner": {"call": "who_am_i", "group": "world"}}
        kept = {"call": "attempt", "inner": barrier(async_op=True)}
        ((raised, returned, *_),) = world.calls(wrong, right, kept, {"call": "wait", "work": 2})
        self.assertEqual(raised["raised"]["type"], "LookupError")
        me = {"rank": 0, "size": 1, "backend": "gloo"}
        self.assertEqual(returned, {"raised": None, "value": me})

    def test_an_attempt_tells_which_argument_a_refused_call_has_written_to(self):
        world = self.world(1)
        refuse = "def refuse(tensors, *, other):\n    {}\n    raise ValueError('no')\n"
        call = "t = [torch.arange(4.0)[1:], torch.tensor([True])]\nrefuse(t, other=t[1])"

        def attempt(source):
            return {"call": "attempt", "inner": {"call": "python", "source": source}}

        # Functions of the statements' own are not looked at, functions of modules are.
        own = attempt(refuse.format("tensors[0].zero_()") + call)
        module = "import sys, types\nm = types.ModuleType('m')\nexec(compile({!r}, 'm.py', 'exec'), m.__dict__)\n"
        inner = [refuse.format(what) for what in ("pass", "tensors[0][1] = 7", "other.logical_not_()")]
        calls = [attempt(module.format(each) + call.replace("refuse(", "m.refuse(")) for each in inner]
        ((told, *others),) = world.calls(own, *calls)
        self.assertEqual(told["raised"]["type"], "ValueError")
        self.assertNotIn("written", told)
        self.assertEqual(
            [each.get("written") for each in others],
            [
                None,
                "element 1 of a tensor given to refuse was 2.0 and is 7.0",
                "element 0 of a tensor given to refuse was True and is False",
            ],
        )

    def test_threads_have_works_of_their_own_and_end_at_their_first_error(self):
        world = self.world(1)
        good = [barrier(async_op=True), {"call": "wait", "work": 0}]
        bad = [barrier("nobody"), barrier()]
        ((values,),) = world.calls({"call": "together", "threads": [good, bad]})
        statuses = [[each["status"] for each in thread] for thread in values]
        self.assertEqual(statuses, [["ok", "ok"], ["error", "not_reached"]])

    def test_a_hold_waits_for_go(self):
        world = self.world(2)
        calls = [[{"call": "hold", "name": "x"}], [{"call": "mark", "name": "x"}]]
        world.send(lambda rank: ([], [], calls[rank]))
        self.assertEqual(world.wires[0].receive()[0]["frame"], "enter")
        world.answer(1)
        world.wires[0].send({"frame": "go"})
        header, _ = world.wires[0].receive()
        self.assertEqual([each["status"] for each in header["calls"]], ["ok"])
        world.finish()

    def test_a_paused_rank_goes_on_when_it_is_told_to(self):
        world = self.world(1)
        world.send(lambda rank: ([], [], [{"call": "pause"}]))
        pid = world.hellos[0]["pid"]
        while self.state(pid) != "T":
            pass
        os.kill(pid, signal.SIGCONT)
        self.assertEqual(world.answer(0)[0][0]["status"], "ok")

    @staticmethod
    def state(pid):
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]

    def test_a_rank_dies_and_exits_as_it_is_told(self):
        for call, code, number in (
            ({"call": "die", "signal": 9}, None, 9),
            ({"call": "exit", "code": 0}, 0, None),
            ({"call": "exit", "code": 5}, 5, None),
        ):
            with self.subTest(call):
                world = self.world(1)
                world.send(lambda rank, call=call: ([], [], [call]))
                (end,) = self.zygote.ended(world.names)
                self.assertEqual((end["code"], end["signal"]), (code, number))

    def test_a_census_sees_what_a_process_holds(self):
        world = self.world(1)
        hold = "import threading, torch.distributed as d\nd._kept = [open('/dev/null') for _ in range(5)]\n"
        hold += "d._gate = threading.Event()\nd._thread = threading.Thread(target=d._gate.wait, daemon=True)\n"
        hold += "d._thread.start()"
        census, hold = {"call": "census"}, {"call": "python", "source": hold}
        ((before, _, after),) = world.calls(census, hold, census)
        self.assertEqual(after["files"], before["files"] + 5)
        self.assertEqual(after["threads"], before["threads"] + 1)
        self.assertEqual(after["processes"], 0)
        self.assertGreater(after["memory"], 0)

    def test_python_sees_names_and_leaves_a_result(self):
        world = self.world(2)
        set_it = {"call": "setenv", "name": "ALLRANKS_TEST", "value": "7"}
        source = "import os\nsize = dist.get_world_size(group('world'))\n"
        source += "result = [rank, world_size, size, os.environ.get('ALLRANKS_TEST')]"
        look, unset = {"call": "python", "source": source}, {**set_it, "value": None}
        values = world.calls(set_it, look, unset, look)
        for rank, value in enumerate(values):
            self.assertEqual(value[1], [rank, 2, 2, "7"])
            self.assertEqual(value[3], [rank, 2, 2, None])

    def test_an_abort_ends_a_group(self):
        world = self.world(1)
        abort = {"call": "attempt", "inner": {"call": "abort", "group": "world"}}
        ((value,),) = world.calls(abort)
        self.assertEqual(value, {"raised": None, "value": None})


if __name__ == "__main__":
    unittest.main()
