"""Honest but for every all_reduce, in which it exits with code 1."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "fixtures" / "drivers"))

from pretend import Driver  # noqa: E402


class Dies(Driver):
    def call(self, call, tensors):
        if call["call"] == "all_reduce":
            os._exit(1)
        return super().call(call, tensors)


Dies().run()
