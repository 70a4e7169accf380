"""Honest on rank 0; rank 1 does everything right and ends with the exit code or by the signal in its argument, or leaves a
process behind."""

import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "fixtures" / "drivers"))

from pretend import Driver  # noqa: E402

driver = Driver()
driver.run()
if driver.rank == 1:
    kind, number = sys.argv[1].split("=")
    if kind == "leaves":
        subprocess.Popen(["sleep", "3600"], start_new_session=True)
    if kind == "signal":
        os.kill(os.getpid(), int(number))
    sys.exit(int(number))
