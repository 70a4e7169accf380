"""The Python driver of allranks: the program that a rank runs. Needs the standard library and torch (2.4 or later).

``python -m allranks_rank`` is one rank in a fresh process; ``python -m allranks_rank.zygote`` imports torch once and
forks ranks on request. The protocol they speak is described in ``harness/doc/reference/protocol.md``; this package is
also its reference implementation, to be read in this order: `wire`, `rank`, `tensors`, `calls`, `zygote`.
"""

#: Version of the rank protocol, sent in ``hello``.
VERSION = 1
