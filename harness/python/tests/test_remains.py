"""What a zygote does with orphans that killing does not end.

A process that waits for a device cannot be made at will, so the functions that look at processes are replaced.
"""

import contextlib
import io
import unittest
from unittest import mock

from allranks_rank import zygote


class TestRemains(unittest.TestCase):
    def test_what_cannot_be_killed_is_counted_and_waited_for_once(self):
        waits = []

        def has_ended(_, within=0.0):
            waits.append(within)
            return False

        a_zygote = zygote.Zygote.__new__(zygote.Zygote)
        a_zygote.ranks, a_zygote.unkilled = {}, set()
        said = io.StringIO()
        with (
            mock.patch.multiple(
                zygote, own_children=lambda: [4711, 4712], has_ended=has_ended, send_signal=lambda *_: None
            ),
            mock.patch.multiple(zygote, session=lambda _: None, token_of=lambda _: None, state=lambda _: "D"),
            contextlib.redirect_stderr(said),
        ):
            self.assertEqual([a_zygote.kill_orphans(1), a_zygote.kill_orphans(2)], [2, 0])
        named = [f"allranks: cannot kill pid {pid} (state D)" for pid in (4711, 4712)]
        self.assertEqual(said.getvalue().splitlines(), named)
        self.assertLessEqual(max(waits), zygote.PATIENCE)


if __name__ == "__main__":
    unittest.main()
