"""Is honest, and waits in every sum of seven elements as long as the file $BLACKBOX_HOLD is there."""

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "fixtures" / "drivers"))

from pretend import Calls, Driver  # noqa: E402

SUM = Calls.all_reduce


def all_reduce(driver, call, tensors):
    """The sum, after the wait."""
    held = Path(os.environ["BLACKBOX_HOLD"])
    while tensors[call["tensor"]][1]["shape"] == [7] and held.exists():
        time.sleep(0.01)
    return SUM(driver, call, tensors)


Calls.all_reduce = all_reduce
Driver().run()
