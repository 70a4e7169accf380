"""Writes more into its log than the harness, whose limit on the size of files it inherits, can cut; is right."""

import os
import resource
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "fixtures" / "drivers"))

from pretend import Driver  # noqa: E402

_, most = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
for _ in range(80):
    os.write(1, b"o" * 65535 + b"\n")
Driver().run()
