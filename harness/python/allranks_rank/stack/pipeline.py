"""Pipelines: stages, one or two on each rank, each of which multiplies by its weight and adds its bias.

Tensors: ``weight.K`` and ``bias.K`` of the rank's stage K; for step S on the rank of the first stage ``input.S``, on
that of the last one ``target.S``, what the output is multiplied with before it is summed, and ``output.S``; on every
rank ``gradient.S.K.weight`` and ``gradient.S.K.bias``.

Options: ``schedule``, ``stages`` (the numbers of the rank's stages, in the order of K), ``of_stages`` (how many all
ranks have), ``microbatches``, ``steps``, ``sleep_ms`` (before each step).
"""

from __future__ import annotations

import torch
from torch.distributed import pipelining

from . import StackCall

#: Option -> class. The first two take one stage, the others a list; not all versions of torch have all of them.
SCHEDULES = {
    "gpipe": "ScheduleGPipe",
    "1f1b": "Schedule1F1B",
    "looped_bfs": "ScheduleLoopedBFS",
    "interleaved_1f1b": "ScheduleInterleaved1F1B",
    "zero_bubble": "ScheduleInterleavedZeroBubble",
}


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
    numbers, count = options["stages"], options["of_stages"]
    modules = [Affine(tensors[f"weight.{at}"], tensors[f"bias.{at}"]) for at in range(len(numbers))]
    stages = [
        pipelining.PipelineStage(module, number, count, call.device, group=group)
        for module, number in zip(modules, numbers, strict=True)
    ]
    own = stages if len(stages) > 1 else stages[0]
    make = getattr(pipelining, SCHEDULES[options["schedule"]])
    schedule = make(own, options["microbatches"], loss_fn=loss, scale_grads=False)
    for step in range(options["steps"]):
        call.sleep()
        for module in modules:
            module.zero_grad()
        inputs = (tensors[f"input.{step}"],) if 0 in numbers else ()
        if count - 1 in numbers:
            call.give(f"output.{step}", schedule.step(*inputs, target=tensors[f"target.{step}"]))
        else:
            schedule.step(*inputs)
        for at, module in enumerate(modules):
            for name, parameter in module.named_parameters():
                if parameter.grad is not None:
                    call.give(f"gradient.{step}.{at}.{name}", parameter.grad)
