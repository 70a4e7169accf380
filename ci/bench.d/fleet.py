"""A run with many node agents, all of them pretended by one process, and what it took."""

import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


class Fleet:
    """One run with this many agents, of as many ranks each; `stopped`, if a rank is given, seems to be stopped."""

    def __init__(self, bench, ended, agents, ranks_each, stopped=None):
        name = f"fleet{agents}" if stopped is None else f"fleet{agents}-{stopped}"
        credentials = bench.folder / f"{name}.credentials"
        version = subprocess.run([bench.allranks, "--version"], capture_output=True, text=True, check=True)
        words = [sys.executable, HERE / "pretended_agents.py", credentials, agents, version.stdout.split()[-1]]
        pretended = subprocess.Popen([str(word) for word in words + ([] if stopped is None else [stopped])])
        out = bench.folder / name
        argv = [bench.allranks, "run", HERE / "fleet.yaml", "--world-size", agents * ranks_each]
        argv += ["--launcher", "attached", "--nodes", agents, "--require", f"nodes={agents}"]
        argv += ["--credentials", credentials, "--driver", "command:none", "--out", out]
        try:
            self.ended = ended(argv, codes=(0, 1))
        finally:
            pretended.terminate()
            pretended.wait()
        with open(out / "results.jsonl") as file:
            records = [json.loads(line) for line in file]
        #: The checks' summaries, by outcome.
        self.outcomes = {}
        for one in records:
            if one["type"] == "check":
                self.outcomes.setdefault(one["outcome"], []).append(one)
        #: Seconds of the scenario, from the launch of the first rank to the end of the last.
        self.seconds = sum(one["duration_ms"] for one in records if one["type"] == "scenario") / 1000
