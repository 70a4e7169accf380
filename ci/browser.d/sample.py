"""Makes up runs for ci/browser: `large`, with 65,000 checks in 60 columns, and `night01` to `night30`, one month."""

import json
import sys
from pathlib import Path

DTYPES = ["float32", "float64", "bfloat16", "float16", "int64", "uint8"]
AREAS = ["INIT", "GRP", "COLL", "P2P", "TYPE", "NUM", "WORK", "ERR"]


def column(platform: str, backend: str, size: int, torch: str = "2.11.0") -> dict:
    return {
        "platform": platform,
        "backend": backend,
        "world_size": size,
        "driver": "python",
        "launcher": "local",
        "evidence": "host" if platform == "cpu" else "hardware",
        "torch": torch,
    }


def check(case: str, where: dict, name: str, covers: list[str], outcome: str, **more: object) -> dict:
    scenario = f"{case}@{where['platform']}.{where['backend']}.ws{where['world_size']}"
    verdict = {"pass": "expected", "unsupported": "expected", "not-run": "not-run"}.get(outcome, "regression")
    return {
        "type": "check",
        "format": 1,
        "id": f"{scenario}#{name}",
        "scenario": scenario,
        "case": case,
        "column": where,
        "covers": covers,
        "params": {"dtype": DTYPES[len(name) % 6]},
        "at": "made_up.yaml:7",
        "outcome": outcome,
        "verdict": verdict,
        "checked": [33] * where["world_size"],
        "duration_us": 1200,
        **more,
    }


def scenario(case: str, where: dict, place: int) -> dict:
    ranks = []
    for rank in range(where["world_size"]):
        spans = [{"label": "init_process_group", "start_us": 0, "end_us": 20_000, "ok": True}]
        start = 21_000 + 4_000 * rank
        spans.append({"label": "0.call.0", "start_us": start, "end_us": 21_000 + 4_000 * where["world_size"], "ok": True})
        if rank > 0:
            spans.append({"label": "0.call.1", "start_us": 60_000, "end_us": None, "ok": False})
        ranks.append({"rank": rank, "pid": 4000 + rank, "end": "exit 0", "log": f"logs/rank{rank}.log", "spans": spans})
    return {
        "type": "scenario",
        "format": 1,
        "id": f"{case}@{where['platform']}.{where['backend']}.ws{where['world_size']}",
        "case": case,
        "title": "a made-up case whose title is as long as titles are",
        "column": where,
        "trouble": None,
        "start_ms": place,
        "duration_ms": 90,
        "worlds": 1,
        "ranks": ranks,
    }


def write(folder: Path, started: int, checks: list[dict], scenarios: list[dict], environment: dict) -> None:
    folder.mkdir(parents=True)
    failing = sum(one["verdict"] == "regression" for one in checks)
    run = {
        "type": "run",
        "format": 1,
        "allranks": "0.1.0",
        "name": folder.name,
        "started": started,
        "seed": 1,
        "profile": "full",
        "arguments": ["run", "--profile", "full"],
        "planned": {"scenarios": len(scenarios), "checks": len(checks)},
        "requirements": {"COLL-001": "Each element of the result MUST stand at its own index."},
        "absent": [{"platform": name, "reason": "this machine has none"} for name in ("xpu", "hpu", "npu", "mps")],
    }
    end = {
        "type": "end",
        "format": 1,
        "duration_ms": 900_000,
        "verdicts": {},
        "outcomes": {},
        "troubles": [],
        "exit_code": 1 if failing else 0,
    }
    with (folder / "results.jsonl").open("w") as out:
        for record in [run, *checks, *scenarios, end]:
            out.write(json.dumps(record) + "\n")
    (folder / "environment.json").write_text(json.dumps(environment))


def large(folder: Path) -> None:
    columns = [
        column(platform, backend, size, torch)
        for platform, backend in [("cpu", "gloo"), ("cuda", "nccl"), ("rocm", "rccl"), ("xpu", "xccl")]
        for torch in ("2.9.0", "2.10.0", "2.11.0")
        for size in (1, 2, 3, 4, 8)
    ]
    cases = [f"{area.lower()}/case{number:02}" for area in AREAS for number in range(15)]
    checks, scenarios = [], []
    for place, case in enumerate(cases):
        area = case.split("/")[0].upper()
        for where in columns:
            for index in range(9):
                seed = (place * 7 + index * 3 + where["world_size"]) % 211
                outcome, more = "pass", {}
                if seed == 5:
                    outcome, more = "mismatch", {"class": "avg-divided-twice", "summary": f"element {index} is divided twice"}
                elif seed == 9:
                    outcome, more = "not-run", {"summary": "needs 8 devices, this machine has 4; " * 12}
                elif seed == 13:
                    outcome = "unsupported"
                checks.append(check(case, where, f"0.call.{index}", [f"{area}-{place % 30:03}"], outcome, **more))
            scenarios.append(scenario(case, where, place))
    # Two more checks in some scenarios make 65,000.
    for place in range(65_000 - len(checks)):
        where = columns[place % len(columns)]
        checks.append(check(cases[place % len(cases)], where, f"1.more.{place}", ["COLL-001"], "pass"))
    write(folder / "large", 1_793_491_200, checks, scenarios, {"system": "Linux 6.1.0"})


def month(folder: Path) -> None:
    columns = [column("cpu", "gloo", size) for size in (2, 4)]
    for night in range(30):
        checks, scenarios = [], []
        for place, case in enumerate(["coll/sums", "p2p/pairs", "grp/groups", "num/nan"]):
            for where in columns:
                where = {**where, "torch": "2.10.0" if night < 11 else "2.11.0"}
                for index in range(5):
                    outcome, more = "pass", {}
                    if case == "coll/sums" and night >= 11:
                        outcome, more = "mismatch", {"class": "avg-divided-twice", "summary": "divided twice"}
                    if case == "p2p/pairs" and night >= 29 and index < 2:
                        outcome, more = "hang", {"summary": "rank 1 waits for rank 0"}
                    if case == "grp/groups" and index == 3 and night in (4, 8, 25):
                        outcome, more = "error", {"summary": "connection reset by peer"}
                    if case == "num/nan" and night < 17:
                        outcome, more = "mismatch", {"class": "nan-dropped", "summary": "a NaN is lost"}
                    checks.append(check(case, where, f"0.call.{index}", ["COLL-001"], outcome, **more))
                scenarios.append(scenario(case, where, place))
        environment = {
            "system": "Linux 6.1.0" if night < 17 else "Linux 6.6.0",
            "devices": [{"name": "Made up", "driver": "580.1" if night < 29 else "580.2"}],
        }
        write(folder / f"night{night + 1:02}", 1_793_491_200 + 86_400 * night, checks, scenarios, environment)


if __name__ == "__main__":
    large(Path(sys.argv[1]))
    month(Path(sys.argv[1]))
