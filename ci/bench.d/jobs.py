"""Runs the programs of fixtures/jobs under a tool or alone, and compares the verdicts of the tool with the labels."""

import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import signal
import socket
import statistics
import subprocess
import threading
import time

#: The watch's `--patience`, in seconds.
PATIENCE = 8
#: The command of `allranks watch`, as a line for bash: the default tool.
WATCH = f"{{allranks}} watch --json {{verdict}} --kill-on-verdict --patience {PATIENCE} -- {{command}}"


class Job:
    """One labelled program."""

    def __init__(self, label):
        self.name = label["name"]
        self.command = label["command"]
        self.ranks = label["ranks"]
        #: Kinds that are right; none for a healthy job.
        self.kinds = label.get("kinds", [])
        #: Sets of culprits that are right.
        self.culprits = label.get("culprits", [])
        #: A word that the verdict must contain.
        self.place = label.get("place")
        #: The device that it needs; None if it runs on CPU.
        self.device = label.get("device")
        #: The exit code of a healthy job.
        self.exit = label.get("exit", 0)

    @property
    def is_healthy(self):
        return not self.kinds


def load(folder):
    """The jobs of `labels.yaml`, which is YAML in the form of JSON, with comments on lines of their own."""
    lines = (folder / "labels.yaml").read_text().splitlines()
    return [Job(label) for label in json.loads("\n".join(line for line in lines if not line.startswith("#")))]


def free_ports(count):
    """Ports below the range that the kernel gives to clients, so that no connection takes them before the job does."""
    taken = []
    low = 20000 + os.getpid() * 7 % 9000
    with CHOOSING:
        for port in range(low, 32000):
            with socket.socket() as one:
                try:
                    one.bind(("", port))
                except OSError:
                    continue
            if port not in USED:
                USED.add(port)
                taken.append(port)
            if len(taken) == count:
                return taken
    raise OSError("there is no free port")


USED = set()
#: Held while ports are chosen: jobs may run at the same time.
CHOOSING = threading.Lock()


