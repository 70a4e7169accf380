"""Honest but for what the argument says of rank 1, or with `all:` before it of every rank:

killed, exit=N   dies in the first step after init
skips            makes no call from that step on, and says so
no-bytes         makes every call, and hands back nothing to be checked
"""

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "fixtures" / "drivers"))

from pretend import Driver  # noqa: E402

WHO, _, VICE = sys.argv[1].rpartition(":")


class OneOfTwo(Driver):
    def step(self, step):
        if self.group is not None and (self.rank == 1 or WHO == "all"):
            if VICE == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if VICE.startswith("exit="):
                os._exit(int(VICE.removeprefix("exit=")))
            if VICE == "skips":
                storages = [bytearray(length) for length in step["storages"]]
                self.wire.read_into([memoryview(storage) for storage in storages])
                calls = [{"status": "not_reached"} for _ in step["calls"]]
                return self.answer(step["step"], calls, storages)
        super().step(step)

    def answer(self, number, results, storages):
        if VICE == "no-bytes" and (self.rank == 1 or WHO == "all"):
            storages = []
        super().answer(number, results, storages)


OneOfTwo().run()
