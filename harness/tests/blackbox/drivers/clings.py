"""Connects, starts `sleep` in a session of its own, ignores every signal it can, and never notices that its harness has
gone. Whoever kills the harness must get rid of both all the same."""

import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "fixtures" / "drivers"))

from pretend import Driver  # noqa: E402


class Clings(Driver):
    def call(self, call, tensors):
        time.sleep(3600)


for number in signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE:
    signal.signal(number, signal.SIG_IGN)
subprocess.Popen(["sleep", "3600"], start_new_session=True)
Clings().run()
