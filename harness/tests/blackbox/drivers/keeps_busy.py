"""Keeps the first processor that it may use busy."""

import os

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
while True:
    pass
