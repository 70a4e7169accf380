"""Collectives on tensors. Every rank of the group makes the call; shapes are those on one rank.

Common errors of the library: ValueError or TypeError for arguments that it refuses before it starts (a rank that is not
in the group, tensors of different dtypes in a list), RuntimeError or ``torch.distributed.DistBackendError`` for what
the backend refuses or what goes wrong under way (a size that does not fit, a dtype or a reduce op that it has not, a
peer that is gone, a time-out). With ``async_op`` the latter may come from ``wait`` instead.
"""

import torch
import torch.distributed as dist

from .arguments import issue, rank_argument, reduce_op
from .registry import Fields, Index, protocol_call
from .state import CallState


@protocol_call("all_reduce")
def all_reduce(state: CallState, fields: Fields, index: Index) -> None:
    """Reduces a tensor over all ranks, element by element; every rank holds the result.

    Fields:
        group (str): the group.
        tensor (tensor index): input and output, of the same shape on every rank.
        op (reduce op): how elements are combined.
        async_op (bool, default false): keep the work for ``wait``.
    """
    issue(state, fields, index, dist.all_reduce, state.tensors[fields["tensor"]], op=reduce_op(state, fields["op"]))


@protocol_call("all_reduce_coalesced")
def all_reduce_coalesced(state: CallState, fields: Fields, index: Index) -> None:
    """Reduces each tensor of a list over all ranks, in one operation.

    Fields:
        group (str): the group.
        tensors (list of tensor indices): inputs and outputs: as many, and the i-th of the same shape, on every rank.
        op (reduce op): how elements are combined.
        async_op (bool, default false): keep the work for ``wait``.
    """
    tensors = state.select(fields["tensors"])
    issue(state, fields, index, dist.all_reduce_coalesced, tensors, op=reduce_op(state, fields["op"]))


@protocol_call("all_reduce_sparse")
def all_reduce_sparse(state: CallState, fields: Fields, index: Index) -> None:
    """Reduces a sparse COO tensor of one dimension over all ranks, and copies the result, made dense, to ``output``.

    Fields:
        group (str): the group.
        values (tensor index): shape [k]: this rank's values.
        indices (list of int): k positions in ``output``, one for each value.
        output (tensor index): shape [n], the shape of the sparse tensor; written, never read.
        op (reduce op): how elements are combined.
    """
    values, output = state.tensors[fields["values"]], state.tensors[fields["output"]]
    sparse = torch.sparse_coo_tensor([fields["indices"]], values, output.shape)
    issue(state, fields, index, dist.all_reduce, sparse, op=reduce_op(state, fields["op"]))
    output.copy_(sparse.to_dense())


@protocol_call("broadcast")
def broadcast(state: CallState, fields: Fields, index: Index) -> None:
    """Copies the root's tensor to every rank.

    Fields:
        group (str): the group.
        tensor (tensor index): input on the root, output elsewhere; of the same number of elements on every rank.
        root (rank reference): passed as ``src``.
        async_op (bool, default false): keep the work for ``wait``.
    """
    root = rank_argument("src", fields["root"])
    issue(state, fields, index, dist.broadcast, state.tensors[fields["tensor"]], **root)


@protocol_call("reduce")
def reduce(state: CallState, fields: Fields, index: Index) -> None:
    """Reduces a tensor over all ranks; the root alone holds the result.

    Fields:
        group (str): the group.
        tensor (tensor index): input, and on the root the output; of the same shape on every rank.
        op (reduce op): how elements are combined.
        root (rank reference): passed as ``dst``.
        async_op (bool, default false): keep the work for ``wait``.
    """
    root, op = rank_argument("dst", fields["root"]), reduce_op(state, fields["op"])
    issue(state, fields, index, dist.reduce, state.tensors[fields["tensor"]], op=op, **root)


@protocol_call("all_gather")
def all_gather(state: CallState, fields: Fields, index: Index) -> None:
    """Collects every rank's tensor on every rank, as a list.

    Fields:
        group (str): the group.
        outputs (list of W tensor indices): the i-th receives the input of rank i, and has its shape.
        input (tensor index): what this rank contributes.
        async_op (bool, default false): keep the work for ``wait``.
    """
    outputs, input_tensor = state.select(fields["outputs"]), state.tensors[fields["input"]]
    issue(state, fields, index, dist.all_gather, outputs, input_tensor)


@protocol_call("all_gather_coalesced")
def all_gather_coalesced(state: CallState, fields: Fields, index: Index) -> None:
    """Collects a list of tensors of every rank on every rank, in one operation.

    Fields:
        group (str): the group.
        outputs (list of W lists of tensor indices): the j-th tensor of list i receives the j-th input of rank i.
        inputs (list of tensor indices): what this rank contributes.
        async_op (bool, default false): keep the work for ``wait``.
    """
    outputs = [state.select(of_rank) for of_rank in fields["outputs"]]
    issue(state, fields, index, dist.all_gather_coalesced, outputs, state.select(fields["inputs"]))