def descendants(root):
    """Returns the pids of `root` and all its descendants."""
    children = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(path.parent.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def end(child):
    """Kills `child` and all its descendants. They are stopped first, so that they start nothing meanwhile."""
    for sent in (signal.SIGSTOP, signal.SIGKILL):
        for pid in descendants(child.pid):
            try:
                os.kill(pid, sent)
            except ProcessLookupError:
                pass
    child.wait()


class Ran:
    """The result of a job: exit code (None if it still ran at the limit), seconds, verdict if any, and output."""

    def __init__(self, code, seconds, said, log):
        self.code, self.seconds, self.said, self.log = code, seconds, said, log

    @classmethod
    def run(cls, job, folder, python, out, limit, tool=None):
        """Runs a job, under a tool (a line for bash with {command} and {verdict} in it) or alone (None)."""
        ports = free_ports(4)
        path = f"{pathlib.Path(python).parent}{os.pathsep}{os.environ['PATH']}"
        env = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        env |= {"PORT" + (str(number) if number > 1 else ""): str(port) for number, port in enumerate(ports, 1)}
        said, log = out / f"{job.name}.json", out / f"{job.name}.log"
        said.unlink(missing_ok=True)
        line = job.command
        if tool:
            line = tool.replace("{verdict}", shlex.quote(str(said)))
            line = line.replace("{command}", shlex.join(["bash", "-c", job.command]))
        argv = ["bash", "-c", line]
        began = time.monotonic()
        with open(log, "wb") as file:
            child = subprocess.Popen(
                argv, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
            )
            try:
                code = child.wait(limit)
            except subprocess.TimeoutExpired:
                code = None
                end(child)
        seconds = time.monotonic() - began
        verdict = json.loads(said.read_text()) if said.exists() and said.stat().st_size else None
        return cls(code, seconds, verdict, log.read_text(errors="replace"))

    @property
    def culprits(self):
        """Returns the ranks that the verdict accuses, in order; none if it only says that they are slow."""
        return sorted(self.said.get("culprits") or []) if self.said and self.said.get("kind") != "slow" else []

    def as_record(self, job):
        """Returns the line for the file of finished jobs."""
        return {"name": job.name, "exit": self.code, "seconds": self.seconds, "verdict": self.said, "log": self.log[-2000:]}

    def differs(self, job):
        """Returns how an unwatched job differs from its label; None if it does not."""
        if job.is_healthy:
            ended = "is still running" if self.code is None else f"ended with {self.code}"
            return None if self.code == job.exit else f"{ended}, not {job.exit}"
        return None if self.code is None else f"ended with {self.code}, and should hang"


def outcome(job, ran):
    """One word for a watched job: `right`, `kind` (exact culprits, other kind), `partly` (some of the culprits), `innocent`
    (a rank accused that no label names), `unknown`, `nothing`; of a healthy job `quiet`, `accused` or `broken`.

    A verdict that a rank is stopped is no accusation if the watch let the job continue."""
    said = ran.said
    named = ran.culprits
    if job.is_healthy:
        # The stopped rank was resumed.
        if said and said.get("kind") == "peer-stopped" and said.get("moves_again"):
            named = []
        if named or (said and ran.code != job.exit):
            return "accused"
        return "quiet" if ran.code == job.exit else "broken"
    if said is None:
        return "nothing"
    if set(named) - {rank for some in job.culprits for rank in some}:
        return "innocent"
    if named in job.culprits and said.get("kind") in job.kinds:
        return "right"
    if not named:
        return "unknown"
    return "kind" if named in job.culprits else "partly"


def share(part, whole):
    return part / whole if whole else 0.0


class Score:
    """Counts over watched jobs."""

    def __init__(self, ran):
        self.rows = [(job, one, outcome(job, one)) for job, one in ran]
        hangs = [(job, one, word) for job, one, word in self.rows if not job.is_healthy]
        verdicts = [(job, one) for job, one, word in hangs if one.said and one.said.get("kind") not in ("slow", "unknown")]
        accusing = [(job, one) for job, one in verdicts if one.culprits]
        kinds = sum(one.said.get("kind") in job.kinds for job, one in verdicts)
        exact = sum(one.culprits in job.culprits for job, one in verdicts)
        named = sum(one.culprits in job.culprits for job, one in accusing)
        seconds = sorted(one.said["after_s"] for _, one in verdicts if one.said.get("after_s") is not None)
        proved = [one.said["after_s"] for _, one in verdicts if one.said.get("confidence") == "proved" and "after_s" in one.said]
        placed = [(job, one) for job, one, word in hangs if job.place and word == "right"]
        self.figures = {
            "hangs": len(hangs),
            "healthy": len(self.rows) - len(hangs),
            "kind_precision": share(kinds, len(verdicts)),
            "kind_recall": share(kinds, len(hangs)),
            "culprit_precision": share(named, len(accusing)),
            "culprit_recall": share(exact, len(hangs)),
            "innocent_accused": [job.name for job, _, word in self.rows if word == "innocent"],
            "healthy_accused": [job.name for job, _, word in self.rows if word == "accused"],
            "healthy_broken": [job.name for job, _, word in self.rows if word == "broken"],
            "places_right": sum(job.place in json.dumps(one.said) for job, one in placed),
            "places": len(placed),
            "seconds_median": statistics.median(seconds) if seconds else None,
            "seconds_p95": seconds[min(len(seconds) - 1, int(0.95 * len(seconds)))] if seconds else None,
            "proved_seconds_median": statistics.median(proved) if proved else None,
        }

    def table(self):
        """Returns a line for each job, and the figures."""
        lines = ["| job | label | said | confidence | after s | outcome |", "|---|---|---|---|---|---|"]
        for job, one, word in self.rows:
            label = "healthy" if job.is_healthy else f"{'/'.join(job.kinds)} of {' or '.join(map(str, job.culprits))}"
            said = one.said or {}
            after = said.get("after_s")
            cells = [job.name, label, f"{said.get('kind', '–')} {said.get('culprits', '')}", said.get("confidence", "")]
            lines.append("| " + " | ".join([*cells, "" if after is None else f"{after:.1f}", word]) + " |")
        lines += [""] + [
            f"{name}: {value:.2f}" if isinstance(value, float) else f"{name}: {value}" for name, value in self.figures.items()
        ]
        return "\n".join(lines)

    def as_json(self):
        """The figures, and what was said of each job."""
        jobs = [{"name": job.name, "outcome": word, "exit": one.code, "verdict": one.said} for job, one, word in self.rows]
        return {"figures": self.figures, "jobs": jobs}


def choose(jobs, pattern, device):
    """The jobs for that device (None: CPU) whose names have a match of `pattern`."""
    return [job for job in jobs if job.device == device and re.search(pattern, job.name)]


def run_all(chosen, folder, python, out, tool, limit, at_once, record, say):
    """Runs jobs, and returns each with how it went.

    `limit` gives the seconds that a job may take; `at_once` is how many run at the same time. `record` is a file, or None: the
    end of each job is added to it as a line of JSON, and those that are in it are not run again. `say` is told of each end.
    """
    done = {}
    if record and record.exists():
        lines = [json.loads(line) for line in record.read_text().splitlines()]
        done = {one["name"]: Ran(one["exit"], one["seconds"], one["verdict"], one["log"]) for one in lines}
    writing = threading.Lock()

    def run(job):
        if job.name not in done:
            one = Ran.run(job, folder, python, out, limit(job), tool)
            with writing:
                done[job.name] = one
                if record:
                    with open(record, "a") as file:
                        file.write(json.dumps(one.as_record(job)) + "\n")
                say(job, one)

    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        list(pool.map(run, chosen))
    return [(job, done[job.name]) for job in chosen]
