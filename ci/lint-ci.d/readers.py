"""Reads the JUnit files of a run with readers that CI tools use, and compares what they find with the run's results.jsonl."""

import json
import sys
from collections import Counter
from pathlib import Path

from junit2htmlreport.parser import Junit
from junitparser import Error, Failure, JUnitXml, Skipped, TestSuite

FAILING = {"regression", "unexpected-pass"}
SKIPPED = {"known-failure", "waived", "not-run"}


def expected(folder: Path) -> dict[str, str]:
    """Returns `failed`, `skipped` or `passed` for each check. A failure of the harness counts as failed."""
    ends = {}
    for line in (folder / "results.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["type"] != "check":
            continue
        end = "passed"
        if record["verdict"] in FAILING:
            end = "failed"
        elif record["verdict"] in SKIPPED or record["outcome"] == "unsupported":
            end = "skipped"
        ends[record["id"]] = end
    return ends


def by_junitparser(path: Path) -> dict[str, str]:
    ends = {}
    for suite in JUnitXml.fromfile(str(path)):
        assert isinstance(suite, TestSuite), path
        for case in suite:
            kinds = {type(one) for one in case.result}
            end = "failed" if kinds & {Failure, Error} else "skipped" if Skipped in kinds else "passed"
            assert case.name not in ends, f"{path}: {case.name} is there twice"
            ends[case.name] = end
    return ends


def by_junit2html(path: Path) -> dict[str, str]:
    cases = (case for suite in Junit(str(path)).suites for of in suite.classes.values() for case in of.cases)
    words = {"failed": "failed", "error": "failed", "skipped": "skipped", "passed": "passed"}
    return {case.name: words[case.outcome()] for case in cases}


def main() -> int:
    problems = []
    for folder in map(Path, sys.argv[1:]):
        wanted = expected(folder)
        assert wanted, folder
        for name in ("junit.xml", "junit-extended.xml"):
            for reader in (by_junitparser, by_junit2html):
                found = reader(folder / name)
                if found != wanted:
                    differing = [one for one in wanted if found.get(one) != wanted[one]]
                    many = f"{len(differing)} of {len(wanted)} differ, such as {differing[:1]}"
                    problems.append(f"{folder / name}, {reader.__name__}: {many}")
        print(f"{folder.name}: {dict(Counter(wanted.values()))}")
    print("\n".join(problems), file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
