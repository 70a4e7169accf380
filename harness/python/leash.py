"""Ends this process together with the thread that started it, where the kernel can.

The harness puts this text in front of every script that it asks a question. A harness that
is killed thereby leaves no `import torch` behind, which can take minutes. Standard library only.

``ALLRANKS_ASKER`` is the harness's process id and, after a space, its namespace of process ids.
A harness that ended before this text was reached sends no signal: then this ends by itself.
The parent may be another process than the harness, such as a shell that runs the interpreter.
"""

try:
    import ctypes
    import os
    import signal

    PR_SET_PDEATHSIG = 1

    def is_gone(asker: str) -> bool:
        """Returns whether a process of this namespace has ended; a zombie has."""
        pid, _, namespace = asker.partition(" ")
        if pid == str(os.getppid()) or os.readlink("/proc/self/ns/pid") != namespace:
            return False
        try:
            with open(f"/proc/{pid}/stat") as file:
                return file.read().rpartition(")")[2].split()[0] in "ZX"
        except (FileNotFoundError, ProcessLookupError):
            return True

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if is_gone(os.environ.pop("ALLRANKS_ASKER", str(os.getppid()))):
        os._exit(70)
except (ImportError, AttributeError, OSError):
    pass  # no ctypes, or not Linux: it ends when it has its answer
