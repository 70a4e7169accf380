"""Starts a daemon that has neither environment nor parent, in a session of its own, and never notices that its harness has gone.
Whoever kills the harness, or what stands between, must get rid of both all the same."""

import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "fixtures" / "drivers"))

from leaves_daemon import start_daemon  # noqa: E402
from pretend import Driver  # noqa: E402


class Clings(Driver):
    def call(self, call, tensors):
        time.sleep(3600)


for number in signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE:
    signal.signal(number, signal.SIG_IGN)
start_daemon()
Clings().run()
