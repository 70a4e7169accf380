"""Honest on rank 0; rank 1 takes part in every sum, says all went well, and hands back its storages as they came. One
rank's word must not do for another's: mismatch, on rank 1."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4] / "fixtures" / "drivers"))

from pretend import Driver  # noqa: E402


class OneLiar(Driver):
    def call(self, call, tensors):
        before = [bytes(storage) for storage, _ in tensors]
        value = super().call(call, tensors)
        if self.rank == 1:
            for (storage, _), old in zip(tensors, before):
                storage[:] = old
        return value


OneLiar().run()
