"""Calls that concern the rank's own process: its time, its life, its environment, and what it holds."""

import os
import signal
import time
from contextlib import nullcontext
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from ..held_resources import count_held_resources
from ..snapshots import STATEMENTS
from .registry import Fields, Index, protocol_call
from .state import CallState


@protocol_call("sleep")
def sleep(_state: CallState, fields: Fields, _index: Index) -> None:
    """Sleeps.

    Fields:
        ms (int): milliseconds.
    """
    time.sleep(fields["ms"] / 1000)


@protocol_call("mark")
def mark(_state: CallState, _fields: Fields, _index: Index) -> None:
    """Does nothing. The ``enter`` frame before it tells the harness that the rank has come to this place.

    Fields:
        name (str): the place's name, for the harness alone.
    """


@protocol_call("hold")
def hold(state: CallState, _fields: Fields, _index: Index) -> None:
    """Waits for the frame ``{"frame": "go"}`` on the control connection.

    Fields:
        name (str): the place's name, for the harness alone.

    Raises:
        ValueError: the harness sent another frame.
    """
    if state.wait_for_go is None:
        raise RuntimeError("there is no control connection to wait on")
    state.wait_for_go()


@protocol_call("pause")
def pause(_state: CallState, _fields: Fields, _index: Index) -> None:
    """Stops this process (SIGSTOP). It goes on when the harness sends SIGCONT."""
    os.kill(os.getpid(), signal.SIGSTOP)


@protocol_call("die")
def die(_state: CallState, fields: Fields, _index: Index) -> None:
    """Ends this process by a signal.

    Fields:
        signal (int): the signal's number.
    """
    os.kill(os.getpid(), fields["signal"])
    time.sleep(60)  # a signal may be delivered later than kill returns


@protocol_call("exit")
def exit_process(_state: CallState, fields: Fields, _index: Index) -> NoReturn:
    """Leaves through the interpreter's normal shutdown, without a ``bye`` frame.

    Fields:
        code (int): the exit code.
    """
    os.environ["ALLRANKS_EXIT"] = "interpreter"
    raise SystemExit(fields["code"])


@protocol_call("census")
def census(_state: CallState, _fields: Fields, _index: Index) -> dict[str, int]:
    """Collects garbage, and counts what this process holds.

    Value:
        dict of str to int: ``files`` (open descriptors), ``sockets`` (those among them), ``threads``, ``shared_memory``
        (mappings), ``processes`` (children), ``memory`` (bytes of its own). Empty where there is no /proc.
    """
    return count_held_resources()


@protocol_call("setenv")
def setenv(_state: CallState, fields: Fields, _index: Index) -> None:
    """Changes the environment of this process.

    Fields:
        name (str): the variable.
        value (str or null): its new value; null removes it.
    """
    if fields["value"] is None:
        os.environ.pop(fields["name"], None)
    else:
        os.environ[fields["name"]] = fields["value"]


@protocol_call("python")
def python(state: CallState, fields: Fields, _index: Index) -> Any:
    """Runs Python statements.

    They see ``torch``, ``dist`` (``torch.distributed``), ``rank``, ``world_size``, ``device``, ``group(name)`` and
    ``tensors`` (the step's). A tensor that they make without naming a device is made on the rank's.

    Fields:
        source (str): the statements.

    Value:
        any: what they leave in ``result``; what JSON cannot express is sent as its ``repr``.

    Raises:
        SyntaxError: the source is not Python. Also whatever the statements raise.
    """
    names = {
        "torch": torch,
        "dist": dist,
        "rank": int(os.environ["RANK"]),
        "world_size": int(os.environ["WORLD_SIZE"]),
        "device": state.device or torch.device("cpu"),
        "group": state.group,
        "tensors": state.tensors,
        "result": None,
    }
    with state.device or nullcontext():
        exec(compile(fields["source"], STATEMENTS, "exec"), names)
    return names["result"]
