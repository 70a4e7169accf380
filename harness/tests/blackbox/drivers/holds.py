"""Is honest, but for sums of seven elements: as long as the file $BLACKBOX_HOLD is there it waits in them, and as long as
$BLACKBOX_FAIL is there it raises."""

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "fixtures" / "drivers"))

from pretend import Calls, Driver  # noqa: E402

SUM = Calls.all_reduce


def is_there(variable):
    """Whether there is a file that the variable names."""
    path = os.environ.get(variable)
    return path is not None and Path(path).exists()


def all_reduce(driver, call, tensors):
    """The sum, after the wait, unless it fails."""
    is_special = tensors[call["tensor"]][1]["shape"] == [7]
    while is_special and is_there("BLACKBOX_HOLD"):
        time.sleep(0.01)
    if is_special and is_there("BLACKBOX_FAIL"):
        raise RuntimeError("it is broken")
    return SUM(driver, call, tensors)


Calls.all_reduce = all_reduce
Driver().run()
