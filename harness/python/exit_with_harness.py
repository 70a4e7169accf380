"""Ends this process when the harness ends, where the kernel can do that.

The harness puts this text in front of each script that it runs in an interpreter. So a harness that is killed leaves
no `import torch` behind, which can take minutes. Standard library only.

The kernel kills this process when the thread that started it ends. It does nothing if that thread has ended before
this text runs, or if the parent is another process, such as a shell that runs the interpreter. For these cases
``ALLRANKS_STARTED_BY`` holds the process id of the harness and, after a space, its PID namespace: if that process has
ended, this one exits at once with code 70.
"""

try:
    import ctypes
    import os
    import signal

    PR_SET_PDEATHSIG = 1

    def has_ended(harness: str) -> bool:
        """Returns whether a process of this PID namespace has ended; a zombie has. False for another namespace."""
        pid, _, namespace = harness.partition(" ")
        if pid == str(os.getppid()) or os.readlink("/proc/self/ns/pid") != namespace:
            return False
        try:
            with open(f"/proc/{pid}/stat") as file:
                return file.read().rpartition(")")[2].split()[0] in "ZX"
        except (FileNotFoundError, ProcessLookupError):
            return True

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if has_ended(os.environ.pop("ALLRANKS_STARTED_BY", str(os.getppid()))):
        os._exit(70)
except (ImportError, AttributeError, OSError):
    pass  # no ctypes, or not Linux: this process ends when its script does
