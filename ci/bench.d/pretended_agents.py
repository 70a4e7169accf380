"""Pretends to be many node agents with ranks, in one process.

`pretended_agents.py CREDENTIALS COUNT VERSION [STOPPED]`, with the version of allranks that the run has.

What the run does for them is real: connections inside TLS, frames, checks and verdicts. Here nothing is computed but the
sums of `all_reduce` on float32 and the meeting of `barrier`. The rank STOPPED seems to be stopped by a signal before the
first of those.
"""

import array
import asyncio
import collections
import hashlib
import hmac
import json
import resource
import ssl
import struct
import sys
import time

LENGTHS = struct.Struct("<IQ")


class Fleet:
    """The ranks of one world, on all agents of this process."""

    def __init__(self, stopped):
        self.stopped = stopped
        #: The number of ranks in the world.
        self.size = 0
        #: (world, step, call) -> rank -> its values.
        self.given = {}

    async def meet(self, key, rank, values):
        """Waits until every rank has entered, and returns the sums of their values."""
        meeting = self.given.setdefault(key, {"there": {}, "sums": asyncio.get_running_loop().create_future()})
        meeting["there"][rank] = values
        if len(meeting["there"]) == self.size:
            columns = zip(*meeting["there"].values(), strict=True)
            meeting["sums"].set_result([sum(column) for column in columns])
        return await meeting["sums"]


