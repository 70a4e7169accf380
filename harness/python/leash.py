"""Ends this process together with the thread that started it, where the kernel can.

The harness puts this text in front of every script that it asks a question. A harness that
is killed thereby leaves no `import torch` behind, which can take minutes. Standard library only.

``ALLRANKS_ASKER`` is the harness's process id. If that is not the parent, the harness ended before this text was reached.
"""

try:
    import ctypes
    import os
    import signal

    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.environ.pop("ALLRANKS_ASKER", str(os.getppid())) != str(os.getppid()):
        os._exit(70)
except (ImportError, AttributeError, OSError):
    pass  # no ctypes, or not Linux: it ends when it has its answer
