"""Errors that have ended a task of asyncio and that nobody has looked at: its event loop goes on without the task."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType
    from typing import Any


def lost_errors(loop: Any, places: set[str], folder: str) -> Iterator[BaseException]:
    """Yields the errors of tasks of a loop that ended in a function which makes the program's distributed calls.

    Other tasks may fail without any effect on the ranks.

    Args:
        loop: the event loop.
        places: where the program makes such calls, `FILE:LINE`, relative to `folder` if the file is below it.
        folder: the current folder.
    """
    tasks = sys.modules.get("asyncio.tasks")
    known: Any = getattr(tasks, "_scheduled_tasks", None) or getattr(tasks, "_all_tasks", ())
    for task in list(known):
        if task.get_loop() is not loop or not task.done() or task.cancelled():
            continue
        # False as soon as somebody has asked for the error.
        if not getattr(task, "_log_traceback", False):
            continue
        error: Any = getattr(task, "_exception", None)
        step = getattr(error, "__traceback__", None)
        while step is not None:
            if makes_calls(step.tb_frame.f_code, places, folder):
                yield error
                break
            step = step.tb_next


def makes_calls(code: CodeType, places: set[str], folder: str) -> bool:
    """Returns whether a call was made from a line of this function."""
    name = code.co_filename.removeprefix(folder + os.sep)
    lines = [line for _, _, line in code.co_lines() if line is not None]
    return any(f"{name}:{line}" in places for line in lines)
