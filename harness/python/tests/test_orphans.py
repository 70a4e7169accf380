"""Tests of what a zygote does with orphans: those that killing does not end, and those of which no rank is known.

A process that waits for a device cannot be made at will, so the functions that look at processes are replaced.
"""

import contextlib
import io
import unittest
from unittest import mock

from allranks_rank import zygote


def zygote_of(*ranks):
    """Returns a zygote without a connection, with these process ids as its ranks."""
    made = zygote.Zygote.__new__(zygote.Zygote)
    made.ranks = {pid: zygote.Forked(number, f"token-{pid}") for number, pid in enumerate(ranks)}
    made.unkilled, made.candidates = set(), {}
    return made


@contextlib.contextmanager
def processes(children, sessions, output=()):
    """Replaces what is seen of processes: the children, the session of each, and the files that all write to.

    Yields the set of those killed.
    """
    killed = set()
    with mock.patch.multiple(
        zygote,
        own_children=lambda: children,
        has_ended=lambda pid, within=0.0: pid in killed,
        send_signal=lambda pid, _: killed.add(pid),
        session=sessions.get,
        token_of=lambda _: None,
        output_of=lambda _: frozenset(output),
    ):
        yield killed


class TestRemains(unittest.TestCase):
    def test_what_cannot_be_killed_is_counted_and_waited_for_once(self):
        waits = []

        def has_ended(_, within=0.0):
            waits.append(within)
            return False

        a_zygote = zygote_of()
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
        self.assertLessEqual(max(waits), zygote.KILL_TIMEOUT)

    def test_an_orphan_of_a_known_rank_is_killed_with_it_and_counted(self):
        a_zygote = zygote_of(1, 2)
        with processes([4711], {4711: 2}) as killed:
            self.assertEqual(a_zygote.kill_orphans(1), 0)
            self.assertEqual(killed, set())
            self.assertEqual(a_zygote.kill_orphans(2), 1)
        self.assertEqual(killed, {4711})

    def test_an_orphan_is_counted_for_the_only_rank_that_there_is(self):
        a_zygote = zygote_of(1)
        with processes([4711], {4711: 4711}):
            self.assertEqual(a_zygote.kill_orphans(1), 1)

    def test_an_orphan_that_several_ranks_may_have_left_is_counted_for_none(self):
        a_zygote = zygote_of(1, 2)
        with processes([4711], {4711: 4711}) as killed:
            self.assertEqual(a_zygote.kill_orphans(1), 0)
            self.assertEqual(killed, set())
            del a_zygote.ranks[1]
            # A rank that started later has not left it, and does not keep it.
            a_zygote.ranks[3] = zygote.Forked(7, None)
            self.assertEqual(a_zygote.kill_orphans(3), 0)
            self.assertEqual(killed, set())
            self.assertEqual(a_zygote.kill_orphans(2), 0)
        self.assertEqual(killed, {4711})

    def test_an_orphan_without_session_or_token_is_known_by_the_file_that_it_writes_to(self):
        a_zygote = zygote_of(1, 2)
        for pid in 1, 2:
            a_zygote.ranks[pid] = a_zygote.ranks[pid]._replace(output=frozenset([f"/{pid}.out", "/both.err"]))
        with processes([4711], {4711: 4711}, ["/2.out"]) as killed:
            self.assertEqual(a_zygote.kill_orphans(1), 0)
            self.assertEqual(killed, set())
            self.assertEqual(a_zygote.kill_orphans(2), 1)
        with processes([4712], {4712: 4712}, ["/both.err"]):
            self.assertEqual(a_zygote.kill_orphans(1), 0)

    def test_the_end_of_the_zygote_kills_every_orphan(self):
        a_zygote = zygote_of(1, 2)
        with processes([4711, 4712], {4711: 4711, 4712: 1}) as killed:
            a_zygote.kill_orphans()
        self.assertEqual(killed, {4711, 4712})


if __name__ == "__main__":
    unittest.main()
