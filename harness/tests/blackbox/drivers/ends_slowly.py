"""Honest, and computes for most of a second after its connection when it is to exit, on the first processor that it may use."""

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "fixtures" / "drivers"))

from pretend import Calls, Driver  # noqa: E402


def exit(driver, call, tensors):
    driver.end()
    worked = time.process_time() + 0.8
    while time.process_time() < worked:
        pass
    os._exit(call["code"])


Calls.exit = exit
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
Driver().run()
