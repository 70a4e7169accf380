"""Functional collectives: each function is called on every tensor before any result is used.

Tensors: ``input.C.T`` of call C, its tensor T; ``result.C.T``. With ``backward`` also ``cotangent.C.T``, what the
result is multiplied with before it is summed, and ``gradient.C.T``, what the input gets from that sum.

Options: ``collective`` (the function), ``op``, ``dim`` (gather or scatter dimension), ``root``, ``splits`` (output and
input split sizes; null: none are passed), ``wait`` (true: ``wait_tensor`` is called on the results, the last one
first), ``backward``, ``traced`` (by ``torch.compile`` with backend ``aot_eager``), ``calls``, ``tensors`` (of each
call), ``sleep_ms``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed._functional_collectives as functional

from . import StackCall


def run(call: StackCall) -> None:
    """Makes the calls and gives back results and gradients."""
    options = call.options
    call.sleep()
    inputs = []
    for number in range(options["calls"]):
        given = [call.tensors[f"input.{number}.{place}"] for place in range(options["tensors"])]
        if options["backward"]:
            # Leaves of their own: what must come back to them is no business of the step's tensors.
            given = [tensor.detach().requires_grad_() for tensor in given]
        inputs.append(given)
    results = traced(call, inputs) if options["traced"] else issue_all(call, inputs)
    for number, made in enumerate(results):
        for place, result in enumerate(made):
            call.give(f"result.{number}.{place}", result + 0)
    if options["backward"]:
        backward(call, inputs, results)


def traced(call: StackCall, inputs: Sequence[Sequence[torch.Tensor]]) -> list[list[torch.Tensor]]:
    """Makes all calls in one traced function, in which their results are used too; returns the results."""

    def use(inputs: Sequence[Sequence[torch.Tensor]]) -> list[list[torch.Tensor]]:
        return [[result + 0 for result in made] for made in issue_all(call, inputs)]

    torch.compiler.reset()
    made: list[list[torch.Tensor]] = torch.compile(use, backend="aot_eager")(inputs)
    return made


def issue_all(call: StackCall, inputs: Sequence[Sequence[torch.Tensor]]) -> list[list[torch.Tensor]]:
    """Makes all calls before any result is used, and waits for the results if it is to; returns them."""
    results = [issue(call, given) for given in inputs]
    if call.options["wait"]:
        return [[functional.wait_tensor(result) for result in made] for made in reversed(results)][::-1]
    return results


def issue(call: StackCall, given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Makes one call of the function on these tensors; returns its results."""
    options, group = call.options, call.group
    name, op, dim = options["collective"], options["op"], options["dim"]
    arguments: dict[str, tuple[Any, ...]] = {
        "all_reduce": (op, group),
        "all_gather_tensor": (dim, group),
        "reduce_scatter_tensor": (op, dim, group),
        "all_to_all_single": (*(options["splits"] or (None, None)), group),
        "broadcast": (options["root"], group),
        "all_reduce_coalesced": (op, group),
        "all_gather_into_tensor_coalesced": (group,),
        "reduce_scatter_tensor_coalesced": (op, [dim] * len(given), group),
    }
    function = getattr(functional, name)
    if options["backward"]:
        # Three have a twin for it; the others are their own.
        function = getattr(functional, f"{name}_autograd", function)
    if name.endswith("_coalesced"):
        return list(function(list(given), *arguments[name]))
    return [function(given[0], *arguments[name])]


def backward(
    call: StackCall, inputs: Sequence[Sequence[torch.Tensor]], results: Sequence[Sequence[torch.Tensor]]
) -> None:
    """Goes back from the sum of every result times its cotangent, and gives what the inputs got."""
    for number, (given, made) in enumerate(zip(inputs, results, strict=True)):
        products = [(result * call.tensors[f"cotangent.{number}.{place}"]).sum() for place, result in enumerate(made)]
        torch.stack(products).sum().backward()
        for place, tensor in enumerate(given):
            if tensor.grad is not None:
                call.give(f"gradient.{number}.{place}", tensor.grad)
