"""``SyncBatchNorm``: batches of which each rank has some rows, normalised by the mean and variance of them all.

Tensors: ``weight``, ``bias``, ``mean`` and ``variance`` (running); for step S ``input.S`` (the rank's rows),
``cotangent.S``, what the output is multiplied with before it is summed, ``output.S``, ``gradient.S.input``,
``gradient.S.weight`` and ``gradient.S.bias`` (of this rank's rows), and ``mean.S`` and ``variance.S``, running ones
after the step.

Options: ``steps``, ``momentum``, ``epsilon``, ``sleep_ms`` (before each forward).
"""

from __future__ import annotations

import torch

from . import StackCall


def run(call: StackCall) -> None:
    """Makes the steps, and gives outputs, gradients and running values."""
    options, tensors = call.options, call.tensors
    norm = made(call)
    for step in range(options["steps"]):
        call.sleep()
        norm.zero_grad()
        given = tensors[f"input.{step}"].clone().requires_grad_()
        output = norm(given)
        call.give(f"output.{step}", output)
        (output * tensors[f"cotangent.{step}"]).sum().backward()
        for name, source in (("input", given), ("weight", norm.weight), ("bias", norm.bias)):
            if source.grad is not None:
                call.give(f"gradient.{step}.{name}", source.grad)
        for name, running in (("mean", norm.running_mean), ("variance", norm.running_var)):
            if running is not None:
                call.give(f"{name}.{step}", running)


def made(call: StackCall) -> torch.nn.SyncBatchNorm:
    """Returns the module with the given parameters and running values."""
    tensors, options = call.tensors, call.options
    norm = torch.nn.SyncBatchNorm(
        tensors["weight"].numel(),
        eps=options["epsilon"],
        momentum=options["momentum"],
        process_group=call.group,
        device=call.device,
        dtype=tensors["weight"].dtype,
    )
    with torch.no_grad():
        for name, target in (
            ("weight", norm.weight),
            ("bias", norm.bias),
            ("mean", norm.running_mean),
            ("variance", norm.running_var),
        ):
            if target is not None:
                target.copy_(tensors[name])
    return norm
