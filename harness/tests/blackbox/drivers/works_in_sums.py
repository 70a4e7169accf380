"""Honest, and computes for most of a second in every all_reduce, on the first processor that it may use."""

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "fixtures" / "drivers"))

from pretend import Driver  # noqa: E402


class Works(Driver):
    def call(self, call, tensors):
        if call["call"] == "all_reduce":
            worked = time.process_time() + 0.8
            while time.process_time() < worked:
                pass
        return super().call(call, tensors)


os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
Works().run()
