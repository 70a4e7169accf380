"""Packs the results of several runs into a file small enough for the repository: `store.py PACK RUN...`.

What a merged report needs stays as it was. What differs from run to run and says nothing of the library goes: times,
what each rank did when, and paths of logs. Lines are sorted, so that runs compress against each other.
"""

import io
import json
import lzma
import sys
import tarfile
from pathlib import Path


def trimmed(lines):
    records = [json.loads(line) for line in lines]
    for record in records:
        if record["type"] == "check":
            record["duration_us"] = 0
        elif record["type"] == "scenario":
            record.update(ranks=[], start_ms=0, duration_ms=0)
        elif record["type"] == "run":
            # The path of the interpreter on this machine is left out.
            record["arguments"] = ["run", "--profile", record["profile"]]
    order = {"run": 0, "check": 1, "scenario": 2, "end": 3}
    records.sort(key=lambda record: (order[record["type"]], record.get("id", "")))
    return "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records)


def main(pack, *runs):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for run in map(Path, runs):
            text = trimmed((run / "results.jsonl").read_text().splitlines()).encode()
            member = tarfile.TarInfo(f"{run.name}/results.jsonl")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text))
    # The dictionary must hold a whole run, because the next one is almost the same.
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "nice_len": 273, "lc": 4, "pb": 0}]
    Path(pack).write_bytes(lzma.compress(data.getvalue(), filters=filters))


main(*sys.argv[1:])
