"""Takes ten seconds before its hello, and uses the processor for a fifth of them, as on a machine that is busy with other things."""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "fixtures" / "drivers"))

from pretend import Driver  # noqa: E402

until = time.monotonic() + 10
while time.monotonic() < until:
    worked = time.process_time() + 0.05
    while time.process_time() < worked:
        pass
    time.sleep(0.2)
Driver().run()
