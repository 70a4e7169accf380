"""Storages and tensors: raw bytes from the wire become tensors, and the same bytes go back.

All storages of a step lie in one block of memory, each aligned like torch's own. On the CPU the tensors are views of
that very block, so nothing is copied; on a device each storage is copied there and back.
"""

import torch

#: What torch aligns CPU storages to.
ALIGN = 64

DTYPES = {
    name: getattr(torch, name)
    for name in (
        "float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2 int8 int16 int32 int64 "
        "uint8 uint16 uint32 uint64 bool complex64 complex128"
    ).split()
    if hasattr(torch, name)
}


class Storages:
    """The storages of one step."""

    def __init__(self, lengths):
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
        self.views = [view[at : at + length] for at, length in zip(self._at, lengths)]
        self._copies = []
        #: Where each tensor lies that is not on the CPU: storage, dtype, place in it.
        self._places = []

    @property
    def on_device(self):
        """Whether there is anything to read back."""
        return bool(self._copies)

    def tensors(self, specs, device, pinned=False):
        """The step's tensors on ``device`` (None: the CPU), or in page-locked memory of the host."""
        self._copies.clear()
        self._places.clear()
        bases = {}
        tensors = []
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
            where = spec["shape"], spec["strides"], spec["offset"]
            tensors.append(base.as_strided(*where))
            is_here = tensors[-1].device.type == "cpu"
            self._places.append(None if is_here else (index, dtype, where))
        return tensors

    def _base(self, index, dtype, device, pinned):
        """A whole storage, flat, as its first tensor sees it: the one form in which it moves to a device."""
        length = self._lengths[index]
        if length == 0:
            return torch.empty(0, dtype=dtype, device=device)
        base = torch.frombuffer(
            self._block, dtype=torch.uint8, count=length, offset=self._at[index]
        )
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

    def read_back(self):
        """Brings the bytes on the device back into `views`."""
        for base, copy in self._copies:
            base.copy_(copy)

    def read_each(self, tensors):
        """In place of `read_back`, where a tensor may part from the storage it is a view of: what the tensors hold.

        Whatever shows another value than was sent counts as written, through whichever tensor it is seen; what lies
        between and around them is as it was sent.
        """
        sent = bytearray(self._block)
        for tensor, view in zip(tensors, self._places):
            if view is None or tensor.numel() == 0:
                continue
            (index, dtype, where), here = view, tensor.detach().cpu()
            there, before = (self._host(index, dtype, of).as_strided(*where) for of in (self._block, sent))
            if here.shape == there.shape and not torch.equal(raw(here), raw(before)):
                there.copy_(here)

    def _host(self, index, dtype, block):
        """A whole storage in a block of this shape, flat."""
        length = self._lengths[index] // dtype.itemsize * dtype.itemsize
        return torch.frombuffer(
            block, dtype=torch.uint8, count=length, offset=self._at[index]
        ).view(dtype)


def raw(tensor):
    """A tensor's bytes."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)