class Agent:
    """One agent."""

    def __init__(self, number, version, fleet, credentials):
        self.number, self.version, self.fleet, self.credentials = number, version, fleet, credentials
        self.beat_s = 5.0
        self.tasks = set()
        #: (world, rank) -> the number of steps that it has made.
        self.steps = collections.Counter()

    async def run(self):
        """Joins the run, and answers its frames until it ends."""
        host, port = self.credentials["addresses"][0].rsplit(":", 1)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        reader, self.writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=context)
        beats = None
        try:
            while True:
                header, payload = await self.receive(reader)
                if header["frame"] == "welcome":
                    self.beat_s = header["beat_ms"] / 1000
                    beats = asyncio.create_task(self.beat())
                if header["frame"] == "refused":
                    sys.exit(header["reason"])
                if header["frame"] == "finish":
                    return
                self.take(header, payload)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            for task in [*self.tasks, *([beats] if beats else [])]:
                task.cancel()
            self.writer.close()

    async def receive(self, reader):
        """Returns the next frame."""
        header, payload = LENGTHS.unpack(await reader.readexactly(LENGTHS.size))
        return json.loads(await reader.readexactly(header)), await reader.readexactly(payload)

    def send(self, header, payload=b""):
        """Sends a frame."""
        text = json.dumps(header).encode()
        self.writer.write(LENGTHS.pack(len(text), len(payload)) + text + payload)

    async def beat(self):
        """Sends heartbeats."""
        while True:
            self.send({"frame": "beat"})
            await asyncio.sleep(self.beat_s)

    def take(self, header, payload):
        """Handles a frame."""
        answer = getattr(self, "on_" + header["frame"], None)
        if answer is not None:
            answer(header, payload)

    def on_challenge(self, header, _):
        """Answers the challenge, to join the run."""
        proof = hmac.new(self.credentials["token"].encode(), header["nonce"].encode(), hashlib.sha256)
        facts = {
            "host": f"host{self.number}",
            "allranks": self.version,
            "system": "linux x86_64",
            "cores": 8,
            "python": "python3",
            "name_is_loopback": False,
            "interfaces": [["lo", "127.0.0.1"]],
            "address": "127.0.0.1",
            "place": self.number,
        }
        said = {"version": header["version"], "run": self.credentials["run"], "proof": proof.hexdigest(), "facts": facts}
        self.send({"frame": "join", **said})

    def on_confirm(self, header, _):
        """Confirms that the agent is alive."""
        self.send({"frame": "alive", "ask": header["ask"], "clock_us": time.time_ns() // 1000})

    def on_listen(self, header, _):
        """Pretends to listen at a port."""
        self.send({"frame": "listening", "ask": header["ask"], "ports": [1, 2]})

    def on_reach(self, header, _):
        """Pretends to reach every address."""
        found = {"address": header["addresses"][0], "interface": "lo", "failures": [], "took_us": 1}
        self.send({"frame": "reached", "ask": header["ask"], **found})

    def on_reserve(self, header, _):
        """Pretends to reserve ports."""
        ports = list(range(20000, 20000 + header["ports"]))
        self.send({"frame": "reserved", "ask": header["ask"], "ports": ports, "folder": "/tmp", "error": None})

    def on_launch(self, header, _):
        """Pretends to start ranks."""
        world = header["launch"]["world"]
        self.send({"frame": "launched", "ask": header["ask"], "error": None})
        for one in header["launch"]["ranks"]:
            self.fleet.size = int(one["env"]["WORLD_SIZE"])
            hello = {"version": 1, "token": "", "rank": one["rank"], "pid": 100000 + one["rank"], "driver": "pretended"}
            hello |= {"torch": "none", "clock": "one", "calls": ["prepare", "init_process_group", "all_reduce", "barrier"]}
            hello["calls"] += ["destroy_process_group", "sleep"]
            self.send({"frame": "hello", "world": world, "rank": one["rank"], "hello": hello})

    def on_rank(self, header, payload):
        """Passes a frame to a rank."""
        task = asyncio.create_task(self.step(header["world"], header["rank"], header["message"], payload))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def step(self, world, rank, message, payload):
        """Makes the step of a rank."""

        def say(frame, payload=b"", **fields):
            said = {"frame": frame, **fields}
            self.send({"frame": "rank", "world": world, "rank": rank, "message": said}, payload)

        if message["frame"] == "finish":
            say("bye", steps=self.steps[world, rank], token="")
            end = {"exited": {"code": 0, "left_behind": 0}}
            self.send({"frame": "ended", "world": world, "rank": rank, "end": end})
            return
        if message["frame"] != "step":
            return
        self.steps[world, rank] += 1
        storage, results = bytearray(payload), []
        for index, call in enumerate(message["calls"]):
            meets = call["call"] in ("all_reduce", "barrier")
            if meets and rank == self.fleet.stopped:
                return
            entered = time.monotonic_ns()
            say("enter", step=message["step"], call=index, ns=entered)
            value = None
            if call["call"] == "init_process_group":
                value = {"rank": rank, "world_size": self.fleet.size, "backend": call["backend"]}
            if meets:
                tensor = message["tensors"][call["tensor"]] if call["call"] == "all_reduce" else None
                values = array.array("f", bytes(storage))
                where = range(tensor["offset"], tensor["offset"] + tensor["shape"][0]) if tensor else range(0)
                sums = await self.fleet.meet((world, message["step"], index), rank, [values[at] for at in where])
                for at, value_there in zip(where, sums, strict=True):
                    values[at] = value_there
                storage[:] = values.tobytes()
            results.append({"status": "ok", "enter": entered, "leave": time.monotonic_ns(), "value": value})
        say("result", bytes(storage), step=message["step"], calls=results, storages=message["storages"])

    def on_look(self, header, _):
        """Reports that all processes are alive, and that one is stopped."""

        ranks = [rank for rank, _ in header["query"]["processes"]]
        processes = [[rank, "stopped" if rank == self.fleet.stopped else {"alive": 1}] for rank in ranks]
        sight = {"processes": processes, "strangers": [], "endpoints_without_listener": [], "memory": None}
        self.send({"frame": "seen", "ask": header["ask"], "sight": sight})

    def on_sweep(self, header, _):
        """Has nothing left."""
        self.send({"frame": "swept", "ask": header["ask"], "left": []})

    def on_signal(self, header, _):
        """Ends a rank."""
        end = {"signalled": header["signal"]}
        self.send({"frame": "ended", "world": header["world"], "rank": header["rank"], "end": end})

    def on_close(self, header, _):
        """Ends a world."""
        self.send({"frame": "closed", "world": header["world"]})


async def main():
    """Runs all agents."""
    while True:
        try:
            with open(sys.argv[1]) as file:
                credentials = json.load(file)
            break
        except (FileNotFoundError, json.JSONDecodeError):
            time.sleep(0.05)
    fleet = Fleet(int(sys.argv[4]) if len(sys.argv) > 4 else -1)
    agents = [Agent(number, sys.argv[3], fleet, credentials) for number in range(int(sys.argv[2]))]
    await asyncio.gather(*(agent.run() for agent in agents))


if __name__ == "__main__":
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(main())
