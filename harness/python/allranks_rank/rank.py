"""The rank's side of the rank protocol: hello, then one step after another, then bye.

This module knows frames and their order; `tensors` knows bytes, `calls` knows torch.
"""

import gc
import os
from functools import partial
from time import monotonic_ns
from typing import Any

from . import VERSION
from .errors import describe
from .process_exit import HangupWatch
from .wire import Wire, dial

#: Nanoseconds after which a call counts as slow, and the flight recorder is read. It must not be read while a
#: communicator of a device is being set up, which takes longer.
SLOW = 300_000_000
SLOW_ON_A_DEVICE = 3_000_000_000
#: The entry of a call that is not made, because an earlier one of its step raised.
NOT_REACHED = {"status": "not_reached"}


def clock() -> str:
    """Returns the name of the clock behind ``ns`` values: equal on ranks whose times can be compared."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return f"{file.read().strip()}/monotonic"
    except OSError:
        return f"{os.uname().nodename}/monotonic"


class Rank:
    """The state of one rank: its connection, and what its calls have made so far."""

    def __init__(self, wire: Wire) -> None:
        """Imports torch. The wire is already connected; the environment gives rank and token."""
        gc.disable()  # as in the zygote
        import torch

        from . import calls, recorder, tensors

        gc.enable()
        self.wire = wire
        self.token = os.environ["ALLRANKS_TOKEN"]
        self.state = calls.CallState()
        self.state.wait_for_go = self._wait_for_go
        self.names = list(calls.CALLS)
        self.make = calls.make
        self.make_storages = tensors.Storages
        self.pending = recorder.pending
        self.torch_version = str(torch.__version__)
        #: ``result`` frames sent.
        self.steps = 0
        #: Step of the call that the rank is in, and the clock when it entered it, in nanoseconds; None between steps.
        self._entered: tuple[int, int] | None = None
        #: The last call for which the flight recorder was read, in the form of `_entered`.
        self._reported: tuple[int, int] | None = None

    def hello(self) -> None:
        """Sends the first frame: which rank this is, and which calls it can make."""
        self.wire.send(
            {
                "frame": "hello",
                "version": VERSION,
                "token": self.token,
                "rank": int(os.environ["RANK"]),
                "pid": os.getpid(),
                "driver": "python",
                "torch": self.torch_version,
                "clock": clock(),
                "calls": self.names,
            }
        )

    def step(self, frame: dict[str, Any]) -> None:
        """Reads a step's payload, makes its calls, and sends how they went and every byte of every storage."""
        number, calls, state = frame["step"], frame["calls"], self.state
        storages = self.make_storages(frame["storages"])
        self.wire.read_into(storages.views)
        results: list[dict[str, Any]] = []
        error = None
        state.begin_step()
        try:
            state.remake = partial(storages.tensors, frame["tensors"], state.device)
            state.tensors = state.remake()
        except Exception as raised:
            # No call was made, so the first call of the step carries the error.
            error = {"status": "error", "error": describe(raised)}
            results.append(error)
        for index in range(len(results), len(calls)):
            if error is not None:
                results.append(NOT_REACHED)
                continue
            result = self._call(number, index, calls[index])
            results.append(result)
            if result["status"] == "error":
                error = result
        if results and (state.synchronize is not None or storages.on_device):
            self._read_back(storages, results, error)
        if state.mode is not None:
            state.mode.__exit__(None, None, None)
            state.mode = None
        self._entered = None
        self.wire.send(
            {"frame": "result", "step": number, "calls": results, "storages": frame["storages"]},
            storages.views,
        )
        # Now, not at the next step: the next frame may take long to come.
        state.end_step()
        self.steps += 1

    def _call(self, number: int, index: int, fields: dict[str, Any]) -> dict[str, Any]:
        """Sends ``enter`` and makes one call; returns the call's entry in the ``result`` frame."""
        now = monotonic_ns()
        self._entered = number, now
        self.wire.send(b'{"frame":"enter","step":%d,"call":%d,"ns":%d}' % (number, index, now))
        return self.make(self.state, fields, index)

    def _read_back(self, storages: Any, results: list[dict[str, Any]], error: dict[str, Any] | None) -> None:
        """Waits for the device and brings the storages back. An error of the wait is put on the last call made."""
        try:
            if self.state.synchronize is not None:
                self.state.synchronize()
        except Exception as raised:
            if error is None:
                results[-1].update(status="error", error=describe(raised))
        if self.state.shares_memory:
            storages.read_back()
        else:
            storages.read_each(self.state.tensors)

    def report_slow_call(self) -> None:
        """Sends the incomplete ops of the flight recorder, once for each slow call. Runs on the watch thread."""
        entered = self._entered
        if entered is None or entered == self._reported:
            return
        step, since = entered
        if monotonic_ns() - since < (SLOW_ON_A_DEVICE if self.state.synchronize else SLOW):
            return
        self._reported = entered
        if ops := self.pending():
            self.wire.send({"frame": "recorder", "step": step, "ops": ops})

    def _wait_for_go(self) -> None:
        """Reads one frame in the middle of a step.

        Raises:
            ValueError: it is not ``go``.
        """
        frame, _ = self.wire.receive()
        if frame["frame"] != "go":
            raise ValueError(f"expected the frame `go`, got {frame['frame']!r}")

    def serve(self) -> None:
        """Sends hello, then answers steps until ``finish``.

        Raises:
            ValueError: a frame that the protocol does not have.
            Closed: the harness closed the connection.
        """
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


def run() -> int:
    """Connects to the harness, runs one rank until its ``bye``, and returns its exit code.

    The environment gives the control address, the token and the rank.
    """
    wire = dial()
    watch = HangupWatch(wire.sock)
    rank = Rank(wire)
    watch.on_poll = rank.report_slow_call
    rank.serve()
    watch.stop()
    wire.send({"frame": "bye", "steps": rank.steps, "token": rank.token})
    wire.sock.close()
    return 0
