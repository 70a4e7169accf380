"""Torch's flight recorder in this process."""

from __future__ import annotations

import json
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Recorder:
    """Torch's flight recorder in this process: the collectives that backends really issue.

    The heartbeat looks at the counts of each group, which costs some 0.1 ms. It writes the whole record, some 20 ms if
    full, to ``PID.json.recorder`` only once nothing has been issued and nothing has ended for a while.
    """

    #: NCCL keeps a recorder of its own, which counts where both have a group; the other backends share one.
    RECORDERS = ("_dump_nccl_trace_json", "_dump_fr_trace_json")
    #: Seconds without a change after which the record is written; how many times as long as writing took lies between
    #: one time and the next, and the most seconds that may.
    STILL = 0.7
    PAUSE = 50
    LONGEST = 2.0
    #: Variables with which NCCL waits on the host: then it does not count what it issues.
    UNCOUNTED = ("TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT")

    def __init__(self, path: Callable[[], str], add_group: Callable[[str, bool, list[int]], None]) -> None:
        """Starts without a function: torch may not be there yet.

        Args:
            path: returns the path of the call trace's file, beside which the record is written.
            add_group: has the trace know a group: its name, whether it is the world, its members.
        """
        self.path = path
        self.add_group = add_group
        #: The functions that give a record as JSON, by name, of those recorders that have one.
        self.functions: dict[str, Any] = {}
        #: The counts as they are, since when they are, and those of the record that was written last.
        self.status: str | None = None
        self.since = 0.0
        self.dumped: str | None = None
        self.not_before = 0.0
        #: The counts of the record when it was read last, if the recorder does not count itself.
        self.of_record: dict[str, Any] = {}
        #: Names of the groups that are in the counts.
        self.groups: set[str] = set()

    def find(self) -> list[Any]:
        """Returns the functions that give a record as JSON; none as long as nothing records."""
        library = sys.modules.get("torch._C._distributed_c10d")
        c10d = sys.modules.get("torch.distributed.distributed_c10d")
        if library is None or c10d is None or c10d._world.default_pg is None:
            return self.known()
        # Either recorder may begin after the other.
        names = ["_dump_fr_trace_json"]
        # A world that names no backend is `undefined` in `pg_map`; the other table tells what it consists of.
        kinds = [kind for kind, _ in c10d._world.pg_map.values()]
        kinds += getattr(c10d._world, "pg_backend_config", {}).values()
        if any("nccl" in str(kind).lower() for kind in kinds):
            names.append("_dump_nccl_trace_json")
        for name in names:
            function = getattr(library, name, None)
            if name not in self.functions and function is not None and self.counts([function]):
                self.functions[name] = function
        return self.known()

    def known(self) -> list[Any]:
        """Returns the functions of those recorders that have a record, in the order of `RECORDERS`."""
        return [self.functions[name] for name in self.RECORDERS if name in self.functions]

    @staticmethod
    def counts(functions: list[Any]) -> dict[str, Any]:
        """Returns the counts of each group, by recorder and its number for the group; empty if there is no record."""
        all_counts: dict[str, Any] = {}
        for place, function in enumerate(functions):
            text = function(False, False)
            counts = (json.loads(text) if text else {}).get("pg_status") or {}
            all_counts |= {f"{place}.{group}": one for group, one in counts.items()}
        return all_counts

    @staticmethod
    def record(functions: list[Any]) -> str:
        """Returns the whole record as JSON; of a group that several recorders have, what the first of them has."""
        texts = [function(True, False) for function in functions]
        texts = [text.decode() if isinstance(text, bytes) else text for text in texts]
        if len(texts) == 1:
            return texts[0]
        whole, *others = [json.loads(text) for text in texts]
        entries = whole.setdefault("entries", [])
        for other in others:
            known = {entry["process_group"][0] for entry in entries}
            entries += [entry for entry in other.get("entries", []) if entry["process_group"][0] not in known]
        return json.dumps(whole)

    def is_counted(self) -> bool:
        """Returns whether the recorder counts what is issued. The program may set the variables itself."""
        words = [os.environ.get(name, "").lower() for name in self.UNCOUNTED]
        return not any(word in ("1", "t", "true", "y", "yes") for word in words)

    def look(self) -> str | None:
        """Looks at the counts; writes the record when they have not changed for a while. Returns what has changed."""
        try:
            functions = self.find()
            if not functions:
                return None
            now = time.monotonic()
            if not self.is_counted() and now >= self.not_before:
                self.of_record = self.counts_of(self.record(functions))
                self.pause(now)
            status = json.dumps(self.counts(functions) | self.of_record, sort_keys=True)
            if status != self.status:
                self.status, self.since = status, now
            elif status != self.dumped and now - self.since >= self.STILL:
                # To read the record has put off the next time already.
                if now >= self.not_before or self.of_record:
                    self.dump()
            return f"{self.status} {self.dumped}"
        except Exception:
            return None

    @staticmethod
    def counts_of(record: str) -> dict[str, Any]:
        """Returns the counts of the collectives of each group in a record, in the form of `counts`."""
        all_counts: dict[str, Any] = {}
        for entry in json.loads(record).get("entries", []):
            if entry.get("is_p2p"):
                continue
            one = all_counts.setdefault(
                f"record.{entry['process_group'][0]}", {"last_enqueued_collective": 0, "last_completed_collective": 0}
            )
            number = entry["collective_seq_id"]
            one["last_enqueued_collective"] = max(one["last_enqueued_collective"], number)
            if entry.get("state") == "completed":
                one["last_completed_collective"] = max(one["last_completed_collective"], number)
        return all_counts

    def pause(self, before: float) -> None:
        """Has the record be left alone for a time, by how long it has taken since this moment to read it."""
        after = time.monotonic()
        self.not_before = after + min(self.PAUSE * (after - before), self.LONGEST)

    def dump(self) -> None:
        """Writes the whole record."""
        functions = self.known()
        if not functions:
            return
        try:
            before = time.monotonic()
            counts = self.counts(functions)
            text = self.record(functions)
            if not self.is_counted():
                self.of_record = self.counts_of(text)
            status = json.dumps(counts | self.of_record, sort_keys=True)
            path = f"{self.path()}.recorder"
            with open(f"{path}.new", "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(f"{path}.new", path)
            self.status = self.dumped = status
            self.name_groups()
            self.pause(before)
        except Exception:
            pass

    def name_groups(self) -> None:
        """Has the trace know the members of every group of this process."""
        c10d = sys.modules.get("torch.distributed.distributed_c10d")
        if c10d is None:
            return
        world = c10d._world
        for group, name in list(world.pg_names.items()):
            self.groups.add(name)
            members = sorted(world.pg_group_ranks[group])
            self.add_group(name, group is world.default_pg, members)

    def head(self) -> dict[str, Any] | None:
        """Returns what the trace's file says of the record: the counts now, and those of the record that is written."""
        if not self.functions or self.status is None:
            return None
        dumped = json.loads(self.dumped) if self.dumped else None
        return {"status": json.loads(self.status), "dumped": dumped, "counted": self.is_counted()}