@protocol_call("all_gather_into_tensor")
def all_gather_into_tensor(state: CallState, fields: Fields, index: Index) -> None:
    """Collects every rank's tensor on every rank, in one tensor.

    Fields:
        group (str): the group.
        output (tensor index): W * n elements, contiguous: the inputs in rank order, concatenated along the first
            dimension or stacked along a new one.
        input (tensor index): n elements, as many on every rank.
        async_op (bool, default false): keep the work for ``wait``.
    """
    output, input_tensor = state.tensors[fields["output"]], state.tensors[fields["input"]]
    issue(state, fields, index, dist.all_gather_into_tensor, output, input_tensor)


@protocol_call("gather")
def gather(state: CallState, fields: Fields, index: Index) -> None:
    """Collects every rank's tensor on the root, as a list.

    Fields:
        group (str): the group.
        input (tensor index): what this rank contributes; of the same shape on every rank.
        outputs (list of W tensor indices, null except on the root): the i-th receives the input of rank i.
        root (rank reference): passed as ``dst``.
        async_op (bool, default false): keep the work for ``wait``.
    """
    root, outputs = rank_argument("dst", fields["root"]), state.select_optional(fields["outputs"])
    issue(state, fields, index, dist.gather, state.tensors[fields["input"]], outputs, **root)


@protocol_call("scatter")
def scatter(state: CallState, fields: Fields, index: Index) -> None:
    """Copies the i-th tensor of the root's list to rank i.

    Fields:
        group (str): the group.
        output (tensor index): receives this rank's tensor; of the same shape on every rank.
        inputs (list of W tensor indices, null except on the root): one for each rank, each of the shape of ``output``.
        root (rank reference): passed as ``src``.
        async_op (bool, default false): keep the work for ``wait``.
    """
    root, inputs = rank_argument("src", fields["root"]), state.select_optional(fields["inputs"])
    issue(state, fields, index, dist.scatter, state.tensors[fields["output"]], inputs, **root)


@protocol_call("reduce_scatter")
def reduce_scatter(state: CallState, fields: Fields, index: Index) -> None:
    """Reduces lists of tensors over all ranks; rank i holds the result of the i-th tensors.

    Fields:
        group (str): the group.
        output (tensor index): receives the reduction of every rank's ``inputs[rank]``, and has its shape.
        inputs (list of W tensor indices): the i-th has the same shape on every rank.
        op (reduce op): how elements are combined.
        async_op (bool, default false): keep the work for ``wait``.
    """
    output, inputs = state.tensors[fields["output"]], state.select(fields["inputs"])
    issue(state, fields, index, dist.reduce_scatter, output, inputs, op=reduce_op(state, fields["op"]))


@protocol_call("reduce_scatter_tensor")
def reduce_scatter_tensor(state: CallState, fields: Fields, index: Index) -> None:
    """Reduces a tensor over all ranks; rank i holds the i-th of W equal parts of the result.

    Fields:
        group (str): the group.
        output (tensor index): n elements, contiguous.
        input (tensor index): W * n elements, contiguous: the parts in rank order, concatenated along the first
            dimension or stacked along a new one.
        op (reduce op): how elements are combined.
        async_op (bool, default false): keep the work for ``wait``.
    """
    output, input_tensor = state.tensors[fields["output"]], state.tensors[fields["input"]]
    op = reduce_op(state, fields["op"])
    issue(state, fields, index, dist.reduce_scatter_tensor, output, input_tensor, op=op)


@protocol_call("all_to_all")
def all_to_all(state: CallState, fields: Fields, index: Index) -> None:
    """Sends the i-th tensor of a list to rank i, and receives one tensor from each rank.

    Fields:
        group (str): the group.
        outputs (list of W tensor indices): the i-th receives what rank i has at this rank's position of its inputs.
        inputs (list of W tensor indices): the i-th goes to rank i.
        async_op (bool, default false): keep the work for ``wait``.
    """
    issue(state, fields, index, dist.all_to_all, state.select(fields["outputs"]), state.select(fields["inputs"]))


@protocol_call("all_to_all_single")
def all_to_all_single(state: CallState, fields: Fields, index: Index) -> None:
    """Splits a tensor along its first dimension, sends the i-th part to rank i, and concatenates what each rank sent.

    Fields:
        group (str): the group.
        output (tensor index): receives the parts in rank order.
        input (tensor index): the parts for each rank, in rank order.
        output_splits (list of W int, or null): rows received from each rank. Null: equal parts.
        input_splits (list of W int, or null): rows sent to each rank. Null: equal parts.
        async_op (bool, default false): keep the work for ``wait``.
    """
    output, input_tensor = state.tensors[fields["output"]], state.tensors[fields["input"]]
    splits = fields["output_splits"], fields["input_splits"]
    issue(state, fields, index, dist.all_to_all_single, output, input_tensor, *splits)


@protocol_call("barrier")
def barrier(state: CallState, fields: Fields, index: Index) -> None:
    """Returns when every rank of the group has made the call.

    Fields:
        group (str): the group.
        async_op (bool, default false): keep the work for ``wait``, and return at once.
    """
    issue(state, fields, index, dist.barrier)


@protocol_call("monitored_barrier")
def monitored_barrier(state: CallState, fields: Fields, _index: Index) -> None:
    """Is a barrier that names a rank which did not come, with the group's time-out.

    Fields:
        group (str): the group.

    Raises:
        RuntimeError: a rank did not come in time; its number is in the message.
        ValueError: the group's backend is not Gloo.
    """
    dist.monitored_barrier(group=state.group(fields["group"]))
