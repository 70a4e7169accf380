"""What a Python interpreter offers of a platform. Run as `python -c PROBE JSON`; standard library and torch only.

The one argument: {"python_path", "import", "requires": [package...], "count": expression or null, "backends": [...]}.
Every line of ours on stdout begins with MARK and is JSON: first what is about to be tried, so that an import which
kills the interpreter or never returns is named, and at last {"found": ...}. Other output is somebody else's.
"""

import importlib
import importlib.metadata
import importlib.util
import json
import sys

MARK = "ALLRANKS-PROBE "


def say(**line):
    # On a line of its own, whatever an import has printed before.
    sys.stdout.write("\n" + MARK + json.dumps(line) + "\n")
    sys.stdout.flush()


def explain(error):
    return " ".join(f"{type(error).__name__}: {error}".split())


def version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def available(dist, backend):
    # `nccl` and `xccl` are attributes of Backend in every build; only this tells whether they were built in.
    return all(dist.is_backend_available(part.split(":")[-1]) for part in backend.split(","))


def probe(wanted):
    found = {"trouble": None, "torch": None, "versions": {}, "count": None, "backends": {}}
    names = {}
    # Importing torch takes seconds; a package that is not there needs none.
    for module in ["torch", *wanted["import"]]:
        package = module.split(".")[0]
        if importlib.util.find_spec(package) is None:
            found["trouble"] = {"missing": package}
            return found
    for module in ["torch", *wanted["import"]]:
        say(trying=f"import {module}")
        try:
            names[module.split(".")[0]] = importlib.import_module(module) and sys.modules[module.split(".")[0]]
        except ModuleNotFoundError as error:
            missing = error.name == module.split(".")[0]
            found["trouble"] = {"missing": error.name} if missing else {"import": module, "error": explain(error)}
            return found
        except BaseException as error:  # a module may call sys.exit
            found["trouble"] = {"import": module, "error": explain(error)}
            return found
    torch = names["torch"]
    found["torch"] = str(torch.__version__)
    found["versions"] = {package: version(package) for package in wanted["requires"]}
    dist = torch.distributed
    found["distributed"] = dist.is_available()
    if found["distributed"]:
        say(trying="asking for backends")
        found["backends"] = {backend: available(dist, backend) for backend in wanted["backends"]}
    if wanted["count"] is not None:
        say(trying=wanted["count"])
        try:
            found["count"] = int(eval(wanted["count"], names))
        except Exception as error:
            found["trouble"] = {"count": wanted["count"], "error": explain(error)}
    return found


if __name__ == "__main__":
    wanted = json.loads(sys.argv[1])
    # A folder named like a package in the current folder is not that package.
    sys.path[:] = wanted["python_path"] + [folder for folder in sys.path if folder]
    say(found=probe(wanted))
