"""Writes the records of a made-up run with many passed checks.

    python many_checks.py FOLDER CHECKS
"""

import json
import pathlib
import sys

#: The number of checks of a scenario.
EACH = 1000
DTYPES = ["float32", "float64", "float16", "bfloat16", "int32", "int64"]
OPS = ["sum", "avg", "max", "min", "product"]


def column(size):
    return {
        "platform": "cpu",
        "backend": "gloo",
        "world_size": size,
        "driver": "python",
        "launcher": "local",
        "evidence": "host",
        "torch": "2.11.0+cpu",
    }


def check(scenario, case, where, name, covers, params):
    return {
        "type": "check",
        "format": 1,
        "id": f"{scenario}#{name}",
        "scenario": scenario,
        "case": case,
        "column": where,
        "covers": covers,
        "params": params,
        "at": f"{case}.yaml:12",
        "outcome": "pass",
        "verdict": "expected",
        "checked": [int(params.get("numel", 1))] * where["world_size"],
        "duration_us": 812,
    }


def records(count):
    """Returns the records of a run with `count` checks, in the order of a results file."""
    scenarios = -(-count // EACH)
    yield {
        "type": "run",
        "format": 1,
        "allranks": "0.1.0",
        "name": "many",
        "started": 1_790_000_000,
        "seed": 0,
        "profile": "full",
        "arguments": ["run"],
        "planned": {"scenarios": scenarios, "checks": count},
        "requirements": {"COLL-001": "Each element MUST stand at its own index."},
    }
    left = count
    for number in range(scenarios):
        size = (2, 3, 4)[number % 3]
        case = f"collectives/many_{number // 3}"
        scenario = f"{case}@cpu.gloo.ws{size}"
        where = column(size)
        here = min(EACH, left)
        left -= here
        for index in range(max(here - 2, 0)):
            dtype, op = DTYPES[index % len(DTYPES)], OPS[index % len(OPS)]
            params = {"call": "all_reduce", "dtype": dtype, "op": op, "numel": str(index + 1)}
            name = f"0.all_reduce.{dtype}.{op}.{index + 1}"
            yield check(scenario, case, where, name, ["COLL-001", "COLL-014"], params)
        for name in ["init", "end"][: min(here, 2)]:
            yield check(scenario, case, where, name, ["INIT-002"], {})
        yield {
            "type": "scenario",
            "format": 1,
            "id": scenario,
            "case": case,
            "title": "many sums",
            "column": where,
            "trouble": None,
            "start_ms": number,
            "duration_ms": 900,
            "worlds": 1,
            "ranks": [],
        }
    yield {
        "type": "end",
        "format": 1,
        "duration_ms": 900 * scenarios,
        "verdicts": {"expected": count},
        "outcomes": {"pass": count},
        "troubles": [],
        "exit_code": 0,
    }


def main():
    folder, count = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    folder.mkdir(parents=True)
    with open(folder / "results.jsonl", "w") as file:
        for record in records(count):
            file.write(json.dumps(record, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
