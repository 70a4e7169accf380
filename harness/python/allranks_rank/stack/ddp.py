"""``DistributedDataParallel``: training steps of a model whose loss is the sum of its parameters times their inputs.

Tensors: ``parameter.P``, whose memory the model's parameters are; for step S ``buffer.S``, what the model's buffer
holds before it, ``synced.S``, what it holds after the first forward, ``input.S.M.P`` of pass M, ``local.S.P``, the
gradient before the last pass of a step with several, and ``gradient.S.P``, the one after it. What has no gradient is
left as it is. A model that must be refused has ``refused`` in place of all that is given back.

Options: ``parameters`` (how many), ``used`` (those that this rank uses), ``find_unused``, ``bucket_mb`` (null: DDP's
own), ``steps`` (that this rank makes), ``passes``, ``view`` (``gradient_as_bucket_view``), ``hook``, ``join`` (the
steps are made under it), ``is_refused``, ``one_more`` (the model has a parameter more), ``sleep_ms`` (before each
backward).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from . import StackCall

#: For how long the future of `negated` is not done when the sum is, in seconds.
DELAY = 0.05


def negated(group: dist.ProcessGroup, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Gives the average with the other sign, late and in memory of its own; the bucket stays as it was."""
    total = bucket.buffer().clone()
    work = dist.all_reduce(total, group=group, async_op=True)
    devices = [] if total.device.type == "cpu" else [total.device]
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=devices)

    def finish() -> None:
        work.wait()
        time.sleep(DELAY)
        future.set_result(-total / group.size())

    threading.Thread(target=finish).start()
    return future


#: Option -> communication hook.
HOOKS = {
    "allreduce": default_hooks.allreduce_hook,
    "fp16": default_hooks.fp16_compress_hook,
    "bf16": default_hooks.bf16_compress_hook,
    # DDP compares annotations with types, and those of this module are texts.
    "negated": lambda group, bucket: negated(group, bucket),
}


class Model(torch.nn.Module):
    """The sum of some parameters times inputs, and a buffer."""

    def __init__(self, parameters: Sequence[torch.Tensor], buffer: torch.Tensor, used: Sequence[int]) -> None:
        """Takes the tensors as parameters, as they are."""
        super().__init__()
        self.weights = torch.nn.ParameterList([torch.nn.Parameter(tensor) for tensor in parameters])
        self.register_buffer("buffer", buffer)
        self.used = used

    def forward(self, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        """Returns the loss."""
        return torch.stack([(self.weights[place] * inputs[place]).sum() for place in self.used]).sum()


def run(call: StackCall) -> None:
    """Makes the training steps and gives back gradients and buffers."""
    options, tensors = call.options, call.tensors
    parameters = [tensors[f"parameter.{place}"] for place in range(options["parameters"])]
    if options["one_more"]:
        parameters.append(torch.zeros_like(parameters[0]))
    model = Model(parameters, tensors["buffer.0"].clone(), options["used"])
    if options["is_refused"]:
        call.give_refused(lambda: parallelise(call, model))
        return
    parallel = parallelise(call, model)
    if options["hook"] != "none":
        parallel.register_comm_hook(call.group, HOOKS[options["hook"]])
    with parallel.join() if options["join"] else nullcontext():
        for step in range(options["steps"]):
            train(call, parallel, model, step)


def parallelise(call: StackCall, model: Model) -> DistributedDataParallel:
    """Wraps the model as the options say."""
    options = call.options
    bucket = {} if options["bucket_mb"] is None else {"bucket_cap_mb": options["bucket_mb"]}
    return DistributedDataParallel(
        model,
        process_group=call.group,
        find_unused_parameters=options["find_unused"],
        gradient_as_bucket_view=options["view"],
        **bucket,
    )


def train(call: StackCall, parallel: DistributedDataParallel, model: Model, step: int) -> None:
    """Makes one step and gives back what comes of it."""
    options, tensors = call.options, call.tensors
    for weight in model.weights:
        weight.grad = None
    with torch.no_grad():
        model.buffer.copy_(tensors[f"buffer.{step}"])
    for number in range(options["passes"]):
        is_last = number + 1 == options["passes"]
        if is_last and number > 0:
            give_gradients(call, model, f"local.{step}")
        with nullcontext() if is_last else parallel.no_sync():
            loss = parallel([tensors[f"input.{step}.{number}.{place}"] for place in range(options["parameters"])])
            if number == 0:
                call.give(f"synced.{step}", model.buffer)
            # Before it, ranks wait for each other anyhow: buffers are broadcast.
            call.sleep()
            loss.backward()
    give_gradients(call, model, f"gradient.{step}")


def give_gradients(call: StackCall, model: Model, name: str) -> None:
    """Gives the gradients that there are."""
    for place, weight in enumerate(model.weights):
        if weight.grad is not None and f"{name}.{place}" in call.tensors:
            call.give(f"{name}.{place}", weight.grad)
