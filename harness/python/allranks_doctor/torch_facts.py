"""Tries ``import torch``, and tells what this torch is.

Run as ``python -c THIS JSON``. Standard library and torch only.

The one argument: {"load": name of one entry point of `torch.backends` to load after torch, or null; "peers": whether
to ask devices for their names and for access to each other, which initialises them; "patience": seconds, after which
the place where it hangs is written down}. Every line of ours on stdout begins with MARK and is JSON: what is
installed, what is about to be tried, and at last {"found": ...} or {"failed": ...}. Other output is
that of the imports.
"""

import faulthandler
import gc
import importlib.metadata
import json
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

MARK = "ALLRANKS-DOCTOR "
#: The group of entry points that torch loads when it is imported.
GROUP = "torch.backends"
#: A group of entry points that some versions of torch load when a process group of the entry point's name is made.
LAZY = "torch.distributed.backends"
#: Backends that torch itself may have built in.
BACKENDS = ["gloo", "nccl", "xccl", "mpi", "ucc"]
#: Packages whose versions matter to collectives.
PACKAGES = re.compile(
    r"torch.*|triton.*|nvidia-(nccl|cuda-runtime|nvshmem).*|intel[-_]extension.*|oneccl.*|impi.*|habana.*|"
    r"libneuronxla|neuronx.*|.*[-_]torch|numpy",
    re.IGNORECASE,
)

#: Folders of the system's own libraries.
SYSTEM = ("/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/")


def say(**line: Any) -> None:
    """Prints one line for the harness, on a line of its own whatever an import has printed before."""
    sys.stdout.write("\n" + MARK + json.dumps(line) + "\n")
    sys.stdout.flush()


def entry_points(group: str) -> list[dict[str, str | None]]:
    """Returns the installed entry points of a group: name, value, and the package that has it."""
    found = importlib.metadata.entry_points(group=group)
    return [
        {"name": point.name, "value": point.value, "package": point.dist.name if point.dist else None}
        for point in found
    ]


def registry() -> Any:
    """Returns torch's class ``Backend``, None if it has not been imported."""
    return getattr(sys.modules.get("torch.distributed.distributed_c10d"), "Backend", None)


class Registrations:
    """Records which package registers which backend: what is registered while an entry point loads is its package's."""

    def __init__(self) -> None:
        """Wraps ``EntryPoint.load`` for the rest of the process."""
        #: Backend -> packages that registered it, in order.
        self.packages: dict[str, list[str]] = {}
        load = importlib.metadata.EntryPoint.load

        def watched(point: importlib.metadata.EntryPoint) -> Any:
            function = load(point)
            return (lambda: self._call(point, function)) if point.group == GROUP else function

        importlib.metadata.EntryPoint.load = watched  # type: ignore[assignment, method-assign]

    def _call(self, point: importlib.metadata.EntryPoint, function: Callable[[], Any]) -> None:
        before = dict(getattr(registry(), "_plugins", {}))
        function()
        for name, plugin in getattr(registry(), "_plugins", {}).items():
            if before.get(name) is not plugin:
                package = point.dist.name if point.dist else point.name
                self.packages.setdefault(name.lower(), []).append(package)


def plugins(registrations: Registrations) -> list[dict[str, Any]]:
    """Returns the backends that were registered from outside of torch."""
    backend = registry()
    return [
        {
            "name": name.lower(),
            "extended": bool(plugin.extended_api),
            "devices": [str(device) for device in backend.backend_capability.get(name.lower(), [])],
            "creator": creator(plugin.creator_fn),
            "packages": registrations.packages.get(name.lower(), []),
        }
        for name, plugin in getattr(backend, "_plugins", {}).items()
    ]


def creator(function: Any) -> str:
    """Returns the dotted name of the function that makes a backend's process groups."""
    return f"{getattr(function, '__module__', None)}.{getattr(function, '__qualname__', '')}"


def reads_lazily() -> bool | None:
    """Returns whether this torch loads entry points of `LAZY`. Only its source tells; None if that cannot be read."""
    module: Any = sys.modules.get("torch.distributed.distributed_c10d")
    try:
        with open(module.__file__) as file:
            return LAZY in file.read()
    except (AttributeError, OSError):
        return None


def packages() -> dict[str, str]:
    """Returns the versions of the installed packages that matter to collectives."""
    return {name: version for name, version in installed().items() if PACKAGES.fullmatch(name)}


def installed() -> dict[str, str]:
    """Returns the versions of all installed packages; of two copies of one, the first that Python finds."""
    found: dict[str, str] = {}
    for package in importlib.metadata.distributions():
        name = package.metadata["Name"]
        if name:
            found.setdefault(name, package.version)
    return found


