"""Errors that have ended a task of asyncio and that were never retrieved: its event loop goes on without the task."""

from __future__ import annotations

import os
import sys
import traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def lost_errors(loop: Any) -> list[BaseException]:
    """Returns the errors that have ended tasks of a loop, and that were never retrieved."""
    tasks = sys.modules.get("asyncio.tasks")
    known: Any = getattr(tasks, "_scheduled_tasks", None) or getattr(tasks, "_all_tasks", ())
    errors: list[BaseException] = []
    for task in list(known):
        if task.get_loop() is not loop or not task.done() or task.cancelled():
            continue
        # `_log_traceback` is false as soon as the error has been retrieved.
        error = getattr(task, "_exception", None)
        if error is not None and getattr(task, "_log_traceback", False):
            errors.append(error)
    return errors


def is_of_caller(error: BaseException, places: set[str], folder: str) -> bool:
    """Returns whether an error came through a function that makes the program's distributed calls.

    Other tasks may fail without any effect on the ranks.

    Args:
        error: the error.
        places: where the program makes such calls, `FILE:LINE`, relative to `folder` if the file is below it.
        folder: the current folder.
    """
    for frame, _ in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        name = code.co_filename.removeprefix(folder + os.sep)
        if any(f"{name}:{line}" in places for _, _, line in code.co_lines()):
            return True
    return False
