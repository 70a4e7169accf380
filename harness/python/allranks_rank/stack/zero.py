"""``ZeroRedundancyOptimizer``: training steps under DDP of a model whose loss is the sum of parameters times inputs.

Tensors: ``parameter.P``, of which the model's parameters are copies; for step S ``input.S.P``, and ``updated.S.P``,
what the parameter is after it.

Options: ``parameters`` (how many), ``steps``, ``rate`` (of SGD), ``view`` (``parameters_as_bucket_view``), ``sleep_ms``
(before each forward).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from . import StackCall


class Model(torch.nn.Module):
    """The sum of some parameters times inputs."""

    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        """Copies the tensors."""
        super().__init__()
        self.weights = torch.nn.ParameterList([torch.nn.Parameter(tensor.clone()) for tensor in parameters])

    def forward(self, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        """Returns the loss."""
        products = [(weight * given).sum() for weight, given in zip(self.weights, inputs, strict=True)]
        return torch.stack(products).sum()


def run(call: StackCall) -> None:
    """Makes the training steps and gives back the parameters after each."""
    options, tensors = call.options, call.tensors
    places = range(options["parameters"])
    model = Model([tensors[f"parameter.{place}"] for place in places])
    parallel = DistributedDataParallel(model, process_group=call.group)
    optimiser = ZeroRedundancyOptimizer(
        parallel.parameters(),
        optimizer_class=torch.optim.SGD,
        process_group=call.group,
        parameters_as_bucket_view=options["view"],
        lr=options["rate"],
    )
    for step in range(options["steps"]):
        call.sleep()
        optimiser.zero_grad()
        parallel([tensors[f"input.{step}.{place}"] for place in places]).backward()
        optimiser.step()
        for place, weight in enumerate(model.weights):
            call.give(f"updated.{step}.{place}", weight)
