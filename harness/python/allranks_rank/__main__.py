"""Runs one rank in a process of its own: ``python -m allranks_rank``."""

from .process_exit import die_with_parent, finish
from .rank import run

if __name__ == "__main__":
    die_with_parent(only_if_asked=True)
    finish(run)
