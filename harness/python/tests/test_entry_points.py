"""The page of entry points names every public name of torch.distributed, with requirements that cases ask of it."""

import re
import types
import unittest
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "harness/doc/reference/entry-points.md"
REQUIREMENTS = ROOT / "cases/requirements.yaml"


def rows() -> Iterator[tuple[list[str], str]]:
    """Yields the names and the second cell of each row of the page's tables."""
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        names = re.findall(r"`(\w+)`", cells[0])
        if line.startswith("|") and names:
            yield names, cells[1]


def ids(cell: str) -> list[str]:
    """Returns the ids of requirements in a cell, those between the ends of `A to B` included."""
    found = []
    for name, first, last in re.findall(r"\b([A-Z0-9]+)-(\d{3})(?: to [A-Z0-9]+-(\d{3}))?", cell):
        found += [f"{name}-{number:03}" for number in range(int(first), int(last or first) + 1)]
    return found


class EntryPoints(unittest.TestCase):
    """The page against torch, the requirements and the cases."""

    def test_every_public_name_is_there_once(self) -> None:
        if not torch.__version__.startswith("2.11."):
            self.skipTest("the page is of torch 2.11")
        named = [name for names, _ in rows() for name in names]
        self.assertEqual(len(named), len(set(named)))
        public = {name for name in dir(dist) if not name.startswith("_")} | set(dist.distributed_c10d.__all__)
        modules = {name for name in public if isinstance(getattr(dist, name, None), types.ModuleType)}
        self.assertEqual(set(named), public - modules)

    def test_every_requirement_is_one(self) -> None:
        known = set(re.findall(r"^- id: (\S+)$", REQUIREMENTS.read_text(), re.MULTILINE))
        self.assertEqual({each for _, cell in rows() for each in ids(cell)} - known, set())

    def test_what_has_a_requirement_is_called(self) -> None:
        files = [*ROOT.glob("cases/**/*.yaml"), *ROOT.glob("harness/python/allranks_rank/**/*.py")]
        asked = "\n".join(file.read_text() for file in files)
        for names, cell in rows():
            if "." in cell:  # a reason, in sentences
                continue
            for name in names:
                # `is_NAME_available` is called by its parts, and all stores are of the class Store.
                if not re.fullmatch(r"is_\w+_available|Store", name):
                    self.assertRegex(asked, rf"\b{name}\b")


if __name__ == "__main__":
    unittest.main()
