"""The call trace that `allranks watch` puts into programs. A module with the names of torch's stands in for torch."""

import gc
import json
import os
import queue
import socket
import socketserver
import subprocess
import sys
import threading
import time
import unittest
import unittest.mock
from pathlib import Path
from types import SimpleNamespace

sys.path.append(str(Path(__file__).resolve().parents[1] / "allranks_watch"))

import allranks_patch  # noqa: E402
import allranks_trace  # noqa: E402
from allranks_entry import place_of_store  # noqa: E402
from allranks_frames import current_frames, files_of, main_frame  # noqa: E402
from allranks_loop import loop_of  # noqa: E402
from allranks_place import (  # noqa: E402
    awaited_connection,
    awaited_threads,
    current_call,
    is_serving,
    kind_of_place,
)
from allranks_recorder import Recorder  # noqa: E402
from allranks_trace import KEPT, POLLED, RECENT, CallTrace  # noqa: E402

from .fake_harness import Folder  # noqa: E402

THREADS = 8
CALLS = 2000


class Work:
    is_over = False

    def wait(self):
        return True

    def is_completed(self):
        return self.is_over


def library(size=2):
    """What the trace sees of ``torch.distributed.distributed_c10d``: a world, and collectives that return at once."""
    world = SimpleNamespace(default_pg="pg", pg_names={"pg": "0"}, pg_group_ranks={"pg": {r: r for r in range(size)}})
    kind = type("Work", (Work,), {})
    return SimpleNamespace(
        _world=world,
        ReduceOp=SimpleNamespace(SUM=SimpleNamespace(name="SUM")),
        Work=kind,
        barrier=lambda group=None, async_op=False: None,
        isend=lambda tensor, dst=None, group=None, tag=0: kind(),
    )


