"""Calls that change the step's tensors on this rank alone. None of them is a call of the library."""

import torch

from .registry import Fields, Index, protocol_call
from .state import CallState


@protocol_call("tensors_as")
def tensors_as(state: CallState, fields: Fields, _index: Index) -> None:
    """Makes tensors of the step anew, of another kind. It is always the first call of its step.

    Fields:
        kind (str): ``requires_grad``: leaves that require gradients. ``inference``: inference tensors, and the rest of
            the step runs in inference mode. ``pinned``: tensors in page-locked memory of the host.
        tensors (list of tensor indices): those that are made anew; for ``inference`` and ``pinned`` all of the step's.

    Raises:
        ValueError: an unknown kind.
        RuntimeError: a tensor whose dtype can have no gradient; or there is no device to lock memory for.
    """
    kind = fields["kind"]
    if kind == "requires_grad":
        for tensor in state.select(fields["tensors"]):
            tensor.requires_grad_()
        return
    if state.remake is None:
        raise RuntimeError("no step is under way")
    if kind == "inference":
        state.mode = torch.inference_mode()
        state.mode.__enter__()
        state.tensors = state.remake()
    elif kind == "pinned":
        state.tensors = state.remake(pinned=True)
    else:
        raise ValueError(f"unknown kind of tensor {kind!r}")


@protocol_call("grow")
def grow(state: CallState, fields: Fields, _index: Index) -> None:
    """Puts a new, longer tensor in the place of one of the step's: its elements, repeated. The storage stays as it is.

    Fields:
        tensor (tensor index): one dimension, shape [n]; the new one has shape [times * n].
        times (int): how many times the elements are repeated.
    """
    state.tensors[fields["tensor"]] = state.tensors[fields["tensor"]].repeat(fields["times"])


@protocol_call("windows")
def windows(state: CallState, fields: Fields, _index: Index) -> None:
    """Copies parts of a tensor to another, one after the other.

    Fields:
        tensor (tensor index): the source, one dimension.
        starts (list of int): the first element of each part.
        len (int): elements of each part.
        output (tensor index): the destination, shape [number of starts * len].

    Raises:
        RuntimeError: a part leaves the source or the output.
    """
    tensor, output, length = state.tensors[fields["tensor"]], state.tensors[fields["output"]], fields["len"]
    for number, start in enumerate(fields["starts"]):
        output[number * length : (number + 1) * length] = tensor[start : start + length]


@protocol_call("premul_factor")
def premul_factor(state: CallState, fields: Fields, _index: Index) -> None:
    """Sets what ``premul_sum`` multiplies this rank's input by, in the later calls of this step.

    Fields:
        factor (number): the factor; or, where it is absent,
        tensor (tensor index): a tensor of one element that holds it.
    """
    factor = fields.get("factor")
    state.premul_factor = state.tensors[fields["tensor"]] if factor is None else factor
