"""The call that uses a layer above c10d."""

import torch
import torch.distributed as dist

from .. import stack
from .registry import Fields, Index, protocol_call
from .state import CallState


@protocol_call("stack")
def use_layer(state: CallState, fields: Fields, _index: Index) -> None:
    """Uses a layer above c10d, whose own code issues the collectives.

    Fields:
        group (str): the group.
        layer (str): the layer's name; `allranks_rank.stack` has a module for each.
        tensors (dict of str to tensor index): the step's tensors by the names that the layer has for them.
        options (dict): what the layer is asked for on this rank.

    Raises:
        LookupError: an unknown layer.
        RuntimeError: a result of another shape or dtype than it must have. Also whatever PyTorch raises.
    """
    tensors = {name: state.tensors[index] for name, index in fields["tensors"].items()}
    call = stack.StackCall(
        tensors=tensors,
        options=fields["options"],
        group=state.group(fields["group"]) or dist.group.WORLD,
        device=state.device or torch.device("cpu"),
    )
    stack.run(fields["layer"], call)
