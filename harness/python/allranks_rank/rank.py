"""A rank's side of the conversation: hello, then step after step, then bye.

It knows frames and the order of things; `tensors` knows bytes, `calls` knows torch.
"""

import os
from functools import partial
from time import monotonic_ns

from . import VERSION
from .errors import describe
from .life import Watch
from .wire import dial

#: Nanoseconds after which a call takes long. Communicators of devices take their time, and must not be asked meanwhile.
SLOW = 300_000_000
SLOW_ON_A_DEVICE = 3_000_000_000
NOT_REACHED = {"status": "not_reached"}


def clock():
    """Names the clock behind ``ns`` values: equal on ranks whose times can be compared."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()}/monotonic"
    except OSError:
        return f"{os.uname().nodename}/monotonic"


class Rank:
    """The state of one rank: its connection, and what its calls have made so far."""

    def __init__(self, wire):
        from . import calls, recorder, tensors  # torch is imported here, after the connection stands

        self.wire = wire
        self.token = os.environ["ALLRANKS_TOKEN"]
        self.library = calls.Library()
        self.library.wait_for_go = self.wait_for_go
        self.calls = calls.CALLS
        self.make = calls.make
        self.Storages = tensors.Storages
        self.pending = recorder.pending
        self.steps = 0
        #: The step and the moment of the last call entered; none between steps.
        self.entered = self.told = None

    def hello(self):
        """The first frame: who is calling, and what it can do."""
        self.wire.send(
            {
                "frame": "hello",
                "version": VERSION,
                "token": self.token,
                "rank": int(os.environ["RANK"]),
                "pid": os.getpid(),
                "driver": "python",
                "torch": self.library.version,
                "clock": clock(),
                "calls": list(self.calls),
            }
        )

    def step(self, step):
        """Reads the payload, makes the calls, returns how they went and every byte of every storage."""
        number, calls, library = step["step"], step["calls"], self.library
        storages = self.Storages(step["storages"])
        self.wire.read_into(storages.views)
        results = []
        error = None
        library.begin_step()
        try:
            library.remake = partial(storages.tensors, step["tensors"], library.device)
            library.tensors = library.remake()
        except Exception as raised:
            # Nothing was called, so it is the first call that could not be made.
            error = {"status": "error", "error": describe(raised)}
            results.append(error)
        for index in range(len(results), len(calls)):
            if error is not None:
                results.append(NOT_REACHED)
                continue
            result = self.call(number, index, calls[index])
            results.append(result)
            if result["status"] == "error":
                error = result
        if results and (library.synchronize is not None or storages.on_device):
            error = self.settle(storages, results, error)
        if library.mode is not None:
            library.mode.__exit__(None, None, None)
            library.mode = None
        self.entered = None
        self.wire.send(
            {"frame": "result", "step": number, "calls": results, "storages": step["storages"]},
            storages.views,
        )
        # Forget tensors and works before the next step waits: a work kept alive is a buffer kept busy.
        library.tensors = library.works = ()
        library.remake = None
        self.steps += 1

    def call(self, number, index, call):
        """Makes one call. The harness is told before, should it never return."""
        now = monotonic_ns()
        self.entered = number, now
        self.wire.send(b'{"frame":"enter","step":%d,"call":%d,"ns":%d}' % (number, index, now))
        return self.make(self.library, call, index)

    def look(self):
        """Once for each call that takes long, on the watch thread: tells what the flight recorder has under way."""
        entered = self.entered
        if entered is None or entered == self.told:
            return
        step, since = entered
        if monotonic_ns() - since < (SLOW_ON_A_DEVICE if self.library.synchronize else SLOW):
            return
        self.told = entered
        if ops := self.pending():
            self.wire.send({"frame": "recorder", "step": step, "ops": ops})

    def wait_for_go(self):
        """Reads one frame, in the middle of a step: it must be `go`."""
        frame, _ = self.wire.receive()
        if frame["frame"] != "go":
            raise ValueError(f"a frame {frame['frame']!r} where `go` was due")

    def settle(self, storages, results, error):
        """Waits for the device and brings the storages back. A late error belongs to the last call that was made."""
        try:
            if self.library.synchronize is not None:
                self.library.synchronize()
        except Exception as raised:
            if error is None:
                error = results[-1]
                error.update(status="error", error=describe(raised))
        if self.library.shares_memory:
            storages.read_back()
        else:
            storages.read_each(self.library.tensors)
        return error

    def converse(self):
        """Answers frames until `finish`."""
        self.hello()
        while True:
            frame, length = self.wire.receive()
            if frame["frame"] == "step":
                if length != sum(frame["storages"]):
                    raise ValueError(f"payload of {length} bytes for storages {frame['storages']}")
                self.step(frame)
            elif frame["frame"] == "finish":
                return
            else:
                raise ValueError(f"unknown frame {frame['frame']!r}")


def run():
    """One rank from first to last; its exit code. The environment names harness, token and rank."""
    wire = dial()
    watch = Watch(wire.sock)
    rank = Rank(wire)
    watch.look = rank.look
    rank.converse()
    watch.stop()
    wire.send({"frame": "bye", "steps": rank.steps, "token": rank.token})
    wire.sock.close()
    return 0
