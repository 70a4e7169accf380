"""`files`: has no open files left when it is to initialise. `threads`: ends as Python does where no thread can be started."""

import resource
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "fixtures" / "drivers"))

from pretend import Driver  # noqa: E402


class Starves(Driver):
    def call(self, call, tensors):
        if call["call"] == "init_process_group" and sys.argv[1] == "files":
            resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))
            self.files = [open("/dev/null") for _ in range(20)]
        return super().call(call, tensors)


if sys.argv[1] == "threads":
    # With fewer threads than there are, another cannot be started. Root has no limit, so it is said and not tried.
    raise RuntimeError("can't start new thread")
Starves().run()
