"""Runs a world on many node agents, all of which one process pretends to be."""

import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


def run(bench, agents, ranks_each, stopped=None):
    """Runs with these agents. Returns how the run ended, and its records. The rank `stopped` pretends to be stopped."""
    name = f"fleet{agents}" if stopped is None else f"fleet{agents}-{stopped}"
    credentials = bench.folder / f"{name}.credentials"
    version = subprocess.run([bench.allranks, "--version"], capture_output=True, text=True, check=True)
    words = [sys.executable, HERE / "pretended_agents.py", credentials, agents, version.stdout.split()[-1]]
    words += [] if stopped is None else [stopped]
    pretended = subprocess.Popen([str(word) for word in words])
    argv = [HERE / "fleet.yaml", "--world-size", agents * ranks_each, "--credentials", credentials]
    argv += ["--launcher", "attached", "--nodes", agents, "--require", f"nodes={agents}", "--driver", "command:none"]
    try:
        return bench.run(name, *argv, where=(), codes=(0, 1))
    finally:
        pretended.terminate()
        pretended.wait()
