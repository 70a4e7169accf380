"""Starts the call trace that ``allranks watch`` puts into the Python processes of a program.

Python imports `sitecustomize` at start, from the first folder of the path that has one. This one waits until the
program imports torch.distributed, wraps its public calls so that each leaves an entry, and has a thread that writes the
trace to a file four times a second, for ``allranks watch`` to read. It imports nothing but the standard library,
changes no argument and no result, keeps every error of its own to itself, and lets the `sitecustomize` that it hides
run.

In: ALLRANKS_WATCH, a folder. Out: there, PID.json, replaced as a whole; its time of modification is the last heartbeat.

ALLRANKS_IMPORT, in a run of the suite, names modules with `,` between them: what the platform's file says to import.
They are imported when the program has imported torch, as torch itself does with the backends that are installed beside
it.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


def _chain(folder: str) -> None:
    """Runs the sitecustomize that this one hides."""
    import importlib.machinery
    import importlib.util
    import os

    rest = [entry for entry in sys.path if os.path.abspath(entry or ".") != folder]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        own = sys.modules["sitecustomize"]
        sys.modules["sitecustomize"] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            sys.modules["sitecustomize"] = own
            raise


def _begin() -> None:
    """Starts the call trace, if this process is watched."""
    import os

    folder = os.environ.get("ALLRANKS_WATCH")
    if folder and os.path.isdir(folder):
        import allranks_patch

        allranks_patch.begin(folder)


class _Companions:
    """A finder of modules that imports some modules right after torch."""

    def __init__(self, names: list[str]) -> None:
        """Takes the modules' names."""
        self.names = names

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns the spec of torch, with a loader that imports the modules too; None for all other modules."""
        if name != "torch":
            return None
        import importlib.machinery

        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                import importlib

                execute(module)
                for companion in self.names:
                    importlib.import_module(companion)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _accompany() -> None:
    """Has the modules of ALLRANKS_IMPORT imported with torch."""
    import os

    names = [name for name in os.environ.get("ALLRANKS_IMPORT", "").split(",") if name not in ("", "torch")]
    if names:
        sys.meta_path.insert(0, _Companions(names))


_accompany()
try:
    _begin()
except Exception:
    pass  # an error of the trace is not the program's

import os as _os  # noqa: E402

_chain(_os.path.dirname(_os.path.abspath(__file__)))