class CallTraceTest(unittest.TestCase):
    def setUp(self):
        self.folder = Folder(prefix="ar")
        self.addCleanup(self.folder.cleanup)
        # Tests look at the frames as the heartbeat does, and one of the two could switch the collector on while the
        # other looks: see `current_frames`.
        gc.disable()
        self.addCleanup(gc.enable)
        self.trace = CallTrace(self.folder.name)
        self.addCleanup(self.trace.end)
        self.addCleanup(sys.setswitchinterval, sys.getswitchinterval())

    def read(self):
        """The file as `allranks watch` reads it, once the trace has ended."""
        self.trace.end()
        return json.loads(Path(self.folder.path(f"{os.getpid()}.json")).read_text())

    def test_calls_of_many_threads_are_counted_one_by_one(self):
        module = library()
        allranks_patch.patch(self.trace, module)
        sys.setswitchinterval(1e-6)
        gate = threading.Barrier(THREADS)

        def run():
            gate.wait()
            for _ in range(CALLS):
                module.barrier()

        threads = [threading.Thread(target=run) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        total = THREADS * CALLS
        written = self.read()
        (group,) = written["groups"].values()
        self.assertEqual((group["count"], written["moves"]), (total, 2 * total))
        self.assertEqual((len(written["entries"]), written["dropped"]), (KEPT, total - KEPT))
        ids = [entry["id"] for entry in written["entries"]]
        numbers = [entry["number"] for entry in written["entries"]]
        self.assertEqual(ids, list(range(total - len(ids) + 1, total + 1)))
        self.assertEqual(sorted(set(numbers)), sorted(numbers))
        self.assertIsNone(written["inside"])

    def recorder(self):
        """A recorder whose counts never change, and its entries."""
        entries = []

        def record(with_entries, _):
            counts = {"pg_status": {"0": {"last_enqueued_collective": "-1"}}}
            return json.dumps(counts | ({"entries": entries} if with_entries else {}))

        recorder = Recorder(lambda: self.folder.path("1.json"), lambda *_: None)
        recorder.functions = {"_dump_nccl_trace_json": record}
        recorder.find = recorder.known
        recorder.PAUSE, recorder.STILL = 0, 0
        return recorder, entries

    def test_what_the_recorder_does_not_count_is_counted_from_its_record(self):
        recorder, entries = self.recorder()
        recorder.look()
        recorder.look()
        entries.append({"process_group": ["0", "default_pg"], "collective_seq_id": 1, "state": "completed"})
        recorder.look()
        self.assertEqual((recorder.head()["counted"], recorder.of_record), (True, {}))
        with unittest.mock.patch.dict(os.environ, TORCH_NCCL_BLOCKING_WAIT="1"):
            recorder.look()
            recorder.look()
            head = recorder.head()
        counts = {"last_enqueued_collective": 1, "last_completed_collective": 1}
        self.assertEqual((head["counted"], head["dumped"]["record.0"]), (False, counts))
        written = json.loads(Path(self.folder.path("1.json.recorder")).read_text())
        self.assertEqual(len(written["entries"]), 1)

    def test_while_calls_are_made_the_newest_are_written_and_all_once_none_comes(self):
        module = library()
        allranks_patch.patch(self.trace, module)
        path = Path(self.folder.path(f"{os.getpid()}.json"))
        total = 3 * RECENT
        for _ in range(total):
            module.barrier()
        with self.trace.file_lock:
            self.trace.write(str(path), None, is_whole=False)
            written = json.loads(path.read_text())
        self.assertEqual([entry["id"] for entry in written["entries"]], list(range(total - RECENT + 1, total + 1)))
        self.assertEqual((written["dropped"], written["moves"]), (total - RECENT, 2 * total))
        # The heartbeat finds that no call has come.
        until = time.monotonic() + 60
        while len(written["entries"]) < total and time.monotonic() < until:
            time.sleep(0.05)
            written = json.loads(path.read_text())
        self.assertEqual((len(written["entries"]), written["dropped"]), (total, 0))
        module.barrier()
        self.assertEqual(self.read()["entries"][-1]["number"], total)

    def test_the_wait_for_a_message_is_no_new_entry(self):
        module = library()
        allranks_patch.patch(self.trace, module)
        seen = []
        module.Work.wait = allranks_patch.wrap_wait(self.trace, lambda work: seen.append(dict(self.trace.inside)))
        work = module.isend("tensor", 1, tag=7)
        self.assertIsInstance(work, module.Work)
        work.wait()
        ((inside, _),) = seen[0].values()
        self.assertEqual((inside["what"], inside["waits"]), ("message", True))
        (entry,) = self.read()["entries"]
        self.assertEqual(inside["id"], entry["id"])
        self.assertEqual((entry["sends"], entry["peer"], entry["tag"], entry["group"]), (True, 1, 7, "0.0"))
        self.assertEqual(entry["at"].split(":")[0].rsplit("/", 1)[-1], "test_call_trace.py")

    def test_an_error_is_kept_until_a_call_returns(self):
        module = library()

        def refuse(group=None, async_op=False):
            raise RuntimeError("no such backend")

        barrier, module.barrier = module.barrier, refuse
        allranks_patch.patch(self.trace, module)
        with self.assertRaisesRegex(RuntimeError, "no such backend"):
            module.barrier()
        self.assertEqual(self.trace.errors, ["RuntimeError: no such backend"])
        allranks_patch.wrap(self.trace, module, "barrier", barrier)()
        self.assertEqual(self.read()["errors"], [])

    def test_a_forked_process_has_a_trace_of_its_own(self):
        module = library()
        allranks_patch.patch(self.trace, module)
        module.barrier()
        pid = os.fork()
        if pid == 0:
            self.trace.reset()  # as `begin` has every forked process do
            module.barrier()
            self.trace.end()
            os._exit(0)
        os.waitpid(pid, 0)
        child = json.loads(Path(self.folder.path(f"{pid}.json")).read_text())
        for written in child, self.read():
            self.assertEqual((written["moves"], [entry["number"] for entry in written["entries"]]), (2, [0]))
        self.assertEqual(child["pid"], pid)

    def test_a_look_at_the_frames_ends_though_the_garbage_collector_lets_other_threads_run(self):
        script = """if True:
            import gc, os, threading, time
            from allranks_frames import current_frames

            def start_threads():
                while True:
                    thread = threading.Thread(target=int)
                    thread.start()
                    thread.join()

            def look(depth):
                return look(depth - 1) if depth else current_frames()

            threading.Thread(target=start_threads, daemon=True).start()
            gc.callbacks.append(lambda *_: time.sleep(0.001))
            gc.set_threshold(1)
            for _ in range(50):
                look(5)
            assert gc.isenabled()
            os._exit(0)
        """
        environment = {**os.environ, "PYTHONPATH": os.path.dirname(allranks_patch.__file__)}
        end = subprocess.run([sys.executable, "-c", script], env=environment, timeout=300, check=False)
        self.assertEqual(end.returncode, 0)

    def settle(self, run, kind):
        """Runs a function on a thread until its place is of this kind; returns whether that waits for requests."""
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        while kind_of_place(frame := current_frames()[thread.ident]) != kind:
            time.sleep(0.01)
        return is_serving(frame)

    def test_a_wait_for_a_queue_for_a_request_and_for_a_process_are_told_apart(self):
        batches = queue.Queue()
        self.addCleanup(batches.put, None)
        self.assertFalse(self.settle(lambda: batches.get(), "lock"))
        server = socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        self.assertTrue(self.settle(lambda: server.serve_forever(1), "requests"))
        child = subprocess.Popen(["sleep", "100"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertFalse(self.settle(lambda: child.communicate(), "child process"))
        child.kill()
        ours, theirs = socket.socketpair()
        self.addCleanup(theirs.close)
        self.assertFalse(self.settle(lambda: ours.makefile("rb").readline(), "connection"))

    def test_the_ends_of_a_connection_that_the_main_thread_reads_from_are_told(self):
        server = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(server.close)
        told = []

        def look():
            while not told or told[-1] is None:
                told.append(awaited_connection())
            server.accept()[0].sendall(b"done\n")

        with socket.create_connection(server.getsockname()) as ours:
            ends = ["{}:{}".format(*end) for end in (ours.getsockname(), ours.getpeername())]
            looker = threading.Thread(target=look)
            looker.start()
            ours.makefile("rb").readline()
            looker.join()
        self.assertEqual(told[-1], ends)
        self.assertIsNone(awaited_connection())

    def look_at_wait(self, wait, other):
        """Waits so in another Python, beside one thread that does `other` and is told to be in a call.

        If `wait` calls `other_starts`, it is the first of `threads` instead. Returns the kind of place, and what the
        process counts as in.
        """
        script = f"""if True:
            import os, queue, threading, time
            import allranks_trace

            threads = []

            def other_starts():
                global other
                while not threads:
                    time.sleep(0.01)
                other = threads[0]

            def look():
                while not allranks_trace.current_line()[2] or other.ident is None:
                    time.sleep(0.01)
                time.sleep(0.2)
                call = allranks_trace.current_call({{other.ident: ("call", 0.0)}}, None, set())
                print(allranks_trace.current_line()[2], call and call[0], flush=True)
                os._exit(0)

            event, items = threading.Event(), queue.Queue({2 if "items.put(0)" in wait else 0})
            other = threading.Thread(target=lambda: {other})
            other.start()
            threading.Thread(target=look, daemon=True).start()
            {wait}
        """
        environment = {**os.environ, "PYTHONPATH": os.path.dirname(allranks_patch.__file__)}
        end = subprocess.run(
            [sys.executable, "-c", script], env=environment, timeout=60, check=True, stdout=subprocess.PIPE
        )
        return end.stdout.decode().strip()

    def test_a_wait_for_a_device_is_told_from_one_without_an_accelerator(self):
        lock = threading.Lock()
        lock.acquire()
        self.addCleanup(lock.release)
        loss = SimpleNamespace(item=lock.acquire)
        thread = threading.Thread(target=lambda: loss.item(), daemon=True)
        thread.start()
        for is_used, kind in ((True, "device"), (False, "")):
            torch = SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda is_used=is_used: is_used))
            with unittest.mock.patch.dict(sys.modules, {"torch": torch}):
                while files_of(frame := current_frames()[thread.ident])[0][1] != "<lambda>":
                    time.sleep(0.01)
                self.assertEqual(kind_of_place(frame), kind)

    def test_a_queue_that_a_thread_fills_is_told_from_one_beside_a_thread_that_does_something_else(self):
        fills = "items.put(threading.Event().wait())"
        self.assertEqual(self.look_at_wait("items.get()", fills), "lock call")
        self.assertEqual(self.look_at_wait("items.get()", "threading.Event().wait()"), "lock None")
        self.assertEqual(self.look_at_wait("items.get()", "queue.Queue().put(threading.Event().wait())"), "lock None")
        empties = "items.put(0) or items.put(0) or queue.Queue().get(items.get)"
        self.assertEqual(self.look_at_wait("time.sleep(0.1); items.put(0)", empties), "lock call")
        path = Path(self.folder.path("pauses.py"))
        path.write_text("import time\ntime.sleep(100)\n")
        pauses = f"items.put(__import__('runpy').run_path({str(path)!r}))"
        self.assertEqual(self.look_at_wait("items.get()", pauses), "handover call")

    def test_a_thread_that_is_to_set_an_event_is_told_from_one_that_does_something_else(self):
        sets = "event.set(threading.Event().wait())"
        self.assertEqual(self.look_at_wait("event.wait()", sets), "lock call")
        self.assertEqual(self.look_at_wait("event.wait()", "threading.Event().wait()"), "lock None")
        # The wait may end by itself, or another thread end it.
        self.assertEqual(self.look_at_wait("event.wait(100)", sets), "lock None")
        third = "threading.Thread(target=threading.Event().wait).start()"
        self.assertEqual(self.look_at_wait(f"{third}; event.wait()", sets), "lock None")

    def test_a_thread_that_is_joined_is_told_from_one_beside_it(self):
        waits = "threading.Event().wait()"
        self.assertEqual(self.look_at_wait("other.join()", waits), "lock call")
        beside = "beside = threading.Thread(target=threading.Event().wait, daemon=True); beside.start()"
        self.assertEqual(self.look_at_wait(f"{beside}; beside.join()", waits), "lock None")
        # The joined thread waits for the one that is in a call.
        follows = "beside = threading.Thread(target=other.join); beside.start()"
        self.assertEqual(self.look_at_wait(f"{follows}; beside.join()", waits), "lock call")

    def test_a_future_that_a_thread_computes_is_told_from_another(self):
        pool = "from concurrent.futures import ThreadPoolExecutor as Pool; pool = Pool(2)"
        submit = "pool.submit(lambda: threads.append(threading.current_thread()) or threading.Event().wait())"
        for result, expected in (("one.result()", "lock call"), ("pool.submit(time.sleep, 100).result()", "lock None")):
            wait = f"{pool}; one = {submit}; other_starts(); {result}"
            self.assertEqual(self.look_at_wait(wait, "None"), expected)

    def look_at_loop(self, wait):
        """Runs a coroutine with this body in another Python; returns the function that it waits in, and its kind."""
        script = f"""if True:
            import asyncio, os, threading, time
            import allranks_place

            async def waits(loop):
                {wait}

            async def run():
                await asyncio.wait_for(waits(asyncio.get_running_loop()), None)

            def look():
                while not allranks_place.current_line()[2]:
                    time.sleep(0.01)
                time.sleep(0.2)
                name, _, kind = allranks_place.current_line()
                print(name, kind, flush=True)
                os._exit(0)

            threading.Thread(target=look).start()
            asyncio.run(run())
        """
        environment = {**os.environ, "PYTHONPATH": os.path.dirname(allranks_patch.__file__)}
        end = subprocess.run(
            [sys.executable, "-c", script], env=environment, timeout=300, check=True, stdout=subprocess.PIPE
        )
        return tuple(end.stdout.decode().strip().split(" ", 1))

    def test_the_thread_whose_end_the_main_thread_waits_for_is_told(self):
        gate, told = threading.Event(), []
        worker = threading.Thread(target=gate.wait, name="writer", daemon=True)
        worker.start()

        def look():
            until = time.monotonic() + 60
            while not told and time.monotonic() < until:
                told.extend(awaited_threads())
            gate.set()

        looker = threading.Thread(target=look, daemon=True)
        looker.start()
        worker.join()
        looker.join()
        ((name, text, at),) = told
        self.assertEqual(name, "writer")
        self.assertIn("threading.py:", at)
        self.assertTrue(text)
        self.assertEqual([], awaited_threads())

    def test_the_end_of_a_program_is_told_with_the_threads_that_keep_it(self):
        program = """
import sys, threading, time
sys.path.insert(0, sys.argv[1])
import allranks_frames, allranks_place
def watch():
    while not allranks_frames.is_finished():
        time.sleep(0.01)
    threads = []
    while not threads:
        threads = allranks_place.awaited_threads()
    print(*(name for name, _, _ in threads), flush=True)
    gate.set()
gate = threading.Event()
threading.Thread(target=watch, daemon=True).start()
threading.Thread(target=gate.wait, name="kept").start()
print(allranks_frames.is_finished(), flush=True)
"""
        folder = str(Path(allranks_trace.__file__).parent)
        ran = subprocess.run([sys.executable, "-c", program, folder], capture_output=True, text=True, timeout=120)
        self.assertEqual((ran.stdout.split(), ran.returncode), (["False", "kept"], 0), ran.stderr)

    def test_the_error_that_ends_a_process_of_multiprocessing_is_recorded(self):
        program = """
import multiprocessing, os, sys
sys.path.insert(0, sys.argv[1])
import allranks_patch
def fails():
    raise MemoryError("no memory")
def leaves():
    try:
        fails()
    except MemoryError:
        sys.exit(1)
def ends():
    sys.exit(0)
def tell(target):
    print(f"{target.__name__}: {trace.fatal}", flush=True)
if __name__ == "__main__":
    import multiprocessing.util
    os.environ["RANK"] = "0"
    allranks_patch.begin(sys.argv[2])
    allranks_patch.patch_exit(trace := allranks_patch.CallTrace(sys.argv[2]), multiprocessing.util)
    context = multiprocessing.get_context("fork")
    for target in (fails, leaves, ends):
        def told(target=target):
            try:
                target()
            finally:
                multiprocessing.util.Finalize(None, tell, (target,), exitpriority=0)
        process = context.Process(target=told)
        process.start()
        process.join()
"""
        folder = str(Path(allranks_trace.__file__).parent)
        ran = subprocess.run(
            [sys.executable, "-c", program, folder, self.folder.name], capture_output=True, text=True, timeout=120
        )
        told = ["fails: MemoryError: no memory", "leaves: MemoryError: no memory", "ends: None"]
        self.assertEqual(ran.stdout.splitlines(), told, ran.stderr)

    def test_the_heartbeat_imports_nothing_so_that_a_fork_meanwhile_leaves_no_lock(self):
        program = """
import asyncio, os, sys, time
sys.path.insert(0, sys.argv[1])
import allranks_patch
os.environ["RANK"] = "0"
allranks_patch.begin(sys.argv[2])
before = set(sys.modules)
async def wait():
    path = f"{sys.argv[2]}/{os.getpid()}.json"
    until = time.monotonic() + 60
    while not os.path.exists(path) and time.monotonic() < until:
        await asyncio.sleep(0.01)
    await asyncio.sleep(1)
asyncio.run(wait())
print(sorted(set(sys.modules) - before))
"""
        folder = str(Path(allranks_trace.__file__).parent)
        ran = subprocess.run(
            [sys.executable, "-c", program, folder, self.folder.name], capture_output=True, text=True, timeout=120
        )
        self.assertEqual(ran.stdout.strip(), "[]", ran.stderr)

    def test_an_event_loop_is_deserted_only_if_nothing_can_wake_it(self):
        self.assertEqual(self.look_at_loop("await loop.create_future()"), ("waits", "event loop"))
        for wait in (
            "await asyncio.sleep(100)",
            "server = await asyncio.start_server(print, '127.0.0.1', 0); await loop.create_future()",
            "await loop.run_in_executor(None, time.sleep, 100)",
        ):
            self.assertEqual(self.look_at_loop(wait), ("waits", "requests"), wait)

    def test_a_message_is_marked_whose_work_is_dropped_before_it_was_waited_for(self):
        def send(backend):
            module = library()
            module.get_backend = lambda group: backend
            allranks_patch.patch(self.trace, module)
            waited = module.isend("tensor", 1)
            waited.wait()
            del waited
            module.isend("tensor", 1)
            return module.isend("tensor", 1)

        def marks():
            return [entry.get("dropped") for entry in self.trace.entries]

        works = [send("gloo"), send("nccl")]
        # The heartbeat may hold the frames of a call for a moment, and with them its work.
        while not self.trace.entries[1].get("dropped"):
            time.sleep(0.01)
        self.assertEqual(marks(), [None, True, None, None, None, None])
        works.clear()
        while not self.trace.entries[2].get("dropped"):
            time.sleep(0.01)
        self.assertEqual(marks(), [None, True, True, None, None, None])
        self.assertEqual([entry.get("dropped") for entry in self.read()["entries"]], marks())

    def test_which_works_were_waited_for_is_recorded_and_when(self):
        module = library()
        allranks_patch.patch(self.trace, module)
        works = [module.isend("tensor", 1) for _ in range(3)]
        works[1].wait()
        works[2].is_completed()
        works[2].is_over = True
        works[2].is_completed()
        waited = {number: at for number, at, _ in self.read()["waited"]}
        self.assertEqual(list(waited), [2, 3])
        self.assertLess(self.trace.entries[2]["t"], waited[2])
        self.assertLessEqual(waited[2], waited[3])

    def test_a_work_of_a_batch_is_of_all_its_messages(self):
        module = library()
        together = module.Work()
        module.isend = lambda tensor, dst=None, group=None, tag=0: None
        module.batch_isend_irecv = lambda sends: [module.isend(*send) for send in sends] and [together]
        allranks_patch.patch(self.trace, module)
        module.isend("tensor", 1)
        module.batch_isend_irecv([("tensor", 1), ("tensor", 0)])[0].wait()
        self.assertEqual([number for number, *_ in self.read()["waited"]], [2, 3])

    def test_streams_of_collectives_and_of_waits_are_recorded(self):
        module = library()
        module.all_reduce = lambda tensor, async_op=False: module.Work()
        allranks_patch.patch(self.trace, module)
        stream = SimpleNamespace(stream_id=7)
        cuda = SimpleNamespace(is_initialized=lambda: True, current_stream=lambda: stream)
        with unittest.mock.patch.dict(sys.modules, {"torch": SimpleNamespace(cuda=cuda)}):
            work = module.all_reduce("tensor", async_op=True)
            stream.stream_id = 0
            work.wait()
        written = self.read()
        self.assertEqual((written["entries"][0]["stream"], written["entries"][0]["async_op"]), (7, True))
        self.assertEqual([stream for _, _, stream in written["waited"]], [0])

    def test_a_work_that_is_looked_at_again_and_again_is_waited_for(self):
        module = library()
        allranks_patch.patch(self.trace, module)
        works = [module.isend("tensor", 1) for _ in range(2)]
        for _ in range(POLLED):
            self.assertEqual([work.is_completed() for work in works], [False, False])
        entry, _ = self.trace.polled()
        self.assertEqual((entry["id"], entry["waits"]), (1, True))
        works[0].is_over = True
        [work.is_completed() for work in works]
        self.assertIsNone(self.trace.polled())

    def test_calls_of_a_thread_are_marked_and_its_end_is_told(self):
        module = library()
        allranks_patch.patch(self.trace, module)
        module.isend("tensor", 1)
        gate = threading.Event()
        for ends in (True, False):
            thread = threading.Thread(target=lambda: (module.isend("tensor", 1), ends or gate.wait()), daemon=True)
            thread.start()
            while len(self.trace.entries) < (2 if ends else 3):
                time.sleep(0.01)
        written = self.read()
        gate.set()
        self.assertEqual([entry.get("thread") for entry in written["entries"]], [None, 0, 1])
        self.assertEqual(written["ended_threads"], [0])

    def test_a_group_that_the_program_makes_by_itself_is_a_wait_for_the_keys_of_its_members(self):
        module = library()
        inside = []
        make = lambda self, store, rank, size, timeout=None: inside.append(self_trace.inside.copy())  # noqa: E731
        self_trace = self.trace
        module.ProcessGroupGloo = type("ProcessGroupGloo", (), {"__init__": make})
        module.Store = type("Store", (), {})
        module.PrefixStore = type("PrefixStore", (), {"__init__": lambda self, *args: None})
        allranks_patch.patch(self.trace, module)
        module.ProcessGroupGloo(SimpleNamespace(host="node0", port=7), 1, 2)
        ((entry, _),) = inside[0].values()
        keys = ["process group at node0:7, rank 0", "process group at node0:7, rank 1"]
        self.assertEqual((entry["what"], entry["keys"]), ("store", keys))
        written = self.read()
        self.assertEqual(written["keys_set"], keys[1:])
        self.assertEqual(list(written["reads"].values()), [[1, [keys]]])

    def test_what_the_members_of_an_all_to_all_exchange_is_recorded(self):
        module = library()
        module.all_to_all_single = lambda output, input, output_split_sizes=None, input_split_sizes=None: None  # noqa: A006
        module.all_to_all = lambda output_tensor_list, input_tensor_list: None
        allranks_patch.patch(self.trace, module)
        rows = SimpleNamespace(shape=(6, 3), numel=lambda: 18, dtype="torch.float32")
        row = SimpleNamespace(shape=(3,), numel=lambda: 3, dtype="torch.float32")
        module.all_to_all_single(rows, rows, [1, 5], input_split_sizes=[])
        module.all_to_all([row, rows], [rows, row])
        splits = [entry["splits"] for entry in self.read()["entries"]]
        self.assertEqual(splits[0], {"sends": [9, 9], "receives": [3, 15]})
        self.assertEqual(splits[1], {"sends": [18, 3], "receives": [3, 18]})

    def test_a_split_is_a_call_of_all_ranks_of_the_parent_group(self):
        module = library()
        module.split_group = lambda parent_pg=None, split_ranks=None: None
        allranks_patch.patch(self.trace, module)
        module.barrier()
        module.split_group(split_ranks=[[0, 1]])
        module.barrier()
        entries = self.read()["entries"]
        named = [(entry["name"], entry["group"], entry["number"]) for entry in entries]
        self.assertEqual(named, [("barrier", "0.0", 0), ("split_group", "0.0", 1), ("barrier", "0.0", 2)])

    def test_the_end_of_the_last_call_is_written(self):
        module = library()
        allranks_patch.patch(self.trace, module)
        before = time.time()
        module.barrier()
        after = time.time()
        self.assertTrue(before <= self.read()["left"] <= after)

    def test_a_store_is_known_by_the_prefixes_of_its_keys(self):
        class PrefixStore:
            def __init__(self, prefix, store):
                self.underlying_store = store

        module = library()
        module.PrefixStore = PrefixStore
        allranks_patch.patch(self.trace, module)
        server = SimpleNamespace(host="node1", port=29500)
        store = PrefixStore("job", PrefixStore(prefix="run", store=server))
        self.assertEqual(place_of_store(store), "node1:29500/job/run")
        self.assertEqual(place_of_store(server), "node1:29500")

    def test_reads_of_the_same_keys_are_a_poll_until_something_else_is_called(self):
        class Store:
            def __init__(self):
                self.counts = {}

            def add(self, key, amount):
                self.counts[key] = self.counts.get(key, 0) + amount
                return self.counts[key]

            def check(self, keys):
                return all(key in self.counts for key in keys)

            def delete_key(self, key):
                return self.counts.pop(key, None) is not None

        module = library()
        module.Store = Store
        allranks_patch.patch(self.trace, module)
        store = Store()
        store.add("of a launcher", 1)
        self.trace.epoch = 1
        store.add("round/1", 1)
        for _ in range(POLLED - 1):
            store.add("round/1", 0)
        self.assertIsNone(self.trace.polled())
        moves = self.trace.moves
        for _ in range(20):
            store.add("round/1", 0)
        self.assertEqual(self.trace.moves, moves, "it is no progress")
        call = current_call({}, self.trace.polled(), set())
        self.assertEqual(call[0]["keys"], ["round/1"])
        store.check(["go"])
        self.assertIsNone(self.trace.polled())
        for _ in range(POLLED):
            store.check(["go"])
        self.assertEqual(self.trace.polled()[0]["keys"], ["go"])
        module.barrier()
        self.assertIsNone(self.trace.polled())
        for _ in range(POLLED):
            store.check(["go"])
        # Reads that are overdue are no poll any more.
        poll = self.trace.poll
        poll.since, poll.last = poll.since - 60, poll.last - 60
        self.assertIsNone(self.trace.polled())
        self.assertEqual(self.read()["keys_set"], ["round/1"])
        store.add("kept", 1)
        for key in "round/1", "kept":
            store.delete_key(key)
        store.add("kept", 1)
        self.assertEqual(self.read()["keys_deleted"], ["round/1"])

    def test_the_error_of_a_polled_read_has_no_frame_of_the_trace(self):
        class Store:
            def check(self, keys):
                if self.fails:
                    raise ConnectionError("reset by peer")

        module = library()
        module.Store = Store
        allranks_patch.patch(self.trace, module)
        store = Store()
        store.fails = False
        self.trace.epoch = 1
        for _ in range(POLLED):
            store.check(["go"])
        store.fails = True
        names = []
        try:
            store.check(["go"])
        except ConnectionError as error:
            tb = allranks_patch.cut_own_frames(error.__traceback__)
            while tb is not None:
                names.append(os.path.basename(tb.tb_frame.f_code.co_filename))
                tb = tb.tb_next
        self.assertEqual(names, [os.path.basename(__file__)] * 2)

    def test_an_error_that_nobody_looks_at_counts_if_its_task_has_made_calls(self):
        import asyncio

        module = library()
        allranks_patch.patch(self.trace, module)
        told = {}

        async def step(fails):
            module.barrier()
            raise RuntimeError(fails)

        async def other():
            raise ValueError("of no rank's concern")

        def look():
            # Once a loop waits, as the heartbeat would see it.
            while loop_of(main_frame()) is None:
                time.sleep(0.01)
            self.trace.note_lost_tasks()
            told["lost"], told["errors"] = self.trace.lost, list(self.trace.errors)

        async def serve():
            tasks = [asyncio.create_task(one) for one in (step("lost"), step("seen"), other())]
            await asyncio.wait(tasks)
            tasks[1].exception()
            thread = threading.Thread(target=look)
            thread.start()
            while thread.is_alive():
                await asyncio.sleep(0.05)
            tasks[0].exception(), tasks[2].exception()

        asyncio.run(serve())
        self.assertEqual(told, {"lost": "RuntimeError: lost", "errors": ["RuntimeError: lost"]})

    def test_calls_of_rpc_name_the_ranks_that_they_wait_for(self):
        workers = {name: SimpleNamespace(name=name, id=number) for number, name in enumerate(["server", "trainer"])}
        agent = SimpleNamespace(
            get_worker_info=lambda name="trainer": workers[name], get_worker_infos=lambda: list(workers.values())
        )
        seen = []

        def record(*args, **kwargs):
            (inside,) = self.trace.inside.values()
            seen.append((inside[0]["text"], inside[0]["to"]))

        def shutdown(graceful=True):
            module.rpc_sync("server", print)  # what a shutdown calls is not the program's

        module = SimpleNamespace(_get_current_rpc_agent=lambda: agent, rpc_sync=record, shutdown=shutdown)
        allranks_patch.patch_rpc(self.trace, module)
        module.rpc_sync("server", print)
        module.shutdown()
        self.assertEqual(seen, [("rpc_sync to server", [0]), ("rpc.shutdown", [0])])
        self.assertEqual(self.trace.inside, {})

    def test_an_event_loop_that_sleeps_on_ready_callbacks_is_unwoken(self):
        import asyncio

        held = {}

        async def wait():
            held["loop"], held["queue"] = asyncio.get_running_loop(), asyncio.Queue()
            await held["queue"].get()

        thread = threading.Thread(target=lambda: asyncio.run(wait()), daemon=True)
        thread.start()

        def kind():
            return kind_of_place(current_frames().get(thread.ident))

        def comes(wanted):
            for _ in range(2000):
                if kind() == wanted:
                    return True
                time.sleep(0.01)
            return False

        while "queue" not in held or not held["queue"]._getters:
            time.sleep(0.01)
        self.assertTrue(comes("requests"))
        held["queue"].put_nowait(1)
        self.assertTrue(comes("unwoken event loop"))
        held["loop"].call_soon_threadsafe(lambda: None)
        thread.join()


if __name__ == "__main__":
    unittest.main()
