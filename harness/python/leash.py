"""Ends this process together with the thread that started it, where the kernel can.

The harness puts this text in front of every script that it asks a question. A harness that
is killed thereby leaves no `import torch` behind, which can take minutes. Standard library only.
"""

try:
    import ctypes
    import signal

    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
except (ImportError, AttributeError, OSError):
    pass  # no ctypes, or not Linux: it ends when it has its answer
