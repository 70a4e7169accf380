"""Tensor parallelism: two linear layers, the first divided by columns and the second by rows.

Tensors: ``input`` (under sequence parallelism this rank's rows), ``weight.L`` and ``bias.L`` of layer L in full,
``cotangent``, what the output is multiplied with before it is summed; ``output``, ``gradient.input``, this rank's parts
``gradient.weight.L`` and ``gradient.bias.0``, and ``gradient.bias.1``, the whole.

Options: ``sequence`` (input and output are divided by rows), ``bias`` (whether the layers have one), ``sleep_ms``.
"""

from __future__ import annotations

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from . import StackCall


def run(call: StackCall) -> None:
    """Makes one forward and one backward, and gives the output and all gradients."""
    options, tensors = call.options, call.tensors
    mesh = init_device_mesh(call.device.type, (call.group.size(),))
    layers = [layer(call, number) for number in range(2)]
    rows = Shard(0) if options["sequence"] else Replicate()
    model = parallelize_module(
        torch.nn.Sequential(*layers),
        mesh,
        {"0": ColwiseParallel(input_layouts=rows), "1": RowwiseParallel(output_layouts=rows)},
    )
    call.sleep()
    given = tensors["input"].clone().requires_grad_()
    output = model(given)
    call.give("output", output)
    (output * tensors["cotangent"]).sum().backward()
    if given.grad is not None:
        call.give("gradient.input", given.grad)
    for number, made in enumerate(layers):
        for name, parameter in made.named_parameters():
            gradient = parameter.grad
            if not isinstance(gradient, DTensor):
                raise TypeError(f"the gradient of {name} is a {type(gradient).__name__} in place of a DTensor")
            is_whole = (name, number) == ("bias", 1)
            call.give(f"gradient.{name}.{number}", gradient.full_tensor() if is_whole else gradient.to_local())


def layer(call: StackCall, number: int) -> torch.nn.Linear:
    """Returns a linear layer with the weight and bias of this number."""
    weight = call.tensors[f"weight.{number}"]
    outputs, inputs = weight.shape
    made = torch.nn.Linear(inputs, outputs, bias=call.options["bias"], device=weight.device, dtype=weight.dtype)
    with torch.no_grad():
        made.weight.copy_(weight)
        if call.options["bias"]:
            made.bias.copy_(call.tensors[f"bias.{number}"])
    return made
