"""The harness's side of the protocol in a few lines of Python, for the tests beside it."""

import os
import secrets
import select
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from allranks_rank.wire import Wire

PYTHON = Path(__file__).resolve().parents[1]
TOKEN = secrets.token_hex(8)


def free_port():
    """A port below the ephemeral range, where Gloo's own listeners live."""
    for port in iter(lambda: 15000 + secrets.randbelow(15000), None):
        with socket.socket() as sock:
            try:
                sock.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass


def said(wire):
    """A rank's next frame, but for what it tells of a call that takes long, which may come at any time."""
    while (frame := wire.receive())[0]["frame"] == "recorder":
        pass
    return frame


def environment(**more):
    """A small environment for a rank or a zygote."""
    base = {name: os.environ[name] for name in ("PATH", "HOME", "LD_LIBRARY_PATH") if name in os.environ}
    return base | {"PYTHONPATH": str(PYTHON), "RES_OPTIONS": "attempts:0", "ALLRANKS_TOKEN": TOKEN} | more


class Folder(tempfile.TemporaryDirectory[str]):
    """A short-named folder for sockets and logs."""

    def path(self, name):
        return os.path.join(self.name, name)


class Listener:
    """A control address."""

    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.bind(path)
        self.sock.listen(512)
        self.address = f"unix:{path}"

    def accept(self, timeout=60):
        self.sock.settimeout(timeout)
        sock, _ = self.sock.accept()
        sock.settimeout(timeout)
        return Wire(sock)

    def close(self):
        self.sock.close()


class Zygote:
    """A running zygote and what it has said about its ranks."""

    def __init__(self, folder, **env):
        self.listener = Listener(folder.path("zygote"))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "allranks_rank.zygote"],
            env=environment(ALLRANKS_CONTROL=self.listener.address, **env),
            stdin=subprocess.DEVNULL,
        )
        self.wire = self.listener.accept()
        self.hello, _ = self.wire.receive()
        self.next = 0
        self.pids = {}
        self.ends = {}

    def fork(self, env, log):
        name = self.next
        self.next += 1
        self.wire.send({"frame": "fork", "id": name, "env": env, "stdout": log, "stderr": log})
        return name

    def kill(self, name, signal=9):
        self.wire.send({"frame": "kill", "id": name, "signal": signal})

    def listen(self, until, timeout=60):
        """Reads frames until ``until()``."""
        limit = time.monotonic() + timeout
        while not until():
            while (frame := self.wire.take()) is None:
                if not select.select([self.wire.sock], [], [], max(0, limit - time.monotonic()))[0]:
                    raise TimeoutError(f"no word from the zygote; ended: {self.ends}")
                self.wire.fill()
            frame = frame[0]
            if frame["frame"] == "forked":
                self.pids[frame["id"]] = frame["pid"]
            elif frame["frame"] == "exited":
                self.ends[frame["id"]] = frame
            else:
                raise AssertionError(frame)

    def ended(self, names, timeout=60):
        """Waits for ranks to end; their ``exited`` frames, in order."""
        self.listen(lambda: all(name in self.ends for name in names), timeout)
        return [self.ends[name] for name in names]

    def close(self):
        self.wire.sock.close()
        self.listener.close()
        self.process.wait(20)


class World:
    """Ranks forked by a zygote, each with its connection, in rank order."""

    def __init__(self, zygote, folder, size, **env):
        self.zygote, self.size = zygote, size
        self.folder = folder
        self.path = folder.path(f"world{zygote.next}")
        listener = Listener(self.path)
        self.log = f"{self.path}.log"
        port = free_port()
        self.tokens = [f"{secrets.token_hex(8)}.{rank}" for rank in range(size)]
        self.names = [
            zygote.fork(
                environment(
                    ALLRANKS_CONTROL=listener.address,
                    ALLRANKS_TOKEN=self.tokens[rank],
                    RANK=str(rank),
                    WORLD_SIZE=str(size),
                    LOCAL_RANK=str(rank),
                    LOCAL_WORLD_SIZE=str(size),
                    MASTER_ADDR="127.0.0.1",
                    MASTER_PORT=str(port),
                    **env,
                ),
                self.log,
            )
            for rank in range(size)
        ]
        self.wires, self.hellos = [None] * size, [None] * size
        for _ in range(size):
            wire = listener.accept()
            hello, _ = wire.receive()
            self.wires[hello["rank"]], self.hellos[hello["rank"]] = wire, hello
        listener.close()
        os.unlink(self.path)
        self.steps = 0

    def send(self, per_rank):
        """Sends one step; ``per_rank(rank) -> (storages as bytes, tensors, calls)``."""
        for rank, wire in enumerate(self.wires):
            storages, tensors, calls = per_rank(rank)
            step = {
                "frame": "step",
                "step": self.steps,
                "storages": [len(each) for each in storages],
                "tensors": tensors,
                "calls": calls,
            }
            wire.send(step, storages)
        self.steps += 1

    def answer(self, rank):
        """One rank's next result and its storages, checking the frames before it."""
        wire = self.wires[rank]
        entered = []
        while True:
            header, length = said(wire)
            if header["frame"] == "enter":
                entered.append(header)
                continue
            assert header["frame"] == "result", header
            storages = [bytearray(each) for each in header["storages"]]
            assert length == sum(header["storages"])
            wire.read_into([memoryview(each) for each in storages])
            reached = [i for i, call in enumerate(header["calls"]) if call.get("enter")]
            assert [each["call"] for each in entered] == reached, (entered, header)
            return header["calls"], storages

    def step(self, per_rank):
        """Sends one step and collects every rank's ``(calls, storages)``."""
        self.send(per_rank)
        return [self.answer(rank) for rank in range(self.size)]

    def calls(self, *calls):
        """A step without tensors, the same on every rank; every call must return. Values, per rank."""
        answers = self.step(lambda rank: ([], [], list(calls)))
        for rank, (results, _) in enumerate(answers):
            for result in results:
                assert result["status"] == "ok", (rank, result)
        return [[result["value"] for result in results] for results, _ in answers]

    def init(self, timeout_s=20):
        """The default group, by the environment."""
        init = {"call": "init_process_group", "backend": "gloo", "method": "env", "timeout_s": timeout_s}
        prepare = {"call": "prepare", "import": [], "device": "cpu"}
        for rank, wire in enumerate(self.wires):
            calls = [prepare, {**init, "rank": rank, "world_size": self.size}]
            empty = {"storages": [], "tensors": []}
            wire.send({"frame": "step", "step": self.steps, "calls": calls, **empty})
            if rank == 0:
                # Rank 0 hosts the store. A client that dials too early sleeps for half a second.
                select.select([wire.sock], [], [], timeout_s)
                time.sleep(0.005)
        self.steps += 1
        answers = [self.answer(rank) for rank in range(self.size)]
        return [results[-1] for results, _ in answers]

    def finish(self):
        """Ends the world in good order; the ``exited`` frames."""
        for wire in self.wires:
            wire.send({"frame": "finish"})
        for wire, token in zip(self.wires, self.tokens, strict=True):
            header, _ = said(wire)
            assert header == {"frame": "bye", "steps": self.steps, "token": token}, header
        ends = self.zygote.ended(self.names)
        self.close()
        return ends

    def close(self):
        for wire in self.wires:
            wire.sock.close()
