"""``context_parallel``: attention over a sequence of which each rank has a part.

Tensors: ``query``, ``key`` and ``value``, the rank's positions of each head, ``cotangent``, what the output is
multiplied with before it is summed; ``output`` and ``gradient.query``, ``gradient.key`` and ``gradient.value``.

Options: ``causal``, ``balanced`` (each rank has a part from either end of the sequence), ``rotation`` (how keys and
values go round: ``allgather`` or ``alltoall``), ``length`` (of the sequence), ``sleep_ms``.

The kernel is the one that takes float32, ``SDPBackend.EFFICIENT_ATTENTION``.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import _attention, context_parallel
from torch.nn.attention import SDPBackend, sdpa_kernel

from . import StackCall

#: What attention is given.
INPUTS = ("query", "key", "value")


def run(call: StackCall) -> None:
    """Makes one forward and one backward, and gives the output and all gradients."""
    options, tensors = call.options, call.tensors
    mesh = init_device_mesh(call.device.type, (call.group.size(),))
    _attention._cp_options.enable_load_balance = options["balanced"]
    _attention.set_rotate_method(options["rotation"])
    given = [tensors[name].clone().requires_grad_() for name in INPUTS]
    # It divides what it is given of the sequence; the inputs are divided already, and this stands for them.
    positions = torch.zeros(options["length"])
    call.sleep()
    with (
        context_parallel(mesh, buffers=[positions], buffer_seq_dims=[0]),
        sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION),
    ):
        # Its name in its module is what is replaced.
        output = F.scaled_dot_product_attention(*given, is_causal=options["causal"])
        call.give("output", output)
        (output * tensors["cotangent"]).sum().backward()
    for name, source in zip(INPUTS, given, strict=True):
        if source.grad is not None:
            call.give(f"gradient.{name}", source.grad)
