"""Counts the resources that this process holds, for the protocol's call ``census``. Reads /proc."""

import gc
import os


def count_held_resources() -> dict[str, int]:
    """Collects garbage, then counts.

    Returns:
        ``files`` (open descriptors), ``sockets`` (those among them), ``threads``, ``shared_memory`` (mappings of
        ``/dev/shm``), ``memory`` (bytes of its own, without pages of files) and ``processes`` (children). Empty where
        there is no /proc.
    """
    gc.collect()
    try:
        files = _open_files()
        threads = _living_threads()
        with open("/proc/self/status") as status:
            fields = dict(line.split(":", 1) for line in status)
        with open("/proc/self/maps") as maps:
            shared = sum("/dev/shm/" in line for line in maps)
        with open(f"/proc/self/task/{os.getpid()}/children") as children:
            processes = len(children.read().split())
    except OSError:
        return {}
    return {
        "files": len(files),
        "sockets": sum(name.startswith("socket:") for name in files),
        "threads": threads,
        "shared_memory": shared,
        "memory": _own_memory(fields),
        "processes": processes,
    }


def _own_memory(status: dict[str, str]) -> int:
    """Returns the bytes that this process holds itself, in memory or swapped out.

    Pages of files come and go with what the kernel reads ahead. A kernel that does not tell them apart has
    ``VmRSS`` alone.
    """
    own = [name for name in ("RssAnon", "RssShmem", "VmSwap") if name in status]
    names = own if "RssAnon" in own else ["VmRSS"]
    return sum(int(status[name].split()[0]) for name in names) * 1024


def _open_files() -> list[str]:
    """Returns what each open descriptor refers to. The descriptor that lists them is closed again, and left out."""
    names = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        except OSError:
            continue
    return names


def _living_threads() -> int:
    """Returns the number of threads of this process, without those that are exiting.

    A thread that was joined may be listed for a moment longer: a join returns when the thread gives up its memory,
    which is before the kernel takes it from the list.
    """
    exiting = 0x4  # PF_EXITING in linux/sched.h: the ninth field, see proc_pid_stat(5)
    living = 0
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/stat") as stat:
                flags = int(stat.read().rpartition(")")[2].split()[6])
        except OSError:
            continue
        living += not flags & exiting
    return living
