"""What `import torch` comes to, and what this torch is. Run as `python -c THIS JSON`; standard library and torch only.

The one argument: {"load": name of one entry point of `torch.backends` to load after torch, or null; "peers": whether
to ask devices for their names and for access to each other, which initialises them; "patience": seconds, after which
the place where it hangs is written down}. Every line of ours on stdout begins with MARK and is JSON: what is
installed, what is about to be tried, and at last {"found": ...} or {"failed": ...}. Other output is somebody else's.
"""

import faulthandler
import importlib.metadata
import json
import re
import signal
import sys
import traceback

MARK = "ALLRANKS-DOCTOR "
GROUP = "torch.backends"
#: Loaded when a process group of the entry point's name is made, by a torch that knows of it.
LAZY = "torch.distributed.backends"
BACKENDS = ["gloo", "nccl", "xccl", "mpi", "ucc"]
# Whose versions matter to collectives.
PACKAGES = re.compile(
    r"torch.*|triton.*|nvidia-(nccl|cuda-runtime|nvshmem).*|intel[-_]extension.*|oneccl.*|impi.*|habana.*|"
    r"libneuronxla|neuronx.*|.*[-_]torch|numpy",
    re.IGNORECASE,
)


def say(**line):
    # On a line of its own, whatever an import has printed before.
    sys.stdout.write("\n" + MARK + json.dumps(line) + "\n")
    sys.stdout.flush()


def entry_points(group):
    found = importlib.metadata.entry_points(group=group)
    return [
        {"name": point.name, "value": point.value, "package": point.dist.name if point.dist else None}
        for point in found
    ]


def registry():
    """Torch's class of backends, if it has been imported."""
    return getattr(sys.modules.get("torch.distributed.distributed_c10d"), "Backend", None)


class Registered:
    """Which package registered which backend: whatever changes while torch loads an entry point is that package's."""

    def __init__(self):
        self.packages = {}
        load = importlib.metadata.EntryPoint.load

        def watched(point):
            function = load(point)
            return (lambda: self._call(point, function)) if point.group == GROUP else function

        importlib.metadata.EntryPoint.load = watched

    def _call(self, point, function):
        before = dict(getattr(registry(), "_plugins", {}))
        function()
        for name, plugin in getattr(registry(), "_plugins", {}).items():
            if before.get(name) is not plugin:
                package = point.dist.name if point.dist else point.name
                self.packages.setdefault(name.lower(), []).append(package)


def plugins(registered):
    """Backends that were registered from outside of torch."""
    backend = registry()
    return [
        {
            "name": name.lower(),
            "extended": bool(plugin.extended_api),
            "devices": [str(device) for device in backend.backend_capability.get(name.lower(), [])],
            "creator": f"{getattr(plugin.creator_fn, '__module__', None)}.{getattr(plugin.creator_fn, '__qualname__', '')}",
            "packages": registered.packages.get(name.lower(), []),
        }
        for name, plugin in getattr(backend, "_plugins", {}).items()
    ]


def reads_lazily():
    """Whether this torch looks for backends in entry points; the only sign of it is its text."""
    module = sys.modules.get("torch.distributed.distributed_c10d")
    try:
        with open(module.__file__) as file:
            return LAZY in file.read()
    except (AttributeError, OSError):
        return None


def packages():
    names = ((package.metadata["Name"], package.version) for package in importlib.metadata.distributions())
    return {name: version for name, version in names if name and PACKAGES.fullmatch(name)}


def place(error):
    """The innermost place that is no part of torch's, nor of Python's own import machinery."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != "<string>"]
    others = [
        frame for frame in frames if "importlib" not in frame.filename and "/torch/" not in frame.filename
    ]
    return f"{others[-1].filename}:{others[-1].lineno}" if others else None


def chain(error):
    """The error and what it came from: torch wraps what a backend raises."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def fail(error):
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


def devices(torch, peers):
    """Of the accelerator this torch was built for: type, number, and if wanted names and claimed peer access."""
    try:
        kind = torch.accelerator.current_accelerator()
    except Exception:  # torch older than 2.6, or a build without
        kind = torch.device("cuda") if torch.version.cuda or torch.version.hip else None
    if kind is None:
        return None, 0, [], None
    module = getattr(torch, kind.type, None)
    count = getattr(module, "device_count", lambda: 0)()
    if not peers or not count:
        return kind.type, count, [], None
    names = [str(module.get_device_name(index)) for index in range(count)] if hasattr(module, "get_device_name") else []
    access = getattr(module, "can_device_access_peer", None)
    matrix = access and [
        [one == other or bool(access(one, other)) for other in range(count)] for one in range(count)
    ]
    return kind.type, count, names, matrix


def describe(torch, peers, registered):
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
        "plugins": plugins(registered),
        "defaults": dict(getattr(registry(), "default_device_backend_map", {})),
        "reads_lazily": reads_lazily(),
    }


def main(wanted):
    # Nobody is left to end this process if the harness is killed.
    signal.alarm(int(wanted["patience"]) + 5)
    faulthandler.enable()
    faulthandler.dump_traceback_later(wanted["patience"] * 0.5)
    say(packages=packages(), entry_points=entry_points(GROUP), lazy_entry_points=entry_points(LAZY))
    registered = Registered()
    say(trying="import torch")
    import torch

    if wanted["load"] is not None:
        say(trying=f"loading {wanted['load']}")
        for point in importlib.metadata.entry_points(group=GROUP):
            if point.name == wanted["load"]:
                point.load()()  # as torch does
    say(found=describe(torch, wanted["peers"], registered))


if __name__ == "__main__":
    wanted = json.loads(sys.argv[1])
    # A folder named like a package in the current folder is not that package.
    sys.path[:] = [folder for folder in sys.path if folder]
    try:
        main(wanted)
    except BaseException as error:  # a module may call sys.exit
        fail(error)
