"""What `allranks watch` puts into the Python processes of a program: a diary of its torch.distributed calls.

Python imports `sitecustomize` at start, from the first folder of the path that has one. This one waits until the program
imports torch.distributed, wraps its public calls so that each leaves an entry, and has a thread that writes the diary
down four times a second, for `allranks watch` to read. It imports nothing but the standard library, changes no argument
and no result, keeps every error of its own to itself, and lets the `sitecustomize` that it hides run.

In: ALLRANKS_WATCH, a folder. Out: there, PID.json, replaced as a whole; its time of modification is the last beat.

ALLRANKS_IMPORT, in a run of the suite, names modules with `,` between them: what the platform's file says to import. They
are imported when the program has imported torch, as torch itself does with the backends that are installed beside it.
"""

import sys


def _chain(folder):
    """Runs the sitecustomize that this one hides."""
    import importlib.machinery
    import importlib.util
    import os

    rest = [entry for entry in sys.path if os.path.abspath(entry or ".") != folder]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        own = sys.modules.get("sitecustomize")
        sys.modules["sitecustomize"] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            sys.modules["sitecustomize"] = own
            raise


def _begin():
    import os

    folder = os.environ.get("ALLRANKS_WATCH")
    if folder and os.path.isdir(folder):
        import allranks_diary

        allranks_diary.begin(folder)


class _Companions:
    """Imports modules right after torch."""

    def __init__(self, names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        import importlib.machinery

        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                import importlib

                execute(module)
                for companion in self.names:
                    importlib.import_module(companion)

            spec.loader.exec_module = exec_module
        return spec


def _accompany():
    import os

    names = [name for name in os.environ.get("ALLRANKS_IMPORT", "").split(",") if name not in ("", "torch")]
    if names:
        sys.meta_path.insert(0, _Companions(names))


_accompany()
try:
    _begin()
except Exception:
    # The program matters, its diary does not.
    pass

import os as _os

_chain(_os.path.dirname(_os.path.abspath(__file__)))
