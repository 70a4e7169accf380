"""Messages from one rank to another.

The two sides name the same tag, and tensors with the same number of elements and the same dtype. Common errors of the
library: ValueError for a peer that is this rank itself or not in the group, RuntimeError or
``torch.distributed.DistBackendError`` for what the backend refuses or what goes wrong under way.
"""

from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from .arguments import rank_argument
from .registry import Fields, Index, protocol_call
from .state import CallState


def _message(state: CallState, fields: Fields, function: Callable[..., Any], argument: str) -> Any:
    """Calls ``function`` with the message's tensor, group, tag and, as ``argument``, its peer if that is not null."""
    peer = {} if fields["peer"] is None else rank_argument(argument, fields["peer"])
    tensor, group = state.tensors[fields["tensor"]], state.group(fields["group"])
    return function(tensor, group=group, tag=fields.get("tag") or 0, **peer)


@protocol_call("send")
def send(state: CallState, fields: Fields, _index: Index) -> None:
    """Sends a tensor; returns when it may be changed again.

    Fields:
        group (str): the group.
        tensor (tensor index): what is sent.
        peer (rank reference): the receiver, passed as ``dst``.
        tag (int, default 0): what the receiver's tag must be.
    """
    _message(state, fields, dist.send, "dst")


@protocol_call("recv")
def recv(state: CallState, fields: Fields, _index: Index) -> int:
    """Receives a tensor; returns when it is there.

    Fields:
        group (str): the group.
        tensor (tensor index): what it is written to.
        peer (rank reference, or null): the sender, passed as ``src``. Null: from any rank.
        tag (int, default 0): the message's tag.

    Value:
        int: the sender's rank, as the library returns it.
    """
    return _message(state, fields, dist.recv, "src")


@protocol_call("isend")
def isend(state: CallState, fields: Fields, index: Index) -> None:
    """Starts to send a tensor, and keeps the work for ``wait``.

    Fields:
        group (str): the group.
        tensor (tensor index): what is sent. It must not be changed before the work is waited for.
        peer (rank reference): the receiver, passed as ``dst``.
        tag (int, default 0): what the receiver's tag must be.
    """
    state.works[index] = _message(state, fields, dist.isend, "dst")


@protocol_call("irecv")
def irecv(state: CallState, fields: Fields, index: Index) -> None:
    """Starts to receive a tensor, and keeps the work for ``wait``.

    Fields:
        group (str): the group.
        tensor (tensor index): what it is written to. It must not be read before the work is waited for.
        peer (rank reference): the sender, passed as ``src``.
        tag (int, default 0): the message's tag.
    """
    state.works[index] = _message(state, fields, dist.irecv, "src")


@protocol_call("batch_isend_irecv")
def batch_isend_irecv(state: CallState, fields: Fields, _index: Index) -> None:
    """Starts several messages as one batch, then waits for every work that the library returns.

    Fields:
        group (str): the group of all of them.
        ops (list of dict): each with ``direction`` (``send`` or ``recv``), ``tensor`` (tensor index), ``peer`` (rank
            reference) and ``tag`` (int, default 0).
    """
    group = state.group(fields["group"])
    ops = [
        dist.P2POp(
            dist.isend if op["direction"] == "send" else dist.irecv,
            state.tensors[op["tensor"]],
            group=group,
            tag=op.get("tag") or 0,
            **rank_argument("peer", op["peer"]),
        )
        for op in fields["ops"]
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
