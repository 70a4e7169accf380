"""The call that chooses the device and imports the platform's modules."""

import importlib
import sys

import torch

from .arguments import dotted
from .registry import Fields, Index, protocol_call
from .state import CallState


@protocol_call("prepare")
def prepare(state: CallState, fields: Fields, _index: Index) -> None:
    """Imports the platform's modules, makes the rank's device current, and has later tensors made on it.

    Not a call of the library. It may come again, after ``init_process_group``, to set the device only then.

    Fields:
        import (list of str): modules, imported in this order.
        python_path (list of str, optional): folders put in front of ``sys.path``, in this order.
        device (str): ``cpu``, ``cuda:1``, as ``torch.device`` takes it.
        set_device (str, optional): dotted name of a function, called with the index of ``device`` (0 if it has none).
        synchronize (str, optional): dotted name of a function without arguments that waits for the device. It is called
            before storages are read back at the end of each later step.
        shares_memory (bool, default true): false if an op may part a tensor from its storage when it gives it a new
            value. What the tensors hold then counts in place of the storages.

    Raises:
        ImportError: a module, or a part of a dotted name, is not there.
        RuntimeError: torch knows no such device. Also whatever the modules and ``set_device`` raise.
    """
    for folder in reversed(fields.get("python_path") or ()):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    for module in fields["import"]:
        importlib.import_module(module)
    device = torch.device(fields["device"])
    if fields.get("set_device"):
        dotted(fields["set_device"])(device.index or 0)
    state.synchronize = dotted(fields["synchronize"]) if fields.get("synchronize") else None
    shares_memory = fields.get("shares_memory")
    state.shares_memory = True if shares_memory is None else shares_memory
    state.device = None if device.type == "cpu" else device
