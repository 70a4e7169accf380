"""Pipelines: one stage on each rank, which multiplies by its weight and adds its bias.

Tensors: ``weight`` and ``bias`` of the rank's stage; for step S on the first rank ``input.S``, on the last one
``target.S``, what the output is multiplied with before it is summed, and ``output.S``; on every rank
``gradient.S.weight`` and ``gradient.S.bias``.

Options: ``schedule`` (``gpipe`` or ``1f1b``), ``microbatches``, ``steps``, ``sleep_ms`` (before each step).
"""

from __future__ import annotations

import torch
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from . import StackCall

#: Option -> schedule.
SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}


class Affine(torch.nn.Module):
    """A product with a weight, plus a bias."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor) -> None:
        """Copies the tensors."""
        super().__init__()
        self.weight = torch.nn.Parameter(weight.clone())
        self.bias = torch.nn.Parameter(bias.clone())

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """Returns the next stage's input."""
        return given * self.weight + self.bias


def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Returns the loss of a microbatch."""
    return (output * target).sum()


def run(call: StackCall) -> None:
    """Makes the steps and gives back outputs and gradients."""
    options, tensors, group = call.options, call.tensors, call.group
    module = Affine(tensors["weight"], tensors["bias"])
    stage = PipelineStage(module, group.rank(), group.size(), call.device, group=group)
    make = SCHEDULES[options["schedule"]]
    schedule = make(stage, options["microbatches"], loss_fn=loss, scale_grads=False)
    for step in range(options["steps"]):
        call.sleep()
        module.zero_grad()
        inputs = (tensors[f"input.{step}"],) if stage.is_first else ()
        if stage.is_last:
            call.give(f"output.{step}", schedule.step(*inputs, target=tensors[f"target.{step}"]))
        else:
            schedule.step(*inputs)
        for name, parameter in module.named_parameters():
            if parameter.grad is not None:
                call.give(f"gradient.{step}.{name}", parameter.grad)
