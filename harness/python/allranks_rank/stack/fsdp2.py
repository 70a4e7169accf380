"""``fully_shard``: training steps of a model whose loss is the sum of its sharded parameters times their inputs.

Tensors: ``parameter.P``, the parameter in full, of which the rank keeps its shard; for step S ``input.S.P``,
``gathered.S.P`` (the parameter as the forward has it), ``returned.S.P`` (the input's gradient: the parameter as the
backward has it), ``gradient.S.P`` (the rank's shard of it), ``shard.S.P`` (its
shard of the parameter after the optimiser's step) and ``full.S.P`` (all shards together). Where gradients are clipped,
``norm.S``, the norm of all of them before that.

Options: ``parameters`` (how many), ``mesh`` (sizes of the device mesh: one to shard along, or one to replicate along
and one to shard along), ``steps``, ``reshard`` (``reshard_after_forward``), ``units`` (``one``: of all parameters;
``each``: of each parameter; ``prefetched``: the same, and each gathers the next one's), ``divide_by`` (the gradient
divide factor; null: FSDP2's own), ``force_sum``, ``parameter_dtype`` and ``reduce_dtype`` (of the policy; null: the
parameters' own), ``clip_to`` (the largest norm; null: nothing is clipped), ``rate`` (of SGD), ``sleep_ms`` (before each
backward).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from . import StackCall


class Product(torch.nn.Module):
    """The sum of a parameter times an input."""

    def __init__(self, parameter: torch.Tensor) -> None:
        """Copies the tensor."""
        super().__init__()
        self.weight = torch.nn.Parameter(parameter.clone())
        #: What the latest forward was made with.
        self.gathered = parameter

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """Returns the sum."""
        self.gathered = self.weight.detach().clone()
        return (self.weight * given).sum()


class Model(torch.nn.Module):
    """The sum of some parameters times inputs."""

    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        """Copies the tensors."""
        super().__init__()
        self.products = torch.nn.ModuleList(Product(tensor) for tensor in parameters)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Returns the loss."""
        sums = [product(given) for product, given in zip(self.products, inputs, strict=True)]
        return torch.stack(sums).sum()


def run(call: StackCall) -> None:
    """Makes the training steps and gives back gradients and parameters."""
    options, tensors = call.options, call.tensors
    places = range(options["parameters"])
    model = Model([tensors[f"parameter.{place}"] for place in places])
    names = ("replicate", "shard")[-len(options["mesh"]) :]
    mesh = init_device_mesh(call.device.type, tuple(options["mesh"]), mesh_dim_names=names)
    policy = MixedPrecisionPolicy(dtype_of(options["parameter_dtype"]), dtype_of(options["reduce_dtype"]))
    units = [] if options["units"] == "one" else list(model.products)
    sharded_units = [
        fully_shard(unit, mesh=mesh, reshard_after_forward=options["reshard"], mp_policy=policy)
        for unit in [*units, model]
    ]
    for unit in sharded_units:
        if options["divide_by"] is not None:
            unit.set_gradient_divide_factor(options["divide_by"])
        if options["force_sum"]:
            unit.set_force_sum_reduction_for_comms(True)
    if options["units"] == "prefetched":
        for unit, following in itertools.pairwise(sharded_units[:-1]):
            unit.set_modules_to_forward_prefetch([following])
            following.set_modules_to_backward_prefetch([unit])
    optimiser = torch.optim.SGD(model.parameters(), lr=options["rate"])
    for step in range(options["steps"]):
        # Without a gradient of its own no input has a backward hook, and the reduction comes after backward.
        inputs = [tensors[f"input.{step}.{place}"].clone().requires_grad_() for place in places]
        loss = model(*inputs)
        # Before it, ranks wait for each other anyhow: parameters are gathered.
        call.sleep()
        loss.backward()
        if options["clip_to"] is not None:
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), options["clip_to"])
            call.give(f"norm.{step}", sharded(norm).full_tensor().reshape(1))
        for place, product in enumerate(model.products):
            call.give(f"gathered.{step}.{place}", product.gathered.to(inputs[place].dtype))
            if (returned := inputs[place].grad) is not None:
                call.give(f"returned.{step}.{place}", returned)
            call.give(f"gradient.{step}.{place}", local(product.weight.grad))
        optimiser.step()
        optimiser.zero_grad()
        for place, product in enumerate(model.products):
            call.give(f"shard.{step}.{place}", local(product.weight))
            call.give(f"full.{step}.{place}", sharded(product.weight).full_tensor())


def dtype_of(name: str | None) -> torch.dtype | None:
    """Returns the element type of this name, if there is a name."""
    return name and getattr(torch, name)


def sharded(tensor: torch.Tensor | None) -> DTensor:
    """Returns the tensor, which must be a DTensor.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(tensor, DTensor):
        raise TypeError(f"a {type(tensor).__name__} in place of a DTensor")
    return tensor


def local(tensor: torch.Tensor | None) -> torch.Tensor:
    """Returns the shard that this rank has."""
    return sharded(tensor).to_local()
