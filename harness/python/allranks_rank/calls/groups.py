"""Calls that make, look at and end process groups."""

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from .registry import Fields, Index, protocol_call
from .state import CallState


@protocol_call("init_process_group")
def init_process_group(_state: CallState, fields: Fields, _index: Index) -> Fields:
    """Makes the default group, ``world``.

    Fields:
        backend (str): ``gloo``, ``cpu:gloo,cuda:nccl``, as the library takes it.
        method (str): ``env``: ``init_method="env://"``, rank and world size from the environment. ``tcp``, ``file``:
            ``init_method=url``. ``store``: a ``TCPStore`` at ``url``, passed as ``store=``.
        url (str; not with ``env``): for ``store`` ``host:port``.
        hosts (bool, optional; ``store`` only): whether this rank hosts the store. Absent: rank 0 does.
        rank (int), world_size (int): passed, except with ``env``.
        timeout_s (number): seconds, for the group and the store.
        device_id (str or int, optional): the device the group is bound to: a str as a ``torch.device``, an int as it
            is.

    Value:
        dict: ``rank`` (int), ``world_size`` (int), ``backend`` (str), as the library reports them afterwards.

    Raises:
        ValueError: the arguments contradict each other, or there is a default group already.
        torch.distributed.DistError: ranks that did not come in time, a port that is taken, a backend's own error.
    """
    method, timeout = fields["method"], timedelta(seconds=fields["timeout_s"])
    options: dict[str, Any] = {}
    if method == "env":
        options["init_method"] = "env://"
    elif method == "store":
        host, _, port = fields["url"].rpartition(":")
        hosts = fields["rank"] == 0 if fields.get("hosts") is None else fields["hosts"]
        options["store"] = dist.TCPStore(host, int(port), fields["world_size"], is_master=hosts, timeout=timeout)
    else:
        options["init_method"] = fields["url"]
    if method != "env":
        options.update(rank=fields["rank"], world_size=fields["world_size"])
    if (device_id := fields.get("device_id")) is not None:
        options["device_id"] = device_id if isinstance(device_id, int) else torch.device(device_id)
    dist.init_process_group(fields["backend"], timeout=timeout, **options)
    return {"rank": dist.get_rank(), "world_size": dist.get_world_size(), "backend": dist.get_backend()}


@protocol_call("new_group")
def new_group(state: CallState, fields: Fields, _index: Index) -> Fields:
    """Makes a group of some ranks. Every rank of the world makes this call, unless ``local_sync`` is true.

    Fields:
        name (str): what later calls name it by.
        ranks (list of int): global ranks of the members.
        backend (str, optional): absent: the default group's.
        timeout_s (number): seconds.
        local_sync (bool, default false): true passes ``use_local_synchronization=True``: the members alone wait for
            each other.

    Value:
        dict: ``rank`` (int: in the group, -1 if this rank is no member), ``size`` (int: number of members, 0 if this
        rank is none), and on members ``timeout_s`` (float, or null if the backend reports none).

    Raises:
        ValueError: no default group, or ranks that the world does not have.
        torch.distributed.DistError: a member did not come in time, or a backend's own error.
    """
    timeout = timedelta(seconds=fields["timeout_s"])
    options: dict[str, Any] = {"backend": fields["backend"]} if fields.get("backend") else {}
    if fields.get("local_sync"):
        options["use_local_synchronization"] = True
    return _register(state, fields["name"], dist.new_group(fields["ranks"], timeout=timeout, **options))


@protocol_call("split_group")
def split_group(state: CallState, fields: Fields, _index: Index) -> Fields:
    """Makes a group by splitting the communicator of the world: ``split_group(split_ranks=[ranks])``.

    Fields:
        name (str): what later calls name it by.
        ranks (list of int): global ranks of the members.
        timeout_s (number): seconds.

    Value:
        dict: as of ``new_group``.

    Raises:
        RuntimeError: the world's backend cannot be split, or is not bound to a device.
    """
    timeout = timedelta(seconds=fields["timeout_s"])
    return _register(state, fields["name"], dist.split_group(split_ranks=[fields["ranks"]], timeout=timeout))


def _register(state: CallState, name: str, group: Any) -> Fields:
    """Keeps a new group under its name; returns what the library reports of it (see `new_group`)."""
    if group is None:  # some functions return None on ranks that are no members; as `group=` it is the default group
        group = dist.GroupMember.NON_GROUP_MEMBER
    state.groups[name] = group
    report: Fields = {"rank": dist.get_rank(group), "size": max(dist.get_world_size(group), 0)}
    if report["size"]:
        # A process group written in Python may have no backend beneath it.
        devices = group._device_types
        options = getattr(group._get_backend(devices[0]), "options", None) if devices else None
        timeout = getattr(options, "_timeout", None)
        report["timeout_s"] = timeout and timeout.total_seconds()
    return report


@protocol_call("destroy_process_group")
def destroy_process_group(state: CallState, fields: Fields, _index: Index) -> None:
    """Destroys a group and forgets its name.

    Fields:
        group (str): ``world`` destroys all groups.

    Raises:
        ValueError, AssertionError: there is no such group in the library. The name is kept then.
    """
    name = fields["group"]
    dist.destroy_process_group(state.group(name))
    # A name that outlives its group keeps the group's threads and sockets alive.
    for known in list(state.groups):
        if known != "world" and name in ("world", known):
            del state.groups[known]


@protocol_call("who_am_i")
def who_am_i(state: CallState, fields: Fields, _index: Index) -> Fields:
    """Asks the library for this rank's place in a group.

    Fields:
        group (str): the group.

    Value:
        dict: ``rank`` (int: in the group, -1 if this rank is no member), ``size`` (int: 0 if it is none), ``backend``
        (str, or null if it is none).

    Raises:
        ValueError: there is no default group.
    """
    group = state.group(fields["group"])
    rank = dist.get_rank(group)
    backend = dist.get_backend(group) if rank >= 0 else None
    return {"rank": rank, "size": max(dist.get_world_size(group), 0), "backend": backend}


@protocol_call("abort")
def abort(state: CallState, fields: Fields, _index: Index) -> None:
    """Aborts the backend of a group: ``ProcessGroup.abort()``. Its calls that are under way are to end with errors.

    Fields:
        group (str): the group.

    Raises:
        AttributeError: there is no default group, or this torch cannot abort.
    """
    group = state.group(fields["group"])
    (dist.group.WORLD if group is None else group).abort()
