"""Finds what a Python interpreter offers of platforms that need the same imports.

Run as ``python -c PROBE JSON``. Standard library and torch only.

The one argument: {"python_path", "import", "load": whether to load, one by one, the packages that torch would load by
itself, "platforms": [{"device_type", "requires": [package...], "count": expression or null, "backends": [...]}...]}.
Every line of ours on stdout begins with MARK and is JSON: first what is about to be tried, so that an import which
kills the interpreter or never returns is named, and at last {"found": [...]}, one for each platform. Other output is
that of the imports.

Or only {"absent": [{"python_path", "import"}...]}, answered by {"absent": [package or null...], "autoloads": whether
torch loads packages by itself}: what needs no import.
"""

import gc
import importlib
import importlib.metadata
import importlib.util
import json
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

MARK = "ALLRANKS-PROBE "
#: The group of entry points that torch loads when it is imported.
AUTOLOAD = "torch.backends"

#: An object of JSON.
Object = dict[str, Any]


def say(**line: Any) -> None:
    """Prints one line for the harness, on a line of its own whatever an import has printed before."""
    sys.stdout.write("\n" + MARK + json.dumps(line) + "\n")
    sys.stdout.flush()


def explain(error: BaseException) -> str:
    """Returns an error as one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def version(package: str) -> str | None:
    """Returns the version of an installed package, None if there is no such package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def available(dist: Any, backend: str) -> bool:
    """Returns whether every part of a backend (``cpu:gloo,cuda:nccl``) is built into torch or registered."""
    # `nccl` and `xccl` are attributes of Backend in every build; only this tells whether they were built in.
    return all(dist.is_backend_available(part.split(":")[-1]) for part in backend.split(","))


def load(point: importlib.metadata.EntryPoint) -> None:
    """Loads one entry point and calls it, as torch does; its name is printed first."""
    say(loading={"name": point.name, "value": point.value, "package": point.dist.name if point.dist else None})
    point.load()()


def absent(modules: Sequence[str]) -> str | None:
    """Returns the first package that is not installed, of torch and these modules'; None if all are."""
    packages = (module.split(".")[0] for module in ["torch", *modules])
    return next((package for package in packages if importlib.util.find_spec(package) is None), None)


def absent_from(path: Sequence[str], modules: Sequence[str]) -> str | None:
    """Returns the same with folders put in front of ``sys.path``."""
    before = sys.path[:]
    try:
        sys.path[:0] = path
        return absent(modules)
    finally:
        sys.path[:] = before


def import_modules(wanted: Object) -> tuple[dict[str, ModuleType], Object | None]:
    """Imports torch and a platform's modules.

    Returns:
        The packages by name, and None; or those imported so far, and what is wrong: {"missing": package}, or {"import":
        module, "error": text}.
    """
    names: dict[str, ModuleType] = {}
    if (package := absent(wanted["import"])) is not None:
        return names, {"missing": package}
    for module in ["torch", *wanted["import"]]:
        say(trying=f"import {module}")
        try:
            importlib.import_module(module)
            names[module.split(".")[0]] = sys.modules[module.split(".")[0]]
            if module == "torch" and wanted["load"]:
                for point in importlib.metadata.entry_points(group=AUTOLOAD):
                    load(point)
                say(loading=None)
        except ModuleNotFoundError as error:
            missing = error.name == module.split(".")[0]
            return names, {"missing": error.name} if missing else {"import": module, "error": explain(error)}
        except BaseException as error:  # a module may call sys.exit
            return names, {"import": module, "error": explain(error)}
    return names, None


def probe(wanted: Object, names: dict[str, ModuleType], problem: Object | None) -> Object:
    """Returns what is there of one platform: one entry of ``found``.

    Args:
        wanted: one entry of ``platforms``.
        names: the packages that its expression ``count`` sees.
        problem: why its modules could not be imported, None if they were.
    """
    found: Object = {"problem": problem, "torch": None, "versions": {}, "count": None, "backends": {}}
    if problem is not None:
        return found
    torch: Any = names["torch"]
    found["torch"] = str(torch.__version__)
    found["versions"] = {package: version(package) for package in wanted["requires"]}
    found["simulated"] = bool(getattr(getattr(torch, wanted["device_type"], None), "is_simulated", False))
    dist = torch.distributed
    found["distributed"] = dist.is_available()
    if found["distributed"]:
        say(trying="asking for backends")
        found["backends"] = {backend: available(dist, backend) for backend in wanted["backends"]}
    if wanted["count"] is not None:
        say(trying=wanted["count"])
        try:
            found["count"] = int(eval(wanted["count"], dict(names)))
        except Exception as error:
            found["problem"] = {"count": wanted["count"], "error": explain(error)}
    return found


if __name__ == "__main__":
    gc.disable()  # this process makes objects that stay, and soon ends
    question = json.loads(sys.argv[1])
    # A folder named like a package in the current folder is not that package.
    sys.path[:] = [folder for folder in sys.path if folder]
    if "absent" in question:
        packages = [absent_from(one["python_path"], one["import"]) for one in question["absent"]]
        say(absent=packages, autoloads=bool(list(importlib.metadata.entry_points(group=AUTOLOAD))))
        sys.exit()
    sys.path[:0] = question["python_path"]
    modules, error = import_modules(question)
    say(found=[probe(platform, modules, error) for platform in question["platforms"]])
