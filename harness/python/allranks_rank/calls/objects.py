"""Collectives on Python objects, which the library pickles. The objects are any JSON.

Errors of the library are those of `collectives`. What JSON cannot express in a value is sent as its ``repr``.
"""

from typing import Any

import torch.distributed as dist

from .arguments import rank_argument
from .registry import Fields, Index, protocol_call
from .state import CallState


@protocol_call("all_gather_object")
def all_gather_object(state: CallState, fields: Fields, _index: Index) -> list[Any]:
    """Collects every rank's object on every rank.

    Fields:
        group (str): the group.
        object (any): what this rank contributes.

    Value:
        list of W: the objects in rank order.
    """
    group = state.group(fields["group"])
    received = [None] * dist.get_world_size(group)
    dist.all_gather_object(received, fields["object"], group=group)
    return received


@protocol_call("gather_object")
def gather_object(state: CallState, fields: Fields, _index: Index) -> list[Any] | None:
    """Collects every rank's object on the root.

    Fields:
        group (str): the group.
        object (any): what this rank contributes.
        root (rank reference): passed as ``dst``.

    Value:
        list of W, or null: the objects in rank order on the root, null elsewhere.
    """
    group, root = state.group(fields["group"]), fields["root"]
    own_rank = dist.get_rank() if "global" in root else dist.get_rank(group)
    received = [None] * dist.get_world_size(group) if own_rank in root.values() else None
    dist.gather_object(fields["object"], received, group=group, **rank_argument("dst", root))
    return received


@protocol_call("broadcast_object_list")
def broadcast_object_list(state: CallState, fields: Fields, _index: Index) -> list[Any]:
    """Copies the root's list of objects to every rank.

    Fields:
        group (str): the group.
        objects (list): as long on every rank; what it holds counts on the root only.
        root (rank reference): passed as ``src``.

    Value:
        list: the objects that this rank holds afterwards.
    """
    objects = fields["objects"]
    root = rank_argument("src", fields["root"])
    dist.broadcast_object_list(objects, group=state.group(fields["group"]), **root)
    return objects


@protocol_call("scatter_object_list")
def scatter_object_list(state: CallState, fields: Fields, _index: Index) -> Any:
    """Copies the i-th object of the root's list to rank i.

    Fields:
        group (str): the group.
        objects (list of W, null except on the root): one for each rank.
        root (rank reference): passed as ``src``.

    Value:
        any: the object received.
    """
    received = [None]
    root = rank_argument("src", fields["root"])
    dist.scatter_object_list(received, fields["objects"], group=state.group(fields["group"]), **root)
    return received[0]
