"""What comes before a script that the harness asks something: where the kernel can, it ends with the thread that started it.

A harness that is killed thereby leaves no `import torch` behind, which can take minutes. Standard library only.
"""

try:
    import ctypes
    import signal

    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
except (ImportError, AttributeError, OSError):
    pass  # no ctypes, or not Linux: it ends when it has its answer