def libraries() -> list[str]:
    """Returns the paths of the shared libraries that this process has loaded, without those of the system."""
    try:
        with open("/proc/self/maps") as file:
            paths = {line.split(maxsplit=5)[5].strip() for line in file if ".so" in line and "/" in line}
    except OSError:
        return []
    return sorted(path for path in paths if not path.startswith(SYSTEM) and "/lib-dynload/" not in path)


def place(error: BaseException) -> str | None:
    """Returns the innermost file and line of an error that is neither torch's nor Python's import machinery's."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != "<string>"]
    others = [frame for frame in frames if "importlib" not in frame.filename and "/torch/" not in frame.filename]
    return f"{others[-1].filename}:{others[-1].lineno}" if others else None


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yields the error, then what it was raised from: torch wraps what a backend raises."""
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__ or link.__context__


def fail(error: BaseException) -> None:
    """Prints the line ``failed``."""
    places = [place(one) for one in chain(error)]
    root = list(chain(error))[-1]
    texts = [" ".join(f"{type(one).__name__}: {one}".split()) for one in dict.fromkeys((error, root))]
    say(
        failed={
            "error": ", from ".join(texts)[:600],
            "missing": getattr(error, "name", None) if isinstance(error, ModuleNotFoundError) else None,
            "at": next((one for one in reversed(places) if one), None),
        }
    )


def devices(torch: Any, peers: bool) -> tuple[str | None, int, list[str], list[list[bool]] | None]:
    """Returns what torch tells of the accelerator that it was built for.

    Args:
        torch: the module.
        peers: whether to ask for names and peer access, which initialises the devices.

    Returns:
        Device type (None without an accelerator), number of devices, their names, and whether device i can access
        device j.
    """
    try:
        kind = torch.accelerator.current_accelerator()
    except Exception:  # torch older than 2.6, or a build without
        kind = torch.device("cuda") if torch.version.cuda or torch.version.hip else None
    if kind is None:
        return None, 0, [], None
    module: Any = getattr(torch, kind.type, None)
    count = getattr(module, "device_count", lambda: 0)()
    if not peers or not count:
        return kind.type, count, [], None
    names = [str(module.get_device_name(index)) for index in range(count)] if hasattr(module, "get_device_name") else []
    access = getattr(module, "can_device_access_peer", None)
    matrix = access and [[one == other or bool(access(one, other)) for other in range(count)] for one in range(count)]
    return kind.type, count, names, matrix


def describe(torch: Any, peers: bool, registrations: Registrations) -> dict[str, Any]:
    """Returns the line ``found``: what this torch is and has."""
    say(trying="asking torch.distributed for its backends")
    dist = torch.distributed
    has = dist.is_available()
    backends = {name: bool(dist.is_backend_available(name)) for name in BACKENDS} if has else {}
    say(trying="asking for the version of NCCL")
    try:
        nccl = ".".join(str(part) for part in torch.cuda.nccl.version()) if backends.get("nccl") else None
    except Exception:
        nccl = None
    say(trying="asking for devices")
    try:
        device_type, count, names, matrix = devices(torch, peers)
        trouble = None
    except Exception as error:
        device_type, count, names, matrix = None, 0, [], None
        trouble = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    return {
        "version": str(torch.__version__),
        "libraries": libraries(),
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "xpu": getattr(torch.version, "xpu", None),
        "distributed": has,
        "backends": backends,
        "nccl": nccl,
        "device_type": device_type,
        "devices": count,
        "device_names": names,
        "peers": matrix,
        "trouble": trouble,
        "plugins": plugins(registrations),
        "defaults": dict(getattr(registry(), "default_device_backend_map", {})),
        "reads_lazily": reads_lazily(),
    }


def main(question: dict[str, Any]) -> None:
    """Answers one question of the harness."""
    # The harness ends this process when its patience is over, and the process ends with the harness. Where the kernel
    # cannot do that, this does. It counts the clock, also while a slow machine gives this process no time: so it waits
    # much longer.
    signal.alarm(int(question["patience"]) * 20)
    faulthandler.enable()
    faulthandler.dump_traceback_later(question["patience"] * 0.5)
    say(packages=packages(), installed=installed())
    say(entry_points=entry_points(GROUP), lazy_entry_points=entry_points(LAZY))
    registrations = Registrations()
    say(trying="import torch")
    import torch

    if question["load"] is not None:
        say(trying=f"loading {question['load']}")
        for point in importlib.metadata.entry_points(group=GROUP):
            if point.name == question["load"]:
                point.load()()  # as torch does
    say(found=describe(torch, question["peers"], registrations))


if __name__ == "__main__":
    gc.disable()  # this process makes objects that stay, and soon ends
    arguments = json.loads(sys.argv[1])
    # A folder named like a package in the current folder is not that package.
    sys.path[:] = [folder for folder in sys.path if folder]
    try:
        main(arguments)
    except BaseException as error:  # a module may call sys.exit
        fail(error)
