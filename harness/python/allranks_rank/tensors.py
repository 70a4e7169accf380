"""Makes tensors of the raw bytes from the wire, and brings the same bytes back.

All storages of a step lie in one block of memory, each aligned like torch's own. On the CPU the tensors are views of
that very block, so nothing is copied; on a device each storage is copied there and back.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import torch

#: What torch aligns CPU storages to.
ALIGN = 64

#: The protocol's name of a dtype -> torch's dtype, for those that this torch has.
DTYPES = {
    name: getattr(torch, name)
    for name in (
        "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2 int8 int16 int32 int64 "
        "uint8 uint16 uint32 uint64 bool complex64 complex128"
    ).split()
    if hasattr(torch, name)
}


#: Shape, strides (in elements) and offset (in elements), as ``torch.as_strided`` takes them.
View: TypeAlias = tuple[Sequence[int], Sequence[int], int]


class Place(NamedTuple):
    """Where a tensor on a device has its bytes: which storage, seen as which dtype, and the view of it."""

    storage: int
    dtype: torch.dtype
    view: View


class Storages:
    """The storages of one step."""

    def __init__(self, lengths: Sequence[int]) -> None:
        """Allocates storages of these lengths, in bytes."""
        offsets = []
        end = 0
        for length in lengths:
            offsets.append(end)
            end += -(-length // ALIGN) * ALIGN
        self._block = bytearray(end + ALIGN)
        shift = -torch.frombuffer(self._block, dtype=torch.uint8).data_ptr() % ALIGN
        view = memoryview(self._block)
        self._at = [shift + offset for offset in offsets]
        self._lengths = lengths
        #: The bytes of each storage, writable; on a device they are current only after `read_back`.
        self.views = [view[at : at + length] for at, length in zip(self._at, lengths, strict=True)]
        #: Whole storages that have a copy on the device, each with its copy.
        self._copies: list[tuple[torch.Tensor, torch.Tensor]] = []
        #: The place of each of the step's tensors; None for one on the CPU.
        self._places: list[Place | None] = []

    @property
    def on_device(self) -> bool:
        """Whether there is anything to read back."""
        return bool(self._copies)

    def tensors(
        self, specs: Sequence[dict[str, Any]], device: torch.device | None, pinned: bool = False
    ) -> list[torch.Tensor]:
        """Makes the step's tensors from the bytes in `views`.

        Args:
            specs: the ``step`` frame's ``tensors``.
            device: where to; None is the CPU. A spec with ``host`` stays on the CPU.
            pinned: make them in page-locked memory of the host instead.

        Raises:
            TypeError: this torch has no such dtype.
            RuntimeError: a view leaves its storage. Also whatever the device raises.
        """
        self._copies.clear()
        self._places.clear()
        bases: dict[int, torch.Tensor] = {}
        tensors: list[torch.Tensor] = []
        for spec in specs:
            index, dtype = spec["storage"], DTYPES.get(spec["dtype"])
            if dtype is None:
                raise TypeError(f"torch {torch.__version__} has no dtype {spec['dtype']}")
            if (base := bases.get(index)) is None:
                place = None if spec.get("host") else device
                base = bases[index] = self._base(index, dtype, place, pinned)
            if base.dtype != dtype:  # a storage of two dtypes, or of an odd length
                length = self._lengths[index] // dtype.itemsize * dtype.itemsize
                base = base.view(torch.uint8)[:length].view(dtype)
            view = spec["shape"], spec["strides"], spec["offset"]
            tensors.append(base.as_strided(*view))
            on_cpu = tensors[-1].device.type == "cpu"
            self._places.append(None if on_cpu else Place(index, dtype, view))
        return tensors

    def _base(self, index: int, dtype: torch.dtype, device: torch.device | None, pinned: bool) -> torch.Tensor:
        """Returns a whole storage, flat, as its first tensor sees it: the one form in which it moves to a device."""
        length = self._lengths[index]
        if length == 0:
            return torch.empty(0, dtype=dtype, device=device)
        base = torch.frombuffer(self._block, dtype=torch.uint8, count=length, offset=self._at[index])
        # A copy of booleans may make every byte that is not 0 a 1, and what lies around a tensor is no boolean.
        if length % dtype.itemsize == 0 and dtype != torch.bool:
            base = base.view(dtype)
        if pinned:
            copy = base.pin_memory()
        elif device is None:
            return base
        else:
            copy = base.to(device)
        self._copies.append((base, copy))
        return copy

    def read_back(self) -> None:
        """Copies the bytes on the device back into `views`."""
        for base, copy in self._copies:
            base.copy_(copy)

    def read_each(self, tensors: Sequence[torch.Tensor]) -> None:
        """Copies what the tensors hold back into `views`: for devices where a tensor may part from its storage.

        A tensor whose bytes differ from those that were sent counts as written, and its bytes go to its place. Bytes
        that no such tensor covers stay as they were sent.
        """
        sent = bytearray(self._block)
        for tensor, place in zip(tensors, self._places, strict=False):
            if place is None or tensor.numel() == 0:
                continue
            held = tensor.detach().cpu()
            target, before = (self._on_host(place, block) for block in (self._block, sent))
            if held.shape == target.shape and not torch.equal(raw_bytes(held), raw_bytes(before)):
                target.copy_(held)

    def _on_host(self, place: Place, block: bytearray) -> torch.Tensor:
        """Returns the tensor of a place as a view of ``block``, which is laid out as the storages' own."""
        length = self._lengths[place.storage] // place.dtype.itemsize * place.dtype.itemsize
        base = torch.frombuffer(block, dtype=torch.uint8, count=length, offset=self._at[place.storage])
        return base.view(place.dtype).as_strided(*place.view)


def raw_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor's bytes, as a tensor of ``uint8``."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)
